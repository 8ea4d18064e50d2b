"""
Which rows of a slab a query may see, answered with numpy (spec 2.6, D-43).

A workspace has many memories and few distinct spaces: each distinct combination of org, project, agent, session,
scope, type and source is a *get_group*, and a row holds its group's number. A query is decided once per group, then
looked up per row; tags work the same way. `rookery.memory.visibility` is the rule, and this module is tested
against it.
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
"""The group of rows that no query sees: forgotten or replaced, and not yet compacted."""

_NULL_CODE = 0
_UNKNOWN_CODE = -1
_INITIAL_GROUPS = 64

ORG, PROJECT, AGENT, SESSION, SCOPE, TYPE, SOURCE = range(7)
"""The places in a `Space`."""

Space = tuple[str | None, str | None, str | None, str | None, str | None, str | None, str | None]
"""Org, project, agent, session, scope, type and source of a memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterMask:
    """
    A query's filters, ready for rows.

    Attributes:
        groups: For each group: may it be seen? `DEAD_GROUP` never.
        tagsets: For each set of tags: does it hold all that are asked for? None: none are.
        at: Microseconds, as the others: a row that expires at or before it is out.
    """

    groups: Mask
    tagsets: Mask | None
    at: int
    since: int | None
    until: int | None
    min_confidence: float | None


class ColumnDict:
    """The dictionaries of one workspace: spaces to groups, tags to sets. They only grow; the caller locks."""

    def __init__(self) -> None:
        self._values: tuple[dict[str, int], ...] = tuple({} for _ in range(SOURCE + 1))
        self._groups: dict[Space, int] = {}
        self._columns: npt.NDArray[np.int32] = np.full((SOURCE + 1, _INITIAL_GROUPS), _UNKNOWN_CODE, dtype=np.int32)
        self._tagsets: dict[tuple[str, ...], int] = {(): 0}
        self._tagged: dict[str, array[int]] = {}

    @property
    def entry_count(self) -> int:
        """How many distinct things are held, to tell when starting anew would save memory."""
        return len(self._groups) + len(self._tagsets)

    def get_group(self, space: Space) -> int:
        """Return the number of *space*, a new one if it was not met before."""
        known = self._groups.get(space)
        if known is not None:
            return known
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
        """Return the number of this set of tags, a new one if it was not met before."""
        known = self._tagsets.get(tags)
        if known is not None:
            return known
        number = len(self._tagsets)
        for tag in set(tags):
            self._tagged.setdefault(tag, array("q")).append(number)
        self._tagsets[tags] = number
        return number

    def list_spaces(self) -> list[Space]:
        """Return the spaces by their number, from 1 on."""
        return list(self._groups)

    def list_tagsets(self) -> list[tuple[str, ...]]:
        """Return the sets of tags by their number, from 0 on."""
        return list(self._tagsets)

    def build_mask(self, access_filter: AccessFilter) -> FilterMask:
        """Decide *access_filter* for every group and set of tags known so far."""
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

        seen = np.ones(scope.shape, dtype=np.bool_)
        seen[DEAD_GROUP] = False
        for place, name, names, outside in (
            (ORG, access_filter.org, access_filter.orgs, private),
            (PROJECT, access_filter.project, access_filter.projects, private | is_shared),
        ):
            none = (columns[place] == _NULL_CODE) & outside
            if name is not None:
                seen &= (columns[place] == self._code(place, name)) | none
            if names is not None:
                seen &= np.isin(columns[place], self._codes(place, names)) | none
        seen &= ~is_agents | (columns[AGENT] == self._code(AGENT, access_filter.agent_id))
        seen &= ~is_sessions | (columns[SESSION] == self._code(SESSION, access_filter.session_id))
        if access_filter.scopes is not None:
            seen &= np.isin(scope, self._codes(SCOPE, access_filter.scopes))
        if access_filter.type is not None:
            seen &= columns[TYPE] == self._code(TYPE, access_filter.type)
        if access_filter.source is not None:
            seen &= columns[SOURCE] == self._code(SOURCE, access_filter.source)
        return seen

    def _matching_tagsets(self, tags: Collection[str]) -> Mask:
        found = np.zeros(len(self._tagsets), dtype=np.int32)
        for tag in tags:
            holders = self._tagged.get(tag)
            if holders is not None:
                found[np.array(holders, dtype=np.int64)] += 1
        return found == len(tags)

    def _code(self, place: int, value: str | None) -> int:
        # What a query leaves open must match nothing here: a private memory without an owner is nobody's.
        return _UNKNOWN_CODE if value is None else self._values[place].get(value, _UNKNOWN_CODE)

    def _codes(self, place: int, values: Collection[str]) -> Codes:
        return np.array([self._code(place, value) for value in values], dtype=np.int32)
