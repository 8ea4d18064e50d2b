"""One attempt of a delivery: rendering, sending by the engine of its channel, and the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import orjson
import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import IdFactory
from rookery.kernel.variables import TemplateValue
from rookery.notifications.messages import ChannelType, NotificationMessage, SendOutcome, SendResult
from rookery.notifications.models import (
    Campaign,
    NotificationAttempt,
    NotificationState,
    OutboxMessage,
    RenderedMessage,
    SubscriberChannel,
)
from rookery.notifications.outcomes import clean_reason, get_final_state, get_next_attempt
from rookery.notifications.ports import BeginSend, NotificationChannel
from rookery.notifications.rendering import render
from rookery.notifications.store.queue import ClaimedNotification, NotificationResult

_MAX_ATTEMPT_S = 120.0
"""Engines have shorter limits for their single steps."""

_INTERNAL_ERROR = "An internal error occurred while it was being sent."
STOPPED = "The server stopped while it was being sent. It may have arrived, so it is not sent again."

_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAttempt:
    """
    The result of an attempt.

    Attributes:
        outbox_message: The message, for a test key. Nothing was sent.
    """

    claim: ClaimedNotification
    result: SendResult
    started_at: datetime
    ended_at: datetime
    duration_s: float
    outbox_message: OutboxMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSender:
    """
    Sends messages by the engines.

    Attributes:
        build_unsubscribe_url: Returns the one-click address of a channel; None: there is no public address.
        max_attempt_s: Seconds after which an attempt is given up.
    """

    channels: Mapping[ChannelType, NotificationChannel]
    clock: Clock
    ids: IdFactory
    build_unsubscribe_url: Callable[[SubscriberChannel], Awaitable[str | None]]
    max_attempt_s: float = _MAX_ATTEMPT_S

    async def send(self, campaign: Campaign, claim: ClaimedNotification, begin: BeginSend) -> SendAttempt:
        """Make one attempt, with *begin* as in the port of channels. Raises nothing but CancelledError."""
        started_at, started_s = self.clock(), time.perf_counter()
        result = await self._send(campaign, claim, begin, started_at)
        return self._finish(claim, result, started_at, started_s)

    def store_in_outbox(self, campaign: Campaign, claim: ClaimedNotification) -> SendAttempt:
        """Return the attempt of a test key, whose message goes to the outbox."""
        started_at, started_s = self.clock(), time.perf_counter()
        rendered = _render(campaign, claim)
        if isinstance(rendered, SendResult):
            return self._finish(claim, rendered, started_at, started_s)
        message = OutboxMessage(
            id=self.ids(),
            workspace_id=claim.workspace_id,
            campaign_id=campaign.id,
            delivery_id=claim.id,
            external_id=claim.external_id,
            channel_type=claim.channel.type,
            address=claim.channel.address,
            title=rendered.title,
            body=rendered.body,
            url=rendered.url,
            created_at=started_at,
        )
        return self._finish(claim, SendResult(outcome=SendOutcome.SENT), started_at, started_s, message)

    def interrupt(self, claim: ClaimedNotification, started_at: datetime) -> SendAttempt:
        """Return the attempt that the end of this process interrupted."""
        now = self.clock()
        result = SendResult(outcome=SendOutcome.UNKNOWN, reason=STOPPED)
        return SendAttempt(claim=claim, result=result, started_at=started_at, ended_at=now, duration_s=(now - started_at).total_seconds())

    async def _send(self, campaign: Campaign, claim: ClaimedNotification, begin: BeginSend, now: datetime) -> SendResult:
        engine = self.channels.get(claim.channel.type)
        if engine is None:
            reason = f"The channel {claim.channel.type.value} is not available on this server."
            return SendResult(outcome=SendOutcome.BLOCKED, reason=reason)
        rendered = _render(campaign, claim)
        if isinstance(rendered, SendResult):
            return rendered
        try:
            unsubscribe_url = await self.build_unsubscribe_url(claim.channel)
        except RookeryError as error:  # the key of links is not available
            return SendResult(outcome=SendOutcome.BLOCKED, reason=error.message)
        message = NotificationMessage(
            workspace_id=campaign.workspace_id,
            campaign_id=campaign.id,
            delivery_id=claim.id,
            target=claim.channel.target,
            title=rendered.title,
            body=rendered.body,
            url=rendered.url,
            ttl_s=max(1, int((claim.expires_at - now).total_seconds())),
            locale=claim.locale,
            unsubscribe_url=unsubscribe_url,
            created_at=campaign.started_at,
            public_workspace_id=campaign.public_workspace_id,
        )
        has_begun = False

        def record_begin() -> None:
            nonlocal has_begun
            begin()
            has_begun = True

        try:
            async with asyncio.timeout(self.max_attempt_s):
                return await engine.send(message, record_begin)
        except TimeoutError:
            return _build_interrupted_result(f"It took longer than {self.max_attempt_s:g} s.", has_begun=has_begun)
        except RookeryError as error:  # a channel that cannot be opened, or the journal; nothing was sent
            return SendResult(outcome=SendOutcome.BLOCKED, reason=error.message)
        except Exception:
            _log.exception("notifications.attempt_failed", delivery=claim.id, channel=claim.channel.type.value)
            return _build_interrupted_result(_INTERNAL_ERROR, has_begun=has_begun)

    def _finish(
        self,
        claim: ClaimedNotification,
        result: SendResult,
        started_at: datetime,
        started_s: float,
        outbox_message: OutboxMessage | None = None,
    ) -> SendAttempt:
        return SendAttempt(
            claim=claim,
            result=result,
            started_at=started_at,
            ended_at=max(self.clock(), started_at),
            duration_s=time.perf_counter() - started_s,
            outbox_message=outbox_message,
        )


def evaluate_attempt_result(attempt: SendAttempt) -> NotificationResult:
    """Return the new state of the delivery of an attempt."""
    claim, result = attempt.claim, attempt.result
    used_attempts = claim.used_attempts + (result.outcome is not SendOutcome.BLOCKED and not result.concerns_host)
    next_at = get_next_attempt(result, used_attempts=used_attempts, ended_at=attempt.ended_at, expires_at=claim.expires_at)
    return NotificationResult(
        claim=claim,
        state=get_final_state(result.outcome) if next_at is None else NotificationState.PENDING,
        used_attempts=used_attempts,
        next_at=next_at,
        attempt=NotificationAttempt(
            delivery_id=claim.id,
            workspace_id=claim.workspace_id,
            number=claim.attempt_number,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            outcome=result.outcome,
            status=result.status,
            reason=clean_reason(result.reason),
            duration_ms=round(attempt.duration_s * 1000, 3),
        ),
        provider_id=clean_reason(result.provider_id),
    )


def _build_interrupted_result(reason: str, *, has_begun: bool) -> SendResult:
    """Return the result of an attempt that did not end by itself. What had not begun has certainly not arrived."""
    if has_begun:
        return SendResult(outcome=SendOutcome.UNKNOWN, reason=f"{reason} It may have arrived.")
    return SendResult(outcome=SendOutcome.RETRY, reason=reason)


def _render(campaign: Campaign, claim: ClaimedNotification) -> RenderedMessage | SendResult:
    """Return the texts, or the result of a message that cannot be rendered."""
    attributes = cast("Mapping[str, TemplateValue]", orjson.loads(claim.attributes))
    try:
        return render(campaign, external_id=claim.external_id, locale=claim.locale, attributes=attributes)
    except RookeryError as error:
        return SendResult(outcome=SendOutcome.REJECTED, reason=error.message)
