"""
The changes of a campaign's status. Pure: no I/O, no settings.

    draft ──▶ scheduled ──▶ sending ◀─▶ paused
      ▲           │            │
      └───────────┘            ├──▶ sent, failed ──retry──▶ sending
                               └──▶ cancelled
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from rookery.notifications.errors import CampaignAlreadySent, CampaignNotEditable, WrongCampaignStatus
from rookery.notifications.models import Campaign, CampaignStatus

_DRAFT, _SCHEDULED, _SENDING, _PAUSED = (
    CampaignStatus.DRAFT,
    CampaignStatus.SCHEDULED,
    CampaignStatus.SENDING,
    CampaignStatus.PAUSED,
)
_SENT, _CANCELLED, _FAILED, _MISSED = (
    CampaignStatus.SENT,
    CampaignStatus.CANCELLED,
    CampaignStatus.FAILED,
    CampaignStatus.MISSED,
)


class CampaignAction(StrEnum):
    """An action that changes the status of a campaign: a verb of the API, or one of the dispatcher."""

    SEND = "send"
    SCHEDULE = "schedule"
    UNSCHEDULE = "unschedule"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    FINISH = "finish"
    FAIL = "fail"
    MISS = "miss"


TRANSITIONS: Mapping[CampaignAction, Mapping[CampaignStatus, CampaignStatus]] = MappingProxyType(
    {
        CampaignAction.SEND: {_DRAFT: _SENDING, _SCHEDULED: _SENDING, _MISSED: _SENDING},
        CampaignAction.SCHEDULE: {_DRAFT: _SCHEDULED, _SCHEDULED: _SCHEDULED, _MISSED: _SCHEDULED},
        CampaignAction.UNSCHEDULE: {_SCHEDULED: _DRAFT, _MISSED: _DRAFT},
        CampaignAction.PAUSE: {_SENDING: _PAUSED},
        CampaignAction.RESUME: {_PAUSED: _SENDING},
        CampaignAction.CANCEL: {_SCHEDULED: _CANCELLED, _SENDING: _CANCELLED, _PAUSED: _CANCELLED, _MISSED: _CANCELLED},
        CampaignAction.RETRY: {_SENT: _SENDING, _FAILED: _SENDING},
        CampaignAction.FINISH: {_SENDING: _SENT},
        CampaignAction.FAIL: {_SENDING: _FAILED, _SCHEDULED: _FAILED},
        CampaignAction.MISS: {_SCHEDULED: _MISSED},
    }
)
"""The old and the new status for each action. Any other status rejects the action."""

EDITABLE = frozenset({_DRAFT, _SCHEDULED})
"""The statuses in which the fields may be changed. A scheduled campaign returns to draft."""

DELETABLE = frozenset({_DRAFT, _SENT, _CANCELLED, _FAILED, _MISSED})


def next_status(campaign: Campaign, action: CampaignAction) -> CampaignStatus:
    """
    Return the status after *action*.

    Raises:
        CampaignAlreadySent: The campaign was sent or is being sent, and *action* would send it again.
        WrongCampaignStatus: The status does not allow *action*.
    """
    allowed = TRANSITIONS[action]
    if campaign.status in allowed:
        return allowed[campaign.status]
    if action is CampaignAction.SEND and campaign.started_at is not None:
        raise CampaignAlreadySent(campaign.id, campaign.status.value)
    raise WrongCampaignStatus(campaign.id, action.value, campaign.status.value, allowed=sorted(status.value for status in allowed))


def require_editable(campaign: Campaign) -> None:
    """Raise CampaignNotEditable unless the fields of the campaign may be changed."""
    if campaign.status not in EDITABLE:
        raise CampaignNotEditable(campaign.id, campaign.status.value)


def require_deletable(campaign: Campaign) -> None:
    """Raise WrongCampaignStatus unless the campaign may be deleted."""
    if campaign.status not in DELETABLE:
        raise WrongCampaignStatus(campaign.id, "delete", campaign.status.value, allowed=sorted(status.value for status in DELETABLE))
