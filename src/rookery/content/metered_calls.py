"""
Calls at the language model that are no stored generations, such as those of the judge of scoring.

Their texts are stored nowhere. Their cost is charged as that of a generation: one transaction reserves the budget before the call, and one
settles it after the call. A row with the reservation exists meanwhile, so that the reservation of a killed process is released.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.access.workspaces import require_workspace
from rookery.content.budgets import Budgets
from rookery.content.chat import NO_USAGE, ChatMessage, Completion
from rookery.content.execution import make_cancelled, make_failure, make_success, to_rookery_error
from rookery.content.generation_metrics import GenerationMetrics
from rookery.content.models import (
    CallReservation,
    ContentTenant,
    Generation,
    GenerationMode,
    GenerationOutcome,
    GenerationStatus,
)
from rookery.content.prices import compute_cost
from rookery.content.requests import Generators
from rookery.content.store import reservations
from rookery.content.store.tables import RESERVATIONS
from rookery.kernel.cancellation import run_to_end
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.ids import IdFactory
from rookery.usage.models import UsageKind, day_of

_LEASE_MARGIN = timedelta(seconds=60)
_SWEEP_BATCH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredCalls:
    """
    Makes calls and charges them to the budgets of their caller.

    Attributes:
        worker_id: The id of this process in reservations.
    """

    db: Database
    budgets: Budgets
    generators: Generators
    metrics: GenerationMetrics
    clock: Clock
    ids: IdFactory
    worker_id: str

    async def complete(
        self,
        caller: Caller,
        messages: tuple[ChatMessage, ...],
        *,
        response_schema: Mapping[str, object],
        max_tokens: int,
        temperature: float,
        timeout_s: float,
    ) -> Completion:
        """
        Return the answer of the provider's own model to *messages*.

        A model that accepts no *temperature* is called without one: nobody else can change that of an internal call.

        Raises:
            GenerationNotConfigured: No provider is set.
            BudgetExhausted, ModelNotPriced: As `Budgets.reserve`. Nothing was sent.
            ProviderError: As `TextGenerator.complete`.
        """
        tenant, generator = ContentTenant.from_caller(caller), self.generators.get(is_canned=False)
        call = Generation(
            id=self.ids(),
            workspace_id=tenant.workspace_id,
            key_id=tenant.key_id,
            mode=GenerationMode.SYNC,
            status=GenerationStatus.RUNNING,
            is_canned=False,
            model=generator.model,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            response_schema=response_schema,
            created_at=self.clock(),
        )
        reservation = await self._reserve(tenant, call, timeout_s)
        started = time.perf_counter()
        try:
            request = replace(call.to_request(timeout_s=timeout_s), is_temperature_optional=True)
            completion = await generator.complete(request)
        except asyncio.CancelledError:
            await run_to_end(self._settle(call, reservation, make_cancelled(call, "", started)))
            raise
        except Exception as raised:
            error = to_rookery_error(raised, call)
            await run_to_end(self._settle(call, reservation, make_failure(error, started)))
            raise error from raised
        await run_to_end(self._settle(call, reservation, make_success(completion, started)))
        return completion

    async def release_abandoned(self) -> int:
        """Release the reservations of processes that have exited; return the number. For a timer."""
        now = self.clock()

        def work(tx: Tx) -> int:
            reservations.end_orphaned_leases(tx, at=now)
            abandoned = reservations.list_abandoned(tx, now=now, limit=_SWEEP_BATCH_SIZE)
            for reservation in abandoned:
                RESERVATIONS.delete(tx, reservation.workspace_id, id=reservation.id)
                self.budgets.release(tx, reservation)
            return len(abandoned)

        if not await self.db.lookup(reservations.has_any):
            return 0
        return await self.db.write(work)

    async def _reserve(self, tenant: ContentTenant, call: Generation, timeout_s: float) -> CallReservation:
        now = self.clock()

        def work(tx: Tx) -> CallReservation:
            require_workspace(tx, tenant.public_workspace_id)
            reserved = self.budgets.reserve(tx, call, now)
            reservation = CallReservation(
                id=call.id,
                workspace_id=call.workspace_id,
                key_id=call.key_id,
                day=reserved.reserved_on or day_of(now),
                amount_nanos=reserved.reserved_nanos,
                owner=self.worker_id,
                lease_until=now + timedelta(seconds=timeout_s) + _LEASE_MARGIN,
            )
            RESERVATIONS.insert(tx, reservation)
            return reservation

        return await self.db.write(work)

    async def _settle(self, call: Generation, reservation: CallReservation, outcome: GenerationOutcome) -> None:
        self.metrics.record_call(outcome)
        await self.db.write(lambda tx: self._end(tx, replace(call, status=outcome.status), reservation, outcome, self.clock()))

    def _end(self, tx: Tx, call: Generation, reservation: CallReservation, outcome: GenerationOutcome, now: datetime) -> None:
        """Settle a call. Its usage counts even if its reservation was released before, but not if its workspace was deleted."""
        try:
            require_workspace(tx, call.workspace_id)
        except NotFound:
            return
        if RESERVATIONS.delete(tx, reservation.workspace_id, id=reservation.id):
            call = replace(call, reserved_nanos=reservation.amount_nanos, reserved_on=reservation.day)
        price, usage = self.budgets.prices.find(call.model), outcome.usage
        cost = 0 if usage is None or price is None else compute_cost(price, usage)
        self.budgets.settle(tx, call, spent_nanos=cost, now=now, usage=usage)
        self.budgets.add_usage(tx, call, usage or NO_USAGE, kind=UsageKind.JUDGE, cost_nanos=cost, has_ended=True, now=now)
