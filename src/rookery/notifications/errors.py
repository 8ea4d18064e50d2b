"""
Errors of notifications.

    NotFound (kernel)           404  resource_not_found       subscriber, campaign, delivery
    ValidationFailed (kernel)   422  validation_error         an address that is not allowed, a time in the past, a missing variable
    RookeryError
    ├── Conflict (kernel)       409  conflict                 an external id that exists, nothing to retry
    │   ├── WrongCampaignStatus 409  wrong_campaign_status    the status does not allow the action
    │   ├── CampaignNotEditable 409  campaign_not_editable    only drafts and scheduled campaigns may be changed
    │   └── CampaignAlreadySent 409  campaign_already_sent    a second send
    └── ChannelNotReady         503  channel_not_ready        a channel cannot work as configured
"""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.errors import Conflict, RookeryError


class WrongCampaignStatus(Conflict):
    """The status of the campaign does not allow the action."""

    code = "wrong_campaign_status"
    fields = "`campaign_status`, `allowed`"

    def __init__(self, campaign: str, action: str, status: str, *, allowed: Sequence[str]) -> None:
        super().__init__(
            f"The campaign {campaign!r} is {status}. {action} needs one of: {', '.join(allowed)}.",
            campaign_status=status,
            allowed=list(allowed),
        )


class CampaignNotEditable(Conflict):
    """The campaign is neither a draft nor scheduled, so it cannot be changed; duplicate it."""

    code = "campaign_not_editable"
    fields = "`campaign_status`"

    def __init__(self, campaign: str, status: str) -> None:
        super().__init__(
            f"The campaign {campaign!r} is {status} and can no longer be changed. Duplicate it to change the copy.", campaign_status=status
        )


class CampaignAlreadySent(Conflict):
    """The campaign was started before and is not sent a second time."""

    code = "campaign_already_sent"
    fields = "`campaign_status`"

    def __init__(self, campaign: str, status: str) -> None:
        super().__init__(
            f"The campaign {campaign!r} is {status}: it was started before. `retry` sends failed deliveries; `duplicate` makes a new one.",
            campaign_status=status,
        )


class ChannelNotReady(RookeryError):
    """A channel of notifications cannot work as configured. The reason is also in `status_reason` of the campaign that it paused."""

    status, code = 503, "channel_not_ready"
    fields = "`channel`"

    def __init__(self, channel: str, reason: str) -> None:
        super().__init__(f"The channel {channel} cannot send: {reason}", channel=channel)
        self.channel = channel
        self.reason = reason
