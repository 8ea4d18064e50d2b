"""Webhooks: endpoints, their deliveries with every attempt, resending, and the rotation of secrets."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from rookery.console.arguments import or_unset
from rookery.console.operation_forms import ControlGroup, ControlHint, Options, ResourceForm
from rookery.console.operation_lists import Column, Filter, OperationList
from rookery.console.visit import View, Visit
from rookery_client.generated import models

READ, WRITE, DELETE = "webhooks:read", "webhooks:write", "webhooks:delete"
_GRACE_HOURS = 24


def show_secret(visit: Visit, webhook: models.WebhookWithSecret) -> Response:
    """Show the secret of an endpoint, which no other page has."""
    return visit.render("webhooks/secret.html", webhook=webhook)


async def load_events(visit: Visit) -> Options:
    """Return the events that an endpoint can have, by the first part of their names."""
    types = [(event.name, event.description) async for event in await visit.client.webhooks.list_event_types(per_page=100)]
    groups = {"": [("*", "All events that are in the wildcard, also future ones.")]}
    return groups | {group.capitalize(): events for group, events in group_events(types).items()}


WEBHOOK_LIST = OperationList(
    path="webhooks",
    client="webhooks",
    operation="list_webhooks",
    scope=READ,
    title="Webhooks",
    lead="Endpoints that get events of this workspace, signed, with every attempt recorded.",
    noun="endpoint",
    icon="webhooks",
    columns=(
        Column(
            name="url",
            title="Endpoint",
            show=lambda hook: hook.description or hook.url,
            note=lambda hook: hook.url if hook.description else "",
        ),
        Column(name="enabled", title="State", macro="webhook_state"),
        Column(name="events"),
        Column(name="failures"),
        Column(name="last_success_at", title="Last success"),
    ),
    filters=(Filter(name="q", label="Search endpoints"),),
    link=lambda hook: f"webhooks/{hook.id}",
    empty=(
        "No endpoints yet",
        "An endpoint is a URL of yours. Rookery posts events to it, such as a memory that was stored or a plan that was completed.",
    ),
    empty_label="Add an endpoint",
    new=("webhooks/new", WRITE, "New endpoint"),
)
DELIVERY_LIST = OperationList(
    path="webhooks",
    client="webhooks",
    operation="list_deliveries",
    title="Deliveries",
    noun="delivery",
    plural="deliveries",
    icon="webhooks",
    columns=(
        Column(name="type", title="Event", macro="delivery_kind", note=lambda delivery: delivery.error),
        Column(name="state"),
        Column(name="status", kind="number"),
        Column(name="attempt_count", title="Attempts"),
        Column(name="next_at", title="Next attempt"),
        Column(name="created_at", title="Created"),
    ),
    filters=(Filter(name="status", parameter="state", label="State"), Filter(name="type", label="Event type")),
    link=lambda delivery: f"webhooks/{delivery.webhook_id}/deliveries/{delivery.id}",
    empty=(
        "No deliveries",
        "Events of the subscribed types appear here as soon as they happen. Send a test to try the endpoint.",
    ),
)
WEBHOOK_FORM = ResourceForm(
    path="webhooks",
    parameter="webhook_id",
    client="webhooks",
    scope=WRITE,
    create="create_webhook",
    get="get_webhook",
    change="update_webhook",
    noun="endpoint",
    back="Webhooks",
    lead="Private addresses are refused unless the operator allows them.",
    create_label="Create endpoint",
    groups=(ControlGroup("", ("url", "description", "events", "include_content", "strict_order")),),
    hints={
        "url": ControlHint(label="URL", placeholder="https://example.com/rookery", help=""),
        "events": ControlHint(load_options=load_events, kind="checks", is_folded=True, help=""),
        "include_content": ControlHint(label="Include contents of memories and generations", help=""),
        "strict_order": ControlHint(label="Strict order", help="An event waits until those before it are delivered."),
        "concurrency": ControlHint(label="Deliveries at the same time", help=""),
    },
    hidden=frozenset({"enabled"}),
    show_created=show_secret,
)


async def show_webhook(visit: Visit) -> Response:
    """Show an endpoint with its deliveries."""
    webhook = await visit.client.webhooks.get_webhook(visit.path("webhook_id"))
    deliveries = await DELIVERY_LIST.load(visit, webhook.id, path=f"webhooks/{webhook.id}")
    return visit.render("webhooks/webhook.html", webhook=webhook, deliveries=deliveries, grace=_GRACE_HOURS)


async def switch_webhook(visit: Visit) -> Response:
    """Enable or disable an endpoint."""
    webhook_id, enabled = visit.path("webhook_id"), (await visit.form()).get("enabled") == "yes"
    await visit.client.webhooks.update_webhook(webhook_id, enabled=enabled)
    return visit.redirect(f"webhooks/{webhook_id}", "started" if enabled else "stopped")


async def delete_webhook(visit: Visit) -> Response:
    """Delete an endpoint and its deliveries."""
    await visit.client.webhooks.delete_webhook(visit.path("webhook_id"))
    return visit.redirect("webhooks", "deleted")


async def send_test(visit: Visit) -> Response:
    """Send a test event to an endpoint."""
    webhook_id = visit.path("webhook_id")
    delivery = await visit.client.webhooks.test_webhook(webhook_id)
    return visit.redirect(f"webhooks/{webhook_id}/deliveries/{delivery.id}", "queued")


async def rotate_secret(visit: Visit) -> Response:
    """Create a new secret for an endpoint and show it once."""
    hours = (await visit.form()).integer("grace_period_hours")
    changed = await visit.client.webhooks.rotate_webhook_secret(visit.path("webhook_id"), grace_period_hours=or_unset(hours))
    return show_secret(visit, changed)


async def resend_failed(visit: Visit) -> Response:
    """Send all failed and held deliveries of an endpoint again."""
    webhook_id = visit.path("webhook_id")
    await visit.client.webhooks.resend_failed_deliveries(webhook_id)
    return visit.redirect(f"webhooks/{webhook_id}", "queued")


async def show_delivery(visit: Visit) -> Response:
    """Show a delivery with its payload and every attempt."""
    webhook_id = visit.path("webhook_id")
    webhook = await visit.client.webhooks.get_webhook(webhook_id)
    delivery = await visit.client.webhooks.get_delivery(webhook_id, visit.path("delivery_id"))
    return visit.render("webhooks/delivery.html", webhook=webhook, delivery=delivery)


async def resend_delivery(visit: Visit) -> Response:
    """Send one event again, as a delivery of its own."""
    webhook_id = visit.path("webhook_id")
    delivery = await visit.client.webhooks.resend_delivery(webhook_id, visit.path("delivery_id"))
    return visit.redirect(f"webhooks/{webhook_id}/deliveries/{delivery.id}", "queued")


def group_events(types: Sequence[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return names and descriptions of events by the first part of the name. A group of several begins with its wildcard."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, description in types:
        groups.setdefault(name.partition(".")[0], []).append((name, description))
    wildcards = {group: (f"{group}.*", "All of these, also future ones.") for group, events in groups.items() if len(events) > 1}
    return {group: [wildcards[group], *events] if group in wildcards else events for group, events in groups.items()}


VIEWS = (
    WEBHOOK_LIST.view(),
    *WEBHOOK_FORM.views(),
    View("GET", "/webhooks/{webhook_id}", show_webhook, READ),
    View("POST", "/webhooks/{webhook_id}/state", switch_webhook, WRITE),
    View("POST", "/webhooks/{webhook_id}/delete", delete_webhook, DELETE),
    View("POST", "/webhooks/{webhook_id}/test", send_test, WRITE),
    View("POST", "/webhooks/{webhook_id}/rotate", rotate_secret, WRITE),
    View("POST", "/webhooks/{webhook_id}/resend", resend_failed, WRITE),
    View("GET", "/webhooks/{webhook_id}/deliveries/{delivery_id}", show_delivery, READ),
    View("POST", "/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", resend_delivery, WRITE),
)
