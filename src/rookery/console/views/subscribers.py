"""Subscribers: the people and programs that campaigns reach, with the state of each channel."""

from __future__ import annotations

from starlette.responses import Response

from rookery.console.arguments import choose
from rookery.console.views.campaigns import CHANNELS, READ, WRITE
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET

_STATUSES = ("active", "invalid", "unsubscribed")
_EXPORT_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


async def list_subscribers(visit: Visit) -> Response:
    """List the subscribers, searched and filtered by the server."""
    filters = {name: visit.query(name) for name in ("q", "tag", "channel", "status")}
    page = await visit.client.notifications.list_subscribers(
        page=visit.page_number,
        per_page=PER_PAGE,
        q=filters["q"] or UNSET,
        tag=filters["tag"] or UNSET,
        channel=choose(filters["channel"], CHANNELS),
        status=choose(filters["status"], _STATUSES),
    )
    return visit.render(
        "campaigns/subscribers.html",
        page=page,
        links=PageLinks.of(visit, page),
        filters=filters,
        channels=CHANNELS,
        statuses=_STATUSES,
        report=None,
        error=None,
    )


async def import_subscribers(visit: Visit) -> Response:
    """Import subscribers from CSV or JSON lines that were pasted, and show which lines have faults."""
    form = await visit.form()
    text = form.get_text("lines")
    kind = "application/x-ndjson" if text.lstrip().startswith("{") else "text/csv"
    report, error = None, None
    try:
        report = await visit.client.notifications.import_subscribers(content=text, content_type=kind)
    except ApiError as refused:
        error = refused
    page = await visit.client.notifications.list_subscribers(per_page=PER_PAGE)
    return visit.render(
        "campaigns/subscribers.html",
        status=200 if error is None else error.status,
        page=page,
        links=PageLinks.of(visit, page),
        filters=dict.fromkeys(("q", "tag", "channel", "status"), ""),
        channels=CHANNELS,
        statuses=_STATUSES,
        report=report,
        error=error,
    )


async def export_subscribers(visit: Visit) -> Response:
    """Return all subscribers as a file."""
    kind = "csv" if visit.query("format") == "csv" else "jsonl"
    text = await visit.client.notifications.export_subscribers(format=kind)
    headers = {"Content-Disposition": f'attachment; filename="subscribers.{kind}"', "X-Content-Type-Options": "nosniff"}
    return Response(text, headers=headers, media_type=_EXPORT_TYPES[kind])


async def delete_subscriber(visit: Visit) -> Response:
    """Delete a subscriber with all channels."""
    await visit.client.notifications.delete_subscriber(visit.path("subscriber_id"))
    return visit.redirect("subscribers", "deleted")


VIEWS = (
    View("GET", "/subscribers", list_subscribers, READ),
    View("POST", "/subscribers", import_subscribers, WRITE),
    View("GET", "/subscribers/export", export_subscribers, WRITE),
    View("POST", "/subscribers/{subscriber_id}/delete", delete_subscriber, WRITE),
)
