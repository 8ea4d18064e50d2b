"""The result of an attempt for its delivery and its endpoint. No I/O, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.webhooks.models import DeliveryState, Outcome, WebhookEndpoint
from rookery.webhooks.retry_policy import next_attempt_at
from rookery.webhooks.sender import AttemptResult
from rookery.webhooks.store.queue import DeliveryResult


def evaluate_attempt(sent: AttemptResult, endpoint: WebhookEndpoint | None) -> DeliveryResult:
    """Return the result of an attempt for its delivery."""
    spent = sent.claim.used_attempts + (sent.outcome is not Outcome.INTERRUPTED)
    retry_at: datetime | None = None
    if sent.outcome is Outcome.SUCCESS:
        state = DeliveryState.DELIVERED
    else:
        if sent.outcome is Outcome.INTERRUPTED:
            retry_at = sent.ended_at
        else:
            retry_at = next_attempt_at(
                spent, started_at=sent.started_at, ended_at=sent.ended_at, status=sent.status, retry_after=sent.retry_after
            )
        state = DeliveryState.FAILED if retry_at is None else retry_state(endpoint)
    return DeliveryResult(
        claim=sent.claim,
        state=state,
        used_attempts=spent,
        next_at=retry_at if state is DeliveryState.PENDING else None,
        started_at=sent.started_at,
        ended_at=sent.ended_at,
        outcome=sent.outcome,
        status=sent.status,
        error=sent.error,
        response=sent.response,
        duration_ms=round(sent.duration_s * 1000, 3),
    )


def apply_result(endpoint: WebhookEndpoint, written: DeliveryResult) -> WebhookEndpoint:
    """Return an endpoint updated with the result of a finished delivery."""
    if written.state is DeliveryState.DELIVERED:
        return replace(endpoint, failures=0, last_success_at=written.ended_at)
    return replace(endpoint, failures=endpoint.failures + 1)


def retry_state(endpoint: WebhookEndpoint | None) -> DeliveryState:
    """Return the state of a delivery that is to be retried: pending, held if disabled, cancelled if deleted."""
    if endpoint is None:
        return DeliveryState.CANCELLED
    return DeliveryState.PENDING if endpoint.enabled else DeliveryState.HELD
