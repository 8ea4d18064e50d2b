"""The delivery log: reading it, test events, and resending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound
from rookery.kernel.events import EventCatalogue
from rookery.kernel.pages import ListPage, PageSlice
from rookery.webhooks.endpoints import require_endpoint
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.events import TEST_EVENT
from rookery.webhooks.models import (
    OPEN_STATES,
    RESENDABLE_STATES,
    Delivery,
    DeliveryDetails,
    DeliveryFilter,
    DeliveryKind,
    WebhookEndpoint,
    WebhookTenant,
)
from rookery.webhooks.outbox import NewEvent, Outbox
from rookery.webhooks.store import deliveries as store
from rookery.webhooks.store import events
from rookery.webhooks.store.tables import ATTEMPTS, DELIVERIES, EVENTS

_BATCH_SIZE = 500
_TEST_MESSAGE = "This is a test. Your webhook works if you can read this."


class Deliveries:
    """The deliveries of all tenants. Each method works on one tenant."""

    def __init__(self, db: Database, outbox: Outbox, catalogue: Callable[[], EventCatalogue], *, clock: Clock) -> None:
        self._db = db
        self._outbox = outbox
        self._catalogue = catalogue
        self._clock = clock

    async def list_page(self, tenant: WebhookTenant, endpoint_id: str, filters: DeliveryFilter, *, page: PageSlice) -> ListPage[Delivery]:
        """Return a page of an endpoint's deliveries, newest first, and the total. Raises NotFound."""

        def read(tx: Tx) -> ListPage[Delivery]:
            require_endpoint(tx, tenant, endpoint_id)
            return store.list_page(tx, tenant.workspace_id, endpoint_id, filters, page=page)

        return await self._db.read(read)

    async def get(self, tenant: WebhookTenant, endpoint_id: str, delivery_id: str) -> DeliveryDetails:
        """
        Return a delivery with its body and its attempts.

        Raises:
            NotFound: The delivery does not exist.
            ScopeMissing, PermissionDenied: The key may not read the event's resource.
        """

        def read(tx: Tx) -> DeliveryDetails:
            require_endpoint(tx, tenant, endpoint_id)
            delivery = _require_delivery(tx, tenant, endpoint_id, delivery_id)
            tenant.require_scopes(self._catalogue().list_scopes([delivery.event_type]))
            event = EVENTS.find(tx, tenant.workspace_id, id=delivery.event_id)
            if event is None:
                raise NotFound("delivery", delivery_id)
            attempts = ATTEMPTS.find_all(tx, tenant.workspace_id, "number", delivery_id=delivery_id)
            return DeliveryDetails(delivery=delivery, body=event.get_body(delivery), attempts=tuple(attempts))

        return await self._db.read(read)

    async def send_test(self, tenant: WebhookTenant, endpoint_id: str) -> Delivery:
        """
        Send a `webhook.test` event to one endpoint, regardless of its subscriptions.

        Raises:
            NotFound: The endpoint does not exist.
            Conflict: The endpoint is disabled.
            DeliveriesFull: The workspace has too many open deliveries.
        """
        new_event = NewEvent(type=TEST_EVENT, at=self._clock(), build_data=lambda _: {"message": _TEST_MESSAGE, "webhook_id": endpoint_id})

        def work(tx: Tx) -> Delivery:
            endpoint = require_endpoint(tx, tenant, endpoint_id, lock=True)
            _require_enabled(endpoint)
            self._require_room(tx, tenant)
            return self._outbox.add_for_endpoint(tx, tenant.workspace_id, endpoint.subscription, new_event, DeliveryKind.TEST)

        return await self._db.write(work)

    async def resend(self, tenant: WebhookTenant, endpoint_id: str, delivery_id: str) -> Delivery:
        """
        Resend the event of a delivery with the same event id and the same bytes.

        An undelivered delivery is queued again and keeps its attempts. A delivered one is sent as a new delivery.

        Raises:
            NotFound: The delivery does not exist.
            Conflict: The delivery is still open, or the endpoint is disabled.
            DeliveriesFull: The workspace has too many open deliveries.
        """
        now = self._clock()

        def work(tx: Tx) -> Delivery:
            endpoint = require_endpoint(tx, tenant, endpoint_id, lock=True)
            old = _require_delivery(tx, tenant, endpoint_id, delivery_id)
            _require_enabled(endpoint)
            if old.state in OPEN_STATES:
                raise Conflict(f"The delivery {delivery_id!r} is {old.state.value} and will be retried automatically.")
            self._require_room(tx, tenant)
            if old.state not in RESENDABLE_STATES:
                return self._outbox.add_deliveries(tx, [self._outbox.build_resend(old)])[0]
            self._requeue(tx, tenant, endpoint_id, [old], now)
            return _require_delivery(tx, tenant, endpoint_id, delivery_id)

        return await self._db.write(work)

    async def resend_failed(self, tenant: WebhookTenant, endpoint_id: str, *, since: datetime | None = None) -> int:
        """
        Resend the failed and held deliveries created at *since* or later, oldest first; return the number.

        Raises:
            NotFound: The endpoint does not exist.
            Conflict: The endpoint is disabled.
            DeliveriesFull: The workspace has no room for even one more open delivery.
        """
        now, count = self._clock(), 0
        until = now + timedelta(microseconds=1)

        def work(tx: Tx) -> int:
            _require_enabled(require_endpoint(tx, tenant, endpoint_id, lock=True))
            deliveries = store.list_resendable(tx, tenant.workspace_id, endpoint_id, since=since, until=until, limit=_BATCH_SIZE)
            free = self._outbox.count_free(tx, tenant.workspace_id) if deliveries else 0
            if deliveries and not free and not count:
                raise DeliveriesFull
            if deliveries[:free]:
                self._requeue(tx, tenant, endpoint_id, deliveries[:free], now)
            return len(deliveries[:free])

        while requeued_count := await self._db.write(work):
            count += requeued_count
        return count

    async def delete_old(self, *, before: datetime) -> int:
        """Delete events before *before* with their deliveries and attempts, in batches; return the number of events. For a timer."""
        count = 0
        while deleted_count := await self._db.write(lambda tx: events.delete_old(tx, before=before, limit=_BATCH_SIZE)):
            count += deleted_count
        return count

    def _require_room(self, tx: Tx, tenant: WebhookTenant) -> None:
        if not self._outbox.count_free(tx, tenant.workspace_id):
            raise DeliveriesFull

    def _requeue(self, tx: Tx, tenant: WebhookTenant, endpoint_id: str, deliveries: Sequence[Delivery], now: datetime) -> None:
        store.requeue(tx, tenant.workspace_id, endpoint_id, [delivery.id for delivery in deliveries], at=now)
        tx.after_commit(self._outbox.wake)


def _require_enabled(endpoint: WebhookEndpoint) -> None:
    if not endpoint.enabled:
        raise Conflict("The webhook is disabled. Enable it first.")


def _require_delivery(tx: Tx, tenant: WebhookTenant, endpoint_id: str, delivery_id: str) -> Delivery:
    delivery = DELIVERIES.find(tx, tenant.workspace_id, endpoint_id=endpoint_id, id=delivery_id)
    if delivery is None:
        raise NotFound("delivery", delivery_id)
    return delivery
