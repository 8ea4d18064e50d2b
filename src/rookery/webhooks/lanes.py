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

from rookery.webhooks.models import Endpoint
from rookery.webhooks.store.queue import Claimed

MOST_AHEAD = 64
_QUICK_S = 1.0


@dataclass(slots=True)
class Lane:
    """
    One endpoint's deliveries in this process.

    Attributes:
        endpoint: As it was when its row was last read.
        waiting: Claimed, not sent yet, in order.
        sending: How many are under way.
        depth: How many may be in hand.
        is_doubtful: Nothing answered at the last attempt.
    """

    endpoint: Endpoint
    waiting: deque[Claimed] = field(default_factory=deque[Claimed])
    sending: int = 0
    depth: int = 0
    is_doubtful: bool = False

    @classmethod
    def to(cls, endpoint: Endpoint, doubtful: Container[str]) -> Self:
        """Return an empty lane; *doubtful*: the ids of endpoints that did not answer the last time."""
        return cls(endpoint, depth=2 * endpoint.concurrency, is_doubtful=endpoint.failures > 0 or endpoint.id in doubtful)

    @property
    def at_once(self) -> int:
        """How many may be under way at once."""
        return 1 if self.endpoint.strict_order or self.is_doubtful else self.endpoint.concurrency

    @property
    def room(self) -> int:
        """How many more may be claimed; in strict order nothing, before all of the last claim has ended."""
        held = self.sending + len(self.waiting)
        if self.is_doubtful:
            return 0 if held else 1
        return 0 if held and self.endpoint.strict_order else max(0, self.depth - held)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand."""
        return not self.sending and not self.waiting

    def next(self) -> Claimed | None:
        """Return what may be sent now, if anything may."""
        return self.waiting.popleft() if self.waiting and self.sending < self.at_once else None

    def heard(self, *, is_success: bool, is_answered: bool, took_s: float) -> list[Claimed]:
        """
        Learn from how an attempt ended.

        Returns:
            What must be given back: behind a failure in strict order nothing may go out, and behind silence nothing should wait here.
        """
        self.is_doubtful = not is_answered
        if is_success and took_s < _QUICK_S:
            if not self.waiting:
                self.depth = min(2 * self.depth, max(MOST_AHEAD, 2 * self.endpoint.concurrency))
        else:
            self.depth = 2 * self.endpoint.concurrency
        return self.emptied() if self.is_doubtful or (self.endpoint.strict_order and not is_success) else []

    def emptied(self) -> list[Claimed]:
        """Return all that waits, which it then has no longer."""
        left, self.waiting = list(self.waiting), deque[Claimed]()
        return left
