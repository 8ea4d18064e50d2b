"""The services of tool servers, each built on first use, and the registration of the domain."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Protocol

from rookery.access.build import AccessServices
from rookery.access.events import KeyChanged
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import CALL_LOCKS_FOLDER, DiskSpace
from rookery.kernel.domain import Domain
from rookery.kernel.egress import EgressGuard
from rookery.kernel.http import Operation
from rookery.kernel.http.cross_origin import list_allowed_origins
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.sealing import Sealer
from rookery.kernel.server_group import ServerGroup
from rookery.tools.api.analytics import AnalyticsApi
from rookery.tools.api.calls import ToolCallApi
from rookery.tools.api.discovery import DiscoveryApi
from rookery.tools.api.listing import ListingApi
from rookery.tools.api.logins import CALLBACK_PATH, LoginApi
from rookery.tools.api.pages import HtmlPages
from rookery.tools.api.servers import WorkspaceServerApi
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.documents import Discovery
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.lazy_app import Gateway
from rookery.tools.gateway.routes import GatewayApi
from rookery.tools.gateway.session_ids import ClientSessionIds
from rookery.tools.models import Server, ServerKind
from rookery.tools.ports import (
    AgentSessionChecker,
    AuthorizationServers,
    BuiltinServer,
    Connector,
    NegotiatedProtocols,
    TextSimilarity,
    TokenProvider,
)
from rookery.tools.recent_links import RecentLinks, delete_links_of_ended_key
from rookery.tools.resources import ResourceReader
from rookery.tools.serializers import ServerSerializer
from rookery.tools.servers.file_audit import ServersFileAudit
from rookery.tools.servers.health_file import HealthFile
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.servers.logins import Logins
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.workspace_servers import WorkspaceServers
from rookery.tools.store import calls, catalogue, logins, mcp_sessions, recent_links, servers
from rookery.tools.store import catalogue as catalogue_store
from rookery.tools.store import logins as login_store
from rookery.tools.store import mcp_sessions as protocol_store
from rookery.tools.store import recent_links as link_store
from rookery.tools.store.mcp_sessions import StoredProtocols
from rookery.tools.supervision.session_pool import SessionPool
from rookery.tools.supervision.state_lock import CallLocks
from rookery.usage.build import UsageServices


class ConnectorFactory(Protocol):
    """Opens the connectors to every kind of tool server."""

    def __call__(
        self, builtins: Sequence[BuiltinServer], *, egress: EgressGuard, tokens: TokenProvider, protocols: NegotiatedProtocols
    ) -> Mapping[ServerKind, Connector]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPorts:
    """
    The implementations that the tools domain gets from engines and other domains.

    Attributes:
        list_tool_servers: Returns the built-in servers, whose tools are operations of all domains.
        build_entry: Returns the entry of a built-in server in the catalogue.
        environment: The variables that `${NAME}` in servers.json refers to. None: those of this process.
    """

    list_tool_servers: Callable[[], Sequence[BuiltinServer]]
    build_entry: Callable[[BuiltinServer], Server]
    open_connectors: ConnectorFactory
    authorities: AuthorizationServers
    similarity: TextSimilarity
    agent_sessions: AgentSessionChecker
    environment: Mapping[str, str] | None = None


class ToolServices:
    """Tool servers, their catalogue, calls, the MCP endpoint and discovery."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ports = runtime.use(ToolPorts)
        self._access = runtime.use(AccessServices)
        self._egress = runtime.use(EgressGuard)
        self._builtins = self._ports.list_tool_servers()

    @cached_property
    def logins(self) -> Logins:
        runtime = self._runtime
        logins = Logins(runtime.db, runtime.use(Sealer), self._access.audit, self._ports.authorities, clock=runtime.clock)
        logins.change_listeners.append(self._reconnect)
        return logins

    def _reconnect(self, server_key: str) -> None:
        server = self.registry.servers.get(server_key)
        if server is not None:
            self.sessions.drain(server_key)
            self.catalogue.refresh(server)

    @cached_property
    def _connectors(self) -> Mapping[ServerKind, Connector]:
        protocols = StoredProtocols(self._runtime.db, clock=self._runtime.clock)
        return self._ports.open_connectors(self._builtins, egress=self._egress, tokens=self.logins, protocols=protocols)

    @cached_property
    def sessions(self) -> SessionPool:
        settings = self._runtime.settings
        locks = CallLocks(settings.data_dir / CALL_LOCKS_FOLDER) if settings.workers > 1 else None
        return SessionPool(self._connectors, clock=self._runtime.clock, bus=self._runtime.bus, call_locks=locks)

    @cached_property
    def registry(self) -> ServerRegistry:
        return ServerRegistry(
            builtins=[self._ports.build_entry(builtin) for builtin in self._builtins],
            path=self._runtime.settings.servers_file,
            environment=os.environ if self._ports.environment is None else self._ports.environment,
            clock=self._runtime.clock,
        )

    @cached_property
    def file_audit(self) -> ServersFileAudit:
        return ServersFileAudit(self._runtime.db, self._access.audit, self._runtime.settings.servers_file)

    @cached_property
    def workspace_servers(self) -> WorkspaceServers:
        runtime = self._runtime
        return WorkspaceServers(
            runtime.db,
            self.registry,
            runtime.use(Sealer),
            self._access.audit,
            self._egress,
            clock=runtime.clock,
            ids=runtime.ids,
            allow_commands=runtime.settings.server_commands,
            removal_hooks=[
                catalogue_store.delete_snapshot,
                login_store.delete_logins,
                protocol_store.delete_negotiated,
                link_store.delete_links_of_server,
            ],
        )

    @cached_property
    def catalogue(self) -> Catalogue:
        refresh_added = self.workspace_servers.refresh
        return Catalogue(self._runtime.db, self.sessions, self.registry, clock=self._runtime.clock, refresh_added=refresh_added)

    @cached_property
    def call_log(self) -> CallBuffer:
        call_log = CallBuffer(self._runtime.db, self._runtime.use(UsageServices).ledger, bus=self._runtime.bus)
        self._runtime.on_close(call_log.aclose)
        return call_log

    @cached_property
    def kill_switch(self) -> KillSwitch:
        return KillSwitch(self._runtime.db, self._access.audit, self._runtime.clock)

    @cached_property
    def calls(self) -> ToolRunner:
        runtime = self._runtime
        return ToolRunner(
            self.catalogue,
            self.sessions,
            self.call_log,
            self._access.tool_limiter,
            self.recent_links,
            agent_sessions=self._ports.agent_sessions,
            kill_switch=self.kill_switch,
            keep_arguments=runtime.settings.tool_arguments,
            disk_space=runtime.use(DiskSpace),
            shares=runtime.shares,
            clock=runtime.clock,
            ids=runtime.ids,
        )

    @cached_property
    def analytics(self) -> CallAnalytics:
        return CallAnalytics(self._runtime.db, self.call_log)

    @cached_property
    def recent_links(self) -> RecentLinks:
        links = RecentLinks(self._runtime.db, self._runtime.clock)
        self._runtime.on_close(links.aclose)
        return links

    @cached_property
    def resources(self) -> ResourceReader:
        return ResourceReader(self.catalogue, self.sessions, self.recent_links, self.kill_switch)

    @cached_property
    def search(self) -> ToolSearch:
        return ToolSearch(self.catalogue, self.registry, self._ports.similarity)

    @cached_property
    def gateway(self) -> Gateway:
        runtime = self._runtime
        return Gateway(
            catalogue=self.catalogue,
            calls=self.calls,
            resources=self.resources,
            search=self.search,
            keys=self._access.guard,
            session_ids=ClientSessionIds(runtime.db, runtime.use(Sealer), runtime.use(ServerGroup), runtime.clock),
            group=runtime.use(ServerGroup),
            builtins=self._builtins,
            max_name_length=self._runtime.settings.mcp_name_length,
        )

    @cached_property
    def discovery(self) -> Discovery:
        settings = self._runtime.settings
        return Discovery(self.catalogue, self.sessions, mcp_address=settings.public_url_of("/mcp"), organization=settings.organization)

    @cached_property
    def health_file(self) -> HealthFile:
        return HealthFile(self._runtime.settings.data_dir)

    async def report_health(self) -> None:
        """Write the health of the servers of the file for commands on this host."""
        await self.health_file.update(self.discovery.report_health())

    @cached_property
    def checker(self) -> ServerChecker:
        return ServerChecker(self._connectors, on_features=self.catalogue.store_checked, process_count=self._runtime.settings.workers)

    @cached_property
    def serializer(self) -> ServerSerializer:
        return ServerSerializer(self.catalogue, self.sessions, self.resources, self.discovery, process_count=self._runtime.settings.workers)


