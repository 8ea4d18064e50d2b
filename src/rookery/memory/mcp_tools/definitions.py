"""The definitions of the `brain` tools. A model chooses a tool by its description, so each one states when to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.memory.schemas.requests import MAX_CONTENT_CHARS

MAX_FORGET_IDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainTool:
    """A tool definition; it implements `tools.ports.BuiltinTool`."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    required_scope: str


def _text_schema(max_chars: int, description: str = "") -> Mapping[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": max_chars, **({"description": description} if description else {})}


def _nullable(schema: Mapping[str, object], description: str) -> Mapping[str, object]:
    return {**schema, "type": [schema["type"], "null"], "description": description}


def _object_schema(required: Sequence[str], properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_ORG = _text_schema(100)
_PROJECT = _text_schema(255)
_SESSION = _text_schema(100, "Adds this session's memories.")
_TYPE: Mapping[str, object] = {
    "type": "string",
    "maxLength": 64,
}
_TYPES = (
    "observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, service, pattern, "
    "or your own (lower-case letters, digits, _ and -). Conventions and architecture never decay; observations do in weeks."
)
_TAGS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": {"type": "string", "minLength": 1, "maxLength": 128}}
_SCOPE: Mapping[str, object] = {"type": "string", "enum": ["project", "agent", "session", "shared"]}
_UNIT_NUMBER: Mapping[str, object] = {"type": "number", "minimum": 0, "maximum": 1}

_METADATA: Mapping[str, object] = {"type": "object", "description": "Your own fields, for filtering."}
_METADATA_FILTER: Mapping[str, object] = {"type": "object", "description": "With these values."}

_TIME_RANGE: Mapping[str, object] = {
    "since": {"type": "string", "description": "Created since, as 2026-11-21 or 2026-11-21T09:30:00Z."},
    "until": {"type": "string", "description": "Created before."},
}

_UUID: Mapping[str, object] = {"type": "string", "format": "uuid"}
_IDS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": _UUID}

TOOLS: Sequence[BrainTool] = (
    BrainTool(
        name="remember",
        description="Store one memory for later sessions: a decision, convention, fact or observation. Write one idea in full "
        "sentences that are clear on their own. To replace an outdated memory, pass its id as supersedes_id.",
        required_scope="brain:write",
        annotations={"title": "Remember", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
        input_schema=_object_schema(
            ["content"],
            {
                "content": _text_schema(MAX_CONTENT_CHARS, "The text of the memory."),
                "type": {**_TYPE, "description": f"{_TYPES} observation by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "You by default."),
                "session_id": _text_schema(100, "Required for scope session."),
                "memory_scope": {**_SCOPE, "description": "project by default; agent: only you; shared: the whole org."},
                "tags": {**_TAGS, "description": "Keywords for filtering."},
                "metadata": _METADATA,
                "confidence": {**_UNIT_NUMBER, "description": "Your certainty; 0.8 by default."},
                "source": _text_schema(100, "The origin of the memory."),
                "supersedes_id": {"type": "string", "format": "uuid", "description": "The memory that this one replaces."},
                "expires_in": {"type": "number", "exclusiveMinimum": 0, "maximum": 87600, "description": "Hours until it expires."},
                "dedupe": {"type": "boolean", "description": "Return an identical memory if one exists."},
                "wait_ms": {"type": "integer", "minimum": 0, "maximum": 5000, "description": "Wait for indexing."},
            },
        ),
    ),
    BrainTool(
        name="recall",
        description="Find the memories that best answer a question in plain language, by meaning and by words. "
        "Use it before you start a task, and when a decision may already exist.",
        required_scope="brain:read",
        annotations={"title": "Recall", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["query"],
            {
                "query": _text_schema(2000, "The question."),
                "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "5 by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds this agent's memories; yours by default."),
                "session_id": _SESSION,
                "include_scopes": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 4,
                    "items": _SCOPE,
                    "description": "Only these scopes.",
                },
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _METADATA_FILTER,
                "source": _text_schema(100, "The origin."),
                **_TIME_RANGE,
                "min_relevance": {**_UNIT_NUMBER, "description": "Minimum score."},
                "min_confidence": {**_UNIT_NUMBER, "description": "Minimum confidence."},
                "keywords": {
                    "type": "array",
                    "maxItems": 32,
                    "items": {"type": "string", "minLength": 1, "maxLength": 200},
                    "description": "Words that raise the score.",
                },
                "boost_keywords": {**_UNIT_NUMBER, "description": "Weight of the keywords; 0.2 by default."},
                "mode": {
                    "type": "string",
                    "enum": ["semantic", "keyword", "hybrid"],
                    "description": "hybrid by default.",
                },
                "max_tokens": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 1_000_000,
                    "description": "Token budget in total.",
                },
            },
        ),
    ),
    BrainTool(
        name="search",
        description='Find memories by exact words. Use it for error codes, names and identifiers. Supports "a phrase" and -excluded words.',
        required_scope="brain:read",
        annotations={"title": "Search", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["query"],
            {
                "query": _text_schema(2000, 'Words, "a phrase", -excluded.'),
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds this agent's memories; yours by default."),
                "session_id": _SESSION,
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _METADATA_FILTER,
                **_TIME_RANGE,
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "20 by default."},
                "offset": {"type": "integer", "minimum": 0, "maximum": 100_000},
            },
        ),
    ),
    BrainTool(
        name="forget",
        description="Delete memories permanently, by their ids. To replace a memory, use remember with supersedes_id instead.",
        required_scope="brain:delete",
        annotations={"title": "Forget", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["ids"],
            {"ids": {**_IDS, "minItems": 1, "maxItems": MAX_FORGET_IDS}},
        ),
    ),
    BrainTool(
        name="feedback",
        description="Report which recalled memories helped and which did not. Use it after a recall, to improve later results.",
        required_scope="brain:write",
        annotations={"title": "Feedback", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["recall_id"], {"recall_id": _UUID, "used": {**_IDS, "minItems": 0}, "ignored": {**_IDS, "minItems": 0}}
        ),
    ),
    BrainTool(
        name="context",
        description="Load your own memories, the org's shared ones and the project's latest ones. Use it when you start without a session.",
        required_scope="brain:read",
        annotations={"title": "Context", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "You by default."),
                "session_id": _SESSION,
                "max_memories": {"type": "integer", "minimum": 1, "maximum": 500, "description": "Maximum in total; 50 by default."},
            },
        ),
    ),
    BrainTool(
        name="get",
        description="Read one memory with all its fields, by its id.",
        required_scope="brain:read",
        annotations={"title": "Get", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="list",
        description="List memories by page, newest first. Use recall to answer a question.",
        required_scope="brain:read",
        annotations={"title": "List", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds this agent's memories; yours by default."),
                "session_id": _SESSION,
                "memory_scope": _SCOPE,
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _METADATA_FILTER,
                **_TIME_RANGE,
                "state": {"type": "string", "enum": ["pending_embed", "indexed", "stale", "failed", "archived"]},
                "page": {"type": "integer", "minimum": 1, "maximum": 100_000},
                "per_page": {"type": "integer", "minimum": 1, "maximum": 100, "description": "15 by default."},
            },
        ),
    ),
    BrainTool(
        name="change",
        description="Correct a memory in place. If it is outdated, use remember with supersedes_id instead.",
        required_scope="brain:write",
        annotations={"title": "Change", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["id"],
            {
                "id": _UUID,
                "content": _text_schema(MAX_CONTENT_CHARS, "The new text."),
                "type": _TYPE,
                "org": _nullable(_ORG, "null removes it."),
                "project": _nullable(_PROJECT, "null removes it."),
                "tags": {**_TAGS, "description": "All tags; replaces the old list."},
                "metadata": {**_METADATA, "type": ["object", "null"], "description": "Replaces the old object; null removes it."},
                "confidence": _UNIT_NUMBER,
                "source": _text_schema(100, "The origin of the memory."),
                "expires_in": {
                    "type": ["number", "null"],
                    "exclusiveMinimum": 0,
                    "maximum": 87600,
                    "description": "Hours until it expires; null: never.",
                },
            },
        ),
    ),
    BrainTool(
        name="archive",
        description="Remove a memory from recall and keep it for audit. restore reverses it.",
        required_scope="brain:delete",
        annotations={"title": "Archive", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="restore",
        description="Return an archived memory to recall.",
        required_scope="brain:delete",
        annotations={"title": "Restore", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="history",
        description="List what a memory replaced and what replaced it, oldest first.",
        required_scope="brain:read",
        annotations={"title": "History", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="tags",
        description="List the tags in use with their counts. Use it before you create new tags.",
        required_scope="brain:read",
        annotations={"title": "Tags", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema([], {"org": _ORG, "project": _PROJECT}),
    ),
    BrainTool(
        name="scopes",
        description="List the orgs and projects of memories, with their counts.",
        required_scope="brain:read",
        annotations={"title": "Scopes", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema([], {}),
    ),
)
