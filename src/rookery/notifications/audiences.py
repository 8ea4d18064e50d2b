"""The audience of a campaign: its preview, the check of variables, and fixing it at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rookery.access.models import Tenant
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.notifications.models import (
    Campaign,
    CampaignPreview,
    CampaignStatus,
    MissingVariable,
    RenderedMessage,
    SubscriberView,
)
from rookery.notifications.ports import find_length_warnings
from rookery.notifications.rendering import list_subscriber_names, render, uses_attributes
from rookery.notifications.store import campaigns as store
from rookery.notifications.store import queue, subscribers

_MAX_NAMED_SUBSCRIBERS = 5
"""Maximum external ids in an error about a missing value."""


def start(tx: Tx, campaign: Campaign, now: datetime) -> Campaign:
    """
    Insert the deliveries of a campaign and return it as it starts. Without any delivery to send, it is already sent.

    Raises:
        ValidationFailed: A member of the audience has no value for a placeholder. Nothing was inserted.
    """
    require_variables(tx, campaign)
    until = now + timedelta(seconds=campaign.ttl_s)
    store.freeze_audience(tx, campaign, at=now, until=until, keeps_attributes=uses_attributes(campaign))
    started = replace(campaign, status=CampaignStatus.SENDING, status_reason=None, started_at=now, ended_at=None)
    return started if queue.is_open(tx, campaign.id) else replace(started, status=CampaignStatus.SENT, ended_at=now)


def require_variables(tx: Tx, campaign: Campaign) -> None:
    """Raise ValidationFailed if a member of the audience has no value for a placeholder."""
    missing = find_missing(tx, campaign)
    if missing:
        raise ValidationFailed({f"variables.{variable.name}": [describe_missing(variable)] for variable in missing})


def find_missing(tx: Tx, campaign: Campaign) -> tuple[MissingVariable, ...]:
    """Return the placeholders without a value for some members of the audience."""
    missing = list[MissingVariable]()
    for name in list_subscriber_names(campaign):
        count, external_ids = store.find_members_without(tx, campaign, name, limit=_MAX_NAMED_SUBSCRIBERS)
        if count:
            missing.append(MissingVariable(name=name, count=count, external_ids=tuple(external_ids)))
    return tuple(missing)


def describe_missing(variable: MissingVariable) -> str:
    """Return the error for a placeholder without a value."""
    names = ", ".join(map(repr, variable.external_ids))
    more = f" and {variable.count - len(variable.external_ids):,} more" if variable.count > len(variable.external_ids) else ""
    return f"has no value for {names}{more}; add the attribute to these subscribers, or a default to the variables of the campaign"


def require_existing(tx: Tx, tenant: Tenant, refs: Sequence[str]) -> None:
    """Raise ValidationFailed if one of *refs* names no subscriber."""
    unknown = find_unknown(tx, tenant, refs)
    if unknown:
        names = ", ".join(repr(ref) for ref in unknown[:_MAX_NAMED_SUBSCRIBERS])
        raise ValidationFailed({"subscribers": [f"there is no subscriber {names}"]})


def find_unknown(tx: Tx, tenant: Tenant, refs: Sequence[str]) -> tuple[str, ...]:
    """Return those of *refs* that name no subscriber."""
    ids = subscribers.resolve_refs(tx, tenant.workspace_id, refs)
    return tuple(ref for ref in refs if ref not in ids)


def preview(tx: Tx, tenant: Tenant, campaign: Campaign, *, subscriber: str | None) -> CampaignPreview:
    """
    Return the audience of a campaign at this moment, and its message for *subscriber* or the first member.

    Raises:
        NotFound: *subscriber* does not exist.
    """
    count, by_channel, skipped_count = store.count_audience(tx, campaign)
    ref = store.find_sample(tx, campaign) if subscriber is None else subscriber
    sample = None if ref is None else subscribers.find(tx, tenant.workspace_id, ref)
    if sample is None and subscriber is not None:
        raise NotFound("subscriber", subscriber)
    message = None if sample is None else _try_render(campaign, sample)
    return CampaignPreview(
        subscriber_count=count,
        delivery_count=sum(by_channel.values()),
        skipped_count=skipped_count,
        by_channel=by_channel,
        unknown_subscribers=find_unknown(tx, tenant, campaign.audience.subscribers),
        missing_variables=find_missing(tx, campaign),
        sample_external_id=None if sample is None or message is None else sample.subscriber.external_id,
        message=message,
        warnings=() if message is None else find_length_warnings(message, by_channel),
    )


def _try_render(campaign: Campaign, view: SubscriberView) -> RenderedMessage | None:
    subscriber = view.subscriber
    try:
        return render(campaign, external_id=subscriber.external_id, locale=subscriber.locale, attributes=subscriber.attributes)
    except ValidationFailed:
        return None
