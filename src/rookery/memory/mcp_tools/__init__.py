"""The memory tools of the built-in MCP server `brain` (D-92). Each corresponds to a REST endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.kernel.schema import map_validation_error
from rookery.memory.agent_context import AgentContext
from rookery.memory.feedback import Feedback
from rookery.memory.listing import Listing
from rookery.memory.mcp_tools import text_output
from rookery.memory.mcp_tools.definitions import TOOLS, BrainTool
from rookery.memory.models import MemoryFilter
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.schemas.requests import (
    BootQuery,
    ChangeBody,
    FeedbackBody,
    MemoriesQuery,
    RecallBody,
    RememberBody,
    SearchQuery,
    SpaceQuery,
)
from rookery.memory.schemas.responses import MemorySerializer, serialize_scopes, serialize_tags
from rookery.memory.search import MemorySearch

B = TypeVar("B", bound=BaseModel)

_MAX_HISTORY = 100
"""Maximum versions of a lineage that are returned; the latest are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainServer:
    """The built-in MCP server `brain`. It acts as its caller, with the services of the REST API."""

    remember: Remember
    records: Records
    recall: Recall
    search: MemorySearch
    listing: Listing
    feedback: Feedback
    context: AgentContext
    serializer: MemorySerializer
    id: str = "brain"
    name: str = "Shared memory"
    tagline: str = "The knowledge of your agents, shared and searchable."
    description: str = (
        "Long-term memory shared by all agents of a workspace. Recall before you start a task. Remember decisions, conventions and "
        "facts that will matter later. Supersede memories that are no longer true."
    )

    def tools(self) -> Sequence[BrainTool]:
        """Return all tools."""
        return TOOLS

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """
        Run *tool* as *caller*. Return the body of the corresponding REST response.

        Raises:
            NotFound: No tool has this name.
            RookeryError: Any error of the service.
        """
        match tool:
            case "remember":
                body = _validate(RememberBody, arguments)
                return _to_json(
                    self.serializer.serialize_remembered(caller, await self.remember.store(caller, body.to_draft(), wait_s=body.wait_s))
                )
            case "recall":
                request = _validate(RecallBody, arguments).to_request("hybrid")
                request = replace(request, filters=_with_own_agent(request.filters, caller))
                return _to_json(self.serializer.serialize_recall(await self.recall.find(caller, request), explain=False))
            case "search":
                return await self._search(arguments, caller)
            case "feedback":
                body = _validate(FeedbackBody, _omit(arguments, "recall_id"))
                result = await self.feedback.record(
                    caller, str(arguments["recall_id"]).lower(), used=body.used or (), ignored=body.ignored or ()
                )
                return _to_json(self.serializer.serialize_feedback(result))
            case "context":
                return await self._context(arguments, caller)
            case "list":
                return await self._list(arguments, caller)
            case "tags":
                return _to_json(
                    serialize_tags(
                        await self.listing.count_tags(caller, _with_own_agent(_validate(SpaceQuery, arguments).to_filter(), caller))
                    )
                )
            case "scopes":
                return _to_json(
                    serialize_scopes(
                        await self.listing.count_scopes(caller, _with_own_agent(_validate(SpaceQuery, arguments).to_filter(), caller))
                    )
                )
            case "forget":
                return await self._forget(arguments, caller)
            case _:
                return await self._call_on_memory(tool, arguments, caller)

    def text(self, tool: str, output: Mapping[str, object]) -> str:
        """Return the text of an answer for a model; see `text_output`."""
        return text_output.render_text(tool, output)

    async def _call_on_memory(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """Run a tool that works on one memory."""
        match tool:
            case "get":
                memory = await self.records.get(caller, _memory_id(arguments))
            case "change":
                change = _validate(ChangeBody, _omit(arguments, "id")).to_change()
                memory = await self.records.change(caller, _memory_id(arguments), change)
            case "archive":
                memory = await self.records.archive(caller, _memory_id(arguments))
            case "restore":
                memory = await self.records.restore(caller, _memory_id(arguments))
            case "history":
                chain = await self.records.history(caller, _memory_id(arguments))
                return {
                    "history": [_to_json(self.serializer.serialize_version(caller, memory)) for memory in chain[-_MAX_HISTORY:]],
                    "count": len(chain),
                }
            case _:
                raise NotFound("tool", tool)
        return _to_json(self.serializer.serialize_memory(caller, memory))

    async def _context(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _validate(BootQuery, _omit(arguments, "agent_id"))
        agent_id = arguments.get("agent_id", caller.agent_id)
        filters = replace(query.to_filter(""), agent_id=None if agent_id is None else str(agent_id))
        return _to_json(self.serializer.serialize_boot(caller, await self.context.boot(caller, filters, limit=query.max_memories)))

    async def _list(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _validate(MemoriesQuery, arguments)
        memories, total = await self.listing.list_page(
            caller, _with_own_agent(query.to_filter(), caller), state=query.to_state(), limit=query.per_page, offset=query.offset
        )
        return {
            "memories": [_to_json(self.serializer.serialize_memory(caller, memory)) for memory in memories],
            "page": query.page,
            "total": total,
        }

    async def _search(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        query = _validate(SearchQuery, {"q" if name == "query" else name: value for name, value in arguments.items()})
        filters = _with_own_agent(query.to_filter(), caller)
        return _to_json(
            self.serializer.serialize_search(
                caller, await self.search.find(caller, query.q, filters, limit=query.limit, offset=query.offset)
            )
        )

    async def _forget(self, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        ids = [memory_id.lower() for memory_id in cast("list[str]", arguments["ids"])]
        deleted_ids = await self.records.delete_many(caller, ids)
        return {"forgotten": deleted_ids, "missing": sorted(set(ids) - set(deleted_ids))}


def _with_own_agent(memory_filter: MemoryFilter, caller: Caller) -> MemoryFilter:
    """Return *memory_filter* with the caller's agent unless it names one, so that agents see their own memories too."""
    return memory_filter if memory_filter.agent_id is not None else replace(memory_filter, agent_id=caller.agent_id)


def _validate(model: type[B], arguments: Mapping[str, object]) -> B:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        raise map_validation_error(error, model) from None


def _omit(arguments: Mapping[str, object], name: str) -> Mapping[str, object]:
    return {field: value for field, value in arguments.items() if field != name}


def _memory_id(arguments: Mapping[str, object]) -> str:
    return str(arguments["id"]).lower()


def _to_json(response: BaseModel) -> Mapping[str, object]:
    return response.model_dump(mode="json")
