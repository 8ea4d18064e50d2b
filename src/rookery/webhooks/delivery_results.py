"""The result of an attempt for its delivery and its endpoint. No I/O, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.webhooks.models import DeliveryState, Outcome, WebhookEndpoint
from rookery.webhooks.retry_policy import next_attempt_at
from rookery.webhooks.sender import AttemptResult
from rookery.webhooks.store.queue import DeliveryResult


def evaluate_attempt(attempt: AttemptResult, endpoint: WebhookEndpoint | None) -> DeliveryResult:
    """Return the result of an attempt for its delivery."""
    spent = attempt.claim.used_attempts + (attempt.outcome is not Outcome.INTERRUPTED)
    retry_at: datetime | None = None
    if attempt.outcome is Outcome.SUCCESS:
        state = DeliveryState.DELIVERED
    else:
        if attempt.outcome is Outcome.INTERRUPTED:
            retry_at = attempt.ended_at
        else:
            retry_at = next_attempt_at(
                spent, started_at=attempt.started_at, ended_at=attempt.ended_at, status=attempt.status, retry_after=attempt.retry_after
            )
        state = DeliveryState.FAILED if retry_at is None else retry_state(endpoint)
    return DeliveryResult(
        claim=attempt.claim,
        state=state,
        used_attempts=spent,
        next_at=retry_at if state is DeliveryState.PENDING else None,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        status=attempt.status,
        error=attempt.error,
        response=attempt.response,
        duration_ms=round(attempt.duration_s * 1000, 3),
    )


def apply_result(endpoint: WebhookEndpoint, result: DeliveryResult) -> WebhookEndpoint:
    """Return an endpoint updated with the result of a finished delivery."""
    if result.state is DeliveryState.DELIVERED:
        return replace(endpoint, failures=0, last_success_at=result.ended_at)
    return replace(endpoint, failures=endpoint.failures + 1)


def retry_state(endpoint: WebhookEndpoint | None) -> DeliveryState:
    """Return the state of a delivery that is to be retried: pending, held if disabled, cancelled if deleted."""
    if endpoint is None:
        return DeliveryState.CANCELLED
    return DeliveryState.PENDING if endpoint.enabled else DeliveryState.HELD
