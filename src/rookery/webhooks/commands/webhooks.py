"""`rookery webhooks`: endpoints, their deliveries, and sending deliveries again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Protocol, TypeVar, cast

import orjson
import typer

from rookery.access.operator import get_operator, resolve_caller, resolve_workspace
from rookery.kernel import schema
from rookery.kernel.events import EventType
from rookery.kernel.sentences import format_count
from rookery.kernel.urls import hide_secrets
from rookery.terminal.context import run
from rookery.terminal.operation_commands import ListLimit, OperationCommand, add_operation_commands
from rookery.terminal.options import DryRunOption, JsonOption, WorkspaceOption, YesOption, confirm
from rookery.terminal.output import Fields, print_fields, print_json, print_list, print_notice, print_record
from rookery.webhooks import schemas
from rookery.webhooks.build import WebhookServices
from rookery.webhooks.models import OPEN_STATES, Delivery, DeliveryDetails, DeliveryState, WebhookTenant

app = typer.Typer(no_args_is_help=True)

_PART = "webhooks"
_POLL_INTERVAL_S = 0.2
_COLUMNS = ("id", "url", "enabled", "events", "failures", "last_success_at", "disabled_reason")
_SECRET_COLUMNS = ("id", "url", "events", "secret")
_EVENT_TYPE_COLUMNS = ("name", "description", "data")
_DELIVERY_COLUMNS = ("id", "created_at", "type", "kind", "state", "attempt_count", "status", "error")
_DELIVERY_TABLE_COLUMNS = ("id", "type", "state", "status", "error", "created_at", "attempt_count", "kind")
_ATTEMPT_COLUMNS = ("number", "started_at", "outcome", "status", "duration_ms", "error", "response")

_WEBHOOK_ID = {"webhook_id": "The endpoint's id."}
_DELIVERY_ID = {"delivery_id": "The delivery's id."}
_SINCE = {"since": "Only deliveries created since then: a time, or 7d for seven days ago."}
_SECRET = {"secret": "A file with the secret, - for standard input; by default it is generated."}
_EVENTS = {"events": "An event, for example memory.stored, memory.* or *; may be repeated."}
_DESCRIPTION = {"description": "The purpose of the webhook."}
_NAMES = {"events": "--event", "secret": "--secret-file"}
_CHANGE_NAMES = {**_NAMES, "include_content": "--include-content/--no-content", "strict_order": "--strict-order/--any-order"}
_STRICT_ORDER_HELP = "Send one delivery at a time, in the order of events"
_CONTENT_HELP = "Send the content of memories"

T = TypeVar("T")

WebhookIdArgument = Annotated[str, typer.Argument(help=_WEBHOOK_ID["webhook_id"])]
WaitOption = Annotated[float, typer.Option(help="Seconds to wait for the result. Needs a running server.", min=0, max=600)]


def _hide_url(fields: Fields) -> Fields:
    return {**fields, "url": hide_secrets(str(fields["url"]))}


def _describe_held_deliveries(fields: Fields) -> str:
    count = cast("int", fields.get("held", 0))
    if not count:
        return ""
    return f"{format_count(count, 'delivery was', 'deliveries were')} held. To send them: rookery webhooks resend-failed {fields['id']}"


def _explain_secret(_: Fields) -> str:
    return "The secret is shown only once. The receiver needs it to verify signatures."


def _print_delivery(fields: Fields) -> None:
    attempts, payload = cast("Sequence[Fields]", fields["attempts"]), orjson.dumps(fields["payload"]).decode()
    print_fields({**{name: value for name, value in fields.items() if name != "attempts"}, "payload": payload})
    print_list(attempts, _ATTEMPT_COLUMNS)


_endpoint = partial(OperationCommand, arguments=_WEBHOOK_ID, convert=_hide_url)
_with_secret = partial(OperationCommand, names=_NAMES, files=("secret",), columns=_SECRET_COLUMNS, notice=_explain_secret)

COMMANDS = (
    OperationCommand("list", "list_webhooks", "List the endpoints of a workspace, newest first.", convert=_hide_url, columns=_COLUMNS,
                     empty="There are no webhooks. Add one with `rookery webhooks add`."),
    _with_secret("add", "create_webhook", "Add an endpoint that receives events from now on. Its secret is shown only once.",
                 arguments={"url": ""},
                 options={**_EVENTS, **_DESCRIPTION, "include_content": f"{_CONTENT_HELP}.", "strict_order": f"{_STRICT_ORDER_HELP}.",
                          "concurrency": "", **_SECRET}),
    _endpoint("show", "get_webhook", "Show an endpoint."),
    _endpoint("change", "update_webhook", "Change an endpoint. Options that are omitted keep their value.", names=_CHANGE_NAMES,
              options={"url": "", **_EVENTS, **_DESCRIPTION, "include_content": f"{_CONTENT_HELP}, or not.",
                       "strict_order": f"{_STRICT_ORDER_HELP}, or not.", "concurrency": ""}),
    _endpoint("enable", "update_webhook", "Enable an endpoint, also after it was disabled automatically.", fixed={"enabled": True},
              notice=_describe_held_deliveries),
    _endpoint("disable", "update_webhook", "Disable an endpoint. Its deliveries are held until they are resent.", fixed={"enabled": False}),
    _with_secret("rotate-secret", "rotate_webhook_secret", "Replace the secret of an endpoint. The new secret is shown only once.",
                 arguments=_WEBHOOK_ID, options={"grace_period_hours": "", **_SECRET}),
    OperationCommand("deliveries", "list_deliveries", "List the newest deliveries of an endpoint.", arguments=_WEBHOOK_ID,
                     options={"status": "Only deliveries with this status.", "type": "", **_SINCE}, names={"type": "--event"},
                     limit=ListLimit(50, 10_000, "deliveries"), columns=_DELIVERY_COLUMNS, table_columns=_DELIVERY_TABLE_COLUMNS),
    OperationCommand("delivery", "get_delivery", "Show a delivery with its payload and its attempts.",
                     arguments={**_WEBHOOK_ID, **_DELIVERY_ID}, print_response=_print_delivery),
    OperationCommand("resend-failed", "resend_failed_deliveries", arguments=_WEBHOOK_ID, options=_SINCE),
)  # fmt: skip
add_operation_commands(app, COMMANDS, apis=["rookery.webhooks.api:WebhooksApi"], part=_PART, resolve_caller=resolve_caller)


class EventTypeLister(Protocol):
    """The context that the command line passes to every command as `typer.Context.obj`."""

    def list_event_types(self) -> Sequence[EventType]:
        """Return the types of events that the domains declare. Needs no data folder."""
        ...


def list_event_types(context: typer.Context) -> Sequence[EventType]:
    """Return the types of events."""
    return cast("EventTypeLister", context.obj).list_event_types()


def run_with_webhooks(context: typer.Context, workspace: str | None, work: Callable[[WebhookServices, WebhookTenant], Awaitable[T]]) -> T:
    """Open webhooks, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: WebhookServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, WebhookTenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part=_PART)


