"""The tool servers, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.access.audit import Audit
from rookery.engines import embedders, meanings, upstreams
from rookery.engines.meanings.embedded import Nearness
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import AgentSessionEnded, Bus
from rookery.kernel.ids import Ids
from rookery.kernel.sealing import Sealer
from rookery.tools.calling.analytics import Analytics
from rookery.tools.calling.calls import Calls
from rookery.tools.calling.journal import Journal
from rookery.tools.catalogue import Catalogue
from rookery.tools.finding.discovery import Discovery
from rookery.tools.finding.tool_search import ToolSearch
from rookery.tools.gateway.door import Gateway
from rookery.tools.gateway.keys import Keys
from rookery.tools.ports import AgentSessions, BuiltinServer, ToolLimits
from rookery.tools.resources import Resources
from rookery.tools.servers.brakes import Brakes
from rookery.tools.servers.checking import Checker
from rookery.tools.servers.logins import Logins
from rookery.tools.servers.owned import Owned
from rookery.tools.servers.roster import Roster
from rookery.tools.store import catalogue as catalogue_store
from rookery.tools.store import logins as login_store
from rookery.tools.supervision.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """The tool servers."""

    sessions: Sessions
    catalogue: Catalogue
    owned: Owned
    brakes: Brakes
    checker: Checker
    logins: Logins
    egress: EgressGuard
    calls: Calls
    journal: Journal
    analytics: Analytics
    resources: Resources
    gateway: Gateway
    discovery: Discovery
    search: ToolSearch
    nearness: Nearness


def build_tools(
    settings: Settings,
    *,
    builtins: Sequence[BuiltinServer],
    db: Database,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    limits: ToolLimits,
    embedder: embedders.Engine,
    audit: Audit,
    keys: Keys,
    sealer: Sealer,
    agent_sessions: AgentSessions,
    disk_space: DiskSpace,
    environment: Mapping[str, str],
) -> ToolServices:
    """
    Put the tool servers together; nothing is started yet.

    Args:
        environment: What `${NAME}` in servers.json stands for.
    """
    egress = EgressGuard(allow=settings.egress_allow, private=settings.egress_private)
    authorities = upstreams.authorities(egress, clock=lambda: clock().timestamp())
    logins = Logins(db, sealer, audit, authorities, clock=clock)
    connectors = upstreams.open(builtins, egress=egress, tokens=logins)
    sessions = Sessions(connectors, clock=clock, bus=bus)
    entries = [upstreams.entry_of(builtin) for builtin in builtins]
    roster = Roster(builtins=entries, path=settings.servers_file, environment=environment, clock=clock)
    owned = Owned(
        db,
        roster,
        sealer,
        audit,
        egress,
        clock=clock,
        ids=ids,
        with_commands=settings.server_commands,
        forget=[catalogue_store.forget_snapshot, login_store.forget],
    )
    catalogue = Catalogue(db, sessions, roster, clock=clock, keep_up=owned.keep_up)

    def log_in_anew(server_key: str) -> None:
        server = roster.servers.get(server_key)
        if server is not None:
            sessions.retire(server_key)
            catalogue.look_at(server)

    logins.changed.append(log_in_anew)
    journal, brakes = Journal(db, bus=bus), Brakes(db, audit, clock)
    calls = Calls(
        catalogue,
        sessions,
        journal,
        limits,
        agent_sessions=agent_sessions,
        brakes=brakes,
        keep_arguments=settings.tool_arguments,
        disk_space=disk_space,
        clock=clock,
        ids=ids,
    )
    bus.subscribe(AgentSessionEnded, lambda event: sessions.end_session(event.workspace_id, event.session_id))
    nearness = meanings.open(embedder)
    resources, search = Resources(catalogue, sessions, brakes), ToolSearch(catalogue, roster, nearness)
    return ToolServices(
        sessions=sessions,
        catalogue=catalogue,
        owned=owned,
        brakes=brakes,
        checker=Checker(connectors, keep=catalogue.keep_checked),
        logins=logins,
        egress=egress,
        calls=calls,
        journal=journal,
        analytics=Analytics(db, journal),
        resources=resources,
        gateway=Gateway(catalogue=catalogue, calls=calls, resources=resources, search=search, keys=keys),
        discovery=Discovery(catalogue, sessions, mcp_address=settings.address_of("/mcp"), organization=settings.organization),
        search=search,
        nearness=nearness,
    )
