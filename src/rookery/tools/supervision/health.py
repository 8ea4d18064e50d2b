"""Health of servers and sessions, per workspace."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from rookery.kernel.clock import Clock
from rookery.tools.models import HealthStatus, Server

SessionState: TypeAlias = Literal["open", "opening", "waiting", "closed"]
"""The state of a session. open: ready; opening; waiting: in back-off after a failure; closed: not open until a call needs it."""

_STATES_BY_PREFERENCE: tuple[SessionState, ...] = ("open", "opening", "waiting", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """
    The health of one session.

    Attributes:
        pid: The id of the server's process. None if Rookery did not start it.
        protocol_version: The negotiated protocol revision.
        restarts: The number of times it was reopened after a failure.
        retry_s: Seconds until the next attempt, while it is waiting.
        durations_ms: Durations of its last calls.
    """

    state: SessionState
    pid: int | None = None
    protocol_version: str | None = None
    software: str = ""
    uptime_s: float | None = None
    restarts: int = 0
    last_error: str = ""
    in_flight: int = 0
    queued: int = 0
    retry_s: float | None = None
    durations_ms: tuple[float, ...] = ()

    @property
    def p50_ms(self) -> float | None:
        """The median duration of its last calls."""
        return percentile(self.durations_ms, 0.5)

    @property
    def p95_ms(self) -> float | None:
        """The duration that 95 % of its last calls did not exceed."""
        return percentile(self.durations_ms, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealth:
    """The health of one server for one workspace: its own sessions and those that all workspaces share."""

    sessions: tuple[SessionHealth, ...] = ()

    @property
    def state(self) -> SessionState:
        """The best state among its sessions, which the next call uses."""
        for state in _STATES_BY_PREFERENCE:
            if any(session.state == state for session in self.sessions):
                return state
        return "closed"

    @property
    def restarts(self) -> int:
        """The restarts of all its sessions."""
        return sum(session.restarts for session in self.sessions)

    @property
    def in_flight(self) -> int:
        """The number of running calls."""
        return sum(session.in_flight for session in self.sessions)

    @property
    def queued(self) -> int:
        """The number of queued calls."""
        return sum(session.queued for session in self.sessions)

    @property
    def p50_ms(self) -> float | None:
        """The median duration of the last calls."""
        return self._percentile_ms(0.5)

    @property
    def p95_ms(self) -> float | None:
        """The duration that 95 % of the last calls did not exceed."""
        return self._percentile_ms(0.95)

    def _percentile_ms(self, fraction: float) -> float | None:
        return percentile((duration for session in self.sessions for duration in session.durations_ms), fraction)


def percentile(values: Iterable[float], fraction: float) -> float | None:
    """Return the smallest of *values* that *fraction* of them do not exceed, or None without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(fraction * len(ordered)) - 1, 0)] if ordered else None


@dataclass(slots=True, kw_only=True)
class HealthState:
    """The last recorded health of a server. `sequence` orders the records of one server."""

    health: HealthStatus = HealthStatus.UNKNOWN
    last_error: str = ""
    stderr: tuple[str, ...] = ()
    changed_at: datetime | None = None
    sequence: int = 0

    def update(self, health: HealthStatus, error: str, clock: Clock, stderr: tuple[str, ...] = ()) -> bool:
        """Record a health; return whether it changed."""
        has_changed = self.health is not health
        self.health, self.last_error, self.stderr = health, error, stderr
        if has_changed:
            self.changed_at = clock()
        return has_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTransition:
    """A workspace for which a server's health changed. None: all workspaces except *except_workspaces*."""

    workspace_id: int | None
    except_workspaces: frozenset[int]


@dataclass(slots=True)
class _ServerHealthRecord:
    overall: HealthState = field(default_factory=HealthState)
    by_workspace: dict[int | None, HealthState] = field(default_factory=dict[int | None, HealthState])
    record_count: int = 0


class HealthTracker:
    """
    The last health of each server: for the operator, and for each workspace from its own and shared sessions.

    The health is kept per workspace, because the last output of a process that serves one workspace may contain its data.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _ServerHealthRecord] = {}

    def get_state(self, server: Server, workspace_id: int | None) -> HealthState:
        """Return the health of *server* for a workspace, or overall for the operator (None)."""
        record = self._records.get(server.key)
        if record is None:
            return HealthState()
        if workspace_id is None:
            return record.overall
        views = [view for view in (record.by_workspace.get(None), record.by_workspace.get(workspace_id)) if view is not None]
        return max(views, key=lambda view: view.sequence, default=HealthState())

    def record(
        self,
        server: Server,
        workspace_id: int | None,
        health: HealthStatus,
        error: str,
        *,
        overall: HealthStatus,
        stderr: tuple[str, ...] = (),
    ) -> list[HealthTransition]:
        """Record the health of a session of a workspace (None: shared). Return the workspaces for which the server's health changed."""
        record = self._records.setdefault(server.key, _ServerHealthRecord())
        record.record_count += 1
        record.overall.update(overall, error, self._clock, stderr)
        own_workspaces = [workspace_id for workspace_id in record.by_workspace if workspace_id is not None]
        affected = [workspace_id] if workspace_id is not None else own_workspaces
        transitions = [
            HealthTransition(workspace_id=workspace_id, except_workspaces=frozenset())
            for workspace_id in affected
            if self.get_state(server, workspace_id).health is not health
        ]
        view = record.by_workspace.setdefault(workspace_id, HealthState())
        if view.update(health, error, self._clock, stderr) and workspace_id is None:
            transitions.append(HealthTransition(workspace_id=None, except_workspaces=frozenset(own_workspaces)))
        view.sequence = record.record_count
        return transitions

    def forget(self, server_key: str) -> None:
        """Drop the health of a server whose entry changed or was removed."""
        self._records.pop(server_key, None)