TOOLS_PREFIX = "/api/v1/mcp"


def list_operations(services: ToolServices, settings: Settings, clock: Clock) -> list[tuple[str, Sequence[Operation]]]:
    """Return all operations under their prefixes. A call also has a path at the root."""
    catalogue, sessions = services.catalogue, services.sessions
    calls = ToolCallApi(catalogue, services.calls, services.resources).operations()
    logins = LoginApi(services.logins, catalogue, clock, settings.public_url_of(CALLBACK_PATH))
    discovery = DiscoveryApi(
        catalogue=catalogue,
        discovery=services.discovery,
        search=services.search,
        api=settings.public_url_of(TOOLS_PREFIX) + TOOLS_PREFIX,
        is_public=settings.is_discovery_public,
        pages=HtmlPages(has_docs=settings.has_api_docs),
    )
    listing = ListingApi(catalogue, services.resources, services.serializer)
    aliases = [replace(operation, path=f"/mcp{operation.path}") for operation in calls if operation.path == "/tools/call"]
    added_servers = WorkspaceServerApi(services.workspace_servers, catalogue, sessions, services.checker, services.kill_switch)
    return [
        (TOOLS_PREFIX, [*listing.operations(), *calls, *discovery.api_operations()]),
        ("", [*discovery.host_operations(), *aliases, *logins.host_operations()]),
        ("", GatewayApi(services.gateway, list_allowed_origins(settings)).operations()),
        ("/api/v1", [*added_servers.operations(), *logins.operations()]),
        ("/api/agent", AnalyticsApi(catalogue, services.analytics).operations()),
    ]


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
