"""The log of deliveries: read, tested with, sent again (D-80)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound
from rookery.webhooks.catalogue import TEST, scopes_of
from rookery.webhooks.endpoints import must_find
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.models import OPEN, RESENDABLE, Delivery, DeliveryFilter, DeliveryKind, DeliveryView, Endpoint, Tenant
from rookery.webhooks.recording import Recorder, Told
from rookery.webhooks.store import deliveries as store
from rookery.webhooks.store import events

_AT_ONCE = 500
_SAID = "This is a test. Your webhook works if you can read this."


class Deliveries:
    """The deliveries of all tenants; each verb works on those of one."""

    def __init__(self, db: Database, recorder: Recorder, *, clock: Clock) -> None:
        self._db = db
        self._recorder = recorder
        self._clock = clock

    async def list(
        self, tenant: Tenant, endpoint_id: str, which: DeliveryFilter, *, limit: int, offset: int
    ) -> tuple[Sequence[Delivery], int]:
        """Return deliveries of an endpoint, newest first, and how many there are in all; raises NotFound."""

        def read(tx: Tx) -> tuple[Sequence[Delivery], int]:
            must_find(tx, tenant, endpoint_id)
            return store.page(tx, tenant.workspace_id, endpoint_id, which, limit=limit, offset=offset)

        return await self._db.read(read)

    async def get(self, tenant: Tenant, endpoint_id: str, delivery_id: str) -> DeliveryView:
        """
        Return one with what was sent and its attempts.

        Raises:
            NotFound: There is none.
            ScopeMissing, PermissionDenied: The key may not read what it tells of.
        """

        def read(tx: Tx) -> DeliveryView:
            must_find(tx, tenant, endpoint_id)
            delivery = _must_be_there(tx, tenant, endpoint_id, delivery_id)
            tenant.must(scopes_of([delivery.event_type]))
            event = events.find(tx, tenant.workspace_id, delivery.event_id)
            if event is None:
                raise NotFound("delivery", delivery_id)
            attempts = store.attempts_of(tx, tenant.workspace_id, delivery_id)
            return DeliveryView(delivery=delivery, body=event.body_of(delivery), attempts=tuple(attempts))

        return await self._db.read(read)

    async def test(self, tenant: Tenant, endpoint_id: str) -> Delivery:
        """
        Send a `webhook.test` event to one endpoint, whatever it subscribed to.

        Raises:
            NotFound: There is none. Conflict: It is disabled. DeliveriesFull: Too much waits already.
        """
        told = Told(type=TEST, at=self._clock(), data=lambda _: {"message": _SAID, "webhook_id": endpoint_id})

        def work(tx: Tx) -> Delivery:
            endpoint = must_find(tx, tenant, endpoint_id, to_change=True)
            _must_be_enabled(endpoint)
            self._must_have_room(tx, tenant)
            return self._recorder.tell_one(tx, tenant.workspace_id, endpoint.listener, told, DeliveryKind.TEST)

        return await self._db.write(work)

    async def resend(self, tenant: Tenant, endpoint_id: str, delivery_id: str) -> Delivery:
        """
        Send what a delivery brought, or should have, again: under the same event id, byte for byte.

        What did not arrive waits for its turn again, with all its attempts before it. What did is sent as another delivery.

        Raises:
            NotFound: There is none.
            Conflict: It is still on its way, or the endpoint is disabled.
            DeliveriesFull: Too much waits already.
        """
        now = self._clock()

        def work(tx: Tx) -> Delivery:
            endpoint = must_find(tx, tenant, endpoint_id, to_change=True)
            old = _must_be_there(tx, tenant, endpoint_id, delivery_id)
            _must_be_enabled(endpoint)
            if old.state in OPEN:
                raise Conflict(f"The delivery {delivery_id!r} is {old.state.value}, and will be tried again by itself.")
            self._must_have_room(tx, tenant)
            if old.state not in RESENDABLE:
                return self._recorder.add(tx, [self._recorder.again(old)])[0]
            self._revive(tx, tenant, endpoint_id, [old], now)
            return _must_be_there(tx, tenant, endpoint_id, delivery_id)

        return await self._db.write(work)

    async def resend_failed(self, tenant: Tenant, endpoint_id: str, *, since: datetime | None = None) -> int:
        """
        Send what failed or was held, made since then, again, the oldest first; return how many that is.

        Raises:
            NotFound: There is none of that id. Conflict: It is disabled.
            DeliveriesFull: So much waits already that there is no room for even one.
        """
        now, count = self._clock(), 0
        until = now + timedelta(microseconds=1)

        def work(tx: Tx) -> int:
            _must_be_enabled(must_find(tx, tenant, endpoint_id, to_change=True))
            found = store.to_resend(tx, tenant.workspace_id, endpoint_id, since=since, until=until, at_most=_AT_ONCE)
            free = self._recorder.free(tx, tenant.workspace_id) if found else 0
            if found and not free and not count:
                raise DeliveriesFull
            if found[:free]:
                self._revive(tx, tenant, endpoint_id, found[:free], now)
            return len(found[:free])

        while sent := await self._db.write(work):
            count += sent
        return count

    async def forget(self, *, before: datetime) -> int:
        """Forget events from before *before* with their deliveries and attempts (D-17), some at a time; return how many. For a timer."""
        gone = 0
        while found := await self._db.write(lambda tx: events.forget(tx, before=before, at_most=_AT_ONCE)):
            gone += found
        return gone

    def _must_have_room(self, tx: Tx, tenant: Tenant) -> None:
        if not self._recorder.free(tx, tenant.workspace_id):
            raise DeliveriesFull

    def _revive(self, tx: Tx, tenant: Tenant, endpoint_id: str, which: Sequence[Delivery], now: datetime) -> None:
        store.revive(tx, tenant.workspace_id, endpoint_id, [each.id for each in which], at=now)
        tx.after_commit(self._recorder.wake)


def _must_be_enabled(endpoint: Endpoint) -> None:
    if not endpoint.enabled:
        raise Conflict("The webhook is disabled; enable it first.")


def _must_be_there(tx: Tx, tenant: Tenant, endpoint_id: str, delivery_id: str) -> Delivery:
    found = store.find(tx, tenant.workspace_id, endpoint_id, delivery_id)
    if found is None:
        raise NotFound("delivery", delivery_id)
    return found
