"""Many memories at once: lists, tags, scopes. `visible` is the rule of D-43 in SQL, tested to equal `visibility.sees`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, false, func, literal, or_, select, true

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx
from rookery.memory.models import Counted, Memory, MemoryScope, MemoryState, OrgCount, Standing, Within
from rookery.memory.store.rows import to_memory
from rookery.memory.store.tables import ALL_LIVE, LIVE, memories, memory_labels, memory_tags

Columns = TypeVarTuple("Columns")

_FEW, _OWN = 2_000, 20_000
"""So many are sorted for a page, and for an agent's context, which reads many of them anyway."""

MAX_TAGS = 1_000
"""So many tags are listed at most: the most frequent."""

_ORGLESS = (MemoryScope.AGENT.value, MemoryScope.SESSION.value)
_PROJECTLESS = (MemoryScope.SHARED.value, MemoryScope.AGENT.value, MemoryScope.SESSION.value)

_KEPT = [column for column in memories.c if column.name not in ("fingerprint", "recalled_at")]
_NEWEST = (memories.c.created_at.desc(), memories.c.id.desc())


def visible(within: Within) -> ColumnElement[bool]:
    """Return the condition under which a query of *within* sees a row of `memories`; archiving is told apart."""
    c = memories.c
    conditions: list[ColumnElement[bool]] = [
        c.workspace_id == within.workspace_id,
        or_(c.expires_at.is_(None), c.expires_at > to_micros(within.at)),
        _theirs(within),
        *_in_space(within),
    ]
    if within.type is not None:
        conditions.append(c.type == within.type)
    if within.source is not None:
        conditions.append(c.source == within.source)
    if within.since is not None:
        conditions.append(c.created_at >= to_micros(within.since))
    if within.until is not None:
        conditions.append(c.created_at < to_micros(within.until))
    if within.min_confidence is not None:
        conditions.append(c.confidence >= within.min_confidence)
    conditions += [c.id.in_(_tagged(within.workspace_id, tag)) for tag in sorted(within.tags)]
    conditions += [c.id.in_(_labelled(within.workspace_id, label)) for label in sorted(within.labels)]
    return and_(*conditions)


def _labelled(workspace_id: int, label: str) -> Select[str]:
    c = memory_labels.c
    return select(c.memory_id).where(c.workspace_id == workspace_id, c.label == label)


def _tagged(workspace_id: int, tag: str) -> Select[str]:
    return select(memory_tags.c.memory_id).where(memory_tags.c.workspace_id == workspace_id, memory_tags.c.tag == tag)


def _in_space(within: Within) -> list[ColumnElement[bool]]:
    c = memories.c
    conditions: list[ColumnElement[bool]] = []
    orgless = and_(c.org.is_(None), c.memory_scope.in_(_ORGLESS))
    projectless = and_(c.project.is_(None), c.memory_scope.in_(_PROJECTLESS))
    if within.org is not None:
        conditions.append(or_(c.org == within.org, orgless))
    if within.orgs is not None:
        conditions.append(or_(_among(c.org, within.orgs), orgless))
    if within.project is not None:
        conditions.append(or_(c.project == within.project, projectless))
    if within.projects is not None:
        conditions.append(or_(_among(c.project, within.projects), projectless))
    return conditions


def _among(column: ColumnElement[str], names: Collection[str]) -> ColumnElement[bool]:
    return column.in_(sorted(names)) if names else false()


def _theirs(within: Within) -> ColumnElement[bool]:
    """Return whose memories they may be. Scopes come first by themselves: an index serves them, and not the OR of what else must hold."""
    c = memories.c
    asked = set(MemoryScope) if within.scopes is None else within.scopes
    everyones = asked & {MemoryScope.PROJECT, MemoryScope.SHARED}
    owned: dict[MemoryScope, ColumnElement[bool]] = {}
    if within.of_all_agents and MemoryScope.AGENT in asked:
        owned[MemoryScope.AGENT] = true()
    elif within.agent_id is not None and MemoryScope.AGENT in asked:
        owned[MemoryScope.AGENT] = c.agent_id == within.agent_id
    if within.session_id is not None and MemoryScope.SESSION in asked:
        owned[MemoryScope.SESSION] = c.session_id == within.session_id
    theirs = [and_(c.memory_scope == scope.value, condition) for scope, condition in owned.items()]
    if everyones:
        theirs.append(c.memory_scope.in_(sorted(everyones)))
    if not theirs:
        return false()
    return and_(c.memory_scope.in_(sorted(everyones | owned.keys())), or_(*theirs)) if len(theirs) > 1 else theirs[0]


def in_state(state: MemoryState | None, *, model: str) -> ColumnElement[bool]:
    """Return the condition under which `models.state_of` is *state*; None: all but archived ones."""
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


def page(tx: Tx, within: Within, state: MemoryState | None, *, model: str, limit: int, offset: int) -> tuple[list[Memory], int]:
    """Return a stretch of the memories that *within* sees, newest first, and how many there are in all."""
    condition = and_(visible(within), in_state(state, model=model))
    counting = select(func.count().label("found")).select_from(memories).where(condition)
    listing = select(*_KEPT).where(condition).order_by(*_NEWEST).limit(limit).offset(offset)
    is_covered = state is None and _is_covered(within)
    row = tx.one(_among_live(counting) if is_covered else counting)
    total = 0 if row is None else row.integer("found")
    # Few are sorted sooner than they are met among all, newest first.
    found = tx.all(_among_live(listing) if is_covered and total <= _FEW else listing) if offset < total else []
    return [to_memory(row) for row in found], total


def _is_covered(within: Within) -> bool:
    """Tell whether all that *within* asks of a live memory is in `LIVE`."""
    return not within.tags and not within.labels and {within.source, within.since, within.until, within.min_confidence} == {None}


