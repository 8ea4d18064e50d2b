"""The operations of memory: the HTTP API, relative to `/v1/brain`, and the tools of the MCP server `brain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from pydantic import ValidationError
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.kernel.errors import Conflict, RookeryError, ValidationFailed
from rookery.kernel.http import DocumentedResponse, ItemPage, Operation, Output, json_response, respond_with
from rookery.kernel.http.operation_tools import OperationServer
from rookery.kernel.pages import slice_anchored
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import PageQuery, map_validation_error
from rookery.kernel.working_context import WorkingContextFinder
from rookery.memory import tool_declarations
from rookery.memory.agent_context import AgentContext
from rookery.memory.errors import AlreadySuperseded, BacklogFull, MemoriesFull, NotEmbeddable
from rookery.memory.feedback import Feedback
from rookery.memory.memory_map import MemoryMap
from rookery.memory.models import BootMemories, Draft, Memory, RecallMode, RememberResult, SearchResult, Tombstone
from rookery.memory.recall import Recall
from rookery.memory.recall_log import RecallLog
from rookery.memory.recall_models import FeedbackResult, LoggedRecall
from rookery.memory.records import Records
from rookery.memory.remember import Remember, RememberOutcome
from rookery.memory.schemas.recall_log import (
    ExplainQuery,
    LoggedRecallResponse,
    RecallReplayResponse,
    RecallsQuery,
    RecallsResponse,
    present_logged,
    serialize_logged,
    serialize_replay,
)
from rookery.memory.schemas.requests import (
    MAX_BATCH_BYTES,
    AgentPath,
    BatchBody,
    BootQuery,
    ChangeBody,
    ContextQuery,
    DraftBody,
    FeedbackBody,
    ForgetBody,
    MapQuery,
    MemoriesQuery,
    RecallBody,
    RememberBody,
    SearchQuery,
    SpaceQuery,
)
from rookery.memory.schemas.responses import (
    BatchItemResponse,
    BatchResponse,
    FeedbackResponse,
    ForgetResponse,
    HistoryResponse,
    HistoryToolResponse,
    MemoriesResponse,
    MemoryBootResponse,
    MemoryMapResponse,
    MemoryResponse,
    MemorySerializer,
    RecallResponse,
    RememberResponse,
    ScopesResponse,
    SearchResponse,
    TagsResponse,
    serialize_map,
)
from rookery.memory.search import Listing, MemorySearch

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "brain:read", "brain:write", "brain:delete"

_MAX_TOOL_VERSIONS = 100
"""Maximum versions of a lineage that the tool `history` returns; the latest are kept."""

_DUPLICATE_RESPONSE = DocumentedResponse(description="With `dedupe`: an identical memory exists and is returned.", model=RememberResponse)

_operation = partial(Operation, tags=("Memory",))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryApi:
    """
    The operations of memory. Each handler calls one service.

    Attributes:
        mode: The mode of a recall that names none.
        contexts: Finds the project of a tool's caller.
    """

    remember: Remember
    records: Records
    recall: Recall
    feedback: Feedback
    recall_log: RecallLog
    context: AgentContext
    search: MemorySearch
    listing: Listing
    map: MemoryMap
    serializer: MemorySerializer
    mode: RecallMode = "hybrid"
    contexts: WorkingContextFinder | None = None

    def server(self) -> OperationServer:
        """Return the built-in MCP server `brain`."""
        return OperationServer(
            self.operations(),
            tool_declarations.SERVER,
            compact=tool_declarations.compact_output,
            contexts=self.contexts,
        )

    def operations(self) -> list[Operation]:
        """Return the operations, in the order of their tools."""
        return [*self._core_operations(), *self._list_operations(), *self._memory_operations()]

    def _core_operations(self) -> list[Operation]:
        return [
            _operation(method="POST", path="/remember", handler=self.post_remember, present=self._present_remembered,
                       committed=RememberResult, required_scope=WRITE_SCOPE, status=201, idempotent=True, etag=True,
                       response_model=RememberResponse, operation_id="remember", summary="Store a memory",
                       responses={200: _DUPLICATE_RESPONSE}, errors=(AlreadySuperseded, MemoriesFull, BacklogFull),
                       tools=(tool_declarations.REMEMBER,)),
            _operation(method="POST", path="/remember/batch", handler=self.post_batch, required_scope=WRITE_SCOPE, idempotent=True,
                       max_body_bytes=MAX_BATCH_BYTES, response_model=BatchResponse, operation_id="remember_batch",
                       summary="Store many memories", errors=(MemoriesFull, BacklogFull)),
            _operation(method="POST", path="/recall", handler=self.post_recall, required_scope=READ_SCOPE, response_model=RecallResponse,
                       operation_id="recall", summary="Recall memories", errors=(NotEmbeddable,),
                       tools=(replace(tool_declarations.RECALL, defaults=self._recall_defaults),), allowed_on_full_disk=True,
                       repeatable=True),
            _operation(method="GET", path="/search", handler=self.get_search, present=self.serializer.serialize_search,
                       required_scope=READ_SCOPE, response_model=SearchResponse, operation_id="search_memories",
                       summary="Search memories by words", tools=(tool_declarations.SEARCH,)),
            _operation(handler=self.forget, required_scope=DELETE_SCOPE, response_model=ForgetResponse, tools=(tool_declarations.FORGET,)),
            _operation(method="POST", path="/recall/{recall_id}/feedback", handler=self.post_feedback,
                       required_scope=WRITE_SCOPE, response_model=FeedbackResponse, operation_id="send_recall_feedback",
                       summary="Send feedback on a recall", tools=(tool_declarations.FEEDBACK,), repeatable=True),
            _operation(method="GET", path="/recalls", handler=self.get_recalls, present=present_logged, required_scope=READ_SCOPE,
                       response_model=RecallsResponse, operation_id="list_recalls", summary="List recalls, newest first"),
            _operation(method="GET", path="/recalls/{recall_id}", handler=self.get_recall, required_scope=READ_SCOPE,
                       response_model=LoggedRecallResponse, operation_id="get_recall", summary="Show a recall"),
            _operation(method="GET", path="/recalls/{recall_id}/explain", handler=self.get_recall_explanation, required_scope=READ_SCOPE,
                       response_model=RecallReplayResponse, operation_id="get_recall_explanation",
                       summary="Repeat a recall with its explanation", errors=(NotEmbeddable,)),
            _operation(method="GET", path="/agent/{agent_id:path}/context", handler=self.get_context, present=self._present_memory,
                       required_scope=READ_SCOPE, response_model=MemoriesResponse, operation_id="get_agent_context",
                       summary="List an agent's own memories"),
            _operation(method="GET", path="/agent/{agent_id:path}/boot", handler=self.get_boot, present=self.serializer.serialize_boot,
                       required_scope=READ_SCOPE, response_model=MemoryBootResponse, operation_id="get_agent_boot",
                       summary="Load the memories that an agent starts with", tools=(tool_declarations.CONTEXT,)),
        ]  # fmt: skip

    def _memory_operations(self) -> list[Operation]:
        one = "/memories/{memory_id}"
        memory = partial(_operation, present=self._present_memory, response_model=MemoryResponse, etag=True)
        return [
            memory(method="GET", path=one, handler=self.get_memory, required_scope=READ_SCOPE, operation_id="get_memory",
                   summary="Show a memory", tools=(tool_declarations.GET,)),
            memory(method="PATCH", path=one, handler=self.patch_memory, required_scope=WRITE_SCOPE, operation_id="update_memory",
                   summary="Change a memory", errors=(Conflict, BacklogFull), tools=(tool_declarations.CHANGE,)),
            memory(method="POST", path=f"{one}/archive", handler=self.post_archive, required_scope=DELETE_SCOPE,
                   operation_id="archive_memory", summary="Archive a memory", errors=(Conflict,), tools=(tool_declarations.ARCHIVE,)),
            memory(method="POST", path=f"{one}/restore", handler=self.post_restore, required_scope=DELETE_SCOPE,
                   operation_id="restore_memory", summary="Restore an archived memory",
                   errors=(Conflict, MemoriesFull, BacklogFull), tools=(tool_declarations.RESTORE,)),
            _operation(method="DELETE", path=one, handler=self.delete_memory, required_scope=DELETE_SCOPE, status=204,
                       operation_id="delete_memory", summary="Delete a memory"),
            _operation(method="GET", path=f"{one}/history", handler=self.get_history, present=self.serializer.serialize_version,
                       required_scope=READ_SCOPE, response_model=HistoryResponse, operation_id="get_memory_history",
                       summary="Show what a memory replaced and what replaced it"),
            _operation(handler=self.list_latest_versions, present=self._present_history, required_scope=READ_SCOPE,
                       response_model=HistoryToolResponse, tools=(tool_declarations.HISTORY,)),
        ]  # fmt: skip

    def _list_operations(self) -> list[Operation]:
        return [
            _operation(method="GET", path="/memories", handler=self.get_memories, present=self._present_memory,
                       required_scope=READ_SCOPE, response_model=MemoriesResponse, operation_id="list_memories",
                       summary="List memories, newest first", tools=(tool_declarations.LIST,)),
            _operation(method="GET", path="/tags", handler=self.get_tags, required_scope=READ_SCOPE, response_model=TagsResponse,
                       operation_id="list_tags", summary="Count memories by tag", tools=(tool_declarations.TAGS,)),
            _operation(method="GET", path="/scopes", handler=self.get_scopes, required_scope=READ_SCOPE, response_model=ScopesResponse,
                       operation_id="list_scopes", summary="Count memories by org and project", tools=(tool_declarations.SCOPES,)),
            _operation(method="GET", path="/map", handler=self.get_map, required_scope=READ_SCOPE,
                       response_model=MemoryMapResponse, operation_id="get_memory_map", summary="Place memories on a map"),
        ]  # fmt: skip

    async def post_remember(self, caller: Caller, body: RememberBody) -> RememberResult:
        """
        Store a memory. The response does not wait for indexing, which usually takes less than a second.

        Pass `wait_ms` to wait for it. With `dedupe`, a memory with the same content in the same space is returned with status 200 and
        `duplicate: true` instead of stored again.
        """
        return await self.remember.store(caller, body.to_model(), wait_s=body.wait_s)

    async def post_batch(self, caller: Caller, body: BatchBody) -> Response:
        """
        Store up to 500 memories.

        Each memory is accepted or rejected on its own. `results` has one outcome per memory, in the order of the request.
        """
        parsed = [_parse_item(item) for item in body.memories]
        respond = respond_with(cast("type[list[RememberOutcome]]", list), lambda outcomes: self._batch_response(caller, parsed, outcomes))
        return respond(await self.remember.store_many(caller, [item for item in parsed if isinstance(item, Draft)], wait_s=body.wait_s))

    async def post_recall(self, caller: Caller, body: RecallBody) -> RecallResponse:
        """Return the memories that match a question best, by meaning, by words, or by both. Use `recall_id` to send feedback."""
        recalled = await self.recall.find(caller, body.to_request(self.mode))
        return self.serializer.serialize_recall(recalled, explain=bool(body.explain))

    async def post_feedback(self, caller: Caller, recall_id: str, body: FeedbackBody) -> FeedbackResult:
        """
        Record which memories of a recall were used and which were ignored.

        Used memories gain confidence, ignored ones lose some. Sending the same feedback again changes nothing.
        """
        return await self.feedback.record(caller, _normalize_id(recall_id), used=body.used or (), ignored=body.ignored or ())

    async def get_recalls(self, caller: Caller, query: RecallsQuery) -> ItemPage[LoggedRecall]:
        """List the recalls of the key; with `audit:read` also those of other keys, within the key's orgs, projects and agent."""
        return ItemPage(*await self.recall_log.list_page(caller, query.to_filter(), page=query.slice))

    async def get_recall(self, caller: Caller, recall_id: str) -> LoggedRecallResponse:
        """Return one recall: the question, the filters, the returned memories with their ranks, and the feedback on them."""
        return serialize_logged(await self.recall_log.get(caller, _normalize_id(recall_id)))

    async def get_recall_explanation(self, caller: Caller, recall_id: str, query: ExplainQuery) -> RecallReplayResponse:
        """
        Repeat a recall now, as its key and within the rights of yours, with an explanation. It is not logged again.

        With `memory_id`, the response also says at which step that memory leaves the recall.
        """
        memory_id = None if query.memory_id is None else _normalize_id(query.memory_id)
        return serialize_replay(await self.recall_log.explain(caller, _normalize_id(recall_id), memory_id), self.serializer)

    async def get_context(self, caller: Caller, agent_id: str, query: ContextQuery) -> ItemPage[Memory]:
        """List the memories of scope `agent` of one agent, the highest effective confidence first."""
        memory_filter = query.to_filter(_validate_agent_id(agent_id))
        return ItemPage(*await self.context.list_agent_memories(caller, memory_filter, page=query.slice))

    async def get_boot(self, caller: Caller, agent_id: str | None, query: BootQuery) -> BootMemories:
        """Return at most `max_memories` memories: the agent's own, shared ones, recent ones of the project, and those of the session."""
        boot_filter = query.to_filter(None if agent_id is None else _validate_agent_id(agent_id))
        return await self.context.boot(caller, boot_filter, limit=query.max_memories)

    async def get_search(self, caller: Caller, query: SearchQuery) -> SearchResult:
        """Find memories by full-text search. Quote a phrase to find it as a whole; put a minus before a word to exclude it."""
        result = await self.search.find(caller, query.q, query.to_filter(), page=query.slice)
        return replace(result, cursors=[query.encode_cursor(position) or "" for position in result.positions])

    async def get_tags(self, caller: Caller, query: SpaceQuery) -> TagsResponse:
        """List the tags of the memories that the key may see, the most frequent first."""
        return TagsResponse.from_parts(tags=await self.listing.count_tags(caller, query.to_filter()))

    async def get_scopes(self, caller: Caller, query: SpaceQuery) -> ScopesResponse:
        """List the orgs and projects of the memories that the key may see, with the number of memories in each."""
        return ScopesResponse.from_parts(scopes=await self.listing.count_scopes(caller, query.to_filter()))

    async def get_map(self, caller: Caller, query: MapQuery) -> MemoryMapResponse:
        """
        Place the memories that the key may see on a plane, similar ones near each other, with clusters named by their words.

        At most 5,000 memories are placed. The first map of a large workspace takes some seconds.
        """
        return serialize_map(await self.map.draw(caller, query.to_filter(), by=query.by, limit=query.limit))

    async def get_memories(self, caller: Caller, query: MemoriesQuery) -> ItemPage[Memory]:
        """List the memories that the key may see, filtered by their fields, newest first."""
        return ItemPage(*await self.listing.list_page(caller, query.to_filter(), state=query.state, page=query.slice))

    async def get_memory(self, caller: Caller, memory_id: str) -> Memory:
        """
        Return one memory, also if it is archived.

        Its ETag changes with each write and with feedback. It does not change with recall, indexing or `effective_confidence`.
        """
        return await self.records.get(caller, _normalize_id(memory_id))

    async def get_history(self, caller: Caller, memory_id: str, query: PageQuery) -> ItemPage[Memory | Tombstone]:
        """List the versions of a memory, oldest first: the memories that it superseded, and those that superseded it."""
        chain = await self.records.history(caller, _normalize_id(memory_id))
        return ItemPage(*slice_anchored(chain, query.slice, lambda version: version.id))

    async def list_latest_versions(self, caller: Caller, memory_id: str) -> Sequence[Memory | Tombstone]:
        """Return all versions of a memory, oldest first."""
        return await self.records.history(caller, _normalize_id(memory_id))

    async def patch_memory(self, caller: Caller, memory_id: str, body: ChangeBody, expected: ExpectedETags) -> Memory:
        """Change fields of a memory and index it again. Fields that are left out keep their value."""
        return await self.records.change(caller, _normalize_id(memory_id), body, expected=expected)

    async def delete_memory(self, caller: Caller, memory_id: str, expected: ExpectedETags) -> None:
        """Delete a memory from the store and from the indexes. This cannot be undone; use archive to keep it for audit."""
        await self.records.delete(caller, _normalize_id(memory_id), expected=expected)

    async def forget(self, caller: Caller, body: ForgetBody) -> ForgetResponse:
        """Delete memories permanently."""
        ids = [memory_id.lower() for memory_id in body.ids]
        deleted = await self.records.delete_many(caller, ids)
        return ForgetResponse(forgotten=list(deleted), missing=sorted(set(ids) - set(deleted)))

    async def post_archive(self, caller: Caller, memory_id: str, expected: ExpectedETags) -> Memory:
        """Remove a memory from recall and search, and keep it for audit."""
        return await self.records.archive(caller, _normalize_id(memory_id), expected=expected)

    async def post_restore(self, caller: Caller, memory_id: str, expected: ExpectedETags) -> Memory:
        """Return an archived memory to recall and search."""
        return await self.records.restore(caller, _normalize_id(memory_id), expected=expected)

    def _recall_defaults(self, caller: Caller) -> Mapping[str, object]:
        return {"mode": self.mode, **tool_declarations.own_agent(caller)}

    def _present_memory(self, caller: Caller, memory: Memory) -> Output:
        return Output(body=self.serializer.serialize_memory(caller, memory), version=memory.version)

    def _present_remembered(self, caller: Caller, result: RememberResult) -> Output:
        body = self.serializer.serialize_remembered(caller, result)
        return Output(body=body, version=result.memory.version, status=200 if result.is_duplicate else 201)

    def _present_history(self, caller: Caller, chain: Sequence[Memory | Tombstone]) -> HistoryToolResponse:
        versions = [self.serializer.serialize_version(caller, version) for version in chain[-_MAX_TOOL_VERSIONS:]]
        return HistoryToolResponse.model_construct(history=versions, count=len(chain))

    def _batch_response(self, caller: Caller, parsed: Sequence[Draft | ValidationFailed], outcomes: Sequence[RememberOutcome]) -> Response:
        outcome_iterator = iter(outcomes)
        results = [next(outcome_iterator) if isinstance(item, Draft) else item for item in parsed]
        return json_response(
            BatchResponse.model_construct(results=[self._batch_item(caller, index, outcome) for index, outcome in enumerate(results)])
        )

    def _batch_item(self, caller: Caller, index: int, outcome: RememberOutcome) -> BatchItemResponse:
        if isinstance(outcome, RookeryError):
            return BatchItemResponse.model_construct(index=index, status=outcome.status, memory=None, error=outcome.body())
        status = 200 if outcome.is_duplicate else 201
        return BatchItemResponse.model_construct(
            index=index, status=status, memory=self.serializer.serialize_remembered(caller, outcome), error=None
        )


def _normalize_id(uuid: str) -> str:
    """Return the UUID in lower case, as it is stored. Ids in paths and bodies are case-insensitive."""
    return uuid.lower()


def _validate_agent_id(agent_id: str) -> str:
    """Return the agent id of a path after the same validation as an agent id in a body."""
    try:
        return AgentPath(agent_id=agent_id).agent_id
    except ValidationError as error:
        raise map_validation_error(error, AgentPath) from None


def _parse_item(item: Mapping[str, object]) -> Draft | ValidationFailed:
    """Return the draft of one batch item, or its validation errors in the form of a body's errors."""
    try:
        return DraftBody.model_validate(item).to_model()
    except ValidationError as error:
        return map_validation_error(error, DraftBody)
