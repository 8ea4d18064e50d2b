"""Generations: creating, reading, cancelling and repeating them. `execution` calls the provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime

from rookery.access.workspaces import require_workspace
from rookery.content.active_calls import ActiveCalls
from rookery.content.budgets import Budgets
from rookery.content.chat import Delta
from rookery.content.errors import GenerationCancelled
from rookery.content.execution import CANCELLED, INTERRUPTED, GenerationRunner
from rookery.content.models import (
    ContentTenant,
    Generation,
    GenerationDraft,
    GenerationFilter,
    GenerationMode,
    GenerationOutcome,
    GenerationStatus,
    GenerationSummary,
)
from rookery.content.queued_work import enqueue, require_room
from rookery.content.requests import Generators, resolve_draft
from rookery.content.store import batches
from rookery.content.store import budgets as budget_store
from rookery.content.store import generations as store
from rookery.content.store.tables import GENERATIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.pages import ListPage, PageSlice
from rookery.usage.models import day_of

_CANCELLED_MESSAGE = "The generation was cancelled on request."
_INTERRUPTED_MESSAGE = "The process that waited for the answer stopped before it was complete."
_DELETE_BATCH_SIZE = 500
_SWEEP_BATCH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationServices:
    """The parts that create, run and cancel generations."""

    db: Database
    runner: GenerationRunner
    calls: ActiveCalls
    budgets: Budgets
    generators: Generators
    jobs: JobQueue
    clock: Clock
    ids: IdFactory


@dataclass(frozen=True, slots=True)
class StartedGeneration:
    """A generation whose call begins now. Its type differs from that of a finished one, because only that is a response."""

    generation: Generation


class Generations:
    """Creates, reads, cancels and repeats generations."""

    def __init__(self, services: GenerationServices) -> None:
        self._services = services
        self._db = services.db

    async def generate(self, tenant: ContentTenant, draft: GenerationDraft) -> Generation:
        """
        Generate content and return the finished generation.

        Raises:
            GenerationNotConfigured, NotFound, ValidationFailed: As `resolve_draft`.
            BudgetExhausted, ModelNotPriced: As `Budgets.reserve`.
            ProviderError: The call failed. The generation is stored as failed, and the error has its id.
            GenerationCancelled: Another request cancelled it.
        """
        generation = await self.start(tenant, draft, GenerationMode.SYNC)
        finished = await self._services.runner.complete(generation)
        if finished.error is not None:
            finished.error.detail["generation_id"] = generation.id
            raise finished.error
        if finished.generation.status is GenerationStatus.CANCELLED:
            raise GenerationCancelled(generation.id)
        return finished.generation

    async def start(self, tenant: ContentTenant, draft: GenerationDraft, mode: GenerationMode) -> Generation:
        """Store a running generation with its budget reserved; the caller runs it at once. Raises as `generate`."""
        now, generation_id = self._services.clock(), self._services.ids()

        def work(tx: Tx) -> StartedGeneration:
            require_workspace(tx, tenant.public_workspace_id)
            new = resolve_draft(tx, tenant, draft, self._services.generators, id=generation_id, mode=mode, now=now)
            generation = self._services.runner.begin(tx, new, now)
            GENERATIONS.insert(tx, generation)
            return StartedGeneration(generation)

        # Nobody knows a synchronous generation before its end, which is written to the disk with it.
        return (await self._db.write(work, is_synced=mode is not GenerationMode.SYNC)).generation

    def stream(self, generation: Generation) -> AsyncGenerator[Delta | Generation]:
        """Yield the pieces of the answer of a started generation, then the stored generation, whatever its status."""
        return self._services.runner.stream(generation)

    async def abandon(self, generation: Generation) -> None:
        """Cancel a started generation whose stream nobody has read."""
        await self._services.runner.abandon(generation)

    async def queue(self, tenant: ContentTenant, draft: GenerationDraft) -> Generation:
        """
        Store a queued generation and the job that runs it.

        Raises:
            GenerationNotConfigured, NotFound, ValidationFailed: As `resolve_draft`.
            BudgetExhausted, ModelNotPriced: The budget would not cover the call now.
            GenerationQueueFull: The workspace has too many queued generations.
        """
        now, generation_id = self._services.clock(), self._services.ids()

        def work(tx: Tx) -> Generation:
            require_workspace(tx, tenant.public_workspace_id)
            generation = resolve_draft(tx, tenant, draft, self._services.generators, id=generation_id, mode=GenerationMode.QUEUED, now=now)
            self._services.budgets.require_left(tx, generation, now)
            GENERATIONS.insert(tx, generation)
            enqueue(tx, self._services.jobs, [generation])
            return generation

        await require_room(self._services.jobs, tenant.workspace_id, 1)
        return await self._db.write(work)

    async def get(self, tenant: ContentTenant, generation_id: str) -> Generation:
        """Return a generation, or raise NotFound."""
        return await self._db.lookup(lambda tx: require_generation(tx, tenant.workspace_id, generation_id))

    async def list_page(self, tenant: ContentTenant, filters: GenerationFilter, *, page: PageSlice) -> ListPage[GenerationSummary]:
        """Return a page of generations without their texts, newest first, and the total."""
        return await self._db.read_from_replica(lambda tx: store.list_page(tx, tenant.workspace_id, filters, page=page))

    async def cancel(self, tenant: ContentTenant, generation_id: str) -> Generation:
        """
        Cancel a queued or running generation. It stays cancelled, even if the provider answers. Cancelling again changes nothing.

        Raises:
            NotFound: The generation does not exist.
            Conflict: It has succeeded or failed.
        """
        now = self._services.clock()

        def work(tx: Tx) -> Generation:
            require_workspace(tx, tenant.public_workspace_id)
            current = require_generation(tx, tenant.workspace_id, generation_id, lock=True)
            if current.status is GenerationStatus.CANCELLED:
                return current
            if not current.is_open:
                raise Conflict(f"The generation has ended with the status {current.status.value}, so it cannot be cancelled.")
            return cancel_in(tx, self._services.runner, current, now)

        cancelled = await self._db.write(work)
        self._services.calls.cancel(generation_id)
        return cancelled

    async def retry(self, tenant: ContentTenant, generation_id: str) -> Generation:
        """
        Queue a copy of a failed or cancelled generation, with the same messages, and return it.

        Raises:
            NotFound: The generation does not exist.
            Conflict: It has succeeded or is not finished.
            GenerationNotConfigured, BudgetExhausted, ModelNotPriced, GenerationQueueFull: As `queue`.
        """
        now, new_id = self._services.clock(), self._services.ids()

        def work(tx: Tx) -> Generation:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_generation(tx, tenant.workspace_id, generation_id)
            if old.status not in {GenerationStatus.FAILED, GenerationStatus.CANCELLED}:
                raise Conflict(f"Only a failed or cancelled generation can be repeated; the status of this one is {old.status.value}.")
            self._services.generators.find(old)
            new = Generation(
                id=new_id,
                workspace_id=old.workspace_id,
                key_id=tenant.key_id,
                mode=GenerationMode.QUEUED,
                status=GenerationStatus.QUEUED,
                is_canned=old.is_canned,
                retry_of=old.id,
                model=old.model,
                template=old.template,
                template_version=old.template_version,
                messages=old.messages,
                max_tokens=old.max_tokens,
                temperature=old.temperature,
                response_schema=old.response_schema,
                metadata=old.metadata,
                wants_score=old.wants_score,
                created_at=now,
            )
            self._services.budgets.require_left(tx, new, now)
            GENERATIONS.insert(tx, new)
            enqueue(tx, self._services.jobs, [new])
            return new

        await require_room(self._services.jobs, tenant.workspace_id, 1)
        return await self._db.write(work)

    async def fail_abandoned(self) -> int:
        """
        Mark calls of clients as failed if their process has exited, and release their budgets; return the number.

        Queued generations are not among them: another worker takes over their jobs.
        """
        now = self._services.clock()
        outcome = GenerationOutcome(
            status=GenerationStatus.FAILED, latency_ms=0.0, attempts=0, error_code=INTERRUPTED, error_message=_INTERRUPTED_MESSAGE
        )

        def work(tx: Tx) -> int:
            store.end_orphaned_leases(tx, at=now)
            abandoned = store.list_abandoned(tx, now=now, limit=_SWEEP_BATCH_SIZE)
            for generation in abandoned:
                self._services.runner.end(tx, generation, outcome, now)
            return len(abandoned)

        if not await self._db.lookup(store.has_owned):
            return 0
        return await self._db.write(work)

    async def delete_old(self, *, before: datetime) -> int:
        """Delete generations and batches that ended before *before*, and the spending of earlier days; return the number of generations."""
        total, count = 0, _DELETE_BATCH_SIZE
        while count == _DELETE_BATCH_SIZE:
            count = await self._db.write(lambda tx: store.delete_old(tx, before=before, limit=_DELETE_BATCH_SIZE))
            total += count
        await self._db.write(lambda tx: batches.delete_old(tx, before=before, limit=_DELETE_BATCH_SIZE))
        await self._db.write(lambda tx: budget_store.delete_old_spans(tx, before=day_of(before), limit=_DELETE_BATCH_SIZE))
        return total


def require_generation(tx: Tx, workspace_id: int, generation_id: str, *, lock: bool = False) -> Generation:
    """Return a generation of the workspace, or raise NotFound."""
    generation = GENERATIONS.find(tx, workspace_id, id=generation_id, lock=lock)
    if generation is None:
        raise NotFound("generation", generation_id)
    return generation


def cancel_in(tx: Tx, runner: GenerationRunner, generation: Generation, now: datetime) -> Generation:
    """Cancel an open generation that this transaction has locked, and release its budget; return it as stored."""
    outcome = GenerationOutcome(
        status=GenerationStatus.CANCELLED,
        latency_ms=generation.latency_ms or 0.0,
        attempts=0,
        error_code=CANCELLED,
        error_message=_CANCELLED_MESSAGE,
    )
    return runner.end(tx, generation, outcome, now)
