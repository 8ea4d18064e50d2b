"""`rookery webhooks deliveries` and the commands that send deliveries again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rookery.kernel.imports import import_lazily
from rookery.kernel.pages import collect_items
from rookery.terminal.options import JsonOption, WorkspaceOption, parse_time
from rookery.terminal.output import print_fields, print_json, print_list, print_notice, print_record
from rookery.webhooks.commands.webhook_services import WebhookCommandServices, WebhookIdArgument, run_with_webhooks
from rookery.webhooks.models import OPEN_STATES, Delivery, DeliveryDetails, DeliveryFilter, DeliveryState, WebhookTenant

if TYPE_CHECKING:
    from rookery.kernel import schema
    from rookery.webhooks import schemas
else:  # `webhooks list` does not import pydantic
    schema, schemas = import_lazily("rookery.kernel.schema"), import_lazily("rookery.webhooks.schemas")

_PAGE_SIZE = 100
_POLL_INTERVAL_S = 0.2
_COLUMNS = ("id", "created_at", "type", "kind", "state", "attempt_count", "status", "error")
_TABLE_COLUMNS = ("id", "type", "state", "status", "error", "created_at", "attempt_count", "kind")
_ATTEMPT_COLUMNS = ("number", "started_at", "outcome", "status", "duration_ms", "error", "response")

DeliveryIdArgument = Annotated[str, typer.Argument(help="The delivery's id.")]
SinceOption = Annotated[
    str | None, typer.Option(help="Only deliveries created since then: a time, or 7d for seven days ago.", show_default=False)
]
WaitOption = Annotated[float, typer.Option(help="Seconds to wait for the result. Needs a running server.", min=0, max=600)]


def register(app: typer.Typer) -> None:
    """Add the commands to `rookery webhooks`."""
    for name, command in (
        ("test", send_test),
        ("deliveries", deliveries),
        ("delivery", delivery),
        ("resend", resend),
        ("resend-failed", resend_failed),
    ):
        app.command(name)(command)


def send_test(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    wait: WaitOption = 15,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test event to an endpoint and show the result. Exits with code 1 unless it was delivered."""

    async def work(webhooks: WebhookCommandServices, tenant: WebhookTenant) -> DeliveryDetails:
        delivery = await webhooks.deliveries.send_test(tenant, webhook_id)
        return await _wait_for_attempt(webhooks, tenant, delivery, timeout_s=wait)

    _print_outcome(run_with_webhooks(context, workspace, work), as_json=as_json)


def deliveries(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    state: Annotated[DeliveryState | None, typer.Option("--status", help="Only deliveries with this status.", show_default=False)] = None,
    type: Annotated[str | None, typer.Option("--event", help="Only deliveries of this event.", show_default=False)] = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of deliveries.", min=1, max=10_000)] = 50,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest deliveries of an endpoint."""
    filters = DeliveryFilter(state=state, type=type, since=parse_time(since))

    async def work(webhooks: WebhookCommandServices, tenant: WebhookTenant) -> Sequence[Delivery]:
        fetch = partial(webhooks.deliveries.list_page, tenant, webhook_id, filters)
        return await collect_items(fetch, limit=limit, page_size=_PAGE_SIZE)

    rows = [schema.to_json(schemas.DeliveryResponse.from_parts(delivery)) for delivery in run_with_webhooks(context, workspace, work)]
    if as_json:
        print_json(rows)
    else:
        print_list(rows, _COLUMNS, table_columns=_TABLE_COLUMNS)


def delivery(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    delivery_id: DeliveryIdArgument,
    *,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a delivery with its payload and its attempts."""
    details = run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.deliveries.get(tenant, webhook_id, delivery_id))
    fields = schema.to_json(schemas.serialize_delivery_details(details))
    if as_json:
        print_json(fields)
        return
    print_fields({**{name: value for name, value in fields.items() if name != "attempts"}, "payload": details.body.decode()})
    print_list(cast("Sequence[dict[str, object]]", fields["attempts"]), _ATTEMPT_COLUMNS)


def resend(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    delivery_id: DeliveryIdArgument,
    *,
    wait: WaitOption = 15,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resend the event of a delivery and show the result. Exits with code 1 unless it was delivered."""

    async def work(webhooks: WebhookCommandServices, tenant: WebhookTenant) -> DeliveryDetails:
        delivery = await webhooks.deliveries.resend(tenant, webhook_id, delivery_id)
        return await _wait_for_attempt(webhooks, tenant, delivery, timeout_s=wait)

    _print_outcome(run_with_webhooks(context, workspace, work), as_json=as_json)


def resend_failed(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    since: SinceOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resend failed deliveries, and those held while the endpoint was disabled."""
    since_time = parse_time(since)
    count = run_with_webhooks(
        context, workspace, lambda webhooks, tenant: webhooks.deliveries.resend_failed(tenant, webhook_id, since=since_time)
    )
    print_record({"resent": count}, as_json=as_json)


async def _wait_for_attempt(
    webhooks: WebhookCommandServices, tenant: WebhookTenant, delivery: Delivery, *, timeout_s: float
) -> DeliveryDetails:
    """Return a delivery once it is finished or has failed for the first time; after the time-out, as it is."""
    deadline = time.monotonic() + timeout_s
    while True:
        details = await webhooks.deliveries.get(tenant, delivery.endpoint_id, delivery.id)
        if details.delivery.state not in OPEN_STATES or details.delivery.used_attempts or time.monotonic() >= deadline:
            return details
        await asyncio.sleep(_POLL_INTERVAL_S)


def _print_outcome(details: DeliveryDetails, *, as_json: bool) -> None:
    response = schemas.serialize_delivery_details(details) if as_json else schemas.DeliveryResponse.from_parts(details.delivery)
    print_record(schema.to_json(response), as_json=as_json)
    if details.delivery.state is DeliveryState.DELIVERED:
        return
    if details.delivery.state in OPEN_STATES and not details.attempts:
        print_notice("The delivery was not attempted yet. Is `rookery serve` running with this data folder?")
    raise typer.Exit(1)
