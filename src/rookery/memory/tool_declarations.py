"""
The tools of the MCP server `brain`: their descriptions, published arguments and texts.

A model chooses a tool by its description, so each one states when to use it. `memory.api` attaches each tool to its operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, cast

from rookery.access.models import Caller
from rookery.kernel.http.operation_tools import ServerDeclaration
from rookery.kernel.http.operations import ToolDeclaration
from rookery.kernel.http.result_budgets import ResultBudget
from rookery.kernel.working_context import WorkingContext, add_org_and_project
from rookery.memory.models import FACET_FIELDS, Draft, MemorySettings

SERVER = ServerDeclaration(
    id="brain",
    name="Shared memory",
    tagline="The knowledge of your agents, shared and searchable.",
    description=(
        "Long-term memory shared by all agents of a workspace. Recall before you start a task. Remember decisions, conventions and "
        "facts that will matter later. Supersede memories that are no longer true."
    ),
)


def own_agent(caller: Caller) -> Mapping[str, object]:
    """Return the caller's agent as the default of an argument, so that agents see their own memories too."""
    return {} if caller.agent_id is None else {"agent_id": caller.agent_id}


def add_space(parameters: dict[str, object], context: WorkingContext) -> None:
    """Add the org and project of the caller's session to a memory that names none, as far as its scope has them."""
    scope = parameters.get("memory_scope", "project")
    if scope == "shared":
        if context.org is not None:
            parameters.setdefault("org", context.org)
    elif scope != "agent":  # an agent's own memories follow it into every project
        add_org_and_project(parameters, context)
    if scope == "session":
        parameters.setdefault("session_id", context.session_id)


_TYPES = "decision, convention, architecture, procedure, fact, bug, pattern or your own; default observation, which decays in weeks."
_FILTERS: Mapping[str, str] = {
    "org": "Default: all.",
    "project": "Default: all.",
    "agent_id": "Default: yours.",
    "session_id": "",
}
_FIELD_FILTERS: Mapping[str, str] = {
    "type": "",
    "tags": "With all.",
    "metadata": "",
    **dict.fromkeys(FACET_FIELDS, ""),
    "since": "As 2026-11-21.",
    "until": "",
}


def _add_fields(arguments: Mapping[str, str], source: type[Any]) -> Mapping[str, str]:
    """Return *arguments* and, after them, the other fields of *source*."""
    return {**arguments, **{field.name: "" for field in fields(source) if field.name not in arguments}}


REMEMBER = ToolDeclaration(
    name="remember",
    description="Store one memory for later sessions: one decision or fact in full sentences "
    "that are clear on their own. To replace an outdated memory, pass its id as supersedes_id.",
    effect="creates",
    arguments=_add_fields(
        {
            "content": "",
            "type": _TYPES,
            "org": "Default: your session's.",
            "project": "Default: your session's, named in <rookery_memory>.",
            "agent_id": "Default: you.",
            "session_id": "For scope session; default: yours.",
            "memory_scope": "project by default; agent: only you; shared: the whole org.",
            "tags": "",
            "metadata": "Your own fields.",
            "confidence": "0.8 by default.",
            "source": "",
            "supersedes_id": "",
            "expires_in": "Hours.",
        },
        Draft,
    ),
    add_context=add_space,
    is_always_loaded=True,
)
RECALL = ToolDeclaration(
    name="recall",
    description="Find the memories that best answer a question in plain language. "
    "Use it before you start a task, and when a decision may already exist.",
    effect="reads",
    arguments={
        "query": "",
        "top_k": "5 by default.",
        **_FILTERS,
        "include_scopes": "",
        **_FIELD_FILTERS,
        "min_relevance": "",
        "keywords": "Words that raise the score.",
        "mode": "hybrid by default.",
        "max_tokens": "Default 6000.",
        "context": "Neighbours to add.",
    },
    budget=ResultBudget(lists=("memories",)),
    is_always_loaded=True,
)
SEARCH = ToolDeclaration(
    name="search",
    description='Find memories by exact words, such as error codes, names and identifiers. Supports "a phrase" and -excluded words.',
    effect="reads",
    arguments={
        "query": "",
        **_FILTERS,
        **_FIELD_FILTERS,
        "limit": "20 by default.",
        "cursor": "",
        "max_tokens": "",
    },
    renames={"query": "q"},
    defaults=own_agent,
    budget=ResultBudget(lists=("hits",)),
)
FORGET = ToolDeclaration(
    name="forget",
    description="Delete memories permanently. To replace one, use remember with supersedes_id.",
    effect="destroys",
    arguments={"ids": ""},
)
FEEDBACK = ToolDeclaration(
    name="feedback",
    description="Report which recalled memories helped and which did not, to improve later results.",
    effect="updates",
    arguments={"recall_id": "", "used": "", "ignored": ""},
)
CONTEXT = ToolDeclaration(
    name="context",
    description="Load your memories, the org's shared ones and the project's latest. For a start without a session.",
    effect="reads",
    arguments={
        "org": "Default: all.",
        "project": "Default: all.",
        "agent_id": "Default: you.",
        "session_id": "",
        "max_memories": "50 by default.",
        "max_tokens": "",
    },
    defaults=own_agent,
    budget=ResultBudget(lists=("agent", "shared", "project", "session")),
)
GET = ToolDeclaration(
    name="get",
    description="Read one whole memory, such as one that is truncated.",
    effect="reads",
    arguments={"id": ""},
    renames={"id": "memory_id"},
)
LIST = ToolDeclaration(
    name="list",
    description="List memories, newest first. Use recall to answer a question.",
    effect="reads",
    arguments={
        **_FILTERS,
        "memory_scope": "",
        **_FIELD_FILTERS,
        "state": "indexed, archived, …",
        "cursor": "",
        "per_page": "",
        "max_tokens": "",
    },
    schemas={"state": {"type": "string"}, "per_page": {"type": "integer"}},
    defaults=own_agent,
    items="memories",
    budget=ResultBudget(lists=("memories",)),
)
CHANGE = ToolDeclaration(
    name="change",
    description="Correct a memory in place. If it is outdated, use remember with supersedes_id.",
    effect="destroys",
    arguments=_add_fields(
        {
            "id": "",
            "content": "",
            "type": "",
            "org": "null removes it.",
            "project": "null removes it.",
            "tags": "Replaces all.",
            "metadata": "Replaces all; null removes it.",
            "confidence": "",
            "source": "",
            "expires_in": "Hours; null: never.",
        },
        MemorySettings,
    ),
    renames={"id": "memory_id"},
    nullable=("org", "project", "metadata", "expires_in"),
)
ARCHIVE = ToolDeclaration(
    name="archive",
    description="Remove a memory from recall; restore reverses it.",
    effect="updates",
    arguments={"id": ""},
    renames={"id": "memory_id"},
)
RESTORE = ToolDeclaration(
    name="restore",
    description="Return an archived memory to recall.",
    effect="updates",
    arguments={"id": ""},
    renames={"id": "memory_id"},
)
HISTORY = ToolDeclaration(
    name="history",
    description="List what a memory replaced and what replaced it, oldest first.",
    effect="reads",
    arguments={"id": ""},
    renames={"id": "memory_id"},
    budget=ResultBudget(lists=("history",)),
)
TAGS = ToolDeclaration(
    name="tags",
    description="List the tags in use with their counts, before you create new ones.",
    effect="reads",
    arguments={"org": "Default: all.", "project": "Default: all."},
    defaults=own_agent,
)
SCOPES = ToolDeclaration(
    name="scopes",
    description="List the orgs and projects of memories, with their counts.",
    effect="reads",
    defaults=own_agent,
)

