"""Connections to servers that run as child processes, over their pipes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

from mcp.client._transport import TransportStreams  # the SDK exports it nowhere else

from rookery.engines.upstreams.mcp_session import McpSession, open_session
from rookery.engines.upstreams.process import ProcessReadStream, ProcessWriteStream, run_process
from rookery.tools.models import CommandTarget, Server


class StdioConnector:
    """A `Connector` that starts a child process for each session."""

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[McpSession]:
        """Start the server and open a session with it."""
        del workspace_id
        if not isinstance(server.target, CommandTarget):
            msg = f"{server.id} has no command"
            raise TypeError(msg)
        async with (
            run_process(server.target, on_stderr) as (process, incoming, outgoing),
            open_session(
                _pipes(incoming, outgoing), process, on_changed=on_changed, requests=process.dispatcher, roots=server.roots
            ) as session,
        ):
            yield session


@contextlib.asynccontextmanager
async def _pipes(incoming: ProcessReadStream, outgoing: ProcessWriteStream) -> AsyncGenerator[TransportStreams]:
    yield incoming, outgoing
