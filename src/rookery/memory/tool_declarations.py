"""
The tools of the MCP server `brain` (D-92): their descriptions, published arguments and texts.

A model chooses a tool by its description, so each one states when to use it. `memory.api` attaches each tool to its operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

from rookery.access.models import Caller
from rookery.kernel.http.operation_tools import ServerDeclaration
from rookery.kernel.http.operations import ToolDeclaration

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


_TYPES = (
    "observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, service, pattern, "
    "or your own (lower-case letters, digits, _ and -). Conventions and architecture never decay; observations do in weeks."
)
_FILTERS: Mapping[str, str] = {
    "org": "",
    "project": "",
    "agent_id": "Adds this agent's memories; yours by default.",
    "session_id": "Adds this session's memories.",
}
_FIELD_FILTERS: Mapping[str, str] = {
    "type": "",
    "tags": "With all of these.",
    "metadata": "With these values.",
    "since": "Created since, as 2026-11-21T09:30:00Z.",
    "until": "Created before.",
}

REMEMBER = ToolDeclaration(
    name="remember",
    description="Store one memory for later sessions: a decision, convention, fact or observation. Write one idea in full "
    "sentences that are clear on their own. To replace an outdated memory, pass its id as supersedes_id.",
    effect="creates",
    arguments={
        "content": "The text of the memory.",
        "type": f"{_TYPES} observation by default.",
        "org": "",
        "project": "",
        "agent_id": "You by default.",
        "session_id": "Required for scope session.",
        "memory_scope": "project by default; agent: only you; shared: the whole org.",
        "tags": "Keywords for filtering.",
        "metadata": "Your own fields, for filtering.",
        "confidence": "Your certainty; 0.8 by default.",
        "source": "The origin of the memory.",
        "supersedes_id": "The memory that this one replaces.",
        "expires_in": "Hours until it expires.",
        "dedupe": "Return an identical memory if one exists.",
        "wait_ms": "Wait for indexing.",
    },
)
RECALL = ToolDeclaration(
    name="recall",
    description="Find the memories that best answer a question in plain language, by meaning and by words. "
    "Use it before you start a task, and when a decision may already exist.",
    effect="reads",
    arguments={
        "query": "The question.",
        "top_k": "5 by default.",
        **_FILTERS,
        "include_scopes": "",
        **_FIELD_FILTERS,
        "source": "The origin.",
        "min_relevance": "",
        "min_confidence": "",
        "keywords": "Words that raise the score.",
        "boost_keywords": "Weight of the keywords; 0.2 by default.",
        "mode": "hybrid by default.",
        "max_tokens": "Token budget in total.",
        "context": "Neighbours to add.",
    },
)
SEARCH = ToolDeclaration(
    name="search",
    description='Find memories by exact words. Use it for error codes, names and identifiers. Supports "a phrase" and -excluded words.',
    effect="reads",
    arguments={"query": 'Words, "a phrase", -excluded.', **_FILTERS, **_FIELD_FILTERS, "limit": "20 by default.", "offset": ""},
    renames={"query": "q"},
    defaults=own_agent,
)
FORGET = ToolDeclaration(
    name="forget",
    description="Delete memories permanently, by their ids. To replace a memory, use remember with supersedes_id instead.",
    effect="destroys",
    arguments={"ids": ""},
)
FEEDBACK = ToolDeclaration(
    name="feedback",
    description="Report which recalled memories helped and which did not. Use it after a recall, to improve later results.",
    effect="updates",
    arguments={"recall_id": "", "used": "", "ignored": ""},
)
CONTEXT = ToolDeclaration(
    name="context",
    description="Load your own memories, the org's shared ones and the project's latest ones. Use it when you start without a session.",
    effect="reads",
    arguments={
        "org": "",
        "project": "",
        "agent_id": "You by default.",
        "session_id": "Adds this session's memories.",
        "max_memories": "Maximum in total; 50 by default.",
    },
    defaults=own_agent,
)
GET = ToolDeclaration(
    name="get",
    description="Read one memory with all its fields, by its id.",
    effect="reads",
    arguments={"id": ""},
    renames={"id": "memory_id"},
)
LIST = ToolDeclaration(
    name="list",
    description="List memories by page, newest first. Use recall to answer a question.",
    effect="reads",
    arguments={**_FILTERS, "memory_scope": "", **_FIELD_FILTERS, "state": "", "page": "", "per_page": "15 by default."},
    defaults=own_agent,
    items="memories",
)
CHANGE = ToolDeclaration(
    name="change",
    description="Correct a memory in place. If it is outdated, use remember with supersedes_id instead.",
    effect="destroys",
    arguments={
        "id": "",
        "content": "The new text.",
        "type": "",
        "org": "null removes it.",
        "project": "null removes it.",
        "tags": "All tags; replaces the old list.",
        "metadata": "Replaces the old object; null removes it.",
        "confidence": "",
        "source": "The origin of the memory.",
        "expires_in": "Hours until it expires; null: never.",
    },
    renames={"id": "memory_id"},
    nullable=("org", "project", "metadata", "expires_in"),
)
ARCHIVE = ToolDeclaration(
    name="archive",
    description="Remove a memory from recall and keep it for audit. restore reverses it.",
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
)
TAGS = ToolDeclaration(
    name="tags",
    description="List the tags in use with their counts. Use it before you create new tags.",
    effect="reads",
    arguments={"org": "", "project": ""},
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
        *("indexed", "indexed_at", "updated_at", "duplicate"),
    }
)
_DEFAULTS: Mapping[str, object] = {"memory_scope": "project", "source": "manual", "state": "indexed", "is_confident": True}
_SHOWN_IF_FALSE = frozenset({"is_confident"})
_LIST_FIELDS = frozenset({"memories", "hits", "agent", "shared", "project", "session", "history"})


def render_text(tool: str, answer: Mapping[str, object]) -> str:
    """
    Return the text of *answer*, the output of *tool*, for a model: the same JSON with fewer fields.

    It omits fields that are null, empty or at their default, and fields that only programs need. Scores have two decimals; times are
    dates. The whole answer is in structuredContent.
    """
    if tool in {"tags", "scopes", "forget", "feedback"}:
        return _to_json(_compact_value(answer))
    compact = {
        name: [_compact_memory(item) for item in cast("Sequence[Mapping[str, object]]", value)]
        if name in _LIST_FIELDS and isinstance(value, list)
        else value
        for name, value in answer.items()
    }
    return _to_json(_compact_memory(compact))


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


def _to_json(value: object) -> str:
    return orjson.dumps(value).decode()
