"""The log of deliveries and the outbox of test keys, for reading."""

from __future__ import annotations

from datetime import datetime

from rookery.access.models import Tenant
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.pages import ListPage, PageSlice
from rookery.notifications.campaigns import require_campaign
from rookery.notifications.models import NotificationDelivery, NotificationDetails, NotificationFilter, OutboxMessage
from rookery.notifications.store import log as store
from rookery.notifications.store.tables import ATTEMPTS, DELIVERIES, OUTBOX

_BATCH_SIZE = 500


class NotificationLog:
    """The deliveries of all tenants. Each method works on one tenant."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_page(
        self, tenant: Tenant, campaign_id: str, filters: NotificationFilter, *, page: PageSlice
    ) -> ListPage[NotificationDelivery]:
        """Return a page of a campaign's deliveries, and the total. Raises NotFound."""

        def read(tx: Tx) -> ListPage[NotificationDelivery]:
            require_campaign(tx, tenant, campaign_id)
            return store.list_page(tx, tenant.workspace_id, campaign_id, filters, page=page)

        return await self._db.read(read)

    async def get(self, tenant: Tenant, campaign_id: str, delivery_id: str) -> NotificationDetails:
        """Return a delivery with its attempts. Raises NotFound."""

        def read(tx: Tx) -> NotificationDetails:
            require_campaign(tx, tenant, campaign_id)
            delivery = DELIVERIES.find(tx, tenant.workspace_id, campaign_id=campaign_id, id=delivery_id)
            if delivery is None:
                raise NotFound("delivery", delivery_id)
            attempts = ATTEMPTS.find_all(tx, tenant.workspace_id, "number", delivery_id=delivery_id)
            return NotificationDetails(delivery=delivery, attempts=tuple(attempts))

        return await self._db.read(read)

    async def list_outbox(self, tenant: Tenant, *, page: PageSlice) -> ListPage[OutboxMessage]:
        """Return a page of the outbox of a test key, newest first, and the total. Outside a sandbox it is empty."""
        return await self._db.read_from_replica(lambda tx: OUTBOX.find_page(tx, tenant.workspace_id, page, "-id"))

    async def clear_outbox(self, tenant: Tenant) -> int:
        """Delete the messages of the outbox; return their number."""
        return await self._db.write(lambda tx: OUTBOX.delete(tx, tenant.workspace_id))

    async def delete_old_outbox(self, *, before: datetime) -> int:
        """Delete messages of outboxes before *before*, in batches; return the number. For a timer."""
        count = 0
        while deleted_count := await self._db.write(lambda tx: store.delete_old_outbox(tx, before=before, limit=_BATCH_SIZE)):
            count += deleted_count
        return count
