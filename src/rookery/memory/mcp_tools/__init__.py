"""Memory as tools of the built-in MCP server `brain` (D-92): each is its REST twin for an agent's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.kernel.wire import refusal
from rookery.memory.answers import Answers, scopes_answer, tags_answer
from rookery.memory.context import Context
from rookery.memory.feedback import Feedback
from rookery.memory.listing import Listing
from rookery.memory.mcp_tools import texts
from rookery.memory.mcp_tools.table import TOOLS, BrainTool
from rookery.memory.models import Filters
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.schemas import BootQuery, ChangeBody, FeedbackBody, MemoriesQuery, RecallBody, RememberBody, SearchQuery, SpaceQuery
from rookery.memory.search import Search

B = TypeVar("B", bound=BaseModel)

_LONGEST_HISTORY = 100
"""So many of a lineage are shown, the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainServer:
    """The built-in server `brain`: it acts as its caller, with the verbs of the REST API."""

    remember: Remember
    records: Records
    recall: Recall
    search: Search
    listing: Listing
    feedback: Feedback
    context: Context
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
                return _plain(self.answers.remembered(caller, await self.remember.one(caller, body.draft(), wait_s=body.wait_s)))
            case "recall":
                question = _valid(RecallBody, arguments).question("hybrid")
                asked = replace(question, filters=_own(question.filters, caller))
                return _plain(self.answers.recalled(await self.recall.ask(caller, asked), explain=False))
            case "search":
                return await self._search(arguments, caller)
            case "feedback":
                given = _valid(FeedbackBody, _without(arguments, "recall_id"))
                judged = await self.feedback.give(
                    caller, str(arguments["recall_id"]).lower(), used=given.used or (), ignored=given.ignored or ()
                )
                return _plain(self.answers.judged(judged))
            case "context":
                return await self._context(arguments, caller)
            case "list":
                return await self._list(arguments, caller)
            case "tags":
                return _plain(tags_answer(await self.listing.tags(caller, _own(_valid(SpaceQuery, arguments).filters(), caller))))
            case "scopes":
                return _plain(scopes_answer(await self.listing.scopes(caller, _own(_valid(SpaceQuery, arguments).filters(), caller))))
            case "forget":
                return await self._forget(arguments, caller)
            case _:
                return await self._one(tool, arguments, caller)

    def text(self, tool: str, answer: Mapping[str, object]) -> str:
        """Return what a model reads of an answer; see `texts`."""
        return texts.text(tool, answer)

    async def _one(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """Do what is done with one memory."""
        match tool:
            case "get":
                memory = await self.records.get(caller, _id(arguments))
            case "change":
                change = _valid(ChangeBody, _without(arguments, "id")).change()
                memory = await self.records.change(caller, _id(arguments), change)
            case "archive":
                memory = await self.records.archive(caller, _id(arguments))
            case "restore":
                memory = await self.records.restore(caller, _id(arguments))
            case "history":
                chain = await self.records.history(caller, _id(arguments))
                return {"history": [_plain(self.answers.version(caller, each)) for each in chain[-_LONGEST_HISTORY:]], "count": len(chain)}
            case _:
                raise NotFound("tool", tool)
        return _plain(self.answers.memory(caller, memory))

    async def _context(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _valid(BootQuery, _without(arguments, "agent_id"))
        agent_id = arguments.get("agent_id", caller.agent_id)
        filters = replace(query.filters(""), agent_id=None if agent_id is None else str(agent_id))
        return _plain(self.answers.boot(caller, await self.context.boot(caller, filters, most=query.max_memories)))

    async def _list(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _valid(MemoriesQuery, arguments)
        memories, total = await self.listing.page(
            caller, _own(query.filters(), caller), state=query.memory_state(), limit=query.per_page, offset=query.offset
        )
        return {"memories": [_plain(self.answers.memory(caller, each)) for each in memories], "page": query.page, "total": total}

    async def _search(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _valid(SearchQuery, {"q" if name == "query" else name: value for name, value in arguments.items()})
        filters = _own(query.filters(), caller)
        return _plain(
            self.answers.searched(caller, await self.search.find(caller, query.q, filters, limit=query.limit, offset=query.offset))
        )

    async def _forget(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        ids = [each.lower() for each in cast("list[str]", arguments["ids"])]
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


def _without(arguments: Mapping[str, object], name: str) -> Mapping[str, object]:
    return {field: value for field, value in arguments.items() if field != name}


def _id(arguments: Mapping[str, object]) -> str:
    return str(arguments["id"]).lower()


def _plain(answer: BaseModel) -> Mapping[str, object]:
    return answer.model_dump(mode="json")
