"""The explanation of a recall: the memories that a rule dropped. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from itertools import islice

from rookery.memory.models import SCORE_DECIMALS, AccessFilter, Memory, MemoryFilter
from rookery.memory.ranking import RecallHit, round_for_ranking
from rookery.memory.recall_models import DroppedMemory, DropRule, RecallRequest
from rookery.memory.visibility import is_visible

MAX_DROPPED = 20
"""Dropped memories in an explanation, best first. At most half of them were dropped by filters."""

_NO_FILTERS = {
    column.name: getattr(MemoryFilter(), column.name) for column in fields(MemoryFilter) if column.name not in {"agent_id", "session_id"}
}
"""The filters of a request that an explanation ignores to find what they drop. Owners and the lists of the key are not among them."""


def remove_filters(access_filter: AccessFilter) -> AccessFilter:
    """Return *access_filter* without the filters by field. The rights of the key, and the agent and session of the request, stay."""
    return replace(access_filter, **_NO_FILTERS)


def has_filters(access_filter: AccessFilter) -> bool:
    """Return whether *access_filter* has a filter that `remove_filters` removes."""
    return remove_filters(access_filter) != access_filter


def find_failed_filters(access_filter: AccessFilter, memory: Memory) -> tuple[str, ...]:
    """Return the names of the filters that reject *memory*, as requests name them."""
    failed = list[str]()
    for name, empty in _NO_FILTERS.items():
        value = getattr(access_filter, name)
        if value != empty and not is_visible(replace(remove_filters(access_filter), **{name: value}), memory):
            failed.append({"labels": "metadata", "scopes": "include_scopes"}.get(name, name))
    return tuple(failed)


def list_dropped(
    hits: Sequence[RecallHit], *, request: RecallRequest, returned_ids: Collection[str], skipped_ids: Collection[str], limit: int
) -> list[DroppedMemory]:
    """
    Return those of *hits*, best first, that the recall did not return, with the rule that dropped each.

    Args:
        skipped_ids: Memories that did not fit the token budget.
    """
    last_score = min((hit.ranking for hit in hits if hit.memory.id in returned_ids), default=math.inf)

    def find_rule(hit: RecallHit) -> DropRule:
        if hit.memory.id in skipped_ids:
            return "max_tokens"
        if request.min_relevance is not None and round(hit.score.relevance, SCORE_DECIMALS) < request.min_relevance:
            return "min_relevance"
        return "similar" if hit.is_repeated and round_for_ranking(hit.score.total) > last_score else "top_k"

    dropped = (hit for hit in hits if hit.memory.id not in returned_ids)
    return [DroppedMemory(hit=hit, rule=find_rule(hit)) for hit in islice(dropped, limit)]


def list_filtered(hits: Iterable[RecallHit], access_filter: AccessFilter, *, limit: int) -> list[DroppedMemory]:
    """Return those of *hits*, best first, that *access_filter* rejects, with the names of the filters."""
    filtered = ((hit, find_failed_filters(access_filter, hit.memory)) for hit in hits)
    return [DroppedMemory(hit=hit, rule="filter", filters=names) for hit, names in filtered if names][:limit]
