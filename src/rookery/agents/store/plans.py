"""Queries for plans and their events."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, false, func, or_, select, update

from rookery.agents.models.drafts import PlanFilter
from rookery.agents.models.plans import Plan, PlanAccessFilter, PlanEvent, PlanStatus
from rookery.agents.store.tables import PLAN_EVENTS, PLANS, plan_events, plans
from rookery.kernel.db import KeysetList, Tx, fetch_count, match_part
from rookery.kernel.ids import is_uuid
from rookery.kernel.pages import ListPage, PageSlice

_c = plans.c
_SLUGS = select(_c.slug).where(
    _c.workspace_id == bindparam("workspace"), or_(_c.slug == bindparam("slug"), _c.slug.like(bindparam("like")))
)
_NEXT_SEQ = update(plans).where(_c.id == bindparam("plan")).values(event_seq=_c.event_seq + 1).returning(_c.event_seq)
_ADVISORY_LOCK = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_SLUG_LOCK_PREFIX = 0x736C7567 << 32
"""Namespace of these advisory locks, which PostgreSQL identifies by number."""

_e = plan_events.c
_EVENTS = KeysetList(select(plan_events).where(_e.plan_id == bindparam("plan"), _e.seq > bindparam("after")), _e.seq)
_COMPLETED_TASK_EVENT = "task.completed"
_COMPLETED_TASK_COUNTS = (
    select(_e.session_id, func.count().label("number"))
    .where(
        _e.session_id.in_(bindparam("ids", expanding=True)),
        _e.workspace_id + 0 == bindparam("workspace"),
        _e.type == _COMPLETED_TASK_EVENT,
    )
    .group_by(_e.session_id)
)


def find(tx: Tx, access_filter: PlanAccessFilter, ref: str, *, lock: bool = False) -> Plan | None:
    """
    Return the plan with the slug or id *ref*, or None if it does not exist or *access_filter* excludes it.

    Args:
        lock: Lock the plan with everything in it until this transaction ends.
    """
    plan = PLANS.find(tx, access_filter.workspace_id, lock=lock, **{"id" if is_uuid(ref) else "slug": ref})
    return plan if plan is not None and access_filter.allows(plan) else None


def lock_similar_slugs(tx: Tx, workspace_id: int, slug: str) -> set[str]:
    """
    Return the slugs of the workspace that are *slug*, or start with *slug* and a hyphen.

    Lock the choice of slugs in the workspace until this transaction ends. SQLite needs no lock: it has one writer at a time.
    """
    if tx.dialect == "postgresql":
        tx.fetch_one(_ADVISORY_LOCK, {"number": _SLUG_LOCK_PREFIX | (workspace_id & 0xFFFFFFFF)})
    rows = tx.fetch_all(_SLUGS, {"workspace": workspace_id, "slug": slug, "like": f"{slug}-%"})
    return {row.text("slug") for row in rows}


def list_page(tx: Tx, access_filter: PlanAccessFilter, filters: PlanFilter, *, page: PageSlice) -> ListPage[Plan]:
    """Return a page of the plans that *access_filter* and *filters* include, newest first, and the total count."""
    condition = and_(access_condition(access_filter), *_filter_conditions(filters))
    return PLANS.fetch_page(tx, KeysetList(select(plans).where(condition), _c.created_at.desc(), _c.id.desc()), page)


def access_condition(access_filter: PlanAccessFilter) -> ColumnElement[bool]:
    """Return the SQL condition that *access_filter* includes a row of `plans`. It equals `PlanAccessFilter.allows`."""
    conditions: list[ColumnElement[bool]] = [_c.workspace_id == access_filter.workspace_id]
    if access_filter.orgs is not None:
        conditions.append(_c.org.in_(sorted(access_filter.orgs)) if access_filter.orgs else false())
    if access_filter.projects is not None:
        conditions.append(_c.project.in_(sorted(access_filter.projects)) if access_filter.projects else false())
    return and_(*conditions)


def _filter_conditions(filters: PlanFilter) -> list[ColumnElement[bool]]:
    status = filters.status
    conditions = [_c.status != PlanStatus.ARCHIVED.value if status is None else _c.status == status.value]
    if filters.org is not None:
        conditions.append(_c.org == filters.org)
    if filters.project is not None:
        conditions.append(_c.project == filters.project)
    if filters.q is not None:
        pattern = match_part(filters.q)
        conditions.append(or_(*(func.lower(column).like(pattern, escape="\\") for column in (_c.title, _c.slug, _c.description))))
    return conditions


def reserve_event_seq(tx: Tx, plan_id: str) -> int:
    """Return the seq of the next event of the plan. This locks the plan."""
    return fetch_count(tx, _NEXT_SEQ, {"plan": plan_id})


def list_events(tx: Tx, plan_id: str, *, after: int, page: PageSlice) -> ListPage[PlanEvent]:
    """Return a page of the events with a seq greater than *after*, oldest first, and their total count."""
    return PLAN_EVENTS.fetch_page(tx, _EVENTS, page, {"plan": plan_id, "after": after})


def count_completed_tasks(tx: Tx, workspace_id: int, session_ids: Sequence[str]) -> dict[str, int]:
    """Return the number of tasks completed in each session. Sessions without completed tasks are left out."""
    rows = tx.fetch_all(_COMPLETED_TASK_COUNTS, {"workspace": workspace_id, "ids": session_ids}) if session_ids else []
    return {row.text("session_id"): row.integer("number") for row in rows}
