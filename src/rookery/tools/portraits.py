"""Servers and calls as they are shown: to callers by HTTP, and to the outside when they change (D-81)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.wire import plain
from rookery.tools.catalogue import Catalogue
from rookery.tools.models import CallRow, JsonObject, Server
from rookery.tools.resources import Resources
from rookery.tools.schemas import CallShown, HiddenTool, ServerAnswer, ServerSummary, SessionShown, StandingShown
from rookery.tools.store import calls
from rookery.tools.supervision.sessions import Sessions
from rookery.tools.supervision.standing import SessionStanding, Standing, percentile
from rookery.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class ServerPortraits:
    """What is known of a server, as one caller may see it; no upstream is asked."""

    catalogue: Catalogue
    sessions: Sessions
    resources: Resources

    def summary(self, caller: Caller, server: Server, known: Collection[str]) -> ServerSummary:
        """Show a server; of those that it names, the ones that are *known* to the caller."""
        return ServerSummary(
            id=server.id,
            name=server.name,
            tagline=server.tagline,
            status=server.status.value,
            health=self.sessions.condition(server, caller.workspace_id).health.value,
            tool_count=len(self.catalogue.tools(caller, server)),
            resource_count=len(self.catalogue.offer(server, caller).resources),
            icon=server.icon,
            use_when=server.use_when,
            related_servers=[each for each in server.related_servers if each in known],
        )

    def whole(self, caller: Caller, server: Server, *, with_standing: bool) -> ServerAnswer:
        """Show a server with what it offers; *with_standing*: and how its sessions do, which names processes."""
        condition, offer = self.sessions.condition(server, caller.workspace_id), self.catalogue.offer(server)
        known = {each.id for each in self.catalogue.servers(caller)}
        return ServerAnswer(
            **self.summary(caller, server, known).model_dump(),
            description=server.description,
            instructions=offer.instructions,
            last_error=(condition.last_error or None) if with_standing else None,
            stderr=(list(condition.stderr) or None) if with_standing else None,
            standing=_standing(self.sessions.standing(server, caller.workspace_id)) if with_standing else None,
            hidden_tools=[
                HiddenTool(name=name, reason="It runs only as a task (execution.taskSupport is required), which Rookery does not support.")
                for name in self.catalogue.task_tools(caller, server)
            ]
            if with_standing
            else None,
            seen_at=self.catalogue.seen_at(server),
            tools=definitions(self.catalogue.tools(caller, server)),
            resources=self.resources.listed(server, caller),
        )

    def told(self, viewer: Caller, server_key: str, health: str) -> Mapping[str, object] | None:
        """Return a server as it was when its *health* changed: it may be up again already. None: *viewer* does not see it."""
        server = next((each for each in self.catalogue.servers(viewer) if each.key == server_key), None)
        return None if server is None else {**plain(self.whole(viewer, server, with_standing=False)), "health": health}


def call(tx: Tx, workspace_id: int, call_id: str) -> Mapping[str, object]:
    """Return a call as the list of calls shows it; of one whose row is gone, its id."""
    row = calls.find_call(tx, workspace_id, call_id)
    return {"id": call_id} if row is None else plain(call_shown(row))


def call_shown(row: CallRow) -> CallShown:
    """Show a call."""
    return CallShown(
        id=row.id,
        server=row.server_id,
        tool=row.tool,
        key_id=row.key_id,
        key_kind=row.key_kind,
        agent_id=row.agent_id,
        session_id=row.session_id,
        success=row.success,
        code=row.code,
        error=row.error,
        cached=row.cached,
        duration_ms=round(row.duration_ms),
        duration_exact_ms=round(row.duration_ms, 3),
        arguments_bytes=row.arguments_bytes,
        result_bytes=row.result_bytes,
        arguments=row.arguments,
        request_id=row.request_id,
        called_at=row.called_at,
    )


def definitions(tools: list[Tool]) -> list[JsonObject]:
    """Return what tools say of themselves."""
    return [tool.definition for tool in tools]


def _standing(standing: Standing) -> StandingShown:
    return StandingShown(
        state=standing.state,
        restarts=standing.restarts,
        in_flight=standing.in_flight,
        queued=standing.queued,
        p50_ms=_rounded(standing.percentile_ms(0.5)),
        p95_ms=_rounded(standing.percentile_ms(0.95)),
        sessions=[_session(each) for each in standing.sessions],
    )


def _session(session: SessionStanding) -> SessionShown:
    return SessionShown(
        state=session.state,
        pid=session.pid,
        era=session.era,
        software=session.software or None,
        uptime_s=_rounded(session.uptime_s),
        restarts=session.restarts,
        in_flight=session.in_flight,
        queued=session.queued,
        p50_ms=_rounded(percentile(session.took_ms, 0.5)),
        p95_ms=_rounded(percentile(session.took_ms, 0.95)),
        last_error=session.last_error or None,
        retry_s=_rounded(session.retry_s),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
