"""Subscribers: creation, changes, deletion, and the status of their channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Actor, Tenant
from rookery.access.workspaces import require_tenant, require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import AddressRefused, EgressGuard
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.unset import UNSET
from rookery.notifications.addresses import WEB_TYPES, get_host, mask_address
from rookery.notifications.events import ChannelChanged, SubscriberEvent
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    ChannelDraft,
    ChannelStatus,
    NewSubscriber,
    SubscriberChange,
    SubscriberChannel,
    SubscriberFilter,
    SubscriberView,
)
from rookery.notifications.store import subscribers as store
from rookery.notifications.subscriber_builder import SubscriberBuilder

_EXPORT_BATCH_SIZE = 500
_MAX_CONCURRENT_CHECKS = 16


class Subscribers:
    """The subscribers of all tenants. Methods with a *tenant* work on that tenant only."""

    def __init__(self, db: Database, audit: AuditLog, egress: EgressGuard, *, bus: EventBus, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._audit = audit
        self._egress = egress
        self._bus = bus
        self._clock = clock
        self._builder = SubscriberBuilder(ids=ids)

    async def list_page(self, tenant: Tenant, filters: SubscriberFilter, *, page: PageSlice) -> ListPage[SubscriberView]:
        """Return a page of subscribers, newest first, and the total."""
        return await self._db.read_from_replica(lambda tx: store.list_page(tx, tenant.workspace_id, filters, page=page))

    async def get(self, tenant: Tenant, ref: str) -> SubscriberView:
        """Return the subscriber with the id or external id *ref*, or raise NotFound."""
        return await self._db.read(lambda tx: require_subscriber(tx, tenant, ref))

    async def create(self, tenant: Tenant, new: NewSubscriber) -> SubscriberView:
        """
        Create a subscriber.

        Raises:
            Conflict: A subscriber has this external id.
            ValidationFailed: An address is not allowed.
        """
        await self._require_allowed(new.channels)
        now = self._clock()

        def work(tx: Tx) -> SubscriberView:
            require_workspace(tx, tenant.public_workspace_id)
            _require_free(tx, tenant, new.external_id)
            view = self._builder.build(tenant, new, now)
            store.insert_subscribers(tx, [view])
            self._publish(tx, "subscriber.created", view, now)
            self._record_audit(tx, tenant, "created", view, (None, _audit_fields(view)))
            return view

        return await self._db.write(work)

    async def update(self, tenant: Tenant, ref: str, change: SubscriberChange, *, expected: ExpectedETags = None) -> SubscriberView:
        """
        Change a subscriber. Fields that *change* leaves out keep their value.

        Raises:
            NotFound: The subscriber does not exist.
            Conflict: Another subscriber has the new external id.
            PreconditionFailed: The subscriber has another version than *expected*.
            ValidationFailed: A new address is not allowed.
        """
        drafts: tuple[ChannelDraft, ...] | UNSET = change.get("channels")
        if drafts is not UNSET and drafts:
            # A channel that the subscriber has already may stay, even if its host is down or no longer allowed; deliveries check it.
            old_channels = (await self.get(tenant, ref)).channels
            stored_addresses = {(channel.type, channel.address) for channel in old_channels}
            stored_addresses |= {(channel.type, mask_address(channel.type, channel.address)) for channel in old_channels}
            await self._require_allowed(drafts, stored_addresses)
        now = self._clock()

        def work(tx: Tx) -> SubscriberView:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_subscriber(tx, tenant, ref, lock=True)
            require_match("subscriber", old.version, expected)
            if (external_id := change.get("external_id")) not in (UNSET, old.subscriber.external_id):
                _require_free(tx, tenant, external_id)
            new = self._builder.change(old, change, now)
            if new is old:
                return old
            store.update_subscribers(tx, [(old, new)])
            self._publish(tx, "subscriber.updated", new, now)
            self._record_audit(tx, tenant, "changed", new, (_audit_fields(old), _audit_fields(new)))
            return new

        return await self._db.write(work)

    async def delete(self, tenant: Tenant, ref: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a subscriber with its channels. Its pending deliveries are skipped, and its data is removed from all of them.

        Raises:
            NotFound: The subscriber does not exist.
            PreconditionFailed: The subscriber has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> None:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_subscriber(tx, tenant, ref, lock=True)
            require_match("subscriber", old.version, expected)
            store.remove(tx, old.subscriber, at=now)
            self._publish(tx, "subscriber.deleted", old, now)
            self._record_audit(tx, tenant, "deleted", old, (_audit_fields(old), None))

        await self._db.write(work)

    async def iterate(self, tenant: Tenant) -> AsyncGenerator[Sequence[SubscriberView]]:
        """Yield all subscribers in batches, oldest first."""
        after_id = ""
        while batch := await self._db.read(
            lambda tx: store.list_after(tx, tenant.workspace_id, after_id, limit=_EXPORT_BATCH_SIZE)  # noqa: B023 - read at once
        ):
            yield batch
            after_id = batch[-1].subscriber.id

    async def find_channel(self, channel_id: str) -> SubscriberChannel | None:
        """Return a channel of any tenant, for links that name it and prove it by a signature."""
        return await self._db.read(lambda tx: store.find_channel(tx, channel_id))

    async def unsubscribe_channel(self, channel_id: str, *, by: Actor, reason: str) -> bool:
        """Set an active channel of any tenant to unsubscribed, for signed links. Return False if it was not active or is deleted."""
        now = self._clock()

        def work(tx: Tx) -> bool:
            channel = store.find_channel(tx, channel_id)
            if channel is None:
                return False
            tenant = require_tenant(tx, channel.workspace_id, by)
            old = require_subscriber(tx, tenant, channel.subscriber_id, lock=True)
            if not store.set_channel_status(tx, channel_id, current=ChannelStatus.ACTIVE, to=ChannelStatus.UNSUBSCRIBED, reason=reason):
                return False
            new = require_subscriber(tx, tenant, channel.subscriber_id)
            event = ChannelChanged(
                name="subscriber.unsubscribed", workspace_id=channel.workspace_id, subscriber_id=channel.subscriber_id, at=now
            )
            self._bus.publish_on_commit(tx, event)
            self._record_audit(tx, tenant, "unsubscribed", new, (_audit_fields(old), _audit_fields(new)))
            return True

        try:
            return await self._db.write(work)
        except NotFound:  # deleted meanwhile, with its channels
            return False

    async def _require_allowed(self, drafts: Sequence[ChannelDraft], stored_addresses: Collection[tuple[ChannelType, str]] = ()) -> None:
        """Raise ValidationFailed if an address of *drafts* is not allowed. It does not check *stored_addresses*."""
        new = {index: draft for index, draft in enumerate(drafts) if (draft.type, draft.address) not in stored_addresses}
        refused = await find_refused(self._egress, list(new.values()))
        errors = {f"channels.{index}": [refused[position]] for position, index in enumerate(new) if position in refused}
        if errors:
            raise ValidationFailed(errors)

    def _publish(self, tx: Tx, name: str, view: SubscriberView, at: datetime) -> None:
        subscriber = view.subscriber
        event = SubscriberEvent(
            name=name, workspace_id=subscriber.workspace_id, subscriber_id=subscriber.id, external_id=subscriber.external_id, at=at
        )
        self._bus.publish_on_commit(tx, event)

    def _record_audit(
        self,
        tx: Tx,
        tenant: Tenant,
        action: str,
        view: SubscriberView,
        changes: tuple[Mapping[str, object] | None, Mapping[str, object] | None],
    ) -> None:
        before, after = changes
        subject = AuditSubject(kind="subscriber", id=view.subscriber.id, name=view.subscriber.external_id, environment=tenant.environment)
        self._audit.record(tx, tenant.by, tenant.public_workspace_id, f"subscriber.{action}", subject, before=before, after=after)


def require_subscriber(tx: Tx, tenant: Tenant, ref: str, *, lock: bool = False) -> SubscriberView:
    """Return a subscriber of the tenant by its id or external id, or raise NotFound."""
    view = store.find(tx, tenant.workspace_id, ref, lock=lock)
    if view is None:
        raise NotFound("subscriber", ref)
    return view


async def find_refused(egress: EgressGuard, drafts: Sequence[ChannelDraft], *, resolves_names: bool = True) -> dict[int, str]:
    """
    Return the reasons why addresses of *drafts* may not be connected to, by their index. Each host is checked once.

    Args:
        resolves_names: Resolve host names. An import does not, because each may take seconds; deliveries check them in any case.
    """
    hosts = {index: get_host(draft.type, draft.address) for index, draft in enumerate(drafts) if draft.type in WEB_TYPES}
    urls = {host: drafts[index].address for index, host in hosts.items() if resolves_names or _has_ip_address(drafts[index].address)}
    slots = asyncio.Semaphore(_MAX_CONCURRENT_CHECKS)

    async def check(url: str) -> str | None:
        async with slots:
            try:
                await egress.require_allowed_url(url)
            except AddressRefused as error:
                return error.message
            return None

    errors = dict(zip(urls, await asyncio.gather(*map(check, urls.values())), strict=True))
    return {index: error for index, host in hosts.items() if (error := errors.get(host)) is not None}


def _has_ip_address(url: str) -> bool:
    try:
        ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    return True


def _require_free(tx: Tx, tenant: Tenant, external_id: str) -> None:
    if store.find_by_external_ids(tx, tenant.workspace_id, [external_id]):
        raise Conflict(f"The workspace already has a subscriber with the external_id {external_id!r}.", external_id=external_id)


def _audit_fields(view: SubscriberView) -> dict[str, object]:
    """Return the audited fields: no address and no attribute, which are personal data."""
    return {
        "external_id": view.subscriber.external_id,
        "tags": list(view.subscriber.tags),
        "channels": describe_channels(view.channels),
    }


def describe_channels(channels: Iterable[SubscriberChannel]) -> list[str]:
    """Return the audited form of channels: type and status, without the address."""
    return [f"{channel.type.value} {channel.status.value}" for channel in channels]
