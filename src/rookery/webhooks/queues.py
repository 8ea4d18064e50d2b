"""
The queues of a dispatcher, one per endpoint, with limits that keep receivers from delaying each other.

An endpoint that answers quickly gets a longer queue, so that its next delivery need not wait for the store. An endpoint that did
not answer gets one delivery at a time until it answers again.
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
    The deliveries of one endpoint that this process has claimed.

    Attributes:
        endpoint: The endpoint when its row was last read.
        waiting: Claimed deliveries that are not sent yet, in order.
        in_flight: Number of deliveries being sent.
        max_claimed: Maximum claimed deliveries.
        is_unresponsive: The last attempt got no response.
    """

    endpoint: WebhookEndpoint
    waiting: deque[ClaimedDelivery] = field(default_factory=deque[ClaimedDelivery])
    in_flight: int = 0
    max_claimed: int = 0
    is_unresponsive: bool = False

    @classmethod
    def for_endpoint(cls, endpoint: WebhookEndpoint, unresponsive: Container[str]) -> Self:
        """Return an empty queue; *unresponsive*: ids of endpoints that did not answer last time."""
        return cls(endpoint, max_claimed=2 * endpoint.concurrency, is_unresponsive=endpoint.failures > 0 or endpoint.id in unresponsive)

    @property
    def max_in_flight(self) -> int:
        """Maximum deliveries sent at the same time."""
        return 1 if self.endpoint.strict_order or self.is_unresponsive else self.endpoint.concurrency

    @property
    def claimed_count(self) -> int:
        """Number of claims of this process."""
        return self.in_flight + len(self.waiting)

    @property
    def capacity(self) -> int:
        """Number of further deliveries that may be claimed; in strict order 0 until all claimed ones are finished."""
        if self.is_unresponsive:
            return 0 if self.claimed_count else 1
        return 0 if self.claimed_count and self.endpoint.strict_order else max(0, self.max_claimed - self.claimed_count)

    @property
    def is_idle(self) -> bool:
        """True if the queue has no claimed delivery."""
        return not self.claimed_count

    def pop_next(self) -> ClaimedDelivery | None:
        """Remove and return the next delivery if it may be sent now."""
        return self.waiting.popleft() if self.waiting and self.in_flight < self.max_in_flight else None

    def record_attempt(self, *, is_success: bool, is_answered: bool, duration_s: float) -> list[ClaimedDelivery]:
        """
        Adapt the limits to the result of an attempt.

        Returns:
            The deliveries to release: in strict order those behind a failure, and all if the endpoint did not answer.
        """
        self.is_unresponsive = not is_answered
        if is_success and duration_s < _FAST_RESPONSE_S:
            if not self.waiting:
                self.max_claimed = min(2 * self.max_claimed, max(MAX_PREFETCH, 2 * self.endpoint.concurrency))
        else:
            self.max_claimed = 2 * self.endpoint.concurrency
        return self.drain() if self.is_unresponsive or (self.endpoint.strict_order and not is_success) else []

    def drain(self) -> list[ClaimedDelivery]:
        """Remove and return all waiting deliveries."""
        drained, self.waiting = list(self.waiting), deque[ClaimedDelivery]()
        return drained
