"""Webhooks: endpoints, their deliveries with every attempt, resending, and the rotation of secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from rookery.console.arguments import choose, or_unset
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit, get_field_errors
from rookery_client import ApiError
from rookery_client.calls import UNSET

READ, WRITE, DELETE = "webhooks:read", "webhooks:write", "webhooks:delete"
STATES = ("pending", "sending", "held", "delivered", "failed", "cancelled")
_GRACE_HOURS = 24


async def list_webhooks(visit: Visit) -> Response:
    """List the endpoints, searched by the server."""
    words = visit.query("q")
    page = await visit.client.webhooks.list_webhooks(page=visit.page_number, per_page=PER_PAGE, q=words or UNSET)
    return visit.render("webhooks/webhooks.html", page=page, links=PageLinks.of(visit, page), words=words)


async def show_new_webhook(visit: Visit) -> Response:
    """Show the form for a new endpoint."""
    return await _show_form(visit, {}, [], {})


async def create_webhook(visit: Visit) -> Response:
    """Create an endpoint and show its secret once."""
    form = await visit.form()
    events = form.list("events")
    try:
        created = await visit.client.webhooks.create_webhook(
            url=form.get("url"),
            events=events,
            description=form.get("description"),
            include_content=form.get("include_content") == "yes",
            strict_order=form.get("strict_order") == "yes",
        )
    except ApiError as error:
        return await _show_form(visit, form.as_dict(), events, get_field_errors(error), status=error.status)
    return visit.render("webhooks/secret.html", webhook=created)


async def show_webhook(visit: Visit) -> Response:
    """Show an endpoint with its deliveries."""
    webhook_id, state = visit.path("webhook_id"), visit.query("state")
    webhook = await visit.client.webhooks.get_webhook(webhook_id)
    page = await visit.client.webhooks.list_deliveries(
        webhook_id,
        page=visit.page_number,
        per_page=PER_PAGE,
        status=choose(state, STATES),
        type=visit.query("type") or UNSET,
    )
    return visit.render(
        "webhooks/webhook.html",
        webhook=webhook,
        page=page,
        links=PageLinks.of(visit, page),
        states=STATES,
        state=state,
        type=visit.query("type"),
        grace=_GRACE_HOURS,
    )


async def show_edit_form(visit: Visit) -> Response:
    """Show the form for an endpoint that exists."""
    webhook = await visit.client.webhooks.get_webhook(visit.path("webhook_id"))
    values = {
        "id": webhook.id,
        "url": webhook.url,
        "description": webhook.description,
        "include_content": "yes" if webhook.include_content else "",
        "strict_order": "yes" if webhook.strict_order else "",
    }
    return await _show_form(visit, values, webhook.events, {})


async def save_webhook(visit: Visit) -> Response:
    """Change an endpoint."""
    form, webhook_id = await visit.form(), visit.path("webhook_id")
    events = form.list("events")
    try:
        await visit.client.webhooks.update_webhook(
            webhook_id,
            url=form.get("url"),
            events=events,
            description=form.get("description"),
            include_content=form.get("include_content") == "yes",
            strict_order=form.get("strict_order") == "yes",
        )
    except ApiError as error:
        return await _show_form(visit, form.as_dict() | {"id": webhook_id}, events, get_field_errors(error), status=error.status)
    return visit.redirect(f"webhooks/{webhook_id}", "saved")


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
    return visit.render("webhooks/secret.html", webhook=changed)


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


async def _show_form(
    visit: Visit, values: Mapping[str, str], events: list[str], errors: Mapping[str, list[str]], *, status: int = 200
) -> Response:
    groups = group_events([(event.name, event.description) async for event in await visit.client.webhooks.list_event_types(per_page=100)])
    names = {"*"} | {name for group in groups.values() for name, _ in group}
    content: dict[str, object] = {
        "values": {"id": "", "url": "", "description": "", "include_content": "", "strict_order": ""} | dict(values),
        "chosen": events,
        "others": [name for name in events if name not in names],
        "groups": groups,
        "errors": errors,
    }
    return visit.render("webhooks/form.html", status=status, **content)


VIEWS = (
    View("GET", "/webhooks", list_webhooks, READ),
    View("GET", "/webhooks/new", show_new_webhook, WRITE),
    View("POST", "/webhooks/new", create_webhook, WRITE),
    View("GET", "/webhooks/{webhook_id}", show_webhook, READ),
    View("GET", "/webhooks/{webhook_id}/edit", show_edit_form, WRITE),
    View("POST", "/webhooks/{webhook_id}/edit", save_webhook, WRITE),
    View("POST", "/webhooks/{webhook_id}/state", switch_webhook, WRITE),
    View("POST", "/webhooks/{webhook_id}/delete", delete_webhook, DELETE),
    View("POST", "/webhooks/{webhook_id}/test", send_test, WRITE),
    View("POST", "/webhooks/{webhook_id}/rotate", rotate_secret, WRITE),
    View("POST", "/webhooks/{webhook_id}/resend", resend_failed, WRITE),
    View("GET", "/webhooks/{webhook_id}/deliveries/{delivery_id}", show_delivery, READ),
    View("POST", "/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", resend_delivery, WRITE),
)
