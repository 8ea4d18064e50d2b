"""
Queries on many memories: lists, tags, scopes.

`visibility_condition` is the rule of `visibility` in SQL. Tests compare it with `visibility.is_visible`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, false, func, literal, or_, select, true

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Mapper, Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice
from rookery.memory.models import AccessFilter, ConfidenceRow, Memory, MemoryScope, MemoryState, NameCount, OrgCount
from rookery.memory.store.tables import IS_LIVE, LIVE_INDEX, MEMORIES, memories, memory_labels, memory_tags

Columns = TypeVarTuple("Columns")

_MAX_SORTED_PAGE, _MAX_SORTED_CONTEXT = 2_000, 20_000
"""Maximum memories sorted for a page, and for an agent's context, which reads many of them anyway."""

MAX_TAGS = 1_000
"""Maximum tags listed: the most frequent."""

_CONFIDENCE_ROWS = Mapper(ConfidenceRow, memories, columns={"memory_id": "id"})
_ORG_OPTIONAL_SCOPES = (MemoryScope.AGENT.value, MemoryScope.SESSION.value)
_PROJECT_OPTIONAL_SCOPES = (MemoryScope.SHARED.value, MemoryScope.AGENT.value, MemoryScope.SESSION.value)

_NEWEST_FIRST = (memories.c.created_at.desc(), memories.c.id.desc())


def visibility_condition(access_filter: AccessFilter) -> ColumnElement[bool]:
    """Return the condition under which *access_filter* allows a row of `memories`. It does not cover archiving."""
    c = memories.c
    conditions: list[ColumnElement[bool]] = [
        c.workspace_id == access_filter.workspace_id,
        or_(c.expires_at.is_(None), c.expires_at > to_micros(access_filter.at)),
        _owner_condition(access_filter),
        *_space_conditions(access_filter),
    ]
    if access_filter.type is not None:
        conditions.append(c.type == access_filter.type)
    if access_filter.source is not None:
        conditions.append(c.source == access_filter.source)
    if access_filter.since is not None:
        conditions.append(c.created_at >= to_micros(access_filter.since))
    if access_filter.until is not None:
        conditions.append(c.created_at < to_micros(access_filter.until))
    if access_filter.min_confidence is not None:
        conditions.append(c.confidence >= access_filter.min_confidence)
    conditions += [c.id.in_(_ids_with_tag(access_filter.workspace_id, tag)) for tag in sorted(access_filter.tags)]
    conditions += [c.id.in_(_ids_with_label(access_filter.workspace_id, label)) for label in sorted(access_filter.labels)]
    return and_(*conditions)


def _ids_with_label(workspace_id: int, label: str) -> Select[str]:
    c = memory_labels.c
    return select(c.memory_id).where(c.workspace_id == workspace_id, c.label == label)


def _ids_with_tag(workspace_id: int, tag: str) -> Select[str]:
    return select(memory_tags.c.memory_id).where(memory_tags.c.workspace_id == workspace_id, memory_tags.c.tag == tag)


def _space_conditions(access_filter: AccessFilter) -> list[ColumnElement[bool]]:
    c = memories.c
    conditions: list[ColumnElement[bool]] = []
    orgless = and_(c.org.is_(None), c.memory_scope.in_(_ORG_OPTIONAL_SCOPES))
    projectless = and_(c.project.is_(None), c.memory_scope.in_(_PROJECT_OPTIONAL_SCOPES))
    if access_filter.org is not None:
        conditions.append(or_(c.org == access_filter.org, orgless))
    if access_filter.orgs is not None:
        conditions.append(or_(_in_names(c.org, access_filter.orgs), orgless))
    if access_filter.project is not None:
        conditions.append(or_(c.project == access_filter.project, projectless))
    if access_filter.projects is not None:
        conditions.append(or_(_in_names(c.project, access_filter.projects), projectless))
    return conditions


def _in_names(column: ColumnElement[str], names: Collection[str]) -> ColumnElement[bool]:
    return column.in_(sorted(names)) if names else false()


