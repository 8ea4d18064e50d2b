"""`/webhooks` and `/events`, under /api/v1 (D-80)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict
from rookery.kernel.http import Route, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page, PageQuery
from rookery.webhooks import schemas as shapes
from rookery.webhooks import shown
from rookery.webhooks.catalogue import TYPES
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import Endpoints
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.models import Delivery, Minted, Tenant

READ, WRITE, DELETE = "webhooks:read", "webhooks:write", "webhooks:delete"


@dataclass(frozen=True, slots=True)
class WebhooksApi:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    endpoints: Endpoints
    deliveries: Deliveries
    clock: Clock

    def routes(self) -> list[Route]:
        """Return the table, one line per endpoint."""
        base, one, tags = "/webhooks", "/webhooks/{webhook_id}", ("Webhooks",)
        log, row = f"{one}/deliveries", f"{one}/deliveries/{{delivery_id}}"
        return [
            Route(method="GET", path=base, handler=self.get_webhooks, needs=READ, answers=Page[shapes.WebhookAnswer],
                  operation_id="list_webhooks", summary="List webhook endpoints", tags=tags),
            Route(method="POST", path=base, handler=self.post_webhook, needs=WRITE, status=201, answers=shapes.NewWebhookAnswer,
                  once=True, secrets=("secret",), operation_id="create_webhook", summary="Create a webhook endpoint", tags=tags),
            Route(method="GET", path=one, handler=self.get_webhook, needs=READ, answers=shapes.WebhookAnswer,
                  operation_id="get_webhook", summary="Show a webhook endpoint", tags=tags),
            Route(method="PATCH", path=one, handler=self.patch_webhook, needs=WRITE, answers=shapes.ChangedWebhookAnswer,
                  operation_id="update_webhook", summary="Change, disable or enable a webhook endpoint", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_webhook, needs=DELETE, status=204,
                  operation_id="delete_webhook", summary="Delete a webhook endpoint", tags=tags),
            Route(method="POST", path=f"{one}/rotate-secret", handler=self.post_rotate_secret, needs=WRITE, answers=shapes.NewWebhookAnswer,
                  once=True, secrets=("secret",), may_be_empty=True,
                  operation_id="rotate_webhook_secret", summary="Rotate the secret of a webhook endpoint", tags=tags),
            Route(method="POST", path=f"{one}/test", handler=self.post_test, needs=WRITE, status=202, answers=shapes.DeliveryAnswer,
                  once=True, operation_id="test_webhook", summary="Send a test event", tags=tags),
            Route(method="GET", path=log, handler=self.get_deliveries, needs=READ, answers=Page[shapes.DeliveryAnswer],
                  operation_id="list_deliveries", summary="List the deliveries of a webhook endpoint", tags=tags),
            Route(method="GET", path=row, handler=self.get_delivery, needs=READ, answers=shapes.DeliveryDetailAnswer,
                  operation_id="get_delivery", summary="Show a delivery", tags=tags),
            Route(method="POST", path=f"{row}/resend", handler=self.post_resend, needs=WRITE, status=202, answers=shapes.DeliveryAnswer,
                  once=True, operation_id="resend_delivery", summary="Resend a delivery", tags=tags),
            Route(method="POST", path=f"{one}/resend-failed", handler=self.post_resend_failed, needs=WRITE, status=202,
                  answers=shapes.ResentAnswer, once=True, may_be_empty=True,
                  operation_id="resend_failed_deliveries", summary="Resend failed deliveries", tags=tags),
            Route(method="GET", path="/events", handler=self.get_events, needs=READ, answers=Page[shapes.EventTypeAnswer],
                  operation_id="list_event_types", summary="List the types of events", tags=tags),
        ]  # fmt: skip

    async def get_webhooks(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the webhook endpoints of the workspace, newest first. A test key sees those of the sandbox."""
        tenant, now = Tenant.of(caller_of(request)), self.clock()
        found, total = await self.endpoints.list(tenant, limit=query.per_page, offset=query.offset)
        return page(request, [shown.webhook(each, now) for each in found], query=query, total=total)

    @with_etag
    @describe(errors=(Conflict,))
    async def post_webhook(self, request: Request, body: shapes.NewWebhookBody) -> Response:
        """Create a webhook endpoint. `secret` is shown in this answer only. The address is checked by the same rules as each delivery."""
        answer = respond_with(Minted, lambda made: tagged(shown.minted(made, self.clock()), made.endpoint.version, status=201))
        return answer(await self.endpoints.create(Tenant.of(caller_of(request)), body.new()))

    @with_etag
    async def get_webhook(self, request: Request, webhook_id: str) -> Response:
        """
        Return a webhook endpoint without its secret.

        Its ETag changes with its settings and its secret, not with `failures` and `last_success_at`.
        """
        found = await self.endpoints.get(Tenant.of(caller_of(request)), webhook_id)
        return tagged(shown.webhook(found, self.clock()), found.version)

    @with_etag
    @by_etag
    async def patch_webhook(self, request: Request, body: shapes.WebhookChangeBody, webhook_id: str) -> Response:
        """Change a webhook endpoint. Fields that are left out keep their value."""
        tenant = Tenant.of(caller_of(request))
        changed = await self.endpoints.change(tenant, webhook_id, body.change(), expected=expected(request))
        return tagged(shown.changed(changed, self.clock()), changed.endpoint.version)

    @by_etag
    async def delete_webhook(self, request: Request, webhook_id: str) -> Response:
        """Delete a webhook endpoint and cancel its pending deliveries."""
        await self.endpoints.delete(Tenant.of(caller_of(request)), webhook_id, expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @describe(errors=(Conflict,))
    async def post_rotate_secret(self, request: Request, body: shapes.RotateSecretBody, webhook_id: str) -> Response:
        """Replace the signing secret. During the grace period, deliveries are signed with both secrets."""
        answer = respond_with(Minted, lambda made: tagged(shown.minted(made, self.clock()), made.endpoint.version))
        tenant, grace, tags = Tenant.of(caller_of(request)), body.grace_period_hours, expected(request)
        return answer(await self.endpoints.rotate_secret(tenant, webhook_id, grace_hours=grace, secret=body.secret, expected=tags))

    @describe(errors=(Conflict, DeliveriesFull))
    async def post_test(self, request: Request, webhook_id: str) -> Response:
        """Send a `webhook.test` event to the endpoint. The log of deliveries shows the outcome."""
        answer = respond_with(Delivery, _sent)
        return answer(await self.deliveries.test(Tenant.of(caller_of(request)), webhook_id))

    async def get_deliveries(self, request: Request, webhook_id: str, query: Annotated[shapes.DeliveriesQuery, Query()]) -> Response:
        """List the deliveries of an endpoint, newest first."""
        found, total = await self.deliveries.list(
            Tenant.of(caller_of(request)), webhook_id, query.which(), limit=query.per_page, offset=query.offset
        )
        return page(request, [shown.delivery(each) for each in found], query=query, total=total)

    async def get_delivery(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """Return a delivery with the body that is sent and every attempt."""
        return reply(shown.detail(await self.deliveries.get(Tenant.of(caller_of(request)), webhook_id, delivery_id)))

    @describe(errors=(Conflict, DeliveriesFull))
    async def post_resend(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        """Send the event of a delivery again. The event keeps its id."""
        answer = respond_with(Delivery, _sent)
        return answer(await self.deliveries.resend(Tenant.of(caller_of(request)), webhook_id, delivery_id))

    @describe(errors=(Conflict, DeliveriesFull))
    async def post_resend_failed(self, request: Request, body: shapes.ResendFailedBody, webhook_id: str) -> Response:
        """Send again what failed, and what was held while the endpoint was disabled."""
        count = await self.deliveries.resend_failed(Tenant.of(caller_of(request)), webhook_id, since=body.since)
        return reply({"resent": count}, status=202)

    async def get_events(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the types of events that webhooks can subscribe to."""
        caller_of(request)
        some = TYPES[query.offset : query.offset + query.per_page]
        return page(request, [shown.event_type(each) for each in some], query=query, total=len(TYPES))


def _sent(delivery: Delivery) -> Response:
    return reply(shown.delivery(delivery), status=202)
