"""
The execution of a generation: one transaction before the call at the provider, and one after it.

The first transaction reserves the budget and marks the row as running. The last one stores the outcome, settles the budget and
publishes the event, if the row still belongs to this run. A generation that was cancelled meanwhile stays cancelled, and only the
usage of its call is added.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from rookery.content.active_calls import ActiveCall, ActiveCalls
from rookery.content.budgets import Budgets
from rookery.content.chat import NO_USAGE, Completion, Delta, TokenUsage, estimate_input_tokens, estimate_tokens
from rookery.content.errors import GenerationError, ProviderError
from rookery.content.events import EVENT_NAMES, BatchFinished, GenerationEnded
from rookery.content.generation_metrics import GenerationMetrics
from rookery.content.models import OPEN_STATUSES, Generation, GenerationMode, GenerationOutcome, GenerationStatus
from rookery.content.ports import OutputScorer, TextGenerator
from rookery.content.prices import compute_cost
from rookery.content.store import batches
from rookery.content.store import generations as store
from rookery.content.store.tables import GENERATIONS
from rookery.kernel.cancellation import run_to_end
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.events import EventBus

PlanRetry = Callable[[Generation, RookeryError], Callable[[Tx], None] | None]
"""Returns a function that queues a failed generation again in a transaction; None: the failure is final."""

CANCELLED, CLIENT_DISCONNECTED, INTERRUPTED = "cancelled", "client_disconnected", "interrupted"
_WORKSPACE_DELETED_MESSAGE = "The workspace was deleted before the answer was complete."
_DISCONNECTED_MESSAGE = "The client closed the connection before the answer was complete, so the call was cancelled."
MAX_REASONING_CHARS = 100_000
"""Characters of the reasoning that are stored."""

_LEASE_MARGIN = timedelta(seconds=60)
"""Time after the time limit of a call until another process treats it as abandoned."""

_log = structlog.stdlib.get_logger("rookery.content")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """
    A generation after its call.

    Attributes:
        error: The error of the call, to send to a waiting client; None: the call succeeded or was cancelled.
    """

    generation: Generation
    error: RookeryError | None = None


@dataclass(frozen=True, slots=True)
class UnsuccessfulEnd:
    """A generation that did not succeed. Its type differs, because it is no response to repeat for an Idempotency-Key."""

    generation: Generation


class _Pieces:
    """The pieces of a streamed answer, to charge and to store those that have arrived if the rest does not."""

    def __init__(self, *, passes_reasoning: bool) -> None:
        self._passes_reasoning = passes_reasoning
        self._texts: list[str] = []
        self._reasoning: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def add(self, delta: Delta) -> Delta | None:
        """Store a piece; return the part that is passed on, if there is one."""
        self._texts.append(delta.text)
        if not delta.reasoning:
            return delta
        self._reasoning.append(delta.reasoning)
        if self._passes_reasoning:
            return delta
        return Delta(delta.text) if delta.text else None


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRunner:
    """
    Runs generations.

    Attributes:
        get_generator: Returns the language model for a generation.
        get_scorer: Returns the scorer of outputs.
        worker_id: The id of this process in leases.
        timeout_s: Time limit of a call with all its attempts.
        stores_reasoning: The reasoning of models is stored and passed on.
    """

    db: Database
    _: KW_ONLY
    budgets: Budgets
    calls: ActiveCalls
    bus: EventBus
    metrics: GenerationMetrics
    get_generator: Callable[[Generation], TextGenerator]
    get_scorer: Callable[[], OutputScorer]
    clock: Clock
    worker_id: str
    timeout_s: float
    stores_reasoning: bool

    def begin(self, tx: Tx, generation: Generation, now: datetime) -> Generation:
        """
        Return the generation as a running one of this process, with its budget reserved. The caller stores it in the same transaction.

        Raises:
            BudgetExhausted, ModelNotPriced: As `Budgets.reserve`.
        """
        return replace(
            self.budgets.reserve(tx, generation, now),
            currency=self.budgets.currency,
            status=GenerationStatus.RUNNING,
            owner=self.worker_id,
            lease_until=now + timedelta(seconds=self.timeout_s) + _LEASE_MARGIN,
            run_count=generation.run_count + 1,
            started_at=now,
        )

    async def complete(self, generation: Generation, *, plan_retry: PlanRetry | None = None) -> FinishedCall:
        """
        Call the provider for a running generation and store the outcome.

        If the task is cancelled, the provider's connection is closed and the generation is stored as cancelled.

        Args:
            plan_retry: Returns a function that queues a generation again after an error; None: the generation fails.
        """
        schedule: Callable[[Tx], None] | None = None
        started = time.perf_counter()
        error: RookeryError | None = None
        with self.calls.register(generation.id) as call:
            try:
                completion = await self.get_generator(generation).complete(generation.to_request(timeout_s=self.timeout_s))
                outcome = make_success(completion, started)
            except asyncio.CancelledError:
                outcome = make_cancelled(generation, "", started)
                if not call.absorb_cancellation():
                    await run_to_end(self.store_end(generation, outcome))
                    raise
            except Exception as raised:  # noqa: BLE001 - stored with the generation, and logged if it is not the provider's
                error = to_rookery_error(raised, generation)
                outcome = make_failure(error, started)
                schedule = None if plan_retry is None else plan_retry(generation, error)
                if schedule is not None:
                    outcome = replace(outcome, status=GenerationStatus.QUEUED)
        return FinishedCall(generation=await run_to_end(self.store_end(generation, outcome, schedule)), error=error)

    async def stream(self, generation: Generation) -> AsyncGenerator[Delta | Generation]:
        """
        Call the provider for a running generation; yield the pieces of the answer, then the stored generation.

        If the reader leaves, the provider's connection is closed and the generation is stored as cancelled.
        """
        started, pieces = time.perf_counter(), _Pieces(passes_reasoning=self.stores_reasoning)
        outcome: GenerationOutcome | None = None
        parts = self.get_generator(generation).stream(generation.to_request(timeout_s=self.timeout_s))
        stored: Generation | None = None
        try:
            with self.calls.register(generation.id) as call:
                try:
                    while (part := await _read_part(parts, call)) is not None:
                        if isinstance(part, Delta):
                            if (piece := pieces.add(part)) is not None:
                                yield piece
                        else:
                            outcome = make_success(part, started)
                except asyncio.CancelledError:
                    outcome = make_cancelled(generation, pieces.text, started, reasoning=pieces.reasoning)
                    if not call.absorb_cancellation():
                        raise
                except GeneratorExit:
                    outcome = make_cancelled(generation, pieces.text, started, reasoning=pieces.reasoning)
                    raise
                except Exception as error:  # noqa: BLE001 - stored with the generation, and logged if it is not the provider's
                    outcome = replace(make_failure(to_rookery_error(error, generation), started), text=pieces.text or None)
        finally:
            await run_to_end(parts.aclose())
            if outcome is not None:
                stored = await run_to_end(self.store_end(generation, outcome))
        if stored is not None:
            yield stored

    async def abandon(self, generation: Generation) -> None:
        """Store a running generation as cancelled, because its client left before the call began."""
        outcome = replace(make_cancelled(generation, "", time.perf_counter()), usage=None, attempts=0)
        await run_to_end(self.db.write(lambda tx: self.end(tx, generation, outcome, self.clock())))

    def end(
        self, tx: Tx, generation: Generation, outcome: GenerationOutcome, now: datetime, schedule: Callable[[Tx], None] | None = None
    ) -> Generation:
        """
        Store the outcome of a run, settle its budget and publish its event; return the stored generation.

        If the generation is no longer in this run, because it was cancelled or another worker took it over, only usage is added.

        Args:
            schedule: Called for a generation that is queued again.
        """
        price = None if generation.is_canned else self.budgets.prices.find(generation.model)
        usage = outcome.usage
        cost = 0 if usage is None or price is None else compute_cost(price, usage)
        # Locks are taken in the same order everywhere: the generation, its budgets from the key to the workspace, usage, the batch.
        current, is_current = generation, True
        changed = _finish(generation, outcome, cost_nanos=None if price is None else cost, now=now)
        if generation.mode is GenerationMode.QUEUED or not store.finish_run(tx, changed, run=generation):
            stored = GENERATIONS.find(tx, generation.workspace_id, id=generation.id, lock=True)
            if stored is None:  # its workspace was deleted, so there is neither an answer nor a budget to settle
                return replace(
                    generation, status=GenerationStatus.CANCELLED, error_code=CANCELLED, error_message=_WORKSPACE_DELETED_MESSAGE
                )
            current = stored
            is_current = (stored.status, stored.run_count, stored.owner) == (generation.status, generation.run_count, generation.owner)
            cost_nanos = None if price is None else cost
            changed = _finish(stored, outcome, cost_nanos=cost_nanos, now=now) if is_current else _add_usage(stored, usage, cost_nanos)
            GENERATIONS.update(tx, changed)
        payer = current if is_current else replace(current, reserved_nanos=0, reserved_on=None)
        self.budgets.settle(tx, payer, spent_nanos=cost, now=now, usage=usage)
        has_ended = is_current and not changed.is_open
        if has_ended or usage is not None:
            self.budgets.add_usage(tx, changed, usage or NO_USAGE, cost_nanos=cost, has_ended=has_ended, now=now)
        if has_ended:
            self._publish_end(tx, changed, now)
        elif is_current and schedule is not None:
            schedule(tx)
        return changed

    def _publish_end(self, tx: Tx, generation: Generation, now: datetime) -> None:
        """Announce a generation that has just become final, and its batch if it was the last one of it."""
        tenant, generation_id = generation.workspace_id, generation.id
        name = EVENT_NAMES[generation.status.value]
        self.bus.publish_on_commit(tx, GenerationEnded(name=name, workspace_id=tenant, generation_id=generation_id, at=now))
        tx.after_commit(lambda: self.metrics.record_end(generation))
        if generation.batch_id is not None and batches.close_generations(tx, tenant, generation.batch_id, 1, at=now):
            self.bus.publish_on_commit(tx, BatchFinished(workspace_id=tenant, batch_id=generation.batch_id, at=now))

    async def store_end(
        self, generation: Generation, outcome: GenerationOutcome, schedule: Callable[[Tx], None] | None = None
    ) -> Generation:
        """Score the output if its request asked for it, then store and count the outcome of the call, as `end` does."""
        self.metrics.record_call(outcome)
        if not self.stores_reasoning:
            outcome = replace(outcome, reasoning=None)
        if generation.wants_score and outcome.status is GenerationStatus.SUCCEEDED:
            outcome = replace(outcome, score=await self._score(generation, outcome.text or ""))

        def work(tx: Tx) -> Generation | UnsuccessfulEnd:
            stored = self.end(tx, generation, outcome, self.clock(), schedule)
            return stored if stored.status is GenerationStatus.SUCCEEDED else UnsuccessfulEnd(stored)

        result = await self.db.write(work)
        return result.generation if isinstance(result, UnsuccessfulEnd) else result

    async def _score(self, generation: Generation, output: str) -> Mapping[str, object] | None:
        """Return the scores of *output*; None if it is blank or cannot be scored, because the answer is worth more than its scores."""
        if not output.strip():
            return None
        try:
            return await self.get_scorer().score_output(generation.workspace_id, generation.messages, output)
        except Exception:  # noqa: BLE001 - logged; the answer is stored without scores
            _log.exception("content.score_failed", generation=generation.id)
            return None


def _add_usage(generation: Generation, usage: TokenUsage | None, cost_nanos: int | None) -> Generation:
    """Return a generation with the tokens of a call and their cost, None for a model without a price."""
    return replace(generation, **_sum_usage(generation, usage, cost_nanos))


def _sum_usage(generation: Generation, usage: TokenUsage | None, cost_nanos: int | None) -> dict[str, Any]:
    """Return the fields of *generation* that change with the tokens of a call."""
    if usage is None:
        return {}
    return {
        "input_tokens": (generation.input_tokens or 0) + usage.input_tokens,
        "output_tokens": (generation.output_tokens or 0) + usage.output_tokens,
        "reasoning_tokens": generation.reasoning_tokens + usage.reasoning_tokens,
        "cached_tokens": generation.cached_tokens + usage.cached_tokens,
        "is_estimated": generation.is_estimated or usage.is_estimated,
        "cost_nanos": generation.cost_nanos if cost_nanos is None else (generation.cost_nanos or 0) + cost_nanos,
    }


def _finish(generation: Generation, outcome: GenerationOutcome, *, cost_nanos: int | None, now: datetime) -> Generation:
    """Return a generation after its run."""
    return replace(
        generation,
        **_sum_usage(generation, outcome.usage, cost_nanos),
        status=outcome.status,
        output=outcome.text,
        reasoning=outcome.reasoning,
        score=outcome.score,
        provider_model=outcome.provider_model,
        schema_mode=outcome.schema_mode,
        finish_reason=outcome.finish_reason,
        attempts=generation.attempts + outcome.attempts,
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        latency_ms=outcome.latency_ms,
        reserved_nanos=0,
        reserved_on=None,
        owner=None,
        lease_until=None,
        ended_at=None if outcome.status in OPEN_STATUSES else now,
    )


def make_cancelled(generation: Generation, text: str, started: float, *, reasoning: str = "") -> GenerationOutcome:
    """
    Return the outcome of a call that was cut off.

    The provider reports no usage for it, but charges the prompt and what it has written, so both are estimated.
    """
    reasoning_tokens = estimate_tokens(reasoning)
    usage = TokenUsage(
        input_tokens=estimate_input_tokens(generation.messages),
        output_tokens=estimate_tokens(text) + reasoning_tokens,
        reasoning_tokens=reasoning_tokens,
        is_estimated=True,
    )
    return GenerationOutcome(
        status=GenerationStatus.CANCELLED,
        latency_ms=_elapsed_ms(started),
        usage=usage,
        text=text or None,
        error_code=CLIENT_DISCONNECTED,
        error_message=_DISCONNECTED_MESSAGE,
    )


def make_success(completion: Completion, started: float) -> GenerationOutcome:
    """Return the outcome of a call that began at *started*, a value of `time.perf_counter`."""
    return GenerationOutcome(
        status=GenerationStatus.SUCCEEDED,
        latency_ms=_elapsed_ms(started),
        usage=completion.usage,
        text=completion.text,
        reasoning=completion.reasoning[:MAX_REASONING_CHARS] or None,
        finish_reason=completion.finish_reason,
        provider_model=completion.model,
        schema_mode=completion.schema_mode,
        attempts=completion.attempts,
    )


def make_failure(error: RookeryError, started: float) -> GenerationOutcome:
    """Return the outcome of a call that failed, with the usage of its attempts."""
    usage = error.usage if isinstance(error, ProviderError) else None
    attempts = error.detail.get("attempts", 1)
    return GenerationOutcome(
        status=GenerationStatus.FAILED,
        latency_ms=_elapsed_ms(started),
        usage=usage if usage is not None and (usage.input_tokens or usage.output_tokens) else None,
        attempts=attempts if isinstance(attempts, int) else 1,
        error_code=error.code,
        error_message=error.message,
    )


def _elapsed_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000


async def _read_part(parts: AsyncGenerator[Delta | Completion], call: ActiveCall) -> Delta | Completion | None:
    """Return the next part, or None at the end. While it is awaited, *call* knows the task to cancel."""
    if call.is_cancelled:
        raise asyncio.CancelledError
    call.task = asyncio.current_task()
    try:
        return await anext(parts, None)
    finally:
        call.task = None


def to_rookery_error(error: Exception, generation: Generation) -> RookeryError:
    """Return *error* if it is a RookeryError. Log any other, and return one without its text."""
    if isinstance(error, RookeryError):
        return error
    _log.error("content.call_failed", generation=generation.id, exc_info=error)
    return GenerationError("The call failed because of an unexpected error. The log of the server has the details.")
