"""Batches: up to 500 generations that are queued together. Each has its own outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rookery.access.workspaces import require_workspace
from rookery.content.generations import GenerationServices, cancel_in
from rookery.content.models import (
    OPEN_STATUSES,
    BatchStatus,
    BatchView,
    ContentTenant,
    Generation,
    GenerationBatch,
    GenerationDraft,
    GenerationMode,
    GenerationSummary,
    JsonObject,
)
from rookery.content.queued_work import enqueue, require_room
from rookery.content.requests import add_position, resolve_draft
from rookery.content.store import batches as store
from rookery.content.store import generations
from rookery.content.store.tables import BATCHES, GENERATIONS
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.pages import ListPage, PageSlice

MAX_BATCH_SIZE = 500
"""Maximum generations of a batch."""


class GenerationBatches:
    """Creates, reads and cancels batches."""

    def __init__(self, services: GenerationServices) -> None:
        self._services = services
        self._db = services.db

    async def create(self, tenant: ContentTenant, drafts: Sequence[GenerationDraft], *, metadata: JsonObject) -> BatchView:
        """
        Store a batch with a queued generation for each of *drafts*, or nothing if one of them is invalid.

        Raises:
            GenerationNotConfigured: No provider is set.
            ValidationFailed: A draft is invalid. The field begins with its position, such as `requests.3.template`.
            BudgetExhausted, ModelNotPriced: The budget would not cover a single one of the calls now.
            GenerationQueueFull: The workspace has too many queued generations.
        """
        services = self._services
        now, batch_id = services.clock(), services.ids()
        ids = [services.ids() for _ in drafts]

        def work(tx: Tx) -> BatchView:
            require_workspace(tx, tenant.public_workspace_id)
            new = list[Generation]()
            for index, draft in enumerate(drafts):
                try:
                    generation = resolve_draft(tx, tenant, draft, services.generators, id=ids[index], mode=GenerationMode.QUEUED, now=now)
                except RookeryError as error:
                    raise add_position(error, index) from error
                new.append(replace(generation, batch_id=batch_id, batch_index=index))
            self._services.budgets.require_left_for_any(tx, new, now)
            batch = GenerationBatch(
                id=batch_id,
                workspace_id=tenant.workspace_id,
                key_id=tenant.key_id,
                total=len(new),
                open_count=len(new),
                metadata=metadata,
                created_at=now,
            )
            BATCHES.insert(tx, batch)
            GENERATIONS.insert(tx, *new)
            enqueue(tx, self._services.jobs, new)
            return load_batch_view(tx, tenant.workspace_id, batch_id)

        await require_room(self._services.jobs, tenant.workspace_id, len(drafts))
        return await self._db.write(work)

    async def get(self, tenant: ContentTenant, batch_id: str) -> BatchView:
        """Return a batch with its counts, or raise NotFound."""
        return await self._db.read(lambda tx: load_batch_view(tx, tenant.workspace_id, batch_id))

    async def list_page(self, tenant: ContentTenant, *, page: PageSlice, status: BatchStatus | None = None) -> ListPage[BatchView]:
        """Return a page of batches, newest first, and the total; *status* None: no filter."""

        def read(tx: Tx) -> ListPage[BatchView]:
            batch_page = store.list_page(tx, tenant.workspace_id, page=page, status=status)
            return batch_page.with_items([generations.view_batch(tx, batch) for batch in batch_page.items])

        return await self._db.read(read)

    async def list_generations(self, tenant: ContentTenant, batch_id: str, *, page: PageSlice) -> ListPage[GenerationSummary]:
        """Return a page of a batch's generations, in the order of the request, and the total. Raises NotFound."""
        return await self._db.read(lambda tx: generations.list_batch_page(tx, _require_batch(tx, tenant.workspace_id, batch_id), page=page))

    async def cancel(self, tenant: ContentTenant, batch_id: str) -> BatchView:
        """Cancel all generations of a batch that are not final. Raises NotFound."""
        now = self._services.clock()

        def work(tx: Tx) -> tuple[list[Generation], BatchView]:
            require_workspace(tx, tenant.public_workspace_id)
            _require_batch(tx, tenant.workspace_id, batch_id)
            open_generations = GENERATIONS.find_all(
                tx, tenant.workspace_id, "id", lock=True, batch_id=batch_id, status=sorted(OPEN_STATUSES)
            )
            for generation in open_generations:
                cancel_in(tx, self._services.runner, generation, now)
            return open_generations, load_batch_view(tx, tenant.workspace_id, batch_id)

        cancelled, view = await self._db.write(work)
        for generation in cancelled:
            self._services.calls.cancel(generation.id)
        return view


def load_batch_view(tx: Tx, workspace_id: int, batch_id: str) -> BatchView:
    """Return a batch with its counts, or raise NotFound."""
    return generations.view_batch(tx, _require_batch(tx, workspace_id, batch_id))


def _require_batch(tx: Tx, workspace_id: int, batch_id: str) -> GenerationBatch:
    batch = BATCHES.find(tx, workspace_id, id=batch_id)
    if batch is None:
        raise NotFound("batch", batch_id)
    return batch