@app.command()
def remove(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove an endpoint and cancel its open deliveries."""
    endpoint = run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.endpoints.get(tenant, webhook_id))
    if not dry_run:
        confirm(f"Remove the webhook to {hide_secrets(endpoint.url)}?", yes=yes)
        run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.endpoints.delete(tenant, webhook_id))
    if as_json:
        print_json({"removed": webhook_id, "dry_run": dry_run})
    else:
        print(f"{'Would remove' if dry_run else 'Removed'} {webhook_id}, to {hide_secrets(endpoint.url)}.")  # noqa: T201 - the command's output


@app.command()
def events(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the types of events. Needs no data folder."""
    rows = [schema.to_json(schemas.EventTypeResponse.from_parts(event_type)) for event_type in list_event_types(context)]
    if as_json:
        print_json(rows)
    else:
        print_list(rows, _EVENT_TYPE_COLUMNS)


@app.command("test")
def send_test(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    wait: WaitOption = 15,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test event to an endpoint and show the result. Exits with code 1 unless it was delivered."""

    async def work(webhooks: WebhookServices, tenant: WebhookTenant) -> DeliveryDetails:
        delivery = await webhooks.deliveries.send_test(tenant, webhook_id)
        return await _wait_for_attempt(webhooks, tenant, delivery, timeout_s=wait)

    _print_outcome(run_with_webhooks(context, workspace, work), as_json=as_json)


@app.command()
def resend(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    delivery_id: Annotated[str, typer.Argument(help=_DELIVERY_ID["delivery_id"])],
    *,
    wait: WaitOption = 15,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resend the event of a delivery and show the result. Exits with code 1 unless it was delivered."""

    async def work(webhooks: WebhookServices, tenant: WebhookTenant) -> DeliveryDetails:
        delivery = await webhooks.deliveries.resend(tenant, webhook_id, delivery_id)
        return await _wait_for_attempt(webhooks, tenant, delivery, timeout_s=wait)

    _print_outcome(run_with_webhooks(context, workspace, work), as_json=as_json)


async def _wait_for_attempt(webhooks: WebhookServices, tenant: WebhookTenant, delivery: Delivery, *, timeout_s: float) -> DeliveryDetails:
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
