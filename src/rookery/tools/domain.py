"""The registration of the tools domain: tool servers, calls, the MCP endpoint and discovery."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from rookery.access.events import KeyChanged
from rookery.kernel.domain import Domain
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.tools.api import list_operations
from rookery.tools.recent_links import delete_links_of_ended_key
from rookery.tools.store import calls, catalogue, logins, mcp_sessions, recent_links, servers
from rookery.tools.wiring import ToolServices


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services, settings = runtime.use(ToolServices), runtime.settings
    retention = timedelta(days=settings.tool_calls_days)
    runtime.bus.add_recorder(KeyChanged, delete_links_of_ended_key)

    async def delete_old_rows() -> int:
        now = runtime.clock()
        ended_count = await runtime.db.write(lambda tx: mcp_sessions.delete_expired(tx, now=now))
        link_count = await services.recent_links.delete_old()
        return ended_count + link_count + await runtime.db.write(lambda tx: calls.delete_calls(tx, called_before=now - retention))

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        if not serves:
            return
        await services.sessions.start()
        stack.push_async_callback(services.sessions.aclose)
        await services.catalogue.start()
        stack.push_async_callback(services.catalogue.aclose)
        stack.push_async_callback(services.logins.aclose)
        stack.push_async_callback(services.gateway.aclose)
        stack.callback(services.health_file.remove)

    async def probe_servers_file() -> str:
        # The reason is only logged. This response needs no key, and the reason contains names of files and variables.
        return "ok" if services.catalogue.file_state.error is None else "servers.json is invalid; the last valid version is in use"

    return Domain(
        operations=list_operations(services, settings, runtime.clock),
        periodic_tasks=[
            PeriodicTask(name="old tool rows", interval_s=3600, run=delete_old_rows),
            PeriodicTask(name="embeddings of new tools", interval_s=10, run=services.search.preload_embeddings, needs_tool_servers=True),
            PeriodicTask(name="changes of servers.json", interval_s=2, run=services.file_audit.run_periodic),
            PeriodicTask(name="changed logins", interval_s=1, run=services.logins.refresh, needs_tool_servers=True),
            PeriodicTask(name="health of tool servers", interval_s=1, run=services.report_health, needs_tool_servers=True),
        ],
        probes={"servers": probe_servers_file},
        purgers=[
            calls.purge,
            servers.purge,
            logins.purge,
            catalogue.purge,
            mcp_sessions.purge,
            mcp_sessions.purge_ended,
            recent_links.purge,
        ],
        sealed_columns=[servers.SEALED_COLUMN, logins.SEALED_COLUMN],
        start=start,
        close_streams=services.gateway.close_streams,
    )
