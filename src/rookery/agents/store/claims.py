"""Queries for task leases: the next task, claims and renewals, expired leases, and leases that ended while no process ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sqlalchemy import BigInteger, Column, ColumnElement, Integer, Table, bindparam, case, cast, exists, func, select, update

from rookery.agents.models.plans import PlanAccessFilter, PlanStatus, Task, TaskClaim, TaskStatus
from rookery.agents.store.dependencies import OPEN_TASK_STATUS_VALUES
from rookery.agents.store.tables import TASKS, phases, plans, tasks
from rookery.agents.store.tasks import HAS_OPEN_DEPENDENCY, PHASE_IS_BLOCKED, WORKABLE_PHASE_STATUSES
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Statement, Tx, Value, metadata, upsert

_c = tasks.c
_ADVISORY_LOCK = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_CLAIM_LOCK_PREFIX = 0x726F6F6B << 32
"""Namespace of these advisory locks, which PostgreSQL identifies by number."""

_PENDING = TaskStatus.PENDING.value
_BY_POSITION = select(tasks).where(_c.phase_id == bindparam("phase"), _c.status == _PENDING, _c.position == bindparam("place"))
_CLAIM = (
    update(tasks)
    .where(_c.id == bindparam("task"), _c.status == _PENDING)
    .values(
        status=TaskStatus.IN_PROGRESS.value,
        claim_token=bindparam("token"),
        claim_key_id=bindparam("key"),
        claim_agent_id=bindparam("agent"),
        claim_session_id=bindparam("session"),
        claimed_at=bindparam("now"),
        claim_expires_at=bindparam("until"),
        started_at=func.coalesce(_c.started_at, bindparam("now")),
        updated_at=bindparam("now"),
        version=_c.version + 1,
    )
)
_RENEW = (
    update(tasks)
    .where(
        _c.id == bindparam("task"),
        _c.workspace_id == bindparam("workspace"),
        _c.claim_token == bindparam("token"),
        _c.claim_expires_at > bindparam("now"),
    )
    .values(claim_expires_at=bindparam("until"))
)
_EXPIRED = (
    select(_c.id, _c.plan_id, _c.workspace_id)
    .select_from(tasks.join(plans, plans.c.id == _c.plan_id))
    .where(_c.claim_expires_at <= bindparam("now"), plans.c.status != PlanStatus.ARCHIVED.value)
    .order_by(_c.claim_expires_at)
    .limit(bindparam("most"))
)
# `+ 0` keeps the planner away from the workspace index: there are few leases, and the partial index on them is better.
_EXPIRED_IN_WORKSPACE = _EXPIRED.where(_c.workspace_id + 0 == bindparam("workspace"))
_BY_SESSION = (
    select(_c.id, _c.plan_id)
    .where(_c.claim_session_id == bindparam("session"), _c.workspace_id + 0 == bindparam("workspace"))
    .order_by(_c.plan_id, _c.id)
)
_BY_TOKEN = (
    select(_c.id, _c.name)
    .where(_c.claim_expires_at.is_not(None), _c.claim_token == bindparam("token"), _c.workspace_id + 0 == bindparam("workspace"))
    .limit(1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTaskStats:
    """
    Counts that explain why no task can be claimed.

    Attributes:
        open_count: Open tasks of active plans.
        claimed_count: Those of them that are in progress.
        next_lease_end: The end of the first lease to expire, or None.
        has_paused_plan: True if there is a paused plan.
    """

    open_count: int
    claimed_count: int
    next_lease_end: datetime | None
    has_paused_plan: bool


def lock_workspace(tx: Tx, workspace_id: int) -> None:
    """Lock the search for tasks in the workspace until this transaction ends. SQLite needs no lock: it has one writer at a time."""
    if tx.dialect == "postgresql":
        tx.fetch_one(_ADVISORY_LOCK, {"number": _CLAIM_LOCK_PREFIX | (workspace_id & 0xFFFFFFFF)})


def find_best(tx: Tx, access_filter: PlanAccessFilter, plan_id: str | None) -> Task | None:
    """Return the best ready task (the most urgent, then of the oldest plan, then the first in it), or None if no task is ready."""
    options = {
        "has_plan": plan_id is not None,
        "has_orgs": access_filter.orgs is not None,
        "has_projects": access_filter.projects is not None,
    }
    least_statement, first = _best_statements(**options)
    params = {**_params(access_filter, plan_id), "priority": -1}
    while True:
        row = tx.fetch_one(least_statement, params)
        priority = None if row is None else row.maybe_integer("priority")
        if priority is None:
            return None
        params["priority"] = priority
        candidate = tx.fetch_one(first, params)
        if candidate is not None:
            return TASKS.fetch_one(tx, _BY_POSITION, {"phase": candidate.text("phase_id"), "place": candidate.integer("place")})


@lru_cache
def _best_statements(*, has_plan: bool, has_orgs: bool, has_projects: bool) -> tuple[Statement, Statement]:
    """
    Return two statements: one finds the next less urgent priority with a pending task, the other the first ready task of a priority.

    The second reads plans in index order and stops at the first one with a ready task. It scans all plans only if every task of the
    priority is blocked.
    """
    scope = _scope_conditions(has_plan=has_plan, has_orgs=has_orgs, has_projects=has_projects)
    is_active = plans.c.status == PlanStatus.ACTIVE.value
    urgent = (
        select(func.min(_c.priority))
        .where(_c.plan_id == plans.c.id, _c.status == _PENDING, _c.priority > bindparam("priority"))
        .correlate(plans)
        .scalar_subquery()
    )
    place = (
        select(_c.position)
        .where(_c.phase_id == phases.c.id, _c.status == _PENDING, _c.priority == bindparam("priority"), ~HAS_OPEN_DEPENDENCY)
        .order_by(_c.position)
        .limit(1)
        .correlate(phases)
        .scalar_subquery()
    )
    return (
        select(func.min(urgent).label("priority")).select_from(plans).where(*scope, is_active),
        select(phases.c.id.label("phase_id"), place.label("place"))
        .select_from(plans.join(phases, phases.c.plan_id == plans.c.id))
        .where(*scope, is_active, phases.c.status.in_(WORKABLE_PHASE_STATUSES), ~PHASE_IS_BLOCKED, place.is_not(None))
        .order_by(plans.c.id, phases.c.position)
        .limit(1),
    )


def get_open_task_stats(tx: Tx, access_filter: PlanAccessFilter, plan_id: str | None) -> OpenTaskStats:
    """Return the counts for one plan, or for all plans that *access_filter* includes."""
    options = {
        "has_plan": plan_id is not None,
        "has_orgs": access_filter.orgs is not None,
        "has_projects": access_filter.projects is not None,
    }
    open_statement, paused_statement = _open_task_statements(**options)
    params = _params(access_filter, plan_id)
    row, paused_row = tx.fetch_one(open_statement, params), tx.fetch_one(paused_statement, params)
    next_end = None if row is None else row.maybe_integer("next_end")
    return OpenTaskStats(
        open_count=0 if row is None else row.integer("found"),
        claimed_count=0 if row is None else row.maybe_integer("claimed") or 0,
        next_lease_end=None if next_end is None else from_micros(next_end),
        has_paused_plan=paused_row is not None,
    )


@lru_cache
def _open_task_statements(*, has_plan: bool, has_orgs: bool, has_projects: bool) -> tuple[Statement, Statement]:
    scope = _scope_conditions(has_plan=has_plan, has_orgs=has_orgs, has_projects=has_projects)
    is_claimed = case((_c.status == TaskStatus.IN_PROGRESS.value, 1), else_=0)
    count_statement = select(
        func.count().label("found"),
        cast(func.sum(is_claimed), BigInteger).label("claimed"),
        func.min(_c.claim_expires_at).label("next_end"),
    )
    joined = tasks.join(plans, plans.c.id == _c.plan_id)
    is_active, is_paused = plans.c.status == PlanStatus.ACTIVE.value, plans.c.status == PlanStatus.PAUSED.value
    return (
        count_statement.select_from(joined).where(*scope, is_active, _c.status.in_(OPEN_TASK_STATUS_VALUES)),
        select(plans.c.id).where(*scope, is_paused).limit(1),
    )


def find_oldest_draft(tx: Tx, access_filter: PlanAccessFilter) -> str | None:
    """Return the slug of the oldest draft plan with a pending task, or None."""
    row = tx.fetch_one(
        _oldest_draft_statement(has_orgs=access_filter.orgs is not None, has_projects=access_filter.projects is not None),
        _params(access_filter, None),
    )
    return None if row is None else row.text("slug")


@lru_cache
def _oldest_draft_statement(*, has_orgs: bool, has_projects: bool) -> Statement:
    scope = _scope_conditions(has_plan=False, has_orgs=has_orgs, has_projects=has_projects)
    has_task = exists().where(_c.plan_id == plans.c.id, _c.status == _PENDING).correlate(plans)
    return select(plans.c.slug).where(*scope, plans.c.status == PlanStatus.DRAFT.value, has_task).order_by(plans.c.id).limit(1)


def _scope_conditions(*, has_plan: bool, has_orgs: bool, has_projects: bool) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [plans.c.workspace_id == bindparam("workspace")]
    if has_plan:
        conditions.append(plans.c.id == bindparam("plan"))
    if has_orgs:
        conditions.append(plans.c.org.in_(bindparam("orgs", expanding=True)))
    if has_projects:
        conditions.append(plans.c.project.in_(bindparam("projects", expanding=True)))
    return conditions


def _params(access_filter: PlanAccessFilter, plan_id: str | None) -> Mapping[str, Value | Sequence[Value]]:
    params: dict[str, Value | Sequence[Value]] = {"workspace": access_filter.workspace_id}
    if plan_id is not None:
        params["plan"] = plan_id
    if access_filter.orgs is not None:
        params["orgs"] = sorted(access_filter.orgs)
    if access_filter.projects is not None:
        params["projects"] = sorted(access_filter.projects)
    return params


def claim(tx: Tx, task_id: str, claim: TaskClaim) -> bool:
    """Store *claim* if the task is pending, and return True on success. One atomic statement, so one of several clients wins."""
    params: dict[str, Value] = {
        "task": task_id,
        "token": claim.token,
        "key": claim.key_id,
        "agent": claim.agent_id,
        "session": claim.session_id,
        "now": to_micros(claim.claimed_at),
        "until": to_micros(claim.expires_at),
    }
    return tx.execute(_CLAIM, params) == 1


def renew(tx: Tx, workspace_id: int, task_id: str, token: str, *, now: datetime, expires_at: datetime) -> bool:
    """Extend the lease of *token* to *expires_at* and return True, or return False if the lease has ended."""
    params = {"workspace": workspace_id, "task": task_id, "token": token, "now": to_micros(now), "until": to_micros(expires_at)}
    return tx.execute(_RENEW, params) == 1


def find_by_token(tx: Tx, workspace_id: int, token: str) -> tuple[str, str] | None:
    """Return the id and the name of the task whose claim has the token, or None."""
    row = tx.fetch_one(_BY_TOKEN, {"token": token, "workspace": workspace_id})
    return None if row is None else (row.text("id"), row.text("name"))


def list_expired(tx: Tx, now: datetime, *, workspace_id: int | None, limit: int) -> list[tuple[str, str, int]]:
    """Return (task id, plan id, workspace id) of tasks with an expired lease, except in archived plans."""
    params: dict[str, Value] = {"now": to_micros(now), "most": limit}
    rows = (
        tx.fetch_all(_EXPIRED, params)
        if workspace_id is None
        else tx.fetch_all(_EXPIRED_IN_WORKSPACE, params | {"workspace": workspace_id})
    )
    return [(row.text("id"), row.text("plan_id"), row.integer("workspace_id")) for row in rows]


def list_by_session(tx: Tx, workspace_id: int, session_id: str) -> list[tuple[str, str]]:
    """Return (task id, plan id) of the tasks claimed in the session."""
    rows = tx.fetch_all(_BY_SESSION, {"workspace": workspace_id, "session": session_id})
    return [(row.text("id"), row.text("plan_id")) for row in rows]


server_pulse = Table(
    "agent_server_pulse",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("alive_at", BigInteger, nullable=False),
)

_ROW_ID = 1
_ALIVE_AT = select(server_pulse.c.alive_at).where(server_pulse.c.id == _ROW_ID).with_for_update()
_SAVE = upsert(server_pulse, index_elements=["id"], set_=lambda new: {"alive_at": new["alive_at"]})
_EXTEND = (
    update(tasks)
    .where(_c.claim_expires_at > bindparam("after"), _c.claim_expires_at < bindparam("until"))
    .values(claim_expires_at=bindparam("until"))
)


def lock_alive_at(tx: Tx) -> datetime | None:
    """Return the time at which a process was alive last, or None, and lock it until this transaction ends."""
    row = tx.fetch_one(_ALIVE_AT)
    return None if row is None else from_micros(row.integer("alive_at"))


def save_alive_at(tx: Tx, at: datetime) -> None:
    """Store the time at which a process was alive last."""
    tx.execute(_SAVE, {"id": _ROW_ID, "alive_at": to_micros(at)})


def extend_leases(tx: Tx, *, after: datetime, until: datetime) -> int:
    """Set the end of all leases that end between *after* and *until* to *until*. Return their number."""
    return tx.execute(_EXTEND, {"after": to_micros(after), "until": to_micros(until)})
