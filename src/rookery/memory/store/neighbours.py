"""
Queries on the neighbours of memories in their sessions: the memories stored just before and after.

A session is ordered by (created_at, id). A batch or an import may store any number of memories at the same time, so each side is two
seeks of the index, among the memories of the same time and among the others. None of them reads more than two entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

from sqlalchemy import ColumnElement, ScalarSelect, bindparam, case, func, select

from rookery.kernel.db import Mapper, Row, Tx
from rookery.memory.models import AccessFields, AccessFilter, MemoryScope
from rookery.memory.store.tables import IS_IN_WORKSPACE, memories
from rookery.memory.visibility import is_readable

_DISTANCES = (-2, -1, 1, 2)
"""The places of the neighbours that are read, before and after."""

_other = memories.alias("other")
_ACCESS_FIELDS = Mapper(AccessFields, memories)
_OWNERLESS_SCOPES = frozenset({MemoryScope.PROJECT.value, MemoryScope.SHARED.value})


class Neighbour(NamedTuple):
    """
    A memory beside another one in a session. *distance* is -2 or -1 for earlier ones, 1 or 2 for later ones.

    A tuple, as a recall makes hundreds of them.
    """

    distance: int
    memory_id: str


def _seek(side: Literal[-1, 1], *, offset: int, is_same_time: bool) -> ScalarSelect[str]:
    """Return the id of the neighbour after *offset* others, among the memories of the same time or among the earlier or later ones."""
    own, other = memories.c, _other.c
    left, right = (other.id, own.id) if is_same_time else (other.created_at, own.created_at)
    columns = (other.id,) if is_same_time else (other.created_at, other.id)
    return (
        select(other.id)
        .where(
            other.workspace_id == own.workspace_id,
            other.session_id == own.session_id,
            other.archived_at.is_(None),
            *([other.created_at == own.created_at] if is_same_time else []),
            left < right if side < 0 else left > right,
        )
        .order_by(*(column.desc() if side < 0 else column.asc() for column in columns))
        .limit(1)
        .offset(offset)
        .correlate(memories)
        .scalar_subquery()
    )


def _neighbour(distance: int) -> ColumnElement[str]:
    side: Literal[-1, 1] = -1 if distance < 0 else 1
    if abs(distance) == 1:
        return func.coalesce(_seek(side, offset=0, is_same_time=True), _seek(side, offset=0, is_same_time=False))
    return func.coalesce(
        _seek(side, offset=1, is_same_time=True),
        case(
            (_seek(side, offset=0, is_same_time=True).is_(None), _seek(side, offset=1, is_same_time=False)),
            else_=_seek(side, offset=0, is_same_time=False),
        ),
    )


def _list_access_columns() -> list[ColumnElement[Any]]:
    """Return the columns of `AccessFields`, id first. The owner is null where it does not decide, so that more memories are alike."""
    c = memories.c
    is_owned = c.memory_scope.not_in(sorted(_OWNERLESS_SCOPES))
    owners = [case((is_owned, c[name])).label(name) for name in ("agent_id", "session_id")]
    return [c.id, *owners, *(c[name] for name in ("memory_scope", "org", "project", "expires_at", "workspace_id"))]


_ACCESS_COLUMNS = _list_access_columns()
_any_in_session = (
    select(_other.c.workspace_id)
    .where(_other.c.workspace_id == bindparam("workspace"), _other.c.session_id.is_not(None), _other.c.archived_at.is_(None))
    .limit(1)
    .subquery("any_in_session")
)
"""One row if any memory of the workspace has a session. Otherwise the sources would be read in vain, which takes 0.1 ms."""

_NEIGHBOURS = (
    select(*_ACCESS_COLUMNS, *(_neighbour(distance).label(f"at{distance}") for distance in _DISTANCES))
    .select_from(_any_in_session.join(memories, memories.c.workspace_id + 0 == _any_in_session.c.workspace_id))
    .where(
        IS_IN_WORKSPACE,
        memories.c.id.in_(bindparam("ids", expanding=True)),
        memories.c.session_id.is_not(None),
        memories.c.archived_at.is_(None),
    )
)
_BY_IDS = select(*_ACCESS_COLUMNS).where(IS_IN_WORKSPACE, memories.c.id.in_(bindparam("ids", expanding=True)))


def find_neighbours(tx: Tx, access_filter: AccessFilter, ids: Sequence[str]) -> dict[str, tuple[Neighbour, ...]]:
    """
    Return the readable neighbours of those of *ids* that are readable themselves, earliest first.

    A hidden, expired or foreign neighbour is left out, and no farther one takes its place. Memories without a session, and those without
    neighbours, are left out. The filters by field, such as a type, do not apply to neighbours.
    """
    if not ids:
        return {}
    judge = _Judge(access_filter)
    parameters = {"workspace": access_filter.workspace_id, "ids": ids}
    sources = [row for row in tx.fetch_all(_NEIGHBOURS, parameters) if judge.is_readable(row)]
    ids_by_distance = {cast("str", row.values[0]): cast("Sequence[str | None]", row.values[len(_ACCESS_COLUMNS) :]) for row in sources}
    others = {other for found_ids in ids_by_distance.values() for other in found_ids if other is not None}
    if not others:
        return {}
    rows = tx.fetch_all(_BY_IDS, {"workspace": access_filter.workspace_id, "ids": sorted(others)})
    readable = {cast("str", row.values[0]) for row in rows if judge.is_readable(row)}
    neighbours = {
        memory_id: tuple(Neighbour(distance, other) for distance, other in zip(_DISTANCES, found_ids, strict=True) if other in readable)
        for memory_id, found_ids in ids_by_distance.items()
    }
    return {memory_id: pairs for memory_id, pairs in neighbours.items() if pairs}


class _Judge:
    """Decides which rows with `_ACCESS_COLUMNS` *access_filter* allows. Memories whose fields decide alike are judged once."""

    def __init__(self, access_filter: AccessFilter) -> None:
        self._access_filter = access_filter
        self._verdicts: dict[Sequence[object], bool] = {}

    def is_readable(self, row: Row) -> bool:
        """Return whether the memory of *row* may be read."""
        fields = row.values[1 : len(_ACCESS_COLUMNS)]
        verdict = self._verdicts.get(fields)
        if verdict is None:
            verdict = self._verdicts[fields] = is_readable(self._access_filter, _ACCESS_FIELDS.from_row(row))
        return verdict
