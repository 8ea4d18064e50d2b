"""Subscribers built and changed. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.models import Tenant
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.placeholders import TemplateValue, to_text
from rookery.kernel.projections import copy_fields
from rookery.kernel.unset import UNSET
from rookery.kernel.urls import MASK
from rookery.notifications.addresses import get_host, mask_address
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    ChannelDraft,
    ChannelStatus,
    ImportColumns,
    NewSubscriber,
    Subscriber,
    SubscriberChange,
    SubscriberChannel,
    SubscriberSettings,
    SubscriberView,
    find_attributes_error,
)

MAX_CHANNELS = 20
_TICK = timedelta(microseconds=1)

ENDED_REASON = "The expirationTime of the push subscription has passed."


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberBuilder:
    """Builds and changes subscribers. No I/O."""

    ids: IdFactory

    def build(self, tenant: Tenant, new: NewSubscriber, now: datetime) -> SubscriberView:
        settings = copy_fields(SubscriberSettings, new)
        subscriber = Subscriber(id=self.ids(), workspace_id=tenant.workspace_id, created_at=now, updated_at=now, **settings)
        return SubscriberView(subscriber=subscriber, channels=self._merge_channels(subscriber, (), new.channels, now))

    def change(
        self, old: SubscriberView, change: SubscriberChange, now: datetime, *, columns: ImportColumns | None = None
    ) -> SubscriberView:
        """
        Return a subscriber with the fields of *change*, or *old* itself if nothing changes.

        A channel that is listed again keeps its id, and its status unless the draft sets one. So an import does not undo an unsubscription.

        Args:
            columns: The channels and attributes that are replaced; None: all.

        Raises:
            ValidationFailed: A masked address belongs to no channel of *old*, or there would be too many channels or attributes.
        """
        values = change.get_set_fields()
        drafts: tuple[ChannelDraft, ...] | UNSET = values.pop("channels", UNSET)
        if columns is not None and "attributes" in values:
            values["attributes"] = _merge_attributes(old.subscriber.attributes, values["attributes"], columns)
        subscriber = replace(old.subscriber, **values)
        channels = old.channels
        if drafts is not UNSET:
            listed = drafts if columns is None else _list_channels(old.channels, drafts, columns)
            channels = self._merge_channels(subscriber, old.channels, listed, now)
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


def _list_channels(old: Sequence[SubscriberChannel], new: Sequence[ChannelDraft], columns: ImportColumns) -> Sequence[ChannelDraft]:
    """Return all channels after an import. *new* replaces only active channels of the types of *columns*. The others keep their place."""
    by_address = _index_channels(old)
    drafts = {_get_channel_id(by_address, channel): channel for channel in new}
    listed = list[ChannelDraft]()
    for channel in old:
        if channel.id in drafts:
            listed.append(drafts.pop(channel.id))
        elif channel.type not in columns.channel_types or channel.status is not ChannelStatus.ACTIVE:
            listed.append(ChannelDraft(type=channel.type, address=channel.address, p256dh=channel.p256dh, auth=channel.auth))
    listed.extend(drafts.values())
    if len(listed) > max(MAX_CHANNELS, len(old)):
        raise ValidationFailed({"channels": [f"the subscriber would have {len(listed)} channels, and the maximum is {MAX_CHANNELS}"]})
    return listed


def _get_channel_id(by_address: Mapping[tuple[ChannelType, str], SubscriberChannel], draft: ChannelDraft) -> str:
    """Return the id of the existing channel of a draft, or its address for a new one."""
    channel = by_address.get((draft.type, draft.address))
    return f"{draft.type.value} {draft.address}" if channel is None else channel.id


def _merge_attributes(
    old: Mapping[str, TemplateValue], new: Mapping[str, TemplateValue], columns: ImportColumns
) -> Mapping[str, TemplateValue]:
    """Return the attributes after an import. A text that is how a stored number is written keeps the number."""
    others = {name: value for name, value in old.items() if name not in columns.attribute_names or (value == "" and name not in new)}
    changed = {name: old[name] if name in old and to_text(old[name]).strip() == value else value for name, value in new.items()}
    merged = {**others, **changed}
    error = find_attributes_error(merged)
    if error is not None:
        raise ValidationFailed({"attributes": [error]})
    return merged
