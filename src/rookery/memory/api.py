"""The HTTP API of memory, relative to `/v1/brain` (spec 4.3, D-50)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Query
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.errors import Conflict, RookeryError, ValidationFailed
from rookery.kernel.http import DocumentedResponse, Route, allowed_on_full_disk, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import PageQuery, map_validation_error
from rookery.memory.agent_context import AgentContext
from rookery.memory.errors import AlreadySuperseded, BacklogFull, MemoriesFull, NotEmbeddable
from rookery.memory.feedback import Feedback
from rookery.memory.listing import Listing
from rookery.memory.models import Draft, Memory, RecallMode, RememberResult
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember, RememberOutcome
from rookery.memory.schemas.requests import (
    MAX_BATCH_BYTES,
    MAX_BODY_BYTES,
    AgentPath,
    BatchBody,
    BootQuery,
    ChangeBody,
    ContextQuery,
    DraftBody,
    FeedbackBody,
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
    HistoryResponse,
    MemoriesResponse,
    MemoryBootResponse,
    MemoryResponse,
    MemorySerializer,
    RecallResponse,
    RememberResponse,
    ScopesResponse,
    SearchResponse,
    TagsResponse,
    serialize_scopes,
    serialize_tags,
)
from rookery.memory.search import MemorySearch

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "brain:read", "brain:write", "brain:delete"

_DUPLICATE_RESPONSE = DocumentedResponse(description="With `dedupe`: an identical memory exists and is returned.", model=RememberResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryApi:
    """The HTTP handlers. Each one parses the request, calls one service and serializes the result."""

    remember: Remember
    records: Records
    recall: Recall
    feedback: Feedback
    context: AgentContext
    search: MemorySearch
    listing: Listing
    serializer: MemorySerializer
    mode: RecallMode = "semantic"

    def routes(self) -> list[Route]:
        """Return the routes, one per endpoint (spec 4.3, D-50)."""
        return [
            _route(
                "POST /remember",
                self.post_remember,
                WRITE_SCOPE,
                RememberResponse,
                "remember",
                summary="Store a memory",
                status=201,
                idempotent=True,
            ),
            _route(
                "POST /remember/batch",
                self.post_batch,
                WRITE_SCOPE,
                BatchResponse,
                "remember_batch",
                summary="Store many memories",
                max_body=MAX_BATCH_BYTES,
                idempotent=True,
            ),
            _route("POST /recall", self.post_recall, READ_SCOPE, RecallResponse, "recall", summary="Recall memories"),
            _route(
                "POST /recall/{recall_id}/feedback",
                self.post_feedback,
                WRITE_SCOPE,
                FeedbackResponse,
                "send_recall_feedback",
                summary="Send feedback on a recall",
            ),
            _route(
                "GET /agent/{agent_id:path}/context",
                self.get_context,
                READ_SCOPE,
                MemoriesResponse,
                "get_agent_context",
                summary="List an agent's own memories",
            ),
            _route(
                "GET /agent/{agent_id:path}/boot",
                self.get_boot,
                READ_SCOPE,
                MemoryBootResponse,
                "get_agent_boot",
                summary="Load the memories that an agent starts with",
            ),
            _route("GET /search", self.get_search, READ_SCOPE, SearchResponse, "search_memories", summary="Search memories by words"),
            _route("GET /tags", self.get_tags, READ_SCOPE, TagsResponse, "list_tags", summary="Count memories by tag"),
            _route("GET /scopes", self.get_scopes, READ_SCOPE, ScopesResponse, "list_scopes", summary="Count memories by org and project"),
            _route(
                "GET /memories", self.get_memories, READ_SCOPE, MemoriesResponse, "list_memories", summary="List memories, newest first"
            ),
            _route("GET /memories/{memory_id}", self.get_memory, READ_SCOPE, MemoryResponse, "get_memory", summary="Show a memory"),
            _route(
                "GET /memories/{memory_id}/history",
                self.get_history,
                READ_SCOPE,
                HistoryResponse,
                "get_memory_history",
                summary="Show what a memory replaced and what replaced it",
            ),
            _route(
                "PATCH /memories/{memory_id}", self.patch_memory, WRITE_SCOPE, MemoryResponse, "update_memory", summary="Change a memory"
            ),
            _route(
                "DELETE /memories/{memory_id}",
                self.delete_memory,
                DELETE_SCOPE,
                None,
                "delete_memory",
                summary="Delete a memory",
                status=204,
            ),
            _route(
                "POST /memories/{memory_id}/archive",
                self.post_archive,
                DELETE_SCOPE,
                MemoryResponse,
                "archive_memory",
                summary="Archive a memory",
            ),
            _route(
                "POST /memories/{memory_id}/restore",
                self.post_restore,
                DELETE_SCOPE,
                MemoryResponse,
                "restore_memory",
                summary="Restore an archived memory",
            ),
        ]

    @with_etag
    @document_route(responses={200: _DUPLICATE_RESPONSE}, errors=(AlreadySuperseded, MemoriesFull, BacklogFull))
    async def post_remember(self, request: Request, body: RememberBody) -> Response:
        """
        Store a memory. The response does not wait for indexing, which usually takes less than a second.

        Pass `wait_ms` to wait for it. With `dedupe`, a memory with the same content in the same space is returned with status 200 and
        `duplicate: true` instead of stored again.
        """
        caller = get_caller(request)
        respond = respond_with(
            RememberResult,
            lambda result: json_with_etag(
                self.serializer.serialize_remembered(caller, result), result.memory.version, status=200 if result.is_duplicate else 201
            ),
        )
        return respond(await self.remember.store(caller, body.to_draft(), wait_s=body.wait_s))

    @document_route(errors=(MemoriesFull, BacklogFull))
    async def post_batch(self, request: Request, body: BatchBody) -> Response:
        """
        Store up to 500 memories.

        Each memory is accepted or rejected on its own. `results` has one outcome per memory, in the order of the request.
        """
        caller = get_caller(request)
        parsed = [_parse_item(item) for item in body.memories]
        respond = respond_with(cast("type[list[RememberOutcome]]", list), lambda outcomes: self._batch_response(caller, parsed, outcomes))
        return respond(await self.remember.store_many(caller, [item for item in parsed if isinstance(item, Draft)], wait_s=body.wait_s))

    @allowed_on_full_disk
    @document_route(errors=(NotEmbeddable,))
    async def post_recall(self, request: Request, body: RecallBody) -> Response:
        """Return the memories that match a question best, by meaning, by words, or by both. Use `recall_id` to send feedback."""
        recalled = await self.recall.find(get_caller(request), body.to_request(self.mode))
        return json_response(self.serializer.serialize_recall(recalled, explain=bool(body.explain)))

    async def post_feedback(self, request: Request, recall_id: str, body: FeedbackBody) -> Response:
        """
        Record which memories of a recall were used and which were ignored.

        Used memories gain confidence, ignored ones lose some. Sending the same feedback again changes nothing.
        """
        result = await self.feedback.record(get_caller(request), _normalize_id(recall_id), used=body.used or (), ignored=body.ignored or ())
        return json_response(self.serializer.serialize_feedback(result))

    async def get_context(self, request: Request, agent_id: str, query: Annotated[ContextQuery, Query()]) -> Response:
        """List the memories of scope `agent` of one agent, the highest effective confidence first."""
        caller = get_caller(request)
        memories, total = await self.context.list_agent_memories(
            caller, query.to_filter(_validate_agent_id(agent_id)), limit=query.per_page, offset=query.offset
        )
        return page_response(request, [self.serializer.serialize_memory(caller, memory) for memory in memories], query=query, total=total)

    async def get_boot(self, request: Request, agent_id: str, query: Annotated[BootQuery, Query()]) -> Response:
        """Return at most `max_memories` memories: the agent's own, shared ones, recent ones of the project, and those of the session."""
        caller = get_caller(request)
        boot = await self.context.boot(caller, query.to_filter(_validate_agent_id(agent_id)), limit=query.max_memories)
        return json_response(self.serializer.serialize_boot(caller, boot))

    async def get_search(self, request: Request, query: Annotated[SearchQuery, Query()]) -> Response:
        """Find memories by full-text search. Quote a phrase to find it as a whole; put a minus before a word to exclude it."""
        caller = get_caller(request)
        searched = await self.search.find(caller, query.q, query.to_filter(), limit=query.limit, offset=query.offset)
        return json_response(self.serializer.serialize_search(caller, searched))

    async def get_tags(self, request: Request, query: Annotated[SpaceQuery, Query()]) -> Response:
        """List the tags of the memories that the key may see, the most frequent first."""
        return json_response(serialize_tags(await self.listing.count_tags(get_caller(request), query.to_filter())))

    async def get_scopes(self, request: Request, query: Annotated[SpaceQuery, Query()]) -> Response:
        """List the orgs and projects of the memories that the key may see, with the number of memories in each."""
        return json_response(serialize_scopes(await self.listing.count_scopes(get_caller(request), query.to_filter())))

    async def get_memories(self, request: Request, query: Annotated[MemoriesQuery, Query()]) -> Response:
        """List the memories that the key may see, filtered by their fields, newest first."""
        caller = get_caller(request)
        memories, total = await self.listing.list_page(
            caller, query.to_filter(), state=query.to_state(), limit=query.per_page, offset=query.offset
        )
        return page_response(request, [self.serializer.serialize_memory(caller, memory) for memory in memories], query=query, total=total)

    @with_etag
    async def get_memory(self, request: Request, memory_id: str) -> Response:
        """
        Return one memory, also if it is archived.

        Its ETag changes with each write and with feedback. It does not change with recall, indexing or `effective_confidence`.
        """
        caller = get_caller(request)
        return self._json_with_etag(caller, await self.records.get(caller, _normalize_id(memory_id)))

    async def get_history(self, request: Request, memory_id: str, query: Annotated[PageQuery, Query()]) -> Response:
        """List the versions of a memory, oldest first: the memories that it superseded, and those that superseded it."""
        caller = get_caller(request)
        chain = await self.records.history(caller, _normalize_id(memory_id))
        versions = [self.serializer.serialize_version(caller, version) for version in chain[query.offset : query.offset + query.per_page]]
        return page_response(request, versions, query=query, total=len(chain))

    @with_etag
    @by_etag
    @document_route(errors=(Conflict, BacklogFull))
    async def patch_memory(self, request: Request, memory_id: str, body: ChangeBody) -> Response:
        """Change fields of a memory and index it again. Fields that are left out keep their value."""
        caller = get_caller(request)
        changed = await self.records.change(caller, _normalize_id(memory_id), body.to_change(), expected=read_if_match(request))
        return self._json_with_etag(caller, changed)

    @by_etag
    async def delete_memory(self, request: Request, memory_id: str) -> Response:
        """Delete a memory from the store and from the indexes. This cannot be undone; use archive to keep it for audit."""
        await self.records.delete(get_caller(request), _normalize_id(memory_id), expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_archive(self, request: Request, memory_id: str) -> Response:
        """Remove a memory from recall and search, and keep it for audit."""
        caller = get_caller(request)
        return self._json_with_etag(caller, await self.records.archive(caller, _normalize_id(memory_id), expected=read_if_match(request)))

    @with_etag
    @by_etag
    @document_route(errors=(Conflict, MemoriesFull, BacklogFull))
    async def post_restore(self, request: Request, memory_id: str) -> Response:
        """Return an archived memory to recall and search."""
        caller = get_caller(request)
        return self._json_with_etag(caller, await self.records.restore(caller, _normalize_id(memory_id), expected=read_if_match(request)))

    def _json_with_etag(self, caller: Caller, memory: Memory) -> Response:
        return json_with_etag(self.serializer.serialize_memory(caller, memory), memory.version)

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


def _route(
    method_and_path: str,
    handler: Callable[..., Awaitable[Response]],
    required_scope: str,
    response_model: type[BaseModel] | None,
    operation_id: str,
    *,
    summary: str,
    status: int = 200,
    max_body: int = MAX_BODY_BYTES,
    idempotent: bool = False,
) -> Route:
    method, path = method_and_path.split()
    return Route(
        method=method,
        path=path,
        handler=handler,
        required_scope=required_scope,
        status=status,
        response_model=response_model,
        operation_id=operation_id,
        summary=summary,
        tags=("Memory",),
        max_body_bytes=max_body,
        idempotent=idempotent,
    )


def _normalize_id(uuid: str) -> str:
    """Return the UUID in lower case, as it is stored. Ids in paths and bodies are case-insensitive."""
    return uuid.lower()


def _validate_agent_id(agent_id: str) -> str:
    """Return the agent id of a path after the same validation as an agent id in a body (D-16)."""
    try:
        return AgentPath(agent_id=agent_id).agent_id
    except ValidationError as error:
        raise map_validation_error(error, AgentPath) from None


def _parse_item(item: Mapping[str, object]) -> Draft | ValidationFailed:
    """Return the draft of one batch item, or its validation errors in the form of a body's errors."""
    try:
        return DraftBody.model_validate(item).to_draft()
    except ValidationError as error:
        return map_validation_error(error, DraftBody)
