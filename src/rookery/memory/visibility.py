"""
The visibility rule of memories, as a function and as data that each vector engine can translate.

Pure functions: no I/O, no clock, no settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from rookery.kernel.clock import to_micros
from rookery.memory.models import AccessFields, AccessFilter, IndexDocument, Memory, MemoryScope

_ORG_OPTIONAL_SCOPES = frozenset({MemoryScope.AGENT, MemoryScope.SESSION})
_PROJECT_OPTIONAL_SCOPES = frozenset({MemoryScope.SHARED, MemoryScope.AGENT, MemoryScope.SESSION})
_OWNER_COLUMNS = {MemoryScope.AGENT: "agent_id", MemoryScope.SESSION: "session_id"}
"""The scopes of private memories, with the column of their owner."""


def is_visible(access_filter: AccessFilter, memory: Memory | IndexDocument) -> bool:
    """Return whether *access_filter* allows *memory*. Archiving is not part of the rule; the record store checks it."""
    return is_readable(access_filter, memory) and _matches_fields(access_filter, memory)


def is_readable(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    """Return whether *access_filter* allows *memory*, without its filters by field: type, tags, labels, source, times and confidence."""
    return (
        memory.workspace_id == access_filter.workspace_id
        and (memory.expires_at is None or memory.expires_at > access_filter.at)
        and _matches_space(access_filter, memory)
        and _matches_owner(access_filter, memory)
    )


def _matches_space(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    if memory.org is None:
        restricted = access_filter.org is not None or access_filter.orgs is not None
        if restricted and memory.memory_scope not in _ORG_OPTIONAL_SCOPES:
            return False
    elif access_filter.org not in (None, memory.org) or (access_filter.orgs is not None and memory.org not in access_filter.orgs):
        return False
    if memory.project is None:
        restricted = access_filter.project is not None or access_filter.projects is not None
        return not restricted or memory.memory_scope in _PROJECT_OPTIONAL_SCOPES
    if access_filter.project not in (None, memory.project):
        return False
    return access_filter.projects is None or memory.project in access_filter.projects


def _matches_owner(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    if access_filter.scopes is not None and memory.memory_scope not in access_filter.scopes:
        return False
    match memory.memory_scope:
        case MemoryScope.AGENT:
            return access_filter.includes_all_agents or (access_filter.agent_id is not None and memory.agent_id == access_filter.agent_id)
        case MemoryScope.SESSION:
            return memory.session_id in access_filter.session_ids
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            return True


def _matches_fields(access_filter: AccessFilter, memory: Memory | IndexDocument) -> bool:
    return (
        (access_filter.type is None or memory.type == access_filter.type)
        and (access_filter.source is None or memory.source == access_filter.source)
        and access_filter.tags.issubset(memory.tags)
        and (not access_filter.labels or access_filter.labels.issubset(memory.labels))
        and (access_filter.since is None or memory.created_at >= access_filter.since)
        and (access_filter.until is None or memory.created_at < access_filter.until)
        and (access_filter.min_confidence is None or memory.confidence >= access_filter.min_confidence)
    )


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The value of a column is one of *values*; None stands for a missing one."""

    values: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class AllOf:
    """The values of a column, which has several, contain all of *values*."""

    values: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The number in a column is at least *minimum* and less than *end*; a missing number matches only if *or_missing*."""

    minimum: float | None = None
    end: float | None = None
    or_missing: bool = False


Condition = AnyOf | AllOf | Range
Conditions = Mapping[str, Condition]
"""Conditions by column; a memory must meet all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFilter:
    """
    The memories of a workspace that a search may return.

    The columns are the fields of `IndexDocument`: `memory_id`, `org`, `project`, `agent_id`, `session_id`, `memory_scope`, `type` and
    `source` with `AnyOf`; `facets` with `AllOf`; `confidence`, `created_at` and `expires_at` with `Range`, times in microseconds.

    Attributes:
        required: Conditions that a memory must meet.
        alternatives: A memory must also meet one of these; None for no such restriction, and no alternatives match nothing.
    """

    workspace_id: int
    required: Conditions = field(default_factory=dict[str, Condition])
    alternatives: tuple[Conditions, ...] | None = None


def filter_ids(workspace_id: int, ids: Collection[str]) -> VectorFilter:
    """Return a filter for the memories *ids*, regardless of access rights."""
    return VectorFilter(workspace_id=workspace_id, required={"memory_id": AnyOf(frozenset(ids))})


def filter_readable_ids(access_filter: AccessFilter, ids: Collection[str]) -> VectorFilter:
    """Return a filter for those of *ids* that the caller of *access_filter* may read, whatever else the request filters by."""
    readable = build_vector_filter(
        AccessFilter(
            workspace_id=access_filter.workspace_id,
            at=access_filter.at,
            agent_id=access_filter.agent_id,
            session_id=access_filter.session_id,
            continued_session_ids=access_filter.continued_session_ids,
            orgs=access_filter.orgs,
            projects=access_filter.projects,
        )
    )
    return replace(readable, required={**readable.required, "memory_id": AnyOf(frozenset(ids))})


def build_vector_filter(access_filter: AccessFilter) -> VectorFilter:
    """Return *access_filter* as data. `is_visible` is the reference definition."""
    required: dict[str, Condition] = {"expires_at": Range(minimum=to_micros(access_filter.at) + 1, or_missing=True)}
    for column, value in (("type", access_filter.type), ("source", access_filter.source)):
        if value is not None:
            required[column] = AnyOf(frozenset({value}))
    if access_filter.tags or access_filter.labels:
        required["facets"] = AllOf(access_filter.facets)
    if access_filter.min_confidence is not None:
        required["confidence"] = Range(minimum=access_filter.min_confidence)
    if access_filter.since is not None or access_filter.until is not None:
        required["created_at"] = Range(
            minimum=None if access_filter.since is None else to_micros(access_filter.since),
            end=None if access_filter.until is None else to_micros(access_filter.until),
        )
    scopes_by_conditions = dict[tuple[tuple[str, Condition], ...], set[str | None]]()
    for scope in MemoryScope if access_filter.scopes is None else access_filter.scopes:
        conditions = _scope_conditions(access_filter, scope)
        scopes_by_conditions.setdefault(tuple(conditions.items()), set()).add(scope.value)
    alternatives = tuple({"memory_scope": AnyOf(frozenset(scopes)), **dict(items)} for items, scopes in scopes_by_conditions.items())
    return VectorFilter(workspace_id=access_filter.workspace_id, required=required, alternatives=alternatives)


def _scope_conditions(access_filter: AccessFilter, scope: MemoryScope) -> dict[str, Condition]:
    """Return the conditions on memories of *scope*. Private ones need no org, and private and shared ones need no project."""
    conditions: dict[str, Condition] = {}
    owner_column = _OWNER_COLUMNS.get(scope)
    is_private = owner_column is not None
    for column, name, allowed, is_optional in (
        ("org", access_filter.org, access_filter.orgs, is_private),
        ("project", access_filter.project, access_filter.projects, is_private or scope is MemoryScope.SHARED),
    ):
        names = None if name is None else frozenset({name})
        if allowed is not None:
            names = allowed if names is None else names & allowed
        if names is not None:
            conditions[column] = AnyOf(names | {None} if is_optional else frozenset(names))
    if owner_column is not None:
        agents = frozenset[str]() if access_filter.agent_id is None else frozenset({access_filter.agent_id})
        # Without an owner nothing matches: a private memory without one is visible to no query.
        conditions[owner_column] = AnyOf(frozenset(agents if scope is MemoryScope.AGENT else access_filter.session_ids))
    return conditions
