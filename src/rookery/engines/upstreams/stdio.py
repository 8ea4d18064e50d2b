"""Servers that we start ourselves and speak with over their pipes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else

from rookery.engines.upstreams.child import Incoming, Outgoing, run_child
from rookery.engines.upstreams.relay import Relay, open_relay
from rookery.tools.models import Command, Server


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
    ) -> AsyncGenerator[Relay]:
        """Start the server and open a session with it."""
        del workspace_id
        if not isinstance(server.target, Command):
            msg = f"{server.id} is no command"
            raise TypeError(msg)
        async with (
            run_child(server.target, on_stderr) as (child, incoming, outgoing),
            open_relay(_pipes(incoming, outgoing), child, on_changed=on_changed, requests=child.direct, roots=server.roots) as relay,
        ):
            yield relay


@contextlib.asynccontextmanager
async def _pipes(incoming: Incoming, outgoing: Outgoing) -> AsyncGenerator[TransportStreams]:
    yield incoming, outgoing
