"""The tools of `brain`: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.memory.schemas.requests import MAX_CONTENT_CHARS

MAX_FORGET_IDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainTool:
    """One tool, as `tools.ports.BuiltinTool` asks for it."""

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
_SESSION = _text_schema(100, "Adds the memories of this session.")
_TYPE: Mapping[str, object] = {
    "type": "string",
    "pattern": "^[a-z][a-z0-9_-]{0,63}$",
}
_TYPES = (
    "observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, service, pattern, "
    "or a word of your own. Conventions and architecture never fade; observations do within weeks."
)
_TAGS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": {"type": "string", "minLength": 1, "maxLength": 128}}
_SCOPE: Mapping[str, object] = {"type": "string", "enum": ["project", "agent", "session", "shared"]}
_UNIT_NUMBER: Mapping[str, object] = {"type": "number", "minimum": 0, "maximum": 1}

_METADATA: Mapping[str, object] = {"type": "object", "description": "Your own fields, to filter by."}
_METADATA_FILTER: Mapping[str, object] = {"type": "object", "description": "With these values."}

_TIME_RANGE: Mapping[str, object] = {
    "since": {"type": "string", "description": "From then on, as 2026-11-21 or 2026-11-21T09:30:00Z."},
    "until": {"type": "string", "description": "Before then."},
}

_UUID: Mapping[str, object] = {"type": "string", "format": "uuid"}
_IDS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": _UUID}

TOOLS: Sequence[BrainTool] = (
    BrainTool(
        name="remember",
        description="Store one memory worth knowing in a later session: a decision, convention, fact or observation. One idea, "
        "in full sentences that make sense on their own. If it replaces an untrue memory, pass that id as supersedes_id.",
        required_scope="brain:write",
        annotations={"title": "Remember", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
        input_schema=_object_schema(
            ["content"],
            {
                "content": _text_schema(MAX_CONTENT_CHARS, "The memory, in plain words."),
                "type": {**_TYPE, "description": f"{_TYPES} observation by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "By default you."),
                "session_id": _text_schema(100, "Required for scope session."),
                "memory_scope": {**_SCOPE, "description": "project by default; agent: you alone; shared: the org."},
                "tags": {**_TAGS, "description": "Words to find it by."},
                "metadata": _METADATA,
                "confidence": {**_UNIT_NUMBER, "description": "How sure you are; 0.8 by default."},
                "source": _text_schema(100, "Where it comes from."),
                "supersedes_id": {"type": "string", "format": "uuid", "description": "The memory that this one replaces."},
                "expires_in": {"type": "number", "exclusiveMinimum": 0, "maximum": 87600, "description": "Hours until it expires."},
                "dedupe": {"type": "boolean", "description": "Return an identical memory if there is one."},
                "wait_ms": {"type": "integer", "minimum": 0, "maximum": 5000, "description": "Wait until it can be recalled."},
            },
        ),
    ),
    BrainTool(
        name="recall",
        description="Ask memory a question in plain language and get the memories that answer it best, by meaning and by words. "
        "Do this before starting a task or when something seems to have been decided before.",
        required_scope="brain:read",
        annotations={"title": "Recall", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["query"],
            {
                "query": _text_schema(2000, "What you want to know."),
                "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "5 by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds an agent's own memories; by default yours."),
                "session_id": _SESSION,
                "include_scopes": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 4,
                    "items": _SCOPE,
                    "description": "Only these.",
                },
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _METADATA_FILTER,
                "source": _text_schema(100, "Where they come from."),
                **_TIME_RANGE,
                "min_relevance": {**_UNIT_NUMBER, "description": "Least score."},
                "min_confidence": {**_UNIT_NUMBER, "description": "How sure the author was."},
                "keywords": {
                    "type": "array",
                    "maxItems": 32,
                    "items": {"type": "string", "minLength": 1, "maxLength": 200},
                    "description": "Words that raise a memory.",
                },
                "boost_keywords": {**_UNIT_NUMBER, "description": "By how much; 0.2 by default."},
                "mode": {
                    "type": "string",
                    "enum": ["semantic", "keyword", "hybrid"],
                    "description": "hybrid by default.",
                },
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "description": "For all memories together."},
            },
        ),
    ),
    BrainTool(
        name="search",
        description='Find memories by their exact words: error codes, names, identifiers. "A phrase" in quotes, -without a word.',
        required_scope="brain:read",
        annotations={"title": "Search", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["query"],
            {
                "query": _text_schema(2000, 'Words, "a phrase", -without this.'),
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds an agent's own memories; by default yours."),
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
        description="Delete memories for good, by their ids. To replace a memory by a better one, use remember with supersedes_id.",
        required_scope="brain:delete",
        annotations={"title": "Forget", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["ids"],
            {"ids": {**_IDS, "minItems": 1, "maxItems": MAX_FORGET_IDS}},
        ),
    ),
    BrainTool(
        name="feedback",
        description="After a recall, say which memories helped and which did not; good ones then come first more often.",
        required_scope="brain:write",
        annotations={"title": "Feedback", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["recall_id"], {"recall_id": _UUID, "used": {**_IDS, "minItems": 0}, "ignored": {**_IDS, "minItems": 0}}
        ),
    ),
    BrainTool(
        name="context",
        description="Load what to begin with, if you start no session: your own memories, what the org shares, the project's latest.",
        required_scope="brain:read",
        annotations={"title": "Context", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "By default you."),
                "session_id": _SESSION,
                "max_memories": {"type": "integer", "minimum": 1, "maximum": 500, "description": "In all; 50 by default."},
            },
        ),
    ),
    BrainTool(
        name="get",
        description="Read one memory in full by its id.",
        required_scope="brain:read",
        annotations={"title": "Get", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="list",
        description="List memories page by page, newest first, without a question.",
        required_scope="brain:read",
        annotations={"title": "List", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text_schema(100, "Adds an agent's own memories; by default yours."),
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
        description="Correct a memory in place. If it is no longer true, remember the new state with supersedes_id instead.",
        required_scope="brain:write",
        annotations={"title": "Change", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(
            ["id"],
            {
                "id": _UUID,
                "content": _text_schema(MAX_CONTENT_CHARS, "The new text."),
                "type": _TYPE,
                "org": _nullable(_ORG, "The organisation; null: none."),
                "project": _nullable(_PROJECT, "The project within the org; null: none."),
                "tags": {**_TAGS, "description": "Replace the old ones."},
                "metadata": {**_METADATA, "type": ["object", "null"], "description": "Replaces the old one; null: none."},
                "confidence": _UNIT_NUMBER,
                "source": _text_schema(100, "Where it comes from."),
                "expires_in": {
                    "type": ["number", "null"],
                    "exclusiveMinimum": 0,
                    "maximum": 87600,
                    "description": "Hours; null: never.",
                },
            },
        ),
    ),
    BrainTool(
        name="archive",
        description="Take a memory out of recall and keep it for audit; restore brings it back.",
        required_scope="brain:delete",
        annotations={"title": "Archive", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="restore",
        description="Bring an archived memory back into recall.",
        required_scope="brain:delete",
        annotations={"title": "Restore", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="history",
        description="Show what a memory replaced and what replaced it, oldest first.",
        required_scope="brain:read",
        annotations={"title": "History", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema(["id"], {"id": _UUID}),
    ),
    BrainTool(
        name="tags",
        description="List the tags in use with how many memories have each: learn the words before you invent new ones.",
        required_scope="brain:read",
        annotations={"title": "Tags", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema([], {"org": _ORG, "project": _PROJECT}),
    ),
    BrainTool(
        name="scopes",
        description="List the orgs and projects that memories belong to, with how many each has.",
        required_scope="brain:read",
        annotations={"title": "Scopes", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object_schema([], {}),
    ),
)
