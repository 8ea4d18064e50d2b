"""
What a dispatcher has in hand for one endpoint, and how much it may: so that no receiver takes another's turn.

A receiver that answers quickly is handed more ahead, so that its next delivery need not wait for the store; one that did not
answer at all has one delivery under way at a time until it answers again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Self

from rookery.webhooks.models import WebhookEndpoint
from rookery.webhooks.store.queue import ClaimedDelivery

MAX_PREFETCH = 64
_FAST_RESPONSE_S = 1.0


@dataclass(slots=True)
class EndpointQueue:
    """
    One endpoint's deliveries in this process.

    Attributes:
        endpoint: As it was when its row was last read.
        waiting: Claimed, not sent yet, in order.
        in_flight: How many are under way.
        max_claimed: How many may be in hand.
        is_unresponsive: Nothing answered at the last attempt.
    """

    endpoint: WebhookEndpoint
    waiting: deque[ClaimedDelivery] = field(default_factory=deque[ClaimedDelivery])
    in_flight: int = 0
    max_claimed: int = 0
    is_unresponsive: bool = False

    @classmethod
    def for_endpoint(cls, endpoint: WebhookEndpoint, unresponsive: Container[str]) -> Self:
        """Return an empty lane; *unresponsive*: the ids of endpoints that did not answer the last time."""
        return cls(endpoint, max_claimed=2 * endpoint.concurrency, is_unresponsive=endpoint.failures > 0 or endpoint.id in unresponsive)

    @property
    def max_in_flight(self) -> int:
        """How many may be under way at once."""
        return 1 if self.endpoint.strict_order or self.is_unresponsive else self.endpoint.concurrency

    @property
    def capacity(self) -> int:
        """How many more may be claimed; in strict order nothing, before all of the last claim has ended."""
        held = self.in_flight + len(self.waiting)
        if self.is_unresponsive:
            return 0 if held else 1
        return 0 if held and self.endpoint.strict_order else max(0, self.max_claimed - held)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand."""
        return not self.in_flight and not self.waiting

    def pop_next(self) -> ClaimedDelivery | None:
        """Return what may be sent now, if anything may."""
        return self.waiting.popleft() if self.waiting and self.in_flight < self.max_in_flight else None

    def record_attempt(self, *, is_success: bool, is_answered: bool, duration_s: float) -> list[ClaimedDelivery]:
        """
        Learn from how an attempt ended.

        Returns:
            What must be given back: behind a failure in strict order nothing may go out, and behind silence nothing should wait here.
        """
        self.is_unresponsive = not is_answered
        if is_success and duration_s < _FAST_RESPONSE_S:
            if not self.waiting:
                self.max_claimed = min(2 * self.max_claimed, max(MAX_PREFETCH, 2 * self.endpoint.concurrency))
        else:
            self.max_claimed = 2 * self.endpoint.concurrency
        return self.drain() if self.is_unresponsive or (self.endpoint.strict_order and not is_success) else []

    def drain(self) -> list[ClaimedDelivery]:
        """Return all that waits, which it then has no longer."""
        left, self.waiting = list(self.waiting), deque[ClaimedDelivery]()
        return left
