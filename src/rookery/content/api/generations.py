"""The operations of generations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.content import tool_declarations as tools
from rookery.content.chat import Delta
from rookery.content.errors import PROVIDER_ERRORS, START_ERRORS, GenerationCancelled, GenerationQueueFull
from rookery.content.generations import Generations, StartedGeneration
from rookery.content.models import ContentTenant, Generation, GenerationMode, GenerationSummary
from rookery.content.ports import OutputScorer
from rookery.content.schemas import (
    DeltaEvent,
    GenerationItem,
    GenerationResponse,
    GenerationsQuery,
    NewGenerationBody,
    ScoredGenerationResponse,
    serialize_generation,
    serialize_summary,
)
from rookery.kernel.errors import Conflict, NotFound
from rookery.kernel.http import DocumentedResponse, EventStream, ItemPage, Operation, Output, encode_event
from rookery.kernel.http.event_stream import MEDIA_TYPE
from rookery.kernel.http.idempotency import store_created_id
from rookery.kernel.http.request_body import cancel_on_disconnect
from rookery.kernel.schema import Page

READ_SCOPE, WRITE_SCOPE = "content.read", "content.write"
SCORE_SCOPE = "score:read"
CONTENT_TAG = "Content"

_MODES_DESCRIPTION = (
    "`sync` waits for the answer. If the client disconnects, the call is cancelled. An error of the provider is the response, with the "
    "`generation_id` of the failed generation.\n\n"
    "`queued` returns at once with 202. Read the generation later, or subscribe to `generation.*` events.\n\n"
    "`stream` returns server-sent events: `start` with the generation, `delta` with each piece of the answer as `text`, `reasoning` with "
    "each piece of the reasoning before it, if the model shows it, and `done` with the generation at its end, whatever its status. Nothing "
    "is requested from the provider again after the first piece."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationApi:
    """The operations of generations. Each handler calls one service."""

    generations: Generations
    scorer: OutputScorer

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/content/generations", "/content/generations/{generation_id}"
        operation = partial(Operation, tags=(CONTENT_TAG,))
        change = partial(operation, method="POST", required_scope=WRITE_SCOPE, response_model=GenerationResponse)
        return [
            change(path=base, handler=self.post_generation, present=_present_created, committed=Generation, idempotent=True,
                   rebuild_response=self.rebuild_generation, media_types=(MEDIA_TYPE,),
                   responses={202: DocumentedResponse(description="The generation is queued.", model=GenerationResponse)},
                   errors=(*START_ERRORS, *PROVIDER_ERRORS, GenerationQueueFull, GenerationCancelled, NotFound),
                   operation_id="create_generation", summary="Generate content", description=_MODES_DESCRIPTION, tools=(tools.GENERATE,)),
            operation(method="GET", path=base, handler=self.get_generations, present=_present_summary, required_scope=READ_SCOPE,
                      response_model=Page[GenerationItem], operation_id="list_generations", summary="List generations"),
            operation(method="GET", path=one, handler=self.get_generation, present=_present, required_scope=READ_SCOPE,
                      response_model=GenerationResponse, operation_id="get_generation", summary="Show a generation", tools=(tools.GET,)),
            operation(method="GET", path=f"{one}/score", handler=self.get_generation_score, required_scope=READ_SCOPE,
                      response_model=ScoredGenerationResponse, errors=(Conflict,), operation_id="get_generation_score",
                      summary="Score the output of a generation"),
            change(path=f"{one}/cancel", handler=self.post_cancel, present=_present, errors=(Conflict,),
                   operation_id="cancel_generation", summary="Cancel a generation"),
            change(path=f"{one}/retry", handler=self.post_retry, present=_present, status=202, committed=Generation, idempotent=True,
                   errors=(*START_ERRORS, GenerationQueueFull, Conflict), operation_id="retry_generation", summary="Repeat a generation"),
        ]  # fmt: skip

    async def post_generation(self, caller: Caller, body: NewGenerationBody, request: Request | None) -> Generation | Output | Response:
        """Generate content with the configured language model. The keys of a sandbox get fixed texts, marked as `canned`."""
        tenant, draft = ContentTenant.from_caller(caller), body.to_model()
        if draft.wants_score:
            caller.require_scope(SCORE_SCOPE)
        if body.mode is GenerationMode.QUEUED:
            return await self.generations.queue(tenant, draft)
        if request is None:
            return await self.generations.generate(tenant, draft)
        if body.mode is GenerationMode.STREAM:
            store_created_id(StartedGeneration, lambda started: started.generation.id, status=200)
            generation = await self.generations.start(tenant, draft, GenerationMode.STREAM)
            return EventStream(self._iter_events(generation))
        async with cancel_on_disconnect(request):
            return await self.generations.generate(tenant, draft)

    async def rebuild_generation(self, request: Request, generation_id: str) -> Generation:
        """Return the generation of a repeated request for a stream, which is not streamed again."""
        return await self.generations.get(ContentTenant.from_caller(request.state.caller), generation_id)

    async def get_generations(self, caller: Caller, query: GenerationsQuery) -> ItemPage[GenerationSummary]:
        """List the generations of the workspace without their messages and outputs, newest first."""
        tenant = ContentTenant.from_caller(caller)
        return ItemPage(*await self.generations.list_page(tenant, query.to_filter(), page=query.slice))

    async def get_generation(self, caller: Caller, generation_id: str) -> Generation:
        """Return a generation with its messages and its output."""
        return await self.generations.get(ContentTenant.from_caller(caller), generation_id)

    async def get_generation_score(self, caller: Caller, generation_id: str) -> ScoredGenerationResponse:
        """
        Return whether the output of a generation reads as written by a model, and how sycophantic it is as an answer to its messages.

        Each request computes it, offline, and the score is not stored. Needs the scope score:read too.
        """
        caller.require_scope(SCORE_SCOPE)
        generation = await self.generations.get(ContentTenant.from_caller(caller), generation_id)
        if not (generation.output or "").strip():
            raise Conflict(f"The generation has no output to score; its status is {generation.status.value!r}.")
        score = await self.scorer.score_output(generation.workspace_id, generation.messages, generation.output or "")
        return ScoredGenerationResponse.from_parts(generation_id=generation.id, score=score)

    async def post_cancel(self, caller: Caller, generation_id: str) -> Generation:
        """
        Cancel a queued or running generation. It stays cancelled, even if the provider still answers.

        Cancelling it again changes nothing.
        """
        return await self.generations.cancel(ContentTenant.from_caller(caller), generation_id)

    async def post_retry(self, caller: Caller, generation_id: str) -> Generation:
        """Queue a copy of a failed or cancelled generation. It has the same messages, and `retry_of` names the original."""
        return await self.generations.retry(ContentTenant.from_caller(caller), generation_id)

    async def _iter_events(self, generation: Generation) -> AsyncGenerator[bytes]:
        parts, is_read = self.generations.stream(generation), False
        try:
            yield _encode("start", serialize_generation(generation))
            is_read = True
            async for part in parts:
                if not isinstance(part, Delta):
                    yield _encode("done", serialize_generation(part))
                    continue
                if part.reasoning:
                    yield _encode("reasoning", DeltaEvent(text=part.reasoning))
                if part.text:
                    yield _encode("delta", DeltaEvent(text=part.text))
        finally:
            await parts.aclose()
            if not is_read:  # the client left before the call began, so the stream stored nothing
                await self.generations.abandon(generation)


def _encode(name: str, response: GenerationResponse | DeltaEvent) -> bytes:
    return encode_event(name, response.__pydantic_serializer__.to_json(response, by_alias=True))


def _present(_: Caller, generation: Generation) -> GenerationResponse:
    return serialize_generation(generation)


def _present_created(_: Caller, generation: Generation) -> Output:
    return Output(body=serialize_generation(generation), status=202 if generation.mode is GenerationMode.QUEUED else None)


def _present_summary(_: Caller, generation: GenerationSummary) -> GenerationItem:
    return serialize_summary(generation)
