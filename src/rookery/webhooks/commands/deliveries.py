"""`rookery webhooks deliveries` and those that make new ones (D-80)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from rookery.access.commands.printing import print_json, print_many, print_one, print_thing, say
from rookery.access.commands.reading import read_moment
from rookery.access.commands.terminal import Json, Where
from rookery.webhooks import shown
from rookery.webhooks.commands.opening import WebhookId, WebhookServices, run
from rookery.webhooks.models import OPEN, Delivery, DeliveryFilter, DeliveryState, DeliveryView, Tenant

_PAGE = 100
_LOOK_S = 0.2
_COLUMNS = ("id", "created_at", "type", "kind", "state", "attempt_count", "status", "error")
_IN_TABLE = ("id", "type", "state", "status", "error", "created_at", "attempt_count", "kind")
_OF_ATTEMPTS = ("number", "started_at", "outcome", "status", "duration_ms", "error", "response")

DeliveryId = Annotated[str, typer.Argument(help="The delivery's id.")]
Since = Annotated[str | None, typer.Option(help="Only those made since then: a time, or days ago such as 7d.", show_default=False)]
Wait = Annotated[float, typer.Option(help="Seconds to wait for the outcome, which a running Rookery brings about.", min=0, max=600)]


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


def send_test(context: typer.Context, webhook_id: WebhookId, *, wait: Wait = 15, workspace: Where = None, as_json: Json = False) -> None:
    """Send a test event to an endpoint, and say how that went; exit code 1 unless it was delivered."""

    async def work(webhooks: WebhookServices, tenant: Tenant) -> DeliveryView:
        made = await webhooks.deliveries.test(tenant, webhook_id)
        return await _tried(webhooks, tenant, made, within_s=wait)

    _print_outcome(run(context, workspace, work), as_json=as_json)


def deliveries(
    context: typer.Context,
    webhook_id: WebhookId,
    *,
    state: Annotated[
        DeliveryState | None, typer.Option("--status", "--state", help="Only those with this status.", show_default=False)
    ] = None,
    type: Annotated[str | None, typer.Option(help="Only those of this event.", show_default=False)] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=10_000)] = 50,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """List the newest deliveries of an endpoint."""
    which = DeliveryFilter(state=state, type=type, since=read_moment(since))

    async def work(webhooks: WebhookServices, tenant: Tenant) -> Sequence[Delivery]:
        rows = list[Delivery]()
        while len(rows) < limit:
            found, _ = await webhooks.deliveries.list(tenant, webhook_id, which, limit=min(_PAGE, limit - len(rows)), offset=len(rows))
            if not found:
                break
            rows.extend(found)
        return rows

    rows = [shown.delivery(each) for each in run(context, workspace, work)]
    if as_json:
        print_json(rows)
    else:
        print_many(rows, _COLUMNS, in_table=_IN_TABLE)


def delivery(
    context: typer.Context, webhook_id: WebhookId, delivery_id: DeliveryId, *, workspace: Where = None, as_json: Json = False
) -> None:
    """Show a delivery: what is sent, and each attempt."""
    view = run(context, workspace, lambda webhooks, tenant: webhooks.deliveries.get(tenant, webhook_id, delivery_id))
    fields = shown.detail(view)
    if as_json:
        print_json(fields)
        return
    print_one({**{name: value for name, value in fields.items() if name != "attempts"}, "payload": view.body.decode()})
    print_many(cast("Sequence[dict[str, object]]", fields["attempts"]), _OF_ATTEMPTS)


def resend(
    context: typer.Context,
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
    *,
    wait: Wait = 15,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Send a delivery's event again, and say how that went; exit code 1 unless it was delivered."""

    async def work(webhooks: WebhookServices, tenant: Tenant) -> DeliveryView:
        made = await webhooks.deliveries.resend(tenant, webhook_id, delivery_id)
        return await _tried(webhooks, tenant, made, within_s=wait)

    _print_outcome(run(context, workspace, work), as_json=as_json)


def resend_failed(
    context: typer.Context, webhook_id: WebhookId, *, since: Since = None, workspace: Where = None, as_json: Json = False
) -> None:
    """Send again what failed, and what was held while the endpoint was disabled."""
    moment = read_moment(since)
    count = run(context, workspace, lambda webhooks, tenant: webhooks.deliveries.resend_failed(tenant, webhook_id, since=moment))
    print_thing({"resent": count}, as_json=as_json)


async def _tried(webhooks: WebhookServices, tenant: Tenant, made: Delivery, *, within_s: float) -> DeliveryView:
    """Return a delivery once it ended or failed for the first time, or as it is when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        view = await webhooks.deliveries.get(tenant, made.endpoint_id, made.id)
        if view.delivery.state not in OPEN or view.delivery.spent or time.monotonic() >= deadline:
            return view
        await asyncio.sleep(_LOOK_S)


def _print_outcome(view: DeliveryView, *, as_json: bool) -> None:
    print_thing(shown.detail(view) if as_json else shown.delivery(view.delivery), as_json=as_json)
    if view.delivery.state is DeliveryState.DELIVERED:
        return
    if view.delivery.state in OPEN and not view.attempts:
        say("Nobody has tried to send it yet; is `rookery serve` running on this data?")
    raise typer.Exit(1)
