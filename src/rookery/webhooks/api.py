"""`/webhooks` and `/events`, under /api/v1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.access.scopes import grants
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict
from rookery.kernel.events import EventCatalogue, EventType
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.pages import slice_anchored
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page, PageQuery
from rookery.kernel.secret import Secret
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.models import (
    Delivery,
    EndpointUpdate,
    EndpointWithSecret,
    WebhookEndpoint,
    WebhookTenant,
)
from rookery.webhooks.schemas import (
    ChangedWebhookResponse,
    DeliveriesQuery,
    DeliveryDetailResponse,
    DeliveryResponse,
    EventTypeResponse,
    NewWebhookBody,
    NewWebhookResponse,
    ResendFailedBody,
    ResentResponse,
    RotateSecretBody,
    WebhookChangeBody,
    WebhookResponse,
    WebhooksQuery,
    serialize_delivery_details,
    serialize_endpoint,
    serialize_endpoint_update,
    serialize_endpoint_with_secret,
)

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "webhooks:read", "webhooks:write", "webhooks:delete"

_SECRETS = ("secret", "library_secret")
_operation = partial(Operation, tags=("Webhooks",))


@dataclass(frozen=True, slots=True)
class WebhooksApi:
    """The operations of webhooks. Each handler calls one service."""

    endpoints: WebhookEndpoints
    deliveries: Deliveries
    catalogue: EventCatalogue
    clock: Clock

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one, log = "/webhooks", "/webhooks/{webhook_id}", "/webhooks/{webhook_id}/deliveries"
        with_secret = partial(_operation, method="POST", present=self._present_with_secret, committed=EndpointWithSecret,
                              required_scope=WRITE_SCOPE, response_model=NewWebhookResponse, idempotent=True, secret_fields=_SECRETS,
                              etag=True, errors=(Conflict,))  # fmt: skip
        send = partial(_operation, method="POST", required_scope=WRITE_SCOPE, status=202, idempotent=True,
                       errors=(Conflict, DeliveriesFull))  # fmt: skip
        return [
            _operation(method="GET", path=base, handler=self.get_webhooks, present=self._present_endpoint, required_scope=READ_SCOPE,
                       response_model=Page[WebhookResponse], operation_id="list_webhooks", summary="List webhook endpoints"),
            with_secret(path=base, handler=self.post_webhook, status=201, operation_id="create_webhook",
                        summary="Create a webhook endpoint"),
            _operation(method="GET", path=one, handler=self.get_webhook, present=self._present_endpoint, required_scope=READ_SCOPE,
                       response_model=WebhookResponse, etag=True, operation_id="get_webhook", summary="Show a webhook endpoint"),
            _operation(method="PATCH", path=one, handler=self.patch_webhook, present=self._present_update, required_scope=WRITE_SCOPE,
                       response_model=ChangedWebhookResponse, etag=True, operation_id="update_webhook",
                       summary="Change, disable or enable a webhook endpoint"),
            _operation(method="DELETE", path=one, handler=self.delete_webhook, required_scope=DELETE_SCOPE, status=204,
                       operation_id="delete_webhook", summary="Delete a webhook endpoint"),
            with_secret(path=f"{one}/rotate-secret", handler=self.post_rotate_secret, body_optional=True,
                        operation_id="rotate_webhook_secret", summary="Rotate the secret of a webhook endpoint"),
            send(path=f"{one}/test", handler=self.post_test, committed=Delivery, response_model=DeliveryResponse,
                 operation_id="test_webhook", summary="Send a test event"),
            _operation(method="GET", path=log, handler=self.get_deliveries, required_scope=READ_SCOPE,
                       response_model=Page[DeliveryResponse], operation_id="list_deliveries",
                       summary="List the deliveries of a webhook endpoint"),
            _operation(method="GET", path=f"{log}/{{delivery_id}}", handler=self.get_delivery, required_scope=READ_SCOPE,
                       response_model=DeliveryDetailResponse, operation_id="get_delivery", summary="Show a delivery"),
            send(path=f"{log}/{{delivery_id}}/resend", handler=self.post_resend, committed=Delivery, response_model=DeliveryResponse,
                 operation_id="resend_delivery", summary="Resend a delivery"),
            send(path=f"{one}/resend-failed", handler=self.post_resend_failed, response_model=ResentResponse, body_optional=True,
                 operation_id="resend_failed_deliveries", summary="Resend failed deliveries"),
            _operation(method="GET", path="/events", handler=self.get_events, required_scope=READ_SCOPE,
                       response_model=Page[EventTypeResponse], operation_id="list_event_types", summary="List the types of events"),
        ]  # fmt: skip

    async def get_webhooks(self, caller: Caller, query: WebhooksQuery) -> ItemPage[WebhookEndpoint]:
        """List the webhook endpoints of the workspace, newest first. A test key sees those of the sandbox."""
        tenant = WebhookTenant.from_caller(caller)
        shows_url = grants(caller.scopes, WRITE_SCOPE)
        return ItemPage(*await self.endpoints.list_page(tenant, page=query.slice, text=query.q or "", searches_urls=shows_url))

    async def post_webhook(self, caller: Caller, body: NewWebhookBody) -> EndpointWithSecret:
        """Create a webhook endpoint. `secret` is returned only in this response. The URL is checked by the same rules as each delivery."""
        secret = None if body.secret is None else Secret(body.secret)
        return await self.endpoints.create(WebhookTenant.from_caller(caller), body.to_model(), secret=secret)

    async def get_webhook(self, caller: Caller, webhook_id: str) -> WebhookEndpoint:
        """
        Return a webhook endpoint without its secret.

        Its ETag changes with its settings and its secret, not with `failures` and `last_success_at`.
        """
        return await self.endpoints.get(WebhookTenant.from_caller(caller), webhook_id)

    async def patch_webhook(self, caller: Caller, webhook_id: str, body: WebhookChangeBody, expected: ExpectedETags) -> EndpointUpdate:
        """Change a webhook endpoint. Fields that are left out keep their value."""
        return await self.endpoints.update(WebhookTenant.from_caller(caller), webhook_id, body, expected=expected)

    async def delete_webhook(self, caller: Caller, webhook_id: str, expected: ExpectedETags) -> None:
        """Delete a webhook endpoint and cancel its pending deliveries."""
        await self.endpoints.delete(WebhookTenant.from_caller(caller), webhook_id, expected=expected)

    async def post_rotate_secret(
        self, caller: Caller, webhook_id: str, body: RotateSecretBody, expected: ExpectedETags
    ) -> EndpointWithSecret:
        """Replace the signing secret. During the grace period, deliveries are signed with both secrets."""
        tenant, grace_hours = WebhookTenant.from_caller(caller), body.grace_period_hours
        return await self.endpoints.rotate_secret(tenant, webhook_id, grace_hours=grace_hours, secret=body.secret, expected=expected)

    async def post_test(self, caller: Caller, webhook_id: str) -> Delivery:
        """Send a `webhook.test` event to the endpoint. The delivery log shows the result."""
        return await self.deliveries.send_test(WebhookTenant.from_caller(caller), webhook_id)

    async def get_deliveries(self, caller: Caller, webhook_id: str, query: DeliveriesQuery) -> ItemPage[Delivery]:
        """List the deliveries of an endpoint, newest first."""
        tenant, filters = WebhookTenant.from_caller(caller), query.to_filter()
        return ItemPage(*await self.deliveries.list_page(tenant, webhook_id, filters, page=query.slice))

    async def get_delivery(self, caller: Caller, webhook_id: str, delivery_id: str) -> DeliveryDetailResponse:
        """Return a delivery with the body that is sent and every attempt."""
        return serialize_delivery_details(await self.deliveries.get(WebhookTenant.from_caller(caller), webhook_id, delivery_id))

    async def post_resend(self, caller: Caller, webhook_id: str, delivery_id: str) -> Delivery:
        """Send the event of a delivery again. The event keeps its id."""
        return await self.deliveries.resend(WebhookTenant.from_caller(caller), webhook_id, delivery_id)

    async def post_resend_failed(self, caller: Caller, webhook_id: str, body: ResendFailedBody) -> ResentResponse:
        """Resend failed deliveries, and those held while the endpoint was disabled."""
        return ResentResponse(resent=await self.deliveries.resend_failed(WebhookTenant.from_caller(caller), webhook_id, since=body.since))

    async def get_events(self, query: PageQuery) -> ItemPage[EventType]:
        """List the types of events that webhooks can subscribe to."""
        return ItemPage(*slice_anchored(self.catalogue.types, query.slice, lambda event_type: event_type.name))

    def _present_endpoint(self, caller: Caller, endpoint: WebhookEndpoint) -> Output:
        shows_url = grants(caller.scopes, WRITE_SCOPE)
        return Output(body=serialize_endpoint(endpoint, self.clock(), shows_url=shows_url), version=endpoint.version)

    def _present_update(self, _: Caller, update: EndpointUpdate) -> Output:
        return Output(body=serialize_endpoint_update(update, self.clock(), shows_url=True), version=update.endpoint.version)

    def _present_with_secret(self, _: Caller, endpoint_with_secret: EndpointWithSecret) -> Output:
        return Output(
            body=serialize_endpoint_with_secret(endpoint_with_secret, self.clock()), version=endpoint_with_secret.endpoint.version
        )