_DECIMALS = 2
_DATE_CHARS = len("2026-11-21")

_OMITTED_FIELDS = frozenset(
    {
        *("workspace_id", "base_confidence", "effective_confidence", "similarity", "highlight", "took_ms"),
        *("indexed", "indexed_at", "updated_at", "duplicate", "created_by", "updated_by"),
    }
)
_DEFAULTS: Mapping[str, object] = {"memory_scope": "project", "source": "manual", "state": "indexed", "is_confident": True}
_AUTHORS = ("created_by", "updated_by")
"""Fields that only the tool `get` shows to a model."""

_SHOWN_IF_FALSE = frozenset({"is_confident"})
_LIST_FIELDS = frozenset({"memories", "hits", "agent", "shared", "project", "session", "history"})


def compact_output(tool: str, answer: Mapping[str, object]) -> Mapping[str, object]:
    """
    Return *answer*, the output of *tool*, as a model reads it.

    It lacks fields that are null, empty or at their default, and fields that only programs need. Scores have two decimals; times are
    dates.
    """
    if tool in {"tags", "scopes", "forget", "feedback"}:
        return cast("Mapping[str, object]", _compact_value(answer))
    compact = {
        name: [_compact_memory(item) for item in cast("Sequence[Mapping[str, object]]", value)]
        if name in _LIST_FIELDS and isinstance(value, list)
        else value
        for name, value in answer.items()
    }
    authors = {name: _compact_value(answer[name]) for name in _AUTHORS if answer.get(name)} if tool == "get" else {}
    return {**_compact_memory(compact), **authors}


def _compact_memory(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return a memory, or an object that contains memories, with only the fields that a model needs."""
    compact = {
        name: _compact_field(name, value) for name, value in fields.items() if name not in _OMITTED_FIELDS and _DEFAULTS.get(name) != value
    }
    return {name: value for name, value in compact.items() if name in _SHOWN_IF_FALSE or not _is_empty(value)}


def _compact_field(name: str, value: object) -> object:
    if name == "metadata":
        return value
    if name == "memory" and isinstance(value, dict):
        return _compact_memory(cast("Mapping[str, object]", value))
    if name.endswith("_at") and isinstance(value, str):
        return value[:_DATE_CHARS]
    return _compact_value(value)


def _compact_value(value: object) -> object:
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, list):
        return [_compact_value(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        return {name: _compact_value(item) for name, item in cast("Mapping[str, object]", value).items() if item is not None}
    return value


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})
