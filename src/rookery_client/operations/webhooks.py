"""
Operations of `client.webhooks`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class WebhooksOperations:
    """Operations of `client.webhooks`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_webhooks(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Webhook]:
        """List webhook endpoints."""
        return self._session.send_page(Call(
            operation="list_webhooks", method="GET", path="/api/v1/webhooks", result=PageBody[models.Webhook],
            query=given(page=page, per_page=per_page, q=q),
        ))

    def create_webhook(
        self, *, url: str, events: Sequence[str], secret: str | Unset | None = UNSET, description: str | Unset = UNSET,
        include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET, concurrency: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """Create a webhook endpoint."""
        return self._session.send(Call(
            operation="create_webhook", method="POST", path="/api/v1/webhooks", result=models.WebhookWithSecret,
            body=given(
                url=url, events=events, secret=secret, description=description, include_content=include_content,
                strict_order=strict_order, concurrency=concurrency, enabled=enabled,
            ),
            accepts_key=True,
        ))

    def get_webhook(self, webhook_id: str) -> models.Webhook:
        """Show a webhook endpoint."""
        return self._session.send(Call(
            operation="get_webhook", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.Webhook,
        ))

    def update_webhook(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, url: str | Unset = UNSET, events: Sequence[str] | Unset = UNSET,
        description: str | Unset = UNSET, include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET,
        concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
    ) -> models.ChangedWebhook:
        """Change, disable or enable a webhook endpoint."""
        return self._session.send(Call(
            operation="update_webhook", method="PATCH", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.ChangedWebhook, headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled,
            ),
        ))

    def delete_webhook(self, webhook_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a webhook endpoint."""
        return self._session.send(Call(
            operation="delete_webhook", method="DELETE", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def rotate_webhook_secret(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        secret: str | Unset | None = UNSET,
    ) -> models.WebhookWithSecret:
        """Rotate the secret of a webhook endpoint."""
        return self._session.send(Call(
            operation="rotate_webhook_secret", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/rotate-secret", webhook_id=webhook_id), result=models.WebhookWithSecret,
            headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours, secret=secret), accepts_key=True,
        ))

    def test_webhook(self, webhook_id: str) -> models.Delivery:
        """Send a test event."""
        return self._session.send(Call(
            operation="test_webhook", method="POST", path=fill_path("/api/v1/webhooks/{webhook_id}/test", webhook_id=webhook_id),
            result=models.Delivery, accepts_key=True,
        ))

    def list_deliveries(
        self, webhook_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET,
        state: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET, type: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET,
    ) -> Page[models.Delivery]:
        """List the deliveries of a webhook endpoint."""
        return self._session.send_page(Call(
            operation="list_deliveries", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries", webhook_id=webhook_id),
            result=PageBody[models.Delivery],
            query=given(page=page, per_page=per_page, status=status, state=state, type=type, since=since),
        ))

    def get_delivery(self, webhook_id: str, delivery_id: str) -> models.DeliveryDetail:
        """Show a delivery."""
        return self._session.send(Call(
            operation="get_delivery", method="GET",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.DeliveryDetail,
        ))

    def resend_delivery(self, webhook_id: str, delivery_id: str) -> models.Delivery:
        """Resend a delivery."""
        return self._session.send(Call(
            operation="resend_delivery", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.Delivery, accepts_key=True,
        ))

    def resend_failed_deliveries(self, webhook_id: str, *, since: datetime | str | Unset | None = UNSET) -> models.Resent:
        """Resend failed deliveries."""
        return self._session.send(Call(
            operation="resend_failed_deliveries", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/resend-failed", webhook_id=webhook_id), result=models.Resent,
            body=given(since=since), accepts_key=True,
        ))

    def list_event_types(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> Page[models.EventType]:
        """List the types of events."""
        return self._session.send_page(Call(
            operation="list_event_types", method="GET", path="/api/v1/events", result=PageBody[models.EventType],
            query=given(page=page, per_page=per_page),
        ))


class AsyncWebhooksOperations:
    """Operations of `client.webhooks`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_webhooks(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Webhook]:
        """List webhook endpoints."""
        return await self._session.send_page(Call(
            operation="list_webhooks", method="GET", path="/api/v1/webhooks", result=PageBody[models.Webhook],
            query=given(page=page, per_page=per_page, q=q),
        ))

    async def create_webhook(
        self, *, url: str, events: Sequence[str], secret: str | Unset | None = UNSET, description: str | Unset = UNSET,
        include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET, concurrency: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """Create a webhook endpoint."""
        return await self._session.send(Call(
            operation="create_webhook", method="POST", path="/api/v1/webhooks", result=models.WebhookWithSecret,
            body=given(
                url=url, events=events, secret=secret, description=description, include_content=include_content,
                strict_order=strict_order, concurrency=concurrency, enabled=enabled,
            ),
            accepts_key=True,
        ))

    async def get_webhook(self, webhook_id: str) -> models.Webhook:
        """Show a webhook endpoint."""
        return await self._session.send(Call(
            operation="get_webhook", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.Webhook,
        ))

    async def update_webhook(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, url: str | Unset = UNSET, events: Sequence[str] | Unset = UNSET,
        description: str | Unset = UNSET, include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET,
        concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
    ) -> models.ChangedWebhook:
        """Change, disable or enable a webhook endpoint."""
        return await self._session.send(Call(
            operation="update_webhook", method="PATCH", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.ChangedWebhook, headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled,
            ),
        ))

    async def delete_webhook(self, webhook_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a webhook endpoint."""
        return await self._session.send(Call(
            operation="delete_webhook", method="DELETE", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def rotate_webhook_secret(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        secret: str | Unset | None = UNSET,
    ) -> models.WebhookWithSecret:
        """Rotate the secret of a webhook endpoint."""
        return await self._session.send(Call(
            operation="rotate_webhook_secret", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/rotate-secret", webhook_id=webhook_id), result=models.WebhookWithSecret,
            headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours, secret=secret), accepts_key=True,
        ))

    async def test_webhook(self, webhook_id: str) -> models.Delivery:
        """Send a test event."""
        return await self._session.send(Call(
            operation="test_webhook", method="POST", path=fill_path("/api/v1/webhooks/{webhook_id}/test", webhook_id=webhook_id),
            result=models.Delivery, accepts_key=True,
        ))

    async def list_deliveries(
        self, webhook_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET,
        state: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET, type: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.Delivery]:
        """List the deliveries of a webhook endpoint."""
        return await self._session.send_page(Call(
            operation="list_deliveries", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries", webhook_id=webhook_id),
            result=PageBody[models.Delivery],
            query=given(page=page, per_page=per_page, status=status, state=state, type=type, since=since),
        ))

    async def get_delivery(self, webhook_id: str, delivery_id: str) -> models.DeliveryDetail:
        """Show a delivery."""
        return await self._session.send(Call(
            operation="get_delivery", method="GET",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.DeliveryDetail,
        ))

    async def resend_delivery(self, webhook_id: str, delivery_id: str) -> models.Delivery:
        """Resend a delivery."""
        return await self._session.send(Call(
            operation="resend_delivery", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.Delivery, accepts_key=True,
        ))

    async def resend_failed_deliveries(self, webhook_id: str, *, since: datetime | str | Unset | None = UNSET) -> models.Resent:
        """Resend failed deliveries."""
        return await self._session.send(Call(
            operation="resend_failed_deliveries", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/resend-failed", webhook_id=webhook_id), result=models.Resent,
            body=given(since=since), accepts_key=True,
        ))

    async def list_event_types(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> AsyncPage[models.EventType]:
        """List the types of events."""
        return await self._session.send_page(Call(
            operation="list_event_types", method="GET", path="/api/v1/events", result=PageBody[models.EventType],
            query=given(page=page, per_page=per_page),
        ))
