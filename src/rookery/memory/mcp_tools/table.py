"""The tools of `brain`: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.memory.schemas import MAX_CONTENT

MAX_FORGET = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainTool:
    """One tool, as `tools.ports.BuiltinTool` asks for it."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    needs: str


def _text(most: int, says: str = "") -> Mapping[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": most, **({"description": says} if says else {})}


def _or_none(schema: Mapping[str, object], says: str) -> Mapping[str, object]:
    return {**schema, "type": [schema["type"], "null"], "description": says}


def _object(required: Sequence[str], properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_ORG = _text(100)
_PROJECT = _text(255)
_SESSION = _text(100, "Adds the memories of this session.")
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
_SHARE: Mapping[str, object] = {"type": "number", "minimum": 0, "maximum": 1}

_METADATA: Mapping[str, object] = {"type": "object", "description": "Your own fields, to filter by."}
_PAIRS: Mapping[str, object] = {"type": "object", "description": "With these values."}

_WHEN: Mapping[str, object] = {
    "since": {"type": "string", "description": "From then on, as 2026-11-21 or 2026-11-21T09:30:00Z."},
    "until": {"type": "string", "description": "Before then."},
}

_ONE: Mapping[str, object] = {"type": "string", "format": "uuid"}
_IDS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": _ONE}

TOOLS: Sequence[BrainTool] = (
    BrainTool(
        name="remember",
        description="Store one memory worth knowing in a later session: a decision, convention, fact or observation. One idea, "
        "in full sentences that make sense on their own. If it replaces an untrue memory, pass that id as supersedes_id.",
        needs="brain:write",
        annotations={"title": "Remember", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
        input_schema=_object(
            ["content"],
            {
                "content": _text(MAX_CONTENT, "The memory, in plain words."),
                "type": {**_TYPE, "description": f"{_TYPES} observation by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "By default you."),
                "session_id": _text(100, "Required for scope session."),
                "memory_scope": {**_SCOPE, "description": "project by default; agent: you alone; shared: the org."},
                "tags": {**_TAGS, "description": "Words to find it by."},
                "metadata": _METADATA,
                "confidence": {**_SHARE, "description": "How sure you are; 0.8 by default."},
                "source": _text(100, "Where it comes from."),
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
        needs="brain:read",
        annotations={"title": "Recall", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(
            ["query"],
            {
                "query": _text(2000, "What you want to know."),
                "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "5 by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "Adds an agent's own memories; by default yours."),
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
                "metadata": _PAIRS,
                "source": _text(100, "Where they come from."),
                **_WHEN,
                "min_relevance": {**_SHARE, "description": "Least score."},
                "min_confidence": {**_SHARE, "description": "How sure the author was."},
                "keywords": {
                    "type": "array",
                    "maxItems": 32,
                    "items": {"type": "string", "minLength": 1, "maxLength": 200},
                    "description": "Words that raise a memory.",
                },
                "boost_keywords": {**_SHARE, "description": "By how much; 0.2 by default."},
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
        needs="brain:read",
        annotations={"title": "Search", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(
            ["query"],
            {
                "query": _text(2000, 'Words, "a phrase", -without this.'),
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "Adds an agent's own memories; by default yours."),
                "session_id": _SESSION,
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _PAIRS,
                **_WHEN,
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "20 by default."},
                "offset": {"type": "integer", "minimum": 0, "maximum": 100_000},
            },
        ),
    ),
    BrainTool(
        name="forget",
        description="Delete memories for good, by their ids. To replace a memory by a better one, use remember with supersedes_id.",
        needs="brain:delete",
        annotations={"title": "Forget", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object(
            ["ids"],
            {"ids": {**_IDS, "minItems": 1, "maxItems": MAX_FORGET}},
        ),
    ),
    BrainTool(
        name="feedback",
        description="After a recall, say which memories helped and which did not; good ones then come first more often.",
        needs="brain:write",
        annotations={"title": "Feedback", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object(["recall_id"], {"recall_id": _ONE, "used": {**_IDS, "minItems": 0}, "ignored": {**_IDS, "minItems": 0}}),
    ),
    BrainTool(
        name="context",
        description="Load what to begin with, if you start no session: your own memories, what the org shares, the project's latest.",
        needs="brain:read",
        annotations={"title": "Context", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "By default you."),
                "session_id": _SESSION,
                "max_memories": {"type": "integer", "minimum": 1, "maximum": 500, "description": "In all; 50 by default."},
            },
        ),
    ),
    BrainTool(
        name="get",
        description="Read one memory in full by its id.",
        needs="brain:read",
        annotations={"title": "Get", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(["id"], {"id": _ONE}),
    ),
    BrainTool(
        name="list",
        description="List memories page by page, newest first, without a question.",
        needs="brain:read",
        annotations={"title": "List", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(
            [],
            {
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "Adds an agent's own memories; by default yours."),
                "session_id": _SESSION,
                "memory_scope": _SCOPE,
                "type": _TYPE,
                "tags": {**_TAGS, "description": "With all of these."},
                "metadata": _PAIRS,
                **_WHEN,
                "state": {"type": "string", "enum": ["pending_embed", "indexed", "stale", "failed", "archived"]},
                "page": {"type": "integer", "minimum": 1, "maximum": 100_000},
                "per_page": {"type": "integer", "minimum": 1, "maximum": 100, "description": "15 by default."},
            },
        ),
    ),
    BrainTool(
        name="change",
        description="Correct a memory in place. If it is no longer true, remember the new state with supersedes_id instead.",
        needs="brain:write",
        annotations={"title": "Change", "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object(
            ["id"],
            {
                "id": _ONE,
                "content": _text(MAX_CONTENT, "The new text."),
                "type": _TYPE,
                "org": _or_none(_ORG, "The organisation; null: none."),
                "project": _or_none(_PROJECT, "The project within the org; null: none."),
                "tags": {**_TAGS, "description": "Replace the old ones."},
                "metadata": {**_METADATA, "type": ["object", "null"], "description": "Replaces the old one; null: none."},
                "confidence": _SHARE,
                "source": _text(100, "Where it comes from."),
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
        needs="brain:delete",
        annotations={"title": "Archive", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object(["id"], {"id": _ONE}),
    ),
    BrainTool(
        name="restore",
        description="Bring an archived memory back into recall.",
        needs="brain:delete",
        annotations={"title": "Restore", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        input_schema=_object(["id"], {"id": _ONE}),
    ),
    BrainTool(
        name="history",
        description="Show what a memory replaced and what replaced it, oldest first.",
        needs="brain:read",
        annotations={"title": "History", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object(["id"], {"id": _ONE}),
    ),
    BrainTool(
        name="tags",
        description="List the tags in use with how many memories have each: learn the words before you invent new ones.",
        needs="brain:read",
        annotations={"title": "Tags", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object([], {"org": _ORG, "project": _PROJECT}),
    ),
    BrainTool(
        name="scopes",
        description="List the orgs and projects that memories belong to, with how many each has.",
        needs="brain:read",
        annotations={"title": "Scopes", "readOnlyHint": True, "openWorldHint": False},
        input_schema=_object([], {}),
    ),
)
