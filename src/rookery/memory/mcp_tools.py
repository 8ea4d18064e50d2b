"""Memory as tools of the built-in MCP server `brain` (D-92): each is its REST twin for an agent's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.kernel.wire import refusal
from rookery.memory.answers import Answers
from rookery.memory.models import Filters
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.schemas import MAX_CONTENT, RecallBody, RememberBody, SearchQuery
from rookery.memory.search import Search

B = TypeVar("B", bound=BaseModel)

MAX_FORGET = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainTool:
    """One tool, as `tools.ports.BuiltinTool` asks for it."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    needs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainServer:
    """The built-in server `brain`: it acts as its caller, with the verbs of the REST API."""

    remember: Remember
    records: Records
    recall: Recall
    search: Search
    answers: Answers
    id: str = "brain"
    name: str = "Shared memory"
    tagline: str = "What your agents know, shared and searchable."
    description: str = (
        "Long-term memory shared by all agents of a workspace. Recall before you start a task; remember decisions, conventions and "
        "facts worth knowing next time; supersede what is no longer true."
    )

    def tools(self) -> Sequence[BrainTool]:
        """Return all tools."""
        return TOOLS

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return the body of its REST twin's answer.

        Raises:
            NotFound: There is no such tool.
            RookeryError: What the verb raises.
        """
        match tool:
            case "remember":
                body = _valid(RememberBody, arguments)
                return _plain(self.answers.remembered(caller, await self.remember.one(caller, body.draft(), wait_s=body.wait_ms / 1000)))
            case "recall":
                question = _valid(RecallBody, arguments).question("hybrid")
                asked = replace(question, filters=_own(question.filters, caller))
                return _plain(self.answers.recalled(await self.recall.ask(caller, asked), explain=False))
            case "search":
                return await self._search(arguments, caller)
            case "forget":
                return await self._forget(arguments, caller)
            case _:
                raise NotFound("tool", tool)

    async def _search(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _valid(SearchQuery, {"q" if name == "query" else name: value for name, value in arguments.items()})
        filters = _own(query.filters(), caller)
        return _plain(
            self.answers.searched(caller, await self.search.find(caller, query.q, filters, limit=query.limit, offset=query.offset))
        )

    async def _forget(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        ids = cast("list[str]", arguments["ids"])
        forgotten = await self.records.forget(caller, ids)
        return {"forgotten": forgotten, "missing": sorted(set(ids) - set(forgotten))}


def _own(filters: Filters, caller: Caller) -> Filters:
    """Return *filters* with the caller's own agent: an agent that asks its memory means its own memories too."""
    return filters if filters.agent_id is not None else replace(filters, agent_id=caller.agent_id)


def _valid(model: type[B], arguments: Mapping[str, object]) -> B:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        raise refusal(error, model) from None


def _plain(answer: BaseModel) -> Mapping[str, object]:
    return answer.model_dump(mode="json")


def _text(most: int, says: str) -> Mapping[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": says}


def _object(required: Sequence[str], properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_ORG = _text(100, "The organisation, as used before; ask without it to look everywhere.")
_PROJECT = _text(255, "The project within the org.")
_SESSION = _text(100, "The session whose own memories count too.")
_TYPE: Mapping[str, object] = {
    "type": "string",
    "pattern": "^[a-z][a-z0-9_-]{0,63}$",
    "description": "observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, "
    "service, pattern, or a word of your own. Conventions and architecture never fade; observations do within weeks.",
}
_TAGS: Mapping[str, object] = {"type": "array", "maxItems": 100, "items": {"type": "string", "minLength": 1, "maxLength": 128}}
_SCOPE: Mapping[str, object] = {"type": "string", "enum": ["project", "agent", "session", "shared"]}
_SHARE: Mapping[str, object] = {"type": "number", "minimum": 0, "maximum": 1}

TOOLS: Sequence[BrainTool] = (
    BrainTool(
        name="remember",
        description="Store one memory: a decision, convention, fact or observation worth knowing in a later session. One idea a memory, "
        "in full sentences that make sense on their own. If it replaces a memory that is no longer true, pass its id as supersedes_id.",
        needs="brain:write",
        annotations={"title": "Remember", "readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
        input_schema=_object(
            ["content", "type"],
            {
                "content": _text(MAX_CONTENT, "The memory, in plain words."),
                "type": _TYPE,
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "The agent it belongs to; by default you."),
                "session_id": _text(100, "The session it belongs to; required for scope session."),
                "memory_scope": {**_SCOPE, "description": "Who it is for; project by default, agent for you alone, shared for the org."},
                "tags": {**_TAGS, "description": "A few words to find it by."},
                "confidence": {**_SHARE, "description": "How sure you are; 0.8 by default."},
                "source": _text(100, "Where it comes from."),
                "supersedes_id": {"type": "string", "format": "uuid", "description": "The memory that this one replaces; it is deleted."},
                "expires_in": {"type": "number", "exclusiveMinimum": 0, "maximum": 87600, "description": "Hours until it expires."},
                "dedupe": {"type": "boolean", "description": "Return an identical memory instead of storing another."},
                "wait_ms": {"type": "integer", "minimum": 0, "maximum": 5000, "description": "Wait so long until it can be recalled."},
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
                "top_k": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many memories at most; 5 by default."},
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "Whose own memories count too; by default yours."),
                "session_id": _SESSION,
                "include_scopes": {"type": "array", "maxItems": 4, "items": _SCOPE, "description": "Only memories of these scopes."},
                "type": _TYPE,
                "tags": {**_TAGS, "description": "Only memories with all of these."},
                "min_confidence": {**_SHARE, "description": "Only memories whose author was at least so sure."},
                "keywords": {
                    "type": "array",
                    "maxItems": 32,
                    "items": {"type": "string", "minLength": 1, "maxLength": 200},
                    "description": "Words that raise a memory that has them.",
                },
                "mode": {
                    "type": "string",
                    "enum": ["semantic", "keyword", "hybrid"],
                    "description": "hybrid by default, which finds best.",
                },
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "description": "At most so many tokens in all."},
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
                "query": _text(2000, 'Words, a "quoted phrase", -without this.'),
                "org": _ORG,
                "project": _PROJECT,
                "agent_id": _text(100, "Whose own memories count too; by default yours."),
                "session_id": _SESSION,
                "type": _TYPE,
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
            {"ids": {"type": "array", "minItems": 1, "maxItems": MAX_FORGET, "items": {"type": "string", "format": "uuid"}}},
        ),
    ),
)
