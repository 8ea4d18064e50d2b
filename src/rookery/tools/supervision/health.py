"""How servers and their sessions do: what is kept of it, for whom, and how it is told (D-12, D-33)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from rookery.kernel.clock import Clock
from rookery.tools.models import HealthStatus, Server

SessionState: TypeAlias = Literal["open", "opening", "waiting", "closed"]
"""Of a session: ready; being opened; left alone after a failure; not open, until a call wants it."""

_STATES_BY_PREFERENCE: tuple[SessionState, ...] = ("open", "opening", "waiting", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """
    How one session does.

    Attributes:
        pid: Of the server's process; None of one that we did not start.
        protocol_version: The revision of the protocol that is spoken.
        restarts: How often it was opened again after it had fallen.
        retry_s: In how many seconds it may be opened again, while it is waiting.
        durations_ms: How long its last calls took.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealth:
    """How one server does for one workspace: its own sessions, and those that all share."""

    sessions: tuple[SessionHealth, ...] = ()

    @property
    def state(self) -> SessionState:
        """The best of its sessions' states: what the next call finds."""
        for state in _STATES_BY_PREFERENCE:
            if any(each.state == state for each in self.sessions):
                return state
        return "closed"

    @property
    def restarts(self) -> int:
        """Of all its sessions."""
        return sum(each.restarts for each in self.sessions)

    @property
    def in_flight(self) -> int:
        """Calls that run now."""
        return sum(each.in_flight for each in self.sessions)

    @property
    def queued(self) -> int:
        """Calls that wait in line."""
        return sum(each.queued for each in self.sessions)

    def percentile_ms(self, fraction: float) -> float | None:
        """Return how long *fraction* of the last calls took at most; None if there were none."""
        return percentile((took for each in self.sessions for took in each.durations_ms), fraction)


def percentile(values: Iterable[float], fraction: float) -> float | None:
    """Return the smallest of *values* that *fraction* of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(fraction * len(ordered)) - 1, 0)] if ordered else None


@dataclass(slots=True, kw_only=True)
class HealthState:
    """How a server did lately; `sequence` orders what was noted of one server."""

    health: HealthStatus = HealthStatus.UNKNOWN
    last_error: str = ""
    stderr: tuple[str, ...] = ()
    changed_at: datetime | None = None
    sequence: int = 0

    def update(self, health: HealthStatus, error: str, clock: Clock, stderr: tuple[str, ...] = ()) -> bool:
        """Note it; return whether its health changed."""
        has_changed = self.health is not health
        self.health, self.last_error, self.stderr = health, error, stderr
        if has_changed:
            self.changed_at = clock()
        return has_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTransition:
    """Somebody to whom a server's health is another word than before: a workspace, or all (None) *except_workspaces* some."""

    workspace_id: int | None
    except_workspaces: frozenset[int]


@dataclass(slots=True)
class _ServerHealthRecord:
    overall: HealthState = field(default_factory=HealthState)
    by_workspace: dict[int | None, HealthState] = field(default_factory=dict[int | None, HealthState])
    record_count: int = 0


class HealthTracker:
    """
    How each server did lately: for the operator, and for each workspace by its own sessions and those of nobody in particular.

    Apart, because the last words of a process that serves one workspace may hold its data.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _ServerHealthRecord] = {}

    def get_state(self, server: Server, workspace_id: int | None) -> HealthState:
        """Return how *server* does for a workspace; for the operator (None) over all."""
        kept = self._records.get(server.key)
        if kept is None:
            return HealthState()
        if workspace_id is None:
            return kept.overall
        views = [view for view in (kept.by_workspace.get(None), kept.by_workspace.get(workspace_id)) if view is not None]
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
        """Note how a session of a workspace (None: of nobody in particular) did; return for whom the server does otherwise now."""
        kept = self._records.setdefault(server.key, _ServerHealthRecord())
        kept.record_count += 1
        kept.overall.update(overall, error, self._clock, stderr)
        with_own = [each for each in kept.by_workspace if each is not None]
        seen_by = [workspace_id] if workspace_id is not None else with_own
        turned = [
            HealthTransition(workspace_id=each, except_workspaces=frozenset())
            for each in seen_by
            if self.get_state(server, each).health is not health
        ]
        view = kept.by_workspace.setdefault(workspace_id, HealthState())
        if view.update(health, error, self._clock, stderr) and workspace_id is None:
            turned.append(HealthTransition(workspace_id=None, except_workspaces=frozenset(with_own)))
        view.sequence = kept.record_count
        return turned

    def forget(self, server_key: str) -> None:
        """Forget a server whose entry changed or went."""
        self._records.pop(server_key, None)
