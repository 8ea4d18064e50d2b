"""The construction of tool servers. It is a part of `wiring`, in a file of its own for its length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.access.audit_log import AuditLog
from rookery.engines import embedders, similarity, upstreams
from rookery.engines.similarity.cache import SimilarityCache
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import AgentSessionEnded, EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.sealing import Sealer
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.documents import Discovery
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.lazy_app import Gateway
from rookery.tools.ports import AgentSessionChecker, BuiltinServer, GatewayKeyVerifier, ToolCallLimiter
from rookery.tools.resources import ResourceReader
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.servers.logins import Logins
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.workspace_servers import WorkspaceServers
from rookery.tools.store import catalogue as catalogue_store
from rookery.tools.store import logins as login_store
from rookery.tools.supervision.session_pool import SessionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """The services of tool servers."""

    sessions: SessionPool
    catalogue: Catalogue
    workspace_servers: WorkspaceServers
    kill_switch: KillSwitch
    checker: ServerChecker
    logins: Logins
    egress: EgressGuard
    calls: ToolRunner
    journal: CallBuffer
    analytics: CallAnalytics
    resources: ResourceReader
    gateway: Gateway
    discovery: Discovery
    search: ToolSearch
    similarity_cache: SimilarityCache


def build_tools(
    settings: Settings,
    *,
    builtins: Sequence[BuiltinServer],
    db: Database,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    limits: ToolCallLimiter,
    embedder: embedders.EmbedderEngine,
    audit: AuditLog,
    keys: GatewayKeyVerifier,
    sealer: Sealer,
    agent_sessions: AgentSessionChecker,
    disk_space: DiskSpace,
    environment: Mapping[str, str],
) -> ToolServices:
    """
    Build the services of tool servers. Nothing is started.

    Args:
        environment: The variables that `${NAME}` in servers.json refers to.
    """
    egress = EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private)
    authorities = upstreams.authorities(egress, clock=lambda: clock().timestamp())
    logins = Logins(db, sealer, audit, authorities, clock=clock)
    connectors = upstreams.open(builtins, egress=egress, tokens=logins)
    sessions = SessionPool(connectors, clock=clock, bus=bus)
    entries = [upstreams.build_builtin_entry(builtin) for builtin in builtins]
    registry = ServerRegistry(builtins=entries, path=settings.servers_file, environment=environment, clock=clock)
    workspace_servers = WorkspaceServers(
        db,
        registry,
        sealer,
        audit,
        egress,
        clock=clock,
        ids=ids,
        allow_commands=settings.server_commands,
        removal_hooks=[catalogue_store.delete_snapshot, login_store.delete_logins],
    )
    catalogue = Catalogue(db, sessions, registry, clock=clock, refresh_added=workspace_servers.refresh)

    def reconnect(server_key: str) -> None:
        server = registry.servers.get(server_key)
        if server is not None:
            sessions.drain(server_key)
            catalogue.refresh(server)

    logins.change_listeners.append(reconnect)
    call_buffer, kill_switch = CallBuffer(db, bus=bus), KillSwitch(db, audit, clock)
    calls = ToolRunner(
        catalogue,
        sessions,
        call_buffer,
        limits,
        agent_sessions=agent_sessions,
        kill_switch=kill_switch,
        keep_arguments=settings.tool_arguments,
        disk_space=disk_space,
        clock=clock,
        ids=ids,
    )
    bus.subscribe(AgentSessionEnded, lambda event: sessions.close_agent_session(event.workspace_id, event.session_id))
    similarity_cache = similarity.open(embedder)
    resources, search = ResourceReader(catalogue, sessions, kill_switch), ToolSearch(catalogue, registry, similarity_cache)
    return ToolServices(
        sessions=sessions,
        catalogue=catalogue,
        workspace_servers=workspace_servers,
        kill_switch=kill_switch,
        checker=ServerChecker(connectors, on_features=catalogue.store_checked),
        logins=logins,
        egress=egress,
        calls=calls,
        journal=call_buffer,
        analytics=CallAnalytics(db, call_buffer),
        resources=resources,
        gateway=Gateway(catalogue=catalogue, calls=calls, resources=resources, search=search, keys=keys),
        discovery=Discovery(catalogue, sessions, mcp_address=settings.public_url_of("/mcp"), organization=settings.organization),
        search=search,
        similarity_cache=similarity_cache,
    )
