"""`/webhooks` and `/events`, under /api/v1 (D-80)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict
from rookery.kernel.http import Route, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import Page, PageQuery
from rookery.webhooks import schemas as shapes
from rookery.webhooks import serializers
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.event_types import EVENT_TYPES
from rookery.webhooks.models import Delivery, EndpointWithSecret, WebhookTenant

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "webhooks:read", "webhooks:write", "webhooks:delete"


@dataclass(frozen=True, slots=True)
class WebhooksApi:
    """The routes of webhooks. Handlers only parse the request, call a service and build the response."""

    endpoints: WebhookEndpoints
    deliveries: Deliveries
    clock: Clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        base, webhook_path, tags = "/webhooks", "/webhooks/{webhook_id}", ("Webhooks",)
        log, row = f"{webhook_path}/deliveries", f"{webhook_path}/deliveries/{{delivery_id}}"
        return [
            Route(method="GET", path=base, handler=self.get_webhooks, required_scope=READ_SCOPE,
                  response_model=Page[shapes.WebhookResponse], operation_id="list_webhooks", summary="List webhook endpoints", tags=tags),
            Route(method="POST", path=base, handler=self.post_webhook, required_scope=WRITE_SCOPE, status=201,
                  response_model=shapes.NewWebhookResponse,
                  idempotent=True, secret_fields=("secret",), operation_id="create_webhook", summary="Create a webhook endpoint",
                  tags=tags),
            Route(method="GET", path=webhook_path, handler=self.get_webhook, required_scope=READ_SCOPE,
                  response_model=shapes.WebhookResponse, operation_id="get_webhook", summary="Show a webhook endpoint", tags=tags),
            Route(method="PATCH", path=webhook_path, handler=self.patch_webhook, required_scope=WRITE_SCOPE,
                  response_model=shapes.ChangedWebhookResponse,
                  operation_id="update_webhook", summary="Change, disable or enable a webhook endpoint", tags=tags),
            Route(method="DELETE", path=webhook_path, handler=self.delete_webhook, required_scope=DELETE_SCOPE, status=204,
                  operation_id="delete_webhook", summary="Delete a webhook endpoint", tags=tags),
            Route(method="POST", path=f"{webhook_path}/rotate-secret", handler=self.post_rotate_secret, required_scope=WRITE_SCOPE,
                  response_model=shapes.NewWebhookResponse, idempotent=True, secret_fields=("secret",), body_optional=True,
                  operation_id="rotate_webhook_secret", summary="Rotate the secret of a webhook endpoint", tags=tags),
            Route(method="POST", path=f"{webhook_path}/test", handler=self.post_test, required_scope=WRITE_SCOPE, status=202,
                  response_model=shapes.DeliveryResponse,
                  idempotent=True, operation_id="test_webhook", summary="Send a test event", tags=tags),
            Route(method="GET", path=log, handler=self.get_deliveries, required_scope=READ_SCOPE,
                  response_model=Page[shapes.DeliveryResponse],
                  operation_id="list_deliveries", summary="List the deliveries of a webhook endpoint", tags=tags),
            Route(method="GET", path=row, handler=self.get_delivery, required_scope=READ_SCOPE,
                  response_model=shapes.DeliveryDetailResponse, operation_id="get_delivery", summary="Show a delivery", tags=tags),
            Route(method="POST", path=f"{row}/resend", handler=self.post_resend, required_scope=WRITE_SCOPE, status=202,
                  response_model=shapes.DeliveryResponse,
                  idempotent=True, operation_id="resend_delivery", summary="Resend a delivery", tags=tags),
            Route(method="POST", path=f"{webhook_path}/resend-failed", handler=self.post_resend_failed, required_scope=WRITE_SCOPE,
                  status=202, response_model=shapes.ResentResponse, idempotent=True, body_optional=True,
                  operation_id="resend_failed_deliveries", summary="Resend failed deliveries", tags=tags),
            Route(method="GET", path="/events", handler=self.get_events, required_scope=READ_SCOPE,
                  response_model=Page[shapes.EventTypeResponse],
                  operation_id="list_event_types", summary="List the types of events", tags=tags),
        ]  # fmt: skip

    async def get_webhooks(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the webhook endpoints of the workspace, newest first. A test key sees those of the sandbox."""
        tenant, now = WebhookTenant.from_caller(get_caller(request)), self.clock()
        endpoints, total = await self.endpoints.list_page(tenant, limit=query.per_page, offset=query.offset)
        return page_response(request, [serializers.serialize_endpoint(endpoint, now) for endpoint in endpoints], query=query, total=total)

    @with_etag
    @document_route(errors=(Conflict,))
    async def post_webhook(self, request: Request, body: shapes.NewWebhookBody) -> Response:
        """Create a webhook endpoint. `secret` is returned only in this response. The URL is checked by the same rules as each delivery."""
        respond = respond_with(
            EndpointWithSecret,
            lambda endpoint_with_secret: json_with_etag(
                serializers.serialize_endpoint_with_secret(endpoint_with_secret, self.clock()),
                endpoint_with_secret.endpoint.version,
                status=201,
            ),
        )
        return respond(await self.endpoints.create(WebhookTenant.from_caller(get_caller(request)), body.to_model()))

    @with_etag
    async def get_webhook(self, request: Request, webhook_id: str) -> Response:
        """
        Return a webhook endpoint without its secret.

        Its ETag changes with its settings and its secret, not with `failures` and `last_success_at`.
        """
        endpoint = await self.endpoints.get(WebhookTenant.from_caller(get_caller(request)), webhook_id)
        return json_with_etag(serializers.serialize_endpoint(endpoint, self.clock()), endpoint.version)

    @with_etag
    @by_etag
    async def patch_webhook(self, request: Request, body: shapes.WebhookChangeBody, webhook_id: str) -> Response:
        """Change a webhook endpoint. Fields that are left out keep their value."""
        tenant = WebhookTenant.from_caller(get_caller(request))
        update = await self.endpoints.update(tenant, webhook_id, body.to_model(), expected=read_if_match(request))
        return json_with_etag(serializers.serialize_endpoint_update(update, self.clock()), update.endpoint.version)

    @by_etag
    async def delete_webhook(self, request: Request, webhook_id: str) -> Response:
        """Delete a webhook endpoint and cancel its pending deliveries."""
        await self.endpoints.delete(WebhookTenant.from_caller(get_caller(request)), webhook_id, expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_rotate_secret(self, request: Request, body: shapes.RotateSecretBody, webhook_id: str) -> Response:
        """Replace the signing secret. During the grace period, deliveries are signed with both secrets."""
        respond = respond_with(
            EndpointWithSecret,
            lambda endpoint_with_secret: json_with_etag(
                serializers.serialize_endpoint_with_secret(endpoint_with_secret, self.clock()), endpoint_with_secret.endpoint.version
            ),
        )
        tenant, grace, tags = WebhookTenant.from_caller(get_caller(request)), body.grace_period_hours, read_if_match(request)
        return respond(await self.endpoints.rotate_secret(tenant, webhook_id, grace_hours=grace, secret=body.secret, expected=tags))

    @document_route(errors=(Conflict, DeliveriesFull))
    async def post_test(self, request: Request, webhook_id: str) -> Response:
        """Send a `webhook.test` event to the endpoint. The delivery log shows the result."""
        respond = respond_with(Delivery, _accepted_response)
        return respond(await self.deliveries.send_test(WebhookTenant.from_caller(get_caller(request)), webhook_id))

    async def get_deliveries(self, request: Request, webhook_id: str, query: Annotated[shapes.DeliveriesQuery, Query()]) -> Response:
        """List the deliveries of an endpoint, newest first."""
        deliveries, total = await self.deliveries.list_page(
            WebhookTenant.from_caller(get_caller(request)), webhook_id, query.to_filter(), limit=query.per_page, offset=query.offset
        )
        return page_response(request, [serializers.serialize_delivery(delivery) for delivery in deliveries], query=query, total=total)

    async def get_delivery(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """Return a delivery with the body that is sent and every attempt."""
        return json_response(
            serializers.serialize_delivery_details(
                await self.deliveries.get(WebhookTenant.from_caller(get_caller(request)), webhook_id, delivery_id)
            )
        )

    @document_route(errors=(Conflict, DeliveriesFull))
    async def post_resend(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """Send the event of a delivery again. The event keeps its id."""
        respond = respond_with(Delivery, _accepted_response)
        return respond(await self.deliveries.resend(WebhookTenant.from_caller(get_caller(request)), webhook_id, delivery_id))

    @document_route(errors=(Conflict, DeliveriesFull))
    async def post_resend_failed(self, request: Request, body: shapes.ResendFailedBody, webhook_id: str) -> Response:
        """Resend failed deliveries, and those held while the endpoint was disabled."""
        count = await self.deliveries.resend_failed(WebhookTenant.from_caller(get_caller(request)), webhook_id, since=body.since)
        return json_response({"resent": count}, status=202)

    async def get_events(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the types of events that webhooks can subscribe to."""
        get_caller(request)
        page = EVENT_TYPES[query.offset : query.offset + query.per_page]
        return page_response(
            request, [serializers.serialize_event_type(event_type) for event_type in page], query=query, total=len(EVENT_TYPES)
        )


def _accepted_response(delivery: Delivery) -> Response:
    return json_response(serializers.serialize_delivery(delivery), status=202)
