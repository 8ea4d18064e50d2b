"""The operations of batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.content.api.generations import CONTENT_TAG, READ_SCOPE, SCORE_SCOPE, WRITE_SCOPE
from rookery.content.batches import GenerationBatches
from rookery.content.errors import START_ERRORS, GenerationQueueFull
from rookery.content.models import BatchView, ContentTenant, GenerationSummary
from rookery.content.schemas import (
    GenerationBatchesQuery,
    GenerationBatchResponse,
    GenerationItem,
    NewBatchBody,
    serialize_batch,
    serialize_summary,
)
from rookery.kernel.http import ItemPage, Operation
from rookery.kernel.http.operations import BYTES_PER_MIB
from rookery.kernel.schema import Page, PageQuery

_MAX_BODY_BYTES = 8 * BYTES_PER_MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApi:
    """The operations of batches. Each handler calls one service."""

    batches: GenerationBatches

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/content/batches", "/content/batches/{batch_id}"
        operation = partial(Operation, tags=(CONTENT_TAG,))
        read = partial(operation, method="GET", required_scope=READ_SCOPE)
        return [
            operation(method="POST", path=base, handler=self.post_batch, present=_present, committed=BatchView, status=202,
                      required_scope=WRITE_SCOPE, response_model=GenerationBatchResponse, idempotent=True, max_body_bytes=_MAX_BODY_BYTES,
                      errors=(*START_ERRORS, GenerationQueueFull), operation_id="create_generation_batch", summary="Queue a batch"),
            read(path=base, handler=self.get_batches, present=_present, response_model=Page[GenerationBatchResponse],
                 operation_id="list_generation_batches", summary="List batches"),
            read(path=one, handler=self.get_batch, present=_present, response_model=GenerationBatchResponse,
                 operation_id="get_generation_batch", summary="Show a batch"),
            read(path=f"{one}/generations", handler=self.get_batch_generations, present=_present_summary,
                 response_model=Page[GenerationItem], operation_id="list_generations_of_batch", summary="List the generations of a batch"),
            operation(method="POST", path=f"{one}/cancel", handler=self.post_cancel, present=_present, required_scope=WRITE_SCOPE,
                      response_model=GenerationBatchResponse, operation_id="cancel_generation_batch",
                      summary="Cancel a batch"),
        ]  # fmt: skip

    async def post_batch(self, caller: Caller, body: NewBatchBody) -> BatchView:
        """
        Queue up to 500 generations. Each has its own outcome.

        If one of them is invalid, nothing is stored, and the error names its position: `requests.3.prompt`.
        """
        drafts = [request.to_model() for request in body.requests]
        if any(draft.wants_score for draft in drafts):
            caller.require_scope(SCORE_SCOPE)
        return await self.batches.create(ContentTenant.from_caller(caller), drafts, metadata=body.metadata)

    async def get_batches(self, caller: Caller, query: GenerationBatchesQuery) -> ItemPage[BatchView]:
        """List the batches of the workspace, newest first."""
        tenant = ContentTenant.from_caller(caller)
        return ItemPage(*await self.batches.list_page(tenant, page=query.slice, status=query.status))

    async def get_batch(self, caller: Caller, batch_id: str) -> BatchView:
        """Return a batch with the number of its generations by status."""
        return await self.batches.get(ContentTenant.from_caller(caller), batch_id)

    async def get_batch_generations(self, caller: Caller, batch_id: str, query: PageQuery) -> ItemPage[GenerationSummary]:
        """List the generations of a batch in the order of the request, without their messages and outputs."""
        tenant = ContentTenant.from_caller(caller)
        return ItemPage(*await self.batches.list_generations(tenant, batch_id, page=query.slice))

    async def post_cancel(self, caller: Caller, batch_id: str) -> BatchView:
        """Cancel all generations of a batch that have not ended."""
        return await self.batches.cancel(ContentTenant.from_caller(caller), batch_id)


def _present(_: Caller, view: BatchView) -> GenerationBatchResponse:
    return serialize_batch(view)


def _present_summary(_: Caller, generation: GenerationSummary) -> GenerationItem:
    return serialize_summary(generation)
