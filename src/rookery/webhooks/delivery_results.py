"""What becomes of a delivery after an attempt at it, and what its endpoint is noted for. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.webhooks.models import DeliveryState, Outcome, WebhookEndpoint
from rookery.webhooks.retry_policy import next_attempt_at
from rookery.webhooks.sender import AttemptResult
from rookery.webhooks.store.queue import DeliveryResult


def evaluate_attempt(sent: AttemptResult, endpoint: WebhookEndpoint | None) -> DeliveryResult:
    """Return what becomes of a delivery after an attempt at it."""
    spent = sent.claim.used_attempts + (sent.outcome is not Outcome.INTERRUPTED)
    again: datetime | None = None
    if sent.outcome is Outcome.SUCCESS:
        state = DeliveryState.DELIVERED
    else:
        if sent.outcome is Outcome.INTERRUPTED:
            again = sent.ended_at
        else:
            again = next_attempt_at(
                spent, started_at=sent.started_at, ended_at=sent.ended_at, status=sent.status, retry_after=sent.retry_after
            )
        state = DeliveryState.FAILED if again is None else retry_state(endpoint)
    return DeliveryResult(
        claim=sent.claim,
        state=state,
        used_attempts=spent,
        next_at=again if state is DeliveryState.PENDING else None,
        started_at=sent.started_at,
        ended_at=sent.ended_at,
        outcome=sent.outcome,
        status=sent.status,
        error=sent.error,
        response=sent.response,
        duration_ms=round(sent.duration_s * 1000, 3),
    )


def apply_result(endpoint: WebhookEndpoint, written: DeliveryResult) -> WebhookEndpoint:
    """Return an endpoint with what an ended delivery says of it."""
    if written.state is DeliveryState.DELIVERED:
        return replace(endpoint, failures=0, last_success_at=written.ended_at)
    return replace(endpoint, failures=endpoint.failures + 1)


def retry_state(endpoint: WebhookEndpoint | None) -> DeliveryState:
    """Return what becomes of a delivery that would be tried again."""
    if endpoint is None:
        return DeliveryState.CANCELLED
    return DeliveryState.PENDING if endpoint.enabled else DeliveryState.HELD
