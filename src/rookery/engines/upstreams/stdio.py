"""Servers that we start ourselves and speak with over their pipes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else

from rookery.engines.upstreams.mcp_session import McpSession, open_session
from rookery.engines.upstreams.process import ProcessReadStream, ProcessWriteStream, run_process
from rookery.tools.models import CommandTarget, Server


class StdioConnector:
    """Starts a child process for every session; see `Connector`."""

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
            msg = f"{server.id} is no command"
            raise TypeError(msg)
        async with (
            run_process(server.target, on_stderr) as (child, incoming, outgoing),
            open_session(_pipes(incoming, outgoing), child, on_changed=on_changed, requests=child.dispatcher, roots=server.roots) as relay,
        ):
            yield relay


@contextlib.asynccontextmanager
async def _pipes(incoming: ProcessReadStream, outgoing: ProcessWriteStream) -> AsyncGenerator[TransportStreams]:
    yield incoming, outgoing