def _are_few(tx: Tx, within: Within) -> bool:
    """Tell whether *within* sees so few that they are sorted sooner than met among all, newest first; counts no further than that."""
    some = _among_live(select(literal(1).label("one")).select_from(memories).where(visible(within)).limit(_OWN + 1)).subquery()
    row = tx.one(select(func.count().label("found")).select_from(some))
    return row is not None and row.integer("found") <= _OWN


def _among_live(statement: Select[*Columns]) -> Select[*Columns]:
    """Return *statement*, of live memories, by the index `LIVE`; PostgreSQL chooses by what it knows."""
    return statement.where(ALL_LIVE).with_hint(memories, f"INDEXED BY {LIVE.name}", "sqlite")


def standings(tx: Tx, within: Within, *, most: int) -> list[Standing]:
    """Return of at most *most* live memories that *within* sees what their effective confidence needs, newest first."""
    c = memories.c
    statement = select(c.id, c.type, c.confidence, c.content_at).where(visible(within), c.archived_at.is_(None)).order_by(*_NEWEST)
    if _is_covered(within) and _are_few(tx, within):
        statement = _among_live(statement)
    return [
        Standing(
            memory_id=row.text("id"),
            type=row.text("type"),
            confidence=row.number("confidence"),
            content_at=from_micros(row.integer("content_at")),
        )
        for row in tx.all(statement.limit(most))
    ]


def tags(tx: Tx, within: Within) -> list[Counted]:
    """Return the tags of the live memories that *within* sees, most frequent first, then by name."""
    number = func.count().label("number")
    statement = (
        select(memory_tags.c.tag, number)
        .select_from(memories)
        .join(memory_tags, and_(memory_tags.c.workspace_id == memories.c.workspace_id, memory_tags.c.memory_id == memories.c.id))
        .where(memory_tags.c.workspace_id == within.workspace_id, memories.c.archived_at.is_(None), visible(within))
        .group_by(memory_tags.c.tag)
        .order_by(number.desc(), memory_tags.c.tag)
        .limit(MAX_TAGS)
    )
    return [Counted(name=row.text("tag"), count=row.integer("number")) for row in tx.all(statement)]


def scopes(tx: Tx, within: Within) -> list[OrgCount]:
    """Return the orgs and projects of the live memories that *within* sees, most memories first, then by name."""
    number = func.count().label("number")
    statement = (
        select(memories.c.org, memories.c.project, number)
        .where(memories.c.archived_at.is_(None), visible(within))
        .group_by(memories.c.org, memories.c.project)
    )
    if _is_covered(within):
        statement = _among_live(statement)
    totals: dict[str | None, int] = {}
    projects: dict[str | None, list[Counted]] = {}
    for row in tx.all(statement):
        org, project = row.maybe_text("org"), row.maybe_text("project")
        totals[org] = totals.get(org, 0) + row.integer("number")
        if project is not None:
            projects.setdefault(org, []).append(Counted(name=project, count=row.integer("number")))
    orgs = sorted(totals, key=lambda org: (-totals[org], org is None, org or ""))
    return [OrgCount(org=org, count=totals[org], projects=tuple(sorted(projects.get(org, ()), key=_most_first))) for org in orgs]


def _most_first(counted: Counted) -> tuple[int, str]:
    return -counted.count, counted.name


def scan(
    tx: Tx,
    *,
    after: str,
    limit: int,
    at: datetime,
    workspace_id: int | None,
    org: str | None,
    project: str | None,
    stale_for: str | None,
) -> list[Memory]:
    """Return the next live memories by id, of one workspace or (for operators) of all; *stale_for* a model: only those not current."""
    condition = _scanned(at=at, workspace_id=workspace_id, org=org, project=project, stale_for=stale_for)
    statement = select(*_KEPT).where(condition, memories.c.id > after).order_by(memories.c.id).limit(limit)
    return [to_memory(row) for row in tx.all(statement)]


def scanned(tx: Tx, *, at: datetime, workspace_id: int | None, org: str | None, project: str | None, stale_for: str | None) -> int:
    """Return how many memories `scan` goes through."""
    condition = _scanned(at=at, workspace_id=workspace_id, org=org, project=project, stale_for=stale_for)
    row: Row | None = tx.one(select(func.count().label("found")).select_from(memories).where(condition))
    return 0 if row is None else row.integer("found")


def indexed_counts(tx: Tx, *, at: datetime, model: str, workspace_id: int | None) -> dict[int, int]:
    """Return by workspace how many live memories are indexed as they are now, by *model*; workspaces without any are left out."""
    c = memories.c
    live = _scanned(at=at, workspace_id=workspace_id, org=None, project=None, stale_for=None)
    is_current = and_(c.indexed_at >= c.updated_at, func.coalesce(c.indexed_model, model) == model)
    statement = select(c.workspace_id, func.count().label("found")).where(live, is_current).group_by(c.workspace_id)
    return {row.integer("workspace_id"): row.integer("found") for row in tx.all(statement)}


def _scanned(*, at: datetime, workspace_id: int | None, org: str | None, project: str | None, stale_for: str | None) -> ColumnElement[bool]:
    c = memories.c
    return and_(
        c.archived_at.is_(None),
        or_(c.expires_at.is_(None), c.expires_at > to_micros(at)),
        true() if workspace_id is None else c.workspace_id == workspace_id,
        true() if org is None else c.org == org,
        true() if project is None else c.project == project,
        true()
        if stale_for is None
        else or_(c.indexed_at.is_(None), c.indexed_at < c.updated_at, func.coalesce(c.indexed_model, stale_for) != stale_for),
    )
