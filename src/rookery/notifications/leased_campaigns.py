"""The campaigns that a process leases, with its claims."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from rookery.notifications.common_failures import FailureStreaks
from rookery.notifications.models import Campaign
from rookery.notifications.pacing import TokenBucket
from rookery.notifications.store.queue import ClaimedNotification

ClaimRelease = tuple[ClaimedNotification, datetime]
"""A claim of which nothing was sent, and the time when it is due again."""


@dataclass(slots=True)
class LeasedCampaign:
    """
    A campaign that this process sends.

    Attributes:
        campaign: The campaign when its row was last read.
        waiting: Claims that are not sent yet, in order.
        in_flight: Number of messages being sent.
        stalled_until_s: No claim is tried until this monotonic time.
        failures: The failures that may have one cause.
    """

    campaign: Campaign
    bucket: TokenBucket
    waiting: deque[ClaimedNotification] = field(default_factory=deque[ClaimedNotification])
    in_flight: int = 0
    stalled_until_s: float = 0.0
    failures: FailureStreaks = field(default_factory=FailureStreaks)

    @property
    def held_count(self) -> int:
        """Number of claims of this process."""
        return self.in_flight + len(self.waiting)
