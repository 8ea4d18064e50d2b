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
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Webhook]:
        """
        List the webhook endpoints of the workspace, newest first. A test key sees those of the sandbox.

        Requires the scope `webhooks:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the description or the URL.
        """
        return self._session.send_page(Call(
            operation="list_webhooks", method="GET", path="/api/v1/webhooks", result=PageBody[models.Webhook],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    def create_webhook(
        self, *, url: str, events: Sequence[str], description: str | Unset = UNSET, include_content: bool | Unset = UNSET,
        strict_order: bool | Unset = UNSET, concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
        secret: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """
        Create a webhook endpoint. `secret` is returned only in this response. The URL is checked by the same rules as each delivery.

        Requires the scope `webhooks:write`.

        Args:
            url: The URL for deliveries.
            events: Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.
            description: Default: `""`.
            include_content: Send the content of memories in their events. Default: `false`.
            strict_order: Send one delivery at a time, in the order of events. A failing delivery blocks the later ones. Default:
                `false`.
            concurrency: Maximum deliveries sent at the same time. Default: `4`.
            enabled: Default: `true`.
            secret: The secret that signs deliveries: 16 to 128 printable ASCII characters without spaces; base64 after whsec_. Default:
                generated.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_webhook", method="POST", path="/api/v1/webhooks", result=models.WebhookWithSecret,
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled, secret=secret,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_webhook(self, webhook_id: str) -> models.Webhook:
        """
        Return a webhook endpoint without its secret.

        Its ETag changes with its settings and its secret, not with `failures` and `last_success_at`.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
        """
        return self._session.send(Call(
            operation="get_webhook", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.Webhook,
        ))

    def update_webhook(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, url: str | Unset = UNSET, events: Sequence[str] | Unset = UNSET,
        description: str | Unset = UNSET, include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET,
        concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
    ) -> models.ChangedWebhook:
        """
        Change a webhook endpoint. Fields that are left out keep their value.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            url: The URL for deliveries.
            events: Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.
            include_content: Send the content of memories in their events.
            strict_order: Send one delivery at a time, in the order of events. A failing delivery blocks the later ones.
            concurrency: Maximum deliveries sent at the same time.
            enabled: True also enables an endpoint that failures or a 410 disabled.
        """
        return self._session.send(Call(
            operation="update_webhook", method="PATCH", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.ChangedWebhook, headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled,
            ),
        ))

    def delete_webhook(self, webhook_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a webhook endpoint and cancel its pending deliveries.

        Requires the scope `webhooks:delete`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_webhook", method="DELETE", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def rotate_webhook_secret(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        secret: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """
        Replace the signing secret. During the grace period, deliveries are signed with both secrets.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old secret signs too. Default: `24`.
            secret: The secret that signs deliveries: 16 to 128 printable ASCII characters without spaces; base64 after whsec_. Default:
                generated.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="rotate_webhook_secret", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/rotate-secret", webhook_id=webhook_id), result=models.WebhookWithSecret,
            headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours, secret=secret), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def test_webhook(self, webhook_id: str, idempotency_key: str | Unset = UNSET) -> models.Delivery:
        """
        Send a `webhook.test` event to the endpoint. The delivery log shows the result.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="test_webhook", method="POST", path=fill_path("/api/v1/webhooks/{webhook_id}/test", webhook_id=webhook_id),
            result=models.Delivery, accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_deliveries(
        self, webhook_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET, type: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET,
    ) -> Page[models.Delivery]:
        """
        List the deliveries of an endpoint, newest first.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only deliveries in this state.
            type: Only deliveries of this event.
            since: Only deliveries created at this time or later.
        """
        return self._session.send_page(Call(
            operation="list_deliveries", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries", webhook_id=webhook_id),
            result=PageBody[models.Delivery],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, type=type, since=since),
        ))

    def get_delivery(self, webhook_id: str, delivery_id: str) -> models.DeliveryDetail:
        """
        Return a delivery with the body that is sent and every attempt.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
            delivery_id: The id of a delivery.
        """
        return self._session.send(Call(
            operation="get_delivery", method="GET",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.DeliveryDetail,
        ))

    def resend_delivery(self, webhook_id: str, delivery_id: str, idempotency_key: str | Unset = UNSET) -> models.Delivery:
        """
        Send the event of a delivery again. The event keeps its id.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            delivery_id: The id of a delivery.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="resend_delivery", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.Delivery, accepts_key=True, idempotency_key=idempotency_key,
        ))

    def resend_failed_deliveries(
        self, webhook_id: str, *, since: datetime | str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Resent:
        """
        Resend failed deliveries, and those held while the endpoint was disabled.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            since: Only deliveries created at this time or later; null: all.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="resend_failed_deliveries", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/resend-failed", webhook_id=webhook_id), result=models.Resent,
            body=given(since=since), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_event_types(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.EventType]:
        """
        List the types of events that webhooks can subscribe to.

        Requires the scope `webhooks:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_event_types", method="GET", path="/api/v1/events", result=PageBody[models.EventType],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))


class AsyncWebhooksOperations:
    """Operations of `client.webhooks`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_webhooks(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Webhook]:
        """
        List the webhook endpoints of the workspace, newest first. A test key sees those of the sandbox.

        Requires the scope `webhooks:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the description or the URL.
        """
        return await self._session.send_page(Call(
            operation="list_webhooks", method="GET", path="/api/v1/webhooks", result=PageBody[models.Webhook],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    async def create_webhook(
        self, *, url: str, events: Sequence[str], description: str | Unset = UNSET, include_content: bool | Unset = UNSET,
        strict_order: bool | Unset = UNSET, concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
        secret: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """
        Create a webhook endpoint. `secret` is returned only in this response. The URL is checked by the same rules as each delivery.

        Requires the scope `webhooks:write`.

        Args:
            url: The URL for deliveries.
            events: Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.
            description: Default: `""`.
            include_content: Send the content of memories in their events. Default: `false`.
            strict_order: Send one delivery at a time, in the order of events. A failing delivery blocks the later ones. Default:
                `false`.
            concurrency: Maximum deliveries sent at the same time. Default: `4`.
            enabled: Default: `true`.
            secret: The secret that signs deliveries: 16 to 128 printable ASCII characters without spaces; base64 after whsec_. Default:
                generated.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_webhook", method="POST", path="/api/v1/webhooks", result=models.WebhookWithSecret,
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled, secret=secret,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_webhook(self, webhook_id: str) -> models.Webhook:
        """
        Return a webhook endpoint without its secret.

        Its ETag changes with its settings and its secret, not with `failures` and `last_success_at`.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
        """
        return await self._session.send(Call(
            operation="get_webhook", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.Webhook,
        ))

    async def update_webhook(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, url: str | Unset = UNSET, events: Sequence[str] | Unset = UNSET,
        description: str | Unset = UNSET, include_content: bool | Unset = UNSET, strict_order: bool | Unset = UNSET,
        concurrency: int | Unset = UNSET, enabled: bool | Unset = UNSET,
    ) -> models.ChangedWebhook:
        """
        Change a webhook endpoint. Fields that are left out keep their value.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            url: The URL for deliveries.
            events: Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.
            include_content: Send the content of memories in their events.
            strict_order: Send one delivery at a time, in the order of events. A failing delivery blocks the later ones.
            concurrency: Maximum deliveries sent at the same time.
            enabled: True also enables an endpoint that failures or a 410 disabled.
        """
        return await self._session.send(Call(
            operation="update_webhook", method="PATCH", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=models.ChangedWebhook, headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, events=events, description=description, include_content=include_content, strict_order=strict_order,
                concurrency=concurrency, enabled=enabled,
            ),
        ))

    async def delete_webhook(self, webhook_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a webhook endpoint and cancel its pending deliveries.

        Requires the scope `webhooks:delete`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_webhook", method="DELETE", path=fill_path("/api/v1/webhooks/{webhook_id}", webhook_id=webhook_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def rotate_webhook_secret(
        self, webhook_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        secret: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.WebhookWithSecret:
        """
        Replace the signing secret. During the grace period, deliveries are signed with both secrets.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old secret signs too. Default: `24`.
            secret: The secret that signs deliveries: 16 to 128 printable ASCII characters without spaces; base64 after whsec_. Default:
                generated.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="rotate_webhook_secret", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/rotate-secret", webhook_id=webhook_id), result=models.WebhookWithSecret,
            headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours, secret=secret), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def test_webhook(self, webhook_id: str, idempotency_key: str | Unset = UNSET) -> models.Delivery:
        """
        Send a `webhook.test` event to the endpoint. The delivery log shows the result.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="test_webhook", method="POST", path=fill_path("/api/v1/webhooks/{webhook_id}/test", webhook_id=webhook_id),
            result=models.Delivery, accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_deliveries(
        self, webhook_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | Unset = UNSET, type: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.Delivery]:
        """
        List the deliveries of an endpoint, newest first.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only deliveries in this state.
            type: Only deliveries of this event.
            since: Only deliveries created at this time or later.
        """
        return await self._session.send_page(Call(
            operation="list_deliveries", method="GET", path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries", webhook_id=webhook_id),
            result=PageBody[models.Delivery],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, type=type, since=since),
        ))

    async def get_delivery(self, webhook_id: str, delivery_id: str) -> models.DeliveryDetail:
        """
        Return a delivery with the body that is sent and every attempt.

        Requires the scope `webhooks:read`.

        Args:
            webhook_id: The id of a webhook endpoint.
            delivery_id: The id of a delivery.
        """
        return await self._session.send(Call(
            operation="get_delivery", method="GET",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.DeliveryDetail,
        ))

    async def resend_delivery(self, webhook_id: str, delivery_id: str, idempotency_key: str | Unset = UNSET) -> models.Delivery:
        """
        Send the event of a delivery again. The event keeps its id.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            delivery_id: The id of a delivery.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="resend_delivery", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", webhook_id=webhook_id, delivery_id=delivery_id),
            result=models.Delivery, accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def resend_failed_deliveries(
        self, webhook_id: str, *, since: datetime | str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Resent:
        """
        Resend failed deliveries, and those held while the endpoint was disabled.

        Requires the scope `webhooks:write`.

        Args:
            webhook_id: The id of a webhook endpoint.
            since: Only deliveries created at this time or later; null: all.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="resend_failed_deliveries", method="POST",
            path=fill_path("/api/v1/webhooks/{webhook_id}/resend-failed", webhook_id=webhook_id), result=models.Resent,
            body=given(since=since), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_event_types(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.EventType]:
        """
        List the types of events that webhooks can subscribe to.

        Requires the scope `webhooks:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_event_types", method="GET", path="/api/v1/events", result=PageBody[models.EventType],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))
