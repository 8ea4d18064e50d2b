"""One attempt of a delivery: signing, posting, and the result for its delivery and its endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.signing import sign
from rookery.webhooks.errors import ReceiverUnreachable
from rookery.webhooks.models import DeliveryState, Outcome, SigningSecrets, WebhookEndpoint
from rookery.webhooks.ports import WebhookClient
from rookery.webhooks.retry_policy import describe_failure, is_success, next_attempt_at
from rookery.webhooks.store.queue import ClaimedDelivery, DeliveryResult

GetSigningSecrets = Callable[[WebhookEndpoint, datetime], SigningSecrets | None]

_MISSING_SECRET_MESSAGE = "Not sent: the webhook's secret was lost with its sealing key. Set a new one with rotate-secret."  # noqa: S105
_INTERNAL_ERROR_MESSAGE = "An internal error occurred while sending the delivery or storing the response."
_STOPPED_MESSAGE = "The attempt was interrupted because the server stopped."

_log = structlog.stdlib.get_logger("rookery.webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """
    The result of an attempt.

    Attributes:
        status: The HTTP status; None: no response.
        error: The reason of a failure.
    """

    claim: ClaimedDelivery
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    duration_s: float
    status: int | None = None
    error: str | None = None
    response: str | None = None
    retry_after: str | None = None

    def without_response(self) -> AttemptResult:
        """Return the result without the receiver's response, which could not be stored."""
        return replace(self, error=None if self.outcome is Outcome.SUCCESS else _INTERNAL_ERROR_MESSAGE, response=None, retry_after=None)


@dataclass(frozen=True, slots=True)
class DeliverySender:
    """Sends deliveries, signed with the current secrets."""

    client: WebhookClient
    get_secrets: GetSigningSecrets
    clock: Clock

    async def send(self, endpoint: WebhookEndpoint, claim: ClaimedDelivery) -> AttemptResult:
        """Make one attempt. Raises nothing but CancelledError."""
        started_at, started_s = self.clock(), time.perf_counter()
        status, error, response, retry_after = None, None, None, None
        try:
            secrets = self.get_secrets(endpoint, started_at)
            if secrets is None:
                error = _MISSING_SECRET_MESSAGE
            else:
                signing_secrets = [secrets.current, *([] if secrets.previous is None else [secrets.previous])]
                headers = sign(claim.body, event_id=claim.event_id, at=started_at, secrets=[secret.reveal() for secret in signing_secrets])
                received = await self.client.post(endpoint.url, headers, claim.body)
                status, response = received.status, received.excerpt
                error, retry_after = describe_failure(status), received.headers.get("retry-after")
        except ReceiverUnreachable as unreachable:
            error = unreachable.message
        except EngineUnavailable:
            error = _MISSING_SECRET_MESSAGE
        except Exception:
            _log.exception("webhooks.attempt_failed", delivery=claim.id)
            error = _INTERNAL_ERROR_MESSAGE
        duration_s = time.perf_counter() - started_s
        return AttemptResult(
            claim=claim,
            started_at=started_at,
            ended_at=max(self.clock(), started_at),
            outcome=Outcome.SUCCESS if status is not None and is_success(status) else Outcome.FAILURE,
            duration_s=duration_s,
            status=status,
            error=error,
            response=response,
            retry_after=retry_after,
        )

    def interrupt(self, claim: ClaimedDelivery, started_at: datetime) -> AttemptResult:
        """Return the attempt that the end of this process interrupted."""
        now = self.clock()
        return AttemptResult(
            claim=claim,
            started_at=started_at,
            ended_at=now,
            outcome=Outcome.INTERRUPTED,
            duration_s=(now - started_at).total_seconds(),
            error=_STOPPED_MESSAGE,
        )


def evaluate_attempt(attempt: AttemptResult, endpoint: WebhookEndpoint | None) -> DeliveryResult:
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
