"""
Filter the rows of a segment by access rights and search filters, with numpy (spec 2.6, D-43).

A workspace has many memories and few distinct spaces. Each distinct combination of org, project, agent, session, scope, type and source is
a *group*, and each row stores its group's number. A query evaluates its filters once per group and looks up the result per row. Tags work
in the same way. `rookery.memory.access_filter` defines the rule, and tests compare both.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rookery.kernel.clock import to_micros
from rookery.memory.models import AccessFilter, MemoryScope

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

DEAD_GROUP = 0
"""Group of rows that no query sees: deleted or replaced, and not compacted yet."""

_NULL_CODE = 0
_UNKNOWN_CODE = -1
_INITIAL_GROUPS = 64

ORG, PROJECT, AGENT, SESSION, SCOPE, TYPE, SOURCE = range(7)
"""Positions in a `Space`."""

Space = tuple[str | None, str | None, str | None, str | None, str | None, str | None, str | None]
"""Org, project, agent, session, scope, type and source of a memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterMask:
    """
    The filters of a query, evaluated per group and tag set.

    Attributes:
        groups: Whether each group is visible; False for `DEAD_GROUP`.
        tagsets: Whether each tag set contains all required tags; None without required tags.
        at: Time of the query in microseconds. Rows that expire at or before it are hidden.
        since: Minimum time of creation in microseconds.
        until: End of the time of creation in microseconds, exclusive.
    """

    groups: Mask
    tagsets: Mask | None
    at: int
    since: int | None
    until: int | None
    min_confidence: float | None


class ColumnDict:
    """Column dictionaries of one workspace: spaces to groups, tags to tag sets. They only grow. The caller locks them."""

    def __init__(self) -> None:
        self._values: tuple[dict[str, int], ...] = tuple({} for _ in range(SOURCE + 1))
        self._groups: dict[Space, int] = {}
        self._columns: npt.NDArray[np.int32] = np.full((SOURCE + 1, _INITIAL_GROUPS), _UNKNOWN_CODE, dtype=np.int32)
        self._tagsets: dict[tuple[str, ...], int] = {(): 0}
        self._tagged: dict[str, array[int]] = {}

    @property
    def entry_count(self) -> int:
        """Number of entries; shows when a rebuild would save memory."""
        return len(self._groups) + len(self._tagsets)

    def get_group(self, space: Space) -> int:
        """Return the number of *space*. Unknown spaces get the next number."""
        known_number = self._groups.get(space)
        if known_number is not None:
            return known_number
        number = len(self._groups) + 1
        if number >= self._columns.shape[1]:
            wider = np.full((SOURCE + 1, number * 2), _UNKNOWN_CODE, dtype=np.int32)
            wider[:, :number] = self._columns[:, :number]
            self._columns = wider
        for place, value in enumerate(space):
            values = self._values[place]
            self._columns[place, number] = _NULL_CODE if value is None else values.setdefault(value, len(values) + 1)
        self._groups[space] = number
        return number

    def get_tagset(self, tags: tuple[str, ...]) -> int:
        """Return the number of the tag set *tags*. Unknown sets get the next number."""
        known_number = self._tagsets.get(tags)
        if known_number is not None:
            return known_number
        number = len(self._tagsets)
        for tag in set(tags):
            self._tagged.setdefault(tag, array("q")).append(number)
        self._tagsets[tags] = number
        return number

    def list_spaces(self) -> list[Space]:
        """Return all spaces, ordered by number from 1 on."""
        return list(self._groups)

    def list_tagsets(self) -> list[tuple[str, ...]]:
        """Return all tag sets, ordered by number from 0 on."""
        return list(self._tagsets)

    def build_mask(self, access_filter: AccessFilter) -> FilterMask:
        """Evaluate *access_filter* for all groups and tag sets."""
        return FilterMask(
            groups=self._visible_groups(access_filter),
            tagsets=self._matching_tagsets(access_filter.facets) if access_filter.tags or access_filter.labels else None,
            at=to_micros(access_filter.at),
            since=None if access_filter.since is None else to_micros(access_filter.since),
            until=None if access_filter.until is None else to_micros(access_filter.until),
            min_confidence=access_filter.min_confidence,
        )

    def _visible_groups(self, access_filter: AccessFilter) -> Mask:
        columns = self._columns[:, : len(self._groups) + 1]
        scope = columns[SCOPE]
        is_agents = scope == self._code(SCOPE, MemoryScope.AGENT)
        is_sessions = scope == self._code(SCOPE, MemoryScope.SESSION)
        is_shared = scope == self._code(SCOPE, MemoryScope.SHARED)
        private = is_agents | is_sessions

        visible = np.ones(scope.shape, dtype=np.bool_)
        visible[DEAD_GROUP] = False
        for column, name, names, optional_scopes in (
            (ORG, access_filter.org, access_filter.orgs, private),
            (PROJECT, access_filter.project, access_filter.projects, private | is_shared),
        ):
            is_missing = (columns[column] == _NULL_CODE) & optional_scopes
            if name is not None:
                visible &= (columns[column] == self._code(column, name)) | is_missing
            if names is not None:
                visible &= np.isin(columns[column], self._codes(column, names)) | is_missing
        visible &= ~is_agents | (columns[AGENT] == self._code(AGENT, access_filter.agent_id))
        visible &= ~is_sessions | (columns[SESSION] == self._code(SESSION, access_filter.session_id))
        if access_filter.scopes is not None:
            visible &= np.isin(scope, self._codes(SCOPE, access_filter.scopes))
        if access_filter.type is not None:
            visible &= columns[TYPE] == self._code(TYPE, access_filter.type)
        if access_filter.source is not None:
            visible &= columns[SOURCE] == self._code(SOURCE, access_filter.source)
        return visible

    def _matching_tagsets(self, tags: Collection[str]) -> Mask:
        match_counts = np.zeros(len(self._tagsets), dtype=np.int32)
        for tag in tags:
            holders = self._tagged.get(tag)
            if holders is not None:
                match_counts[np.array(holders, dtype=np.int64)] += 1
        return match_counts == len(tags)

    def _code(self, column: int, value: str | None) -> int:
        # A missing value must match nothing: a private memory without an owner is visible to no query.
        return _UNKNOWN_CODE if value is None else self._values[column].get(value, _UNKNOWN_CODE)

    def _codes(self, column: int, values: Collection[str]) -> Codes:
        return np.array([self._code(column, value) for value in values], dtype=np.int32)
