"""The memory API (spec 4.3, D-50), relative to /v1/brain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Query
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.kernel.errors import Conflict, RookeryError, ValidationFailed
from rookery.kernel.http import Described, Route, allowed_on_full_disk, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import PageQuery
from rookery.kernel.wire import refusal
from rookery.memory.answers import (
    Answers,
    BatchAnswer,
    BatchItem,
    BootAnswer,
    FeedbackAnswer,
    HistoryAnswer,
    MemoriesAnswer,
    MemoryAnswer,
    RecallAnswer,
    RememberAnswer,
    ScopesAnswer,
    SearchAnswer,
    TagsAnswer,
    scopes_answer,
    tags_answer,
)
from rookery.memory.context import Context
from rookery.memory.errors import AlreadySuperseded, BacklogFull, MemoriesFull, NotEmbeddable
from rookery.memory.feedback import Feedback
from rookery.memory.listing import Listing
from rookery.memory.models import Draft, Memory, Mode, Remembered
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Outcome, Remember
from rookery.memory.schemas import (
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
from rookery.memory.search import Search

READ, WRITE, DELETE = "brain:read", "brain:write", "brain:delete"

_WAS_THERE = Described(says="With `dedupe`: an identical memory was there, and is answered.", model=RememberAnswer)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryApi:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    remember: Remember
    records: Records
    recall: Recall
    feedback: Feedback
    context: Context
    search: Search
    listing: Listing
    answers: Answers
    mode: Mode = "semantic"

    def routes(self) -> list[Route]:
        """Return the table of spec 4.3 and D-50, one line per endpoint."""
        return [
            _route(
                "POST /remember", self.post_remember, WRITE, RememberAnswer, "remember", summary="Store a memory", status=201, once=True
            ),
            _route(
                "POST /remember/batch",
                self.post_batch,
                WRITE,
                BatchAnswer,
                "remember_batch",
                summary="Store many memories",
                max_body=MAX_BATCH_BYTES,
                once=True,
            ),
            _route("POST /recall", self.post_recall, READ, RecallAnswer, "recall", summary="Recall memories"),
            _route(
                "POST /recall/{recall_id}/feedback",
                self.post_feedback,
                WRITE,
                FeedbackAnswer,
                "send_recall_feedback",
                summary="Send feedback on a recall",
            ),
            _route(
                "GET /agent/{agent_id:path}/context",
                self.get_context,
                READ,
                MemoriesAnswer,
                "get_agent_context",
                summary="List an agent's own memories",
            ),
            _route(
                "GET /agent/{agent_id:path}/boot",
                self.get_boot,
                READ,
                BootAnswer,
                "get_agent_boot",
                summary="Load the memories that an agent starts with",
            ),
            _route("GET /search", self.get_search, READ, SearchAnswer, "search_memories", summary="Search memories by words"),
            _route("GET /tags", self.get_tags, READ, TagsAnswer, "list_tags", summary="Count memories by tag"),
            _route("GET /scopes", self.get_scopes, READ, ScopesAnswer, "list_scopes", summary="Count memories by org and project"),
            _route("GET /memories", self.get_memories, READ, MemoriesAnswer, "list_memories", summary="List memories, newest first"),
            _route("GET /memories/{memory_id}", self.get_memory, READ, MemoryAnswer, "get_memory", summary="Show a memory"),
            _route(
                "GET /memories/{memory_id}/history",
                self.get_history,
                READ,
                HistoryAnswer,
                "get_memory_history",
                summary="Show what a memory replaced and what replaced it",
            ),
            _route("PATCH /memories/{memory_id}", self.patch_memory, WRITE, MemoryAnswer, "update_memory", summary="Change a memory"),
            _route(
                "DELETE /memories/{memory_id}", self.delete_memory, DELETE, None, "delete_memory", summary="Delete a memory", status=204
            ),
            _route(
                "POST /memories/{memory_id}/archive", self.post_archive, DELETE, MemoryAnswer, "archive_memory", summary="Archive a memory"
            ),
            _route(
                "POST /memories/{memory_id}/restore",
                self.post_restore,
                DELETE,
                MemoryAnswer,
                "restore_memory",
                summary="Restore an archived memory",
            ),
        ]

    @with_etag
    @describe(answers={200: _WAS_THERE}, errors=(AlreadySuperseded, MemoriesFull, BacklogFull))
    async def post_remember(self, request: Request, body: RememberBody) -> Response:
        """
        Store a memory and answer at once; indexing follows in the background, usually within a second.

        Pass `wait_ms` to wait for it. With `dedupe`, a memory with the same content in the same space is returned with status 200 and
        `duplicate: true` instead of stored again.
        """
        caller = caller_of(request)
        answer = respond_with(
            Remembered,
            lambda done: tagged(self.answers.remembered(caller, done), done.memory.version, status=200 if done.is_duplicate else 201),
        )
        return answer(await self.remember.one(caller, body.draft(), wait_s=body.wait_s))

    @describe(errors=(MemoriesFull, BacklogFull))
    async def post_batch(self, request: Request, body: BatchBody) -> Response:
        """
        Store up to 500 memories.

        Each one is accepted or rejected on its own; `results` has the outcome of each, in the order of the request.
        """
        caller = caller_of(request)
        read = [_read(item) for item in body.memories]
        answer = respond_with(cast("type[list[Outcome]]", list), lambda outcomes: self._batch(caller, read, outcomes))
        return answer(await self.remember.many(caller, [each for each in read if isinstance(each, Draft)], wait_s=body.wait_s))

    @allowed_on_full_disk
    @describe(errors=(NotEmbeddable,))
    async def post_recall(self, request: Request, body: RecallBody) -> Response:
        """Return the memories that fit a question best, by meaning, by words, or by both. `recall_id` names the answer, for feedback."""
        recalled = await self.recall.ask(caller_of(request), body.question(self.mode))
        return reply(self.answers.recalled(recalled, explain=bool(body.explain)))

    async def post_feedback(self, request: Request, recall_id: str, body: FeedbackBody) -> Response:
        """
        Record which memories of a recall were used and which were ignored.

        Used memories gain confidence, ignored ones lose some. Sending the same feedback again changes nothing.
        """
        judged = await self.feedback.give(caller_of(request), _folded(recall_id), used=body.used or (), ignored=body.ignored or ())
        return reply(self.answers.judged(judged))

    async def get_context(self, request: Request, agent_id: str, query: Annotated[ContextQuery, Query()]) -> Response:
        """List the memories of scope `agent` of one agent, the highest effective confidence first."""
        caller = caller_of(request)
        memories, total = await self.context.of_agent(caller, query.filters(_agent(agent_id)), limit=query.per_page, offset=query.offset)
        return page(request, [self.answers.memory(caller, memory) for memory in memories], query=query, total=total)

    async def get_boot(self, request: Request, agent_id: str, query: Annotated[BootQuery, Query()]) -> Response:
        """Return at most `max_memories` memories: the agent's own, shared ones, recent ones of the project, and those of the session."""
        caller = caller_of(request)
        boot = await self.context.boot(caller, query.filters(_agent(agent_id)), most=query.max_memories)
        return reply(self.answers.boot(caller, boot))

    async def get_search(self, request: Request, query: Annotated[SearchQuery, Query()]) -> Response:
        """Find memories by full-text search. Quote a phrase to find it as a whole; put a minus before a word to exclude it."""
        caller = caller_of(request)
        searched = await self.search.find(caller, query.q, query.filters(), limit=query.limit, offset=query.offset)
        return reply(self.answers.searched(caller, searched))

    async def get_tags(self, request: Request, query: Annotated[SpaceQuery, Query()]) -> Response:
        """List the tags of the memories that the key may see, the most frequent first."""
        return reply(tags_answer(await self.listing.tags(caller_of(request), query.filters())))

    async def get_scopes(self, request: Request, query: Annotated[SpaceQuery, Query()]) -> Response:
        """List the orgs and projects of the memories that the key may see, with the number of memories in each."""
        return reply(scopes_answer(await self.listing.scopes(caller_of(request), query.filters())))

    async def get_memories(self, request: Request, query: Annotated[MemoriesQuery, Query()]) -> Response:
        """List the memories that the key may see, filtered by their fields, newest first."""
        caller = caller_of(request)
        memories, total = await self.listing.page(
            caller, query.filters(), state=query.memory_state(), limit=query.per_page, offset=query.offset
        )
        return page(request, [self.answers.memory(caller, memory) for memory in memories], query=query, total=total)

    @with_etag
    async def get_memory(self, request: Request, memory_id: str) -> Response:
        """
        Return one memory, also if it is archived.

        Its ETag changes with each write and with feedback, not with recall, with indexing, or with `effective_confidence`.
        """
        caller = caller_of(request)
        return self._tagged(caller, await self.records.get(caller, _folded(memory_id)))

    async def get_history(self, request: Request, memory_id: str, query: Annotated[PageQuery, Query()]) -> Response:
        """List the versions of a memory, oldest first: what it superseded, and what superseded it."""
        caller = caller_of(request)
        chain = await self.records.history(caller, _folded(memory_id))
        shown = [self.answers.version(caller, each) for each in chain[query.offset : query.offset + query.per_page]]
        return page(request, shown, query=query, total=len(chain))

    @with_etag
    @by_etag
    @describe(errors=(Conflict, BacklogFull))
    async def patch_memory(self, request: Request, memory_id: str, body: ChangeBody) -> Response:
        """Change fields of a memory and index it again. Fields that are left out keep their value."""
        caller = caller_of(request)
        changed = await self.records.change(caller, _folded(memory_id), body.change(), expected=expected(request))
        return self._tagged(caller, changed)

    @by_etag
    async def delete_memory(self, request: Request, memory_id: str) -> Response:
        """Delete a memory from the store and from the indexes. This cannot be undone; use archive to keep it for audit."""
        await self.records.delete(caller_of(request), _folded(memory_id), expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @describe(errors=(Conflict,))
    async def post_archive(self, request: Request, memory_id: str) -> Response:
        """Remove a memory from recall and search, and keep it for audit."""
        caller = caller_of(request)
        return self._tagged(caller, await self.records.archive(caller, _folded(memory_id), expected=expected(request)))

    @with_etag
    @by_etag
    @describe(errors=(Conflict, MemoriesFull, BacklogFull))
    async def post_restore(self, request: Request, memory_id: str) -> Response:
        """Return an archived memory to recall and search."""
        caller = caller_of(request)
        return self._tagged(caller, await self.records.restore(caller, _folded(memory_id), expected=expected(request)))

    def _tagged(self, caller: Caller, memory: Memory) -> Response:
        return tagged(self.answers.memory(caller, memory), memory.version)

    def _batch(self, caller: Caller, read: Sequence[Draft | ValidationFailed], outcomes: Sequence[Outcome]) -> Response:
        stored = iter(outcomes)
        results = [next(stored) if isinstance(each, Draft) else each for each in read]
        return reply(BatchAnswer.model_construct(results=[self._item(caller, index, each) for index, each in enumerate(results)]))

    def _item(self, caller: Caller, index: int, outcome: Outcome) -> BatchItem:
        if isinstance(outcome, RookeryError):
            return BatchItem.model_construct(index=index, status=outcome.status, memory=None, error=outcome.body())
        status = 200 if outcome.is_duplicate else 201
        return BatchItem.model_construct(index=index, status=status, memory=self.answers.remembered(caller, outcome), error=None)


def _route(
    line: str,
    handler: Callable[..., Awaitable[Response]],
    needs: str,
    answers: type[BaseModel] | None,
    operation_id: str,
    *,
    summary: str,
    status: int = 200,
    max_body: int = MAX_BODY_BYTES,
    once: bool = False,
) -> Route:
    method, path = line.split()
    return Route(
        method=method,
        path=path,
        handler=handler,
        needs=needs,
        status=status,
        answers=answers,
        operation_id=operation_id,
        summary=summary,
        tags=("Memory",),
        max_body=max_body,
        once=once,
    )


def _folded(uuid: str) -> str:
    """Return an id of a path as it is written in the store: case means nothing in a UUID, as in those of bodies."""
    return uuid.lower()


def _agent(agent_id: str) -> str:
    """Return the agent that a path names, which is data as that of a body is (D-16)."""
    try:
        return AgentPath(agent_id=agent_id).agent_id
    except ValidationError as error:
        raise refusal(error, AgentPath) from None


def _read(item: Mapping[str, object]) -> Draft | ValidationFailed:
    """Return the draft of one item of a batch, or what is wrong with it in the words of a body's errors."""
    try:
        return DraftBody.model_validate(item).draft()
    except ValidationError as error:
        return refusal(error, DraftBody)
