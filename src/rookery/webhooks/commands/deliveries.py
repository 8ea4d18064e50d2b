"""`rookery webhooks deliveries` and the commands that send deliveries again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, cast

import orjson
import typer

from rookery.kernel import schema
from rookery.terminal.operation_commands import ListLimit, OperationCommand
from rookery.terminal.options import JsonOption, WorkspaceOption
from rookery.terminal.output import Fields, print_fields, print_list, print_notice, print_record
from rookery.webhooks import schemas
from rookery.webhooks.commands.webhook_services import WebhookCommandServices, WebhookIdArgument, run_with_webhooks
from rookery.webhooks.models import OPEN_STATES, Delivery, DeliveryDetails, DeliveryState, WebhookTenant

_POLL_INTERVAL_S = 0.2
_ATTEMPT_COLUMNS = ("number", "started_at", "outcome", "status", "duration_ms", "error", "response")

_WEBHOOK_ID = "The endpoint's id."
_DELIVERY_ID = "The delivery's id."
_SINCE = {"since": "Only deliveries created since then: a time, or 7d for seven days ago."}

WaitOption = Annotated[float, typer.Option(help="Seconds to wait for the result. Needs a running server.", min=0, max=600)]


def _print_delivery(fields: Fields) -> None:
    attempts, payload = cast("Sequence[Fields]", fields["attempts"]), orjson.dumps(fields["payload"]).decode()
    print_fields({**{name: value for name, value in fields.items() if name != "attempts"}, "payload": payload})
    print_list(attempts, _ATTEMPT_COLUMNS)


COMMANDS = (
    OperationCommand(
        name="deliveries",
        operation="list_deliveries",
        help="List the newest deliveries of an endpoint.",
        arguments={"webhook_id": _WEBHOOK_ID},
        options={"status": "Only deliveries with this status.", "type": "", **_SINCE},
        names={"type": "--event"},
        limit=ListLimit(50, 10_000, "deliveries"),
        columns=("id", "created_at", "type", "kind", "state", "attempt_count", "status", "error"),
        table_columns=("id", "type", "state", "status", "error", "created_at", "attempt_count", "kind"),
    ),
    OperationCommand(
        name="delivery",
        operation="get_delivery",
        help="Show a delivery with its payload and its attempts.",
        arguments={"webhook_id": _WEBHOOK_ID, "delivery_id": _DELIVERY_ID},
        print_response=_print_delivery,
    ),
    OperationCommand(
        name="resend-failed",
        operation="resend_failed_deliveries",
        help="Resend failed deliveries, and those held while the endpoint was disabled.",
        arguments={"webhook_id": _WEBHOOK_ID},
        options=_SINCE,
    ),
)


def register(app: typer.Typer) -> None:
    """Add the commands to `rookery webhooks`."""
    app.command("test")(send_test)
    app.command()(resend)


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


def resend(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    delivery_id: Annotated[str, typer.Argument(help=_DELIVERY_ID)],
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
