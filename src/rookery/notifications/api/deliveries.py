"""Operations on deliveries, the outbox of test keys, and the signing secret."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller, Tenant
from rookery.kernel.http import ItemPage, Operation
from rookery.kernel.schema import Page, PageQuery
from rookery.notifications.channel_secrets import ChannelSecrets, NewSigningSecret
from rookery.notifications.deliveries_log import NotificationLog
from rookery.notifications.models import NotificationDelivery, NotificationDetails, OutboxMessage
from rookery.notifications.schemas.campaigns import (
    NotificationDetailResponse,
    NotificationResponse,
    NotificationsQuery,
    OutboxMessageResponse,
    RotateSigningSecretBody,
    SigningSecretResponse,
    serialize_notification,
    serialize_secret,
)

READ_SCOPE, WRITE_SCOPE = "notify:read", "notify:write"

_operation = partial(Operation, tags=("Notifications",))


@dataclass(frozen=True, slots=True)
class NotificationLogApi:
    """The operations on deliveries. Each handler calls one service."""

    log: NotificationLog
    secrets: ChannelSecrets

    def operations(self) -> list[Operation]:
        """Return the operations."""
        log = "/notify/campaigns/{campaign}/deliveries"
        return [
            _operation(method="GET", path=log, handler=self.get_deliveries, required_scope=READ_SCOPE,
                       response_model=Page[NotificationResponse], operation_id="list_notifications",
                       summary="List the deliveries of a campaign"),
            _operation(method="GET", path=f"{log}/{{delivery}}", handler=self.get_delivery, present=_present_details,
                       required_scope=READ_SCOPE, response_model=NotificationDetailResponse, operation_id="get_notification",
                       summary="Show a delivery with its attempts"),
            _operation(method="GET", path="/notify/outbox", handler=self.get_outbox, required_scope=READ_SCOPE,
                       response_model=Page[OutboxMessageResponse], operation_id="list_outbox",
                       summary="List the messages that a test key would have sent"),
            _operation(method="DELETE", path="/notify/outbox", handler=self.delete_outbox, required_scope=WRITE_SCOPE, status=204,
                       operation_id="clear_outbox", summary="Clear the outbox of a test key"),
            _operation(method="POST", path="/notify/webhook-secret/rotate", handler=self.post_rotate_secret, present=_present_secret,
                       committed=NewSigningSecret, required_scope=WRITE_SCOPE, response_model=SigningSecretResponse, idempotent=True,
                       secret_fields=("secret",), operation_id="rotate_notification_secret",
                       summary="Replace the secret that signs webhook messages"),
        ]  # fmt: skip

    async def get_deliveries(self, caller: Caller, campaign: str, query: NotificationsQuery) -> ItemPage[NotificationDelivery]:
        """List the deliveries of a campaign: one for each channel of each subscriber of its audience."""
        tenant, filters = Tenant.from_caller(caller), query.to_filter()
        return ItemPage(*await self.log.list_page(tenant, campaign, filters, page=query.slice))

    async def get_delivery(self, caller: Caller, campaign: str, delivery: str) -> NotificationDetails:
        """Return a delivery with every attempt."""
        return await self.log.get(Tenant.from_caller(caller), campaign, delivery)

    async def get_outbox(self, caller: Caller, query: PageQuery) -> ItemPage[OutboxMessage]:
        """
        List the messages of the sandbox, newest first.

        The messages of test keys are stored here and not sent. For a live key the list is empty.
        """
        tenant = Tenant.from_caller(caller)
        return ItemPage(*await self.log.list_outbox(tenant, page=query.slice))

    async def delete_outbox(self, caller: Caller) -> None:
        """Delete all messages of the outbox."""
        await self.log.clear_outbox(Tenant.from_caller(caller))

    async def post_rotate_secret(self, caller: Caller, body: RotateSigningSecretBody) -> NewSigningSecret:
        """
        Create or replace the secret that signs messages to webhook channels. It is returned only in this response.

        During the grace period, messages are signed with both secrets.
        """
        return await self.secrets.rotate(Tenant.from_caller(caller), grace_hours=body.grace_period_hours)


def _present_details(_: Caller, details: NotificationDetails) -> NotificationDetailResponse:
    return serialize_notification(details)


def _present_secret(_: Caller, secret: NewSigningSecret) -> SigningSecretResponse:
    return serialize_secret(secret)
