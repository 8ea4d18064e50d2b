"""Subscribers built and changed from drafts. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import orjson

from rookery.access.models import Tenant
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.placeholders import TemplateValue, to_text
from rookery.kernel.unset import UNSET, value_or
from rookery.kernel.urls import MASK
from rookery.notifications.addresses import get_host, mask_address
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    ChannelDraft,
    ChannelStatus,
    Subscriber,
    SubscriberChannel,
    SubscriberDraft,
    SubscriberView,
)

MAX_CHANNELS = 20
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTES_BYTES = 16_384
"""Maximum size of all attributes of a subscriber as JSON."""

_TICK = timedelta(microseconds=1)


def find_attributes_error(attributes: Mapping[str, TemplateValue]) -> str | None:
    """Return the error of attributes that are too many or too large; None if there is no error."""
    if len(attributes) > MAX_ATTRIBUTES:
        return f"must be at most {MAX_ATTRIBUTES}"
    size = len(orjson.dumps(attributes, option=orjson.OPT_PASSTHROUGH_SUBCLASS))
    return f"must be at most {MAX_ATTRIBUTES_BYTES:,} bytes together" if size > MAX_ATTRIBUTES_BYTES else None


ENDED_REASON = "The expirationTime of the push subscription has passed."


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberBuilder:
    """Builds and changes subscribers from drafts. No I/O."""

    ids: IdFactory

    def build(self, tenant: Tenant, external_id: str, draft: SubscriberDraft, now: datetime) -> SubscriberView:
        subscriber = Subscriber(
            id=self.ids(),
            workspace_id=tenant.workspace_id,
            external_id=external_id,
            locale=value_or(draft.locale, None),
            tags=value_or(draft.tags, ()),
            attributes=value_or(draft.attributes, {}),
            created_at=now,
            updated_at=now,
        )
        return SubscriberView(subscriber=subscriber, channels=self._merge_channels(subscriber, (), value_or(draft.channels, ()), now))

    def change(self, old: SubscriberView, draft: SubscriberDraft, now: datetime) -> SubscriberView:
        """
        Return a subscriber with the fields of *draft*, or *old* itself if nothing changes.

        A channel that is listed again keeps its id, and its status unless the draft sets one. So an import does not undo an unsubscription.

        Raises:
            ValidationFailed: A masked address belongs to no channel of *old*, or there would be too many channels or attributes.
        """
        subscriber = replace(
            old.subscriber,
            external_id=value_or(draft.external_id, old.subscriber.external_id),
            locale=value_or(draft.locale, old.subscriber.locale),
            tags=value_or(draft.tags, old.subscriber.tags),
            attributes=_merge_attributes(old.subscriber.attributes, draft),
        )
        listed = _list_channels(old.channels, draft)
        channels = old.channels if listed is UNSET else self._merge_channels(subscriber, old.channels, listed, now)
        new = SubscriberView(subscriber=subscriber, channels=channels)
        if new == old:
            return old
        return replace(new, subscriber=replace(subscriber, updated_at=max(now, old.subscriber.updated_at + _TICK)))

    def _merge_channels(
        self, subscriber: Subscriber, old: Sequence[SubscriberChannel], drafts: Sequence[ChannelDraft], now: datetime
    ) -> tuple[SubscriberChannel, ...]:
        existing = _index_channels(old)
        merged = list[SubscriberChannel]()
        for position, draft in enumerate(drafts):
            channel = existing.get((draft.type, draft.address))
            if channel is None and MASK in draft.address:
                raise ValidationFailed({f"channels.{position}": [f"{draft.address} is masked; write the whole address"]})
            if channel is None:
                channel = SubscriberChannel(
                    id=self.ids(),
                    workspace_id=subscriber.workspace_id,
                    subscriber_id=subscriber.id,
                    position=position,
                    type=draft.type,
                    address=draft.address,
                    p256dh=draft.p256dh,
                    auth=draft.auth,
                    host=get_host(draft.type, draft.address),
                    status=ChannelStatus.ACTIVE,
                    status_reason=None,
                    last_confirmed_at=None,
                    created_at=now,
                )
            channel = replace(channel, position=position, p256dh=draft.p256dh, auth=draft.auth)
            if draft.status is not None and draft.status is not channel.status:
                channel = replace(channel, status=draft.status, status_reason=draft.status_reason)
            elif draft.status is None and draft.has_ended(now) and channel.status is ChannelStatus.ACTIVE:
                channel = replace(channel, status=ChannelStatus.INVALID, status_reason=ENDED_REASON)
            merged.append(channel)
        return tuple(merged)


def _index_channels(channels: Sequence[SubscriberChannel]) -> dict[tuple[ChannelType, str], SubscriberChannel]:
    """Return channels by their type and their address, as it is and as responses have it."""
    masked = {(channel.type, mask_address(channel.type, channel.address)): channel for channel in channels}
    return masked | {(channel.type, channel.address): channel for channel in channels}


def _list_channels(old: Sequence[SubscriberChannel], draft: SubscriberDraft) -> tuple[ChannelDraft, ...] | UNSET:
    """
    Return all channels after the change; UNSET: they stay as they are.

    A draft for some types replaces only active channels of these types. The others keep their place.
    """
    if draft.channels is UNSET or draft.channel_types is None:
        return draft.channels
    by_address = _index_channels(old)
    drafts = {_get_channel_id(by_address, channel): channel for channel in draft.channels}
    listed = list[ChannelDraft]()
    for channel in old:
        if channel.id in drafts:
            listed.append(drafts.pop(channel.id))
        elif channel.type not in draft.channel_types or channel.status is not ChannelStatus.ACTIVE:
            listed.append(ChannelDraft(type=channel.type, address=channel.address, p256dh=channel.p256dh, auth=channel.auth))
    listed.extend(drafts.values())
    if len(listed) > max(MAX_CHANNELS, len(old)):
        raise ValidationFailed({"channels": [f"the subscriber would have {len(listed)} channels, and the maximum is {MAX_CHANNELS}"]})
    return tuple(listed)


def _get_channel_id(by_address: Mapping[tuple[ChannelType, str], SubscriberChannel], draft: ChannelDraft) -> str:
    """Return the id of the existing channel of a draft, or its address for a new one."""
    channel = by_address.get((draft.type, draft.address))
    return f"{draft.type.value} {draft.address}" if channel is None else channel.id


def _merge_attributes(old: Mapping[str, TemplateValue], draft: SubscriberDraft) -> Mapping[str, TemplateValue]:
    """Return the attributes after the change. A text that is how a stored number is written keeps the number."""
    if draft.attributes is UNSET or draft.attribute_names is None:
        return value_or(draft.attributes, old)
    others = {
        name: value for name, value in old.items() if name not in draft.attribute_names or (value == "" and name not in draft.attributes)
    }
    changed = {
        name: old[name] if name in old and to_text(old[name]).strip() == value else value for name, value in draft.attributes.items()
    }
    merged = {**others, **changed}
    error = find_attributes_error(merged)
    if error is not None:
        raise ValidationFailed({"attributes": [error]})
    return merged