def _owner_condition(access_filter: AccessFilter) -> ColumnElement[bool]:
    """Return the condition on the owner. The scopes are a separate term, because an index serves it and not the OR of the other terms."""
    c = memories.c
    scopes = set(MemoryScope) if access_filter.scopes is None else access_filter.scopes
    common_scopes = scopes & {MemoryScope.PROJECT, MemoryScope.SHARED}
    owner_conditions: dict[MemoryScope, ColumnElement[bool]] = {}
    if access_filter.includes_all_agents and MemoryScope.AGENT in scopes:
        owner_conditions[MemoryScope.AGENT] = true()
    elif access_filter.agent_id is not None and MemoryScope.AGENT in scopes:
        owner_conditions[MemoryScope.AGENT] = c.agent_id == access_filter.agent_id
    if access_filter.session_id is not None and MemoryScope.SESSION in scopes:
        owner_conditions[MemoryScope.SESSION] = c.session_id.in_(sorted(access_filter.session_ids))
    alternatives = [and_(c.memory_scope == scope.value, condition) for scope, condition in owner_conditions.items()]
    if common_scopes:
        alternatives.append(c.memory_scope.in_(sorted(common_scopes)))
    if not alternatives:
        return false()
    return (
        and_(c.memory_scope.in_(sorted(common_scopes | owner_conditions.keys())), or_(*alternatives))
        if len(alternatives) > 1
        else alternatives[0]
    )


def state_condition(state: MemoryState | None, *, model: str) -> ColumnElement[bool]:
    """Return the condition under which `models.get_state` is *state*. None: all but archived memories."""
    c = memories.c
    archived, failed = c.archived_at.is_not(None), c.index_failed_at.is_not(None)
    pending = c.indexed_at.is_(None)
    stale = or_(c.indexed_at < c.updated_at, func.coalesce(c.indexed_model, model) != model)
    match state:
        case None:
            return ~archived
        case MemoryState.ARCHIVED:
            return archived
        case MemoryState.FAILED:
            return and_(~archived, failed)
        case MemoryState.DELETED:
            return false()
        case MemoryState.CREATED | MemoryState.PENDING_EMBED:
            return and_(~archived, ~failed, pending)
        case MemoryState.STALE:
            return and_(~archived, ~failed, ~pending, stale)
        case MemoryState.INDEXED:
            return and_(~archived, ~failed, ~pending, ~stale)


def list_page(tx: Tx, access_filter: AccessFilter, state: MemoryState | None, *, model: str, page: PageSlice) -> ListPage[Memory]:
    """Return one page of the memories that *access_filter* allows, newest first, and their total number."""
    condition = and_(visibility_condition(access_filter), state_condition(state, model=model))
    counting = select(func.count().label("found")).select_from(memories).where(condition)
    listing = select(*MEMORIES.columns).where(condition)
    is_covered = state is None and _is_covered_by_index(access_filter)
    total = fetch_count(tx, _with_live_index(counting) if is_covered else counting)
    # A small result is sorted faster than it is found by a scan of all memories, newest first.
    statement = _with_live_index(listing) if is_covered and total <= _MAX_SORTED_PAGE else listing
    if page.after is None and page.offset >= total:
        return ListPage([], total)
    return MEMORIES.fetch_page(tx, KeysetList(statement, *_NEWEST_FIRST), page, total=total)


def _is_covered_by_index(access_filter: AccessFilter) -> bool:
    """Return whether `LIVE_INDEX` has all columns that *access_filter* needs for live memories."""
    return (
        not access_filter.tags
        and not access_filter.labels
        and {access_filter.source, access_filter.since, access_filter.until, access_filter.min_confidence} == {None}
    )


def _is_small(tx: Tx, access_filter: AccessFilter) -> bool:
    """Return whether *access_filter* matches so few memories that sorting is faster than a scan by time. The count stops at the limit."""
    subquery = _with_live_index(
        select(literal(1).label("one")).select_from(memories).where(visibility_condition(access_filter)).limit(_MAX_SORTED_CONTEXT + 1)
    ).subquery()
    row = tx.fetch_one(select(func.count().label("found")).select_from(subquery))
    return row is not None and row.integer("found") <= _MAX_SORTED_CONTEXT


def _with_live_index(statement: Select[*Columns]) -> Select[*Columns]:
    """Return *statement*, on live memories, with `LIVE_INDEX` forced on SQLite. PostgreSQL chooses by its statistics."""
    return statement.where(IS_LIVE).with_hint(memories, f"INDEXED BY {LIVE_INDEX.name}", "sqlite")


def list_confidence_rows(tx: Tx, access_filter: AccessFilter, *, limit: int) -> list[ConfidenceRow]:
    """Return the confidence fields of at most *limit* live memories that *access_filter* allows, newest first."""
    c = memories.c
    statement = (
        select(*_CONFIDENCE_ROWS.columns).where(visibility_condition(access_filter), c.archived_at.is_(None)).order_by(*_NEWEST_FIRST)
    )
    if _is_covered_by_index(access_filter) and _is_small(tx, access_filter):
        statement = _with_live_index(statement)
    return _CONFIDENCE_ROWS.fetch_all(tx, statement.limit(limit))


def count_tags(tx: Tx, access_filter: AccessFilter) -> list[NameCount]:
    """Return the tags of the live memories that *access_filter* allows, most frequent first, then by name."""
    number = func.count().label("number")
    statement = (
        select(memory_tags.c.tag, number)
        .select_from(memories)
        .join(memory_tags, and_(memory_tags.c.workspace_id == memories.c.workspace_id, memory_tags.c.memory_id == memories.c.id))
        .where(
            memory_tags.c.workspace_id == access_filter.workspace_id, memories.c.archived_at.is_(None), visibility_condition(access_filter)
        )
        .group_by(memory_tags.c.tag)
        .order_by(number.desc(), memory_tags.c.tag)
        .limit(MAX_TAGS)
    )
    return [NameCount(name=row.text("tag"), count=row.integer("number")) for row in tx.fetch_all(statement)]


def count_scopes(tx: Tx, access_filter: AccessFilter) -> list[OrgCount]:
    """Return the orgs and projects of the live memories that *access_filter* allows, most memories first, then by name."""
    number = func.count().label("number")
    statement = (
        select(memories.c.org, memories.c.project, number)
        .where(memories.c.archived_at.is_(None), visibility_condition(access_filter))
        .group_by(memories.c.org, memories.c.project)
    )
    if _is_covered_by_index(access_filter):
        statement = _with_live_index(statement)
    totals: dict[str | None, int] = {}
    projects: dict[str | None, list[NameCount]] = {}
    for row in tx.fetch_all(statement):
        org, project = row.maybe_text("org"), row.maybe_text("project")
        totals[org] = totals.get(org, 0) + row.integer("number")
        if project is not None:
            projects.setdefault(org, []).append(NameCount(name=project, count=row.integer("number")))
    orgs = sorted(totals, key=lambda org: (-totals[org], org is None, org or ""))
    return [OrgCount(org=org, count=totals[org], projects=tuple(sorted(projects.get(org, ()), key=_count_sort_key))) for org in orgs]


def _count_sort_key(name_count: NameCount) -> tuple[int, str]:
    return -name_count.count, name_count.name


def scan(
    tx: Tx,
    *,
    after: str,
    limit: int,
    at: datetime,
    workspace_id: int | None,
    org: str | None,
    project: str | None,
    stale_model: str | None,
) -> list[Memory]:
    """Return the next live memories by id, of one workspace or, for operators, of all. With *stale_model*, only those not current in it."""
    condition = _scan_condition(at=at, workspace_id=workspace_id, org=org, project=project, stale_model=stale_model)
    statement = select(*MEMORIES.columns).where(condition, memories.c.id > after).order_by(memories.c.id).limit(limit)
    return MEMORIES.fetch_all(tx, statement)


def count_scan(tx: Tx, *, at: datetime, workspace_id: int | None, org: str | None, project: str | None, stale_model: str | None) -> int:
    """Return the number of memories that `scan` returns in total."""
    condition = _scan_condition(at=at, workspace_id=workspace_id, org=org, project=project, stale_model=stale_model)
    return fetch_count(tx, select(func.count()).select_from(memories).where(condition))


def count_indexed(tx: Tx, *, at: datetime, model: str, workspace_id: int | None) -> dict[int, int]:
    """Return the number of live memories whose current version is indexed by *model*, by workspace. Workspaces without any are left out."""
    c = memories.c
    live = _scan_condition(at=at, workspace_id=workspace_id, org=None, project=None, stale_model=None)
    is_current = and_(c.indexed_at >= c.updated_at, func.coalesce(c.indexed_model, model) == model)
    statement = select(c.workspace_id, func.count().label("found")).where(live, is_current).group_by(c.workspace_id)
    return {row.integer("workspace_id"): row.integer("found") for row in tx.fetch_all(statement)}


def _scan_condition(
    *, at: datetime, workspace_id: int | None, org: str | None, project: str | None, stale_model: str | None
) -> ColumnElement[bool]:
    c = memories.c
    return and_(
        c.archived_at.is_(None),
        or_(c.expires_at.is_(None), c.expires_at > to_micros(at)),
        true() if workspace_id is None else c.workspace_id == workspace_id,
        true() if org is None else c.org == org,
        true() if project is None else c.project == project,
        true()
        if stale_model is None
        else or_(c.indexed_at.is_(None), c.indexed_at < c.updated_at, func.coalesce(c.indexed_model, stale_model) != stale_model),
    )
