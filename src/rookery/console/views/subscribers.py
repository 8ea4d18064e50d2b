"""Subscribers: the people and programs that campaigns reach, with the state of each channel."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from rookery.console.arguments import parse_json
from rookery.console.operation_forms import ControlGroup, ControlHint, ResourceForm
from rookery.console.operation_lists import Column, Filter, OperationList
from rookery.console.views.campaigns import READ, WRITE
from rookery.console.visit import View, Visit
from rookery_client import ApiError

_EXPORT_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


SUBSCRIBER_LIST = OperationList(
    path="subscribers",
    client="notifications",
    operation="list_subscribers",
    scope=READ,
    title="Subscribers",
    lead="People and programs that campaigns reach. A channel that a service reports as gone is invalid, and is not tried again.",
    noun="subscriber",
    icon="campaigns",
    columns=(
        Column(name="external_id", title="Subscriber"),
        Column(name="channels", macro="subscriber_channels"),
        Column(name="tags"),
        Column(name="updated_at", title="Changed"),
    ),
    filters=(
        Filter(name="q", label="Search subscribers", placeholder="Search external ids"),
        Filter(name="channel"),
        Filter(name="status"),
        Filter(name="tag"),
    ),
    empty=("No subscribers here", "Import a list, or let people subscribe by a link in their browser."),
    tabs="campaigns/tabs.html",
    tail="subscriber_actions",
    tail_scope=WRITE,
    template="campaigns/subscribers.html",
)


def write_channel(channel: Mapping[str, object]) -> str:
    """Return a channel as a line. That of a browser, whose keys nobody types, is JSON."""
    address = channel.get("url") or channel.get("address")
    if address:
        return f"{channel['type']}: {address}"
    return json.dumps({name: channel[name] for name in ("type", "endpoint", "keys")})


def read_channel(line: str) -> object:
    """Return the channel in a line."""
    if line.startswith("{"):
        return parse_json("channels", line)
    kind, _, address = line.partition(":")
    return {"type": kind.strip(), "address" if kind.strip() == "email" else "url": address.strip()}


SUBSCRIBER_FORM = ResourceForm(
    path="subscribers",
    has_page=False,
    parameter="subscriber_id",
    client="notifications",
    scope=WRITE,
    create="create_subscriber",
    get="get_subscriber",
    change="update_subscriber",
    noun="subscriber",
    back="Subscribers",
    lead="",
    create_label="Create subscriber",
    groups=(ControlGroup("", ("external_id", "channels", "tags", "attributes", "locale")),),
    hints={
        "external_id": ControlHint(label="Id in your own system", help="Such as `customer-1001` or an e-mail address."),
        "channels": ControlHint(
            kind="lines",
            read_line=read_channel,
            write_line=write_channel,
            help="One a line, such as `email: ada@example.com`, `webhook: https://example.com/hook` or `ntfy: https://ntfy.sh/topic`. "
            "An address that is shown with *** can stay as it is.",
        ),
        "tags": ControlHint(help="Groups of subscribers, one a line, such as `beta`."),
        "attributes": ControlHint(help="Values for placeholders in messages, one a line, such as `first_name: Ada`."),
        "locale": ControlHint(label="Language", help="Such as `de` or `de-AT`."),
    },
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
    listing = await SUBSCRIBER_LIST.load(visit)
    return visit.render(
        SUBSCRIBER_LIST.template, status=200 if error is None else error.status, listing=listing, report=report, error=error
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
    SUBSCRIBER_LIST.view(),
    *SUBSCRIBER_FORM.views(),
    View("POST", "/subscribers", import_subscribers, WRITE),
    View("GET", "/subscribers/export", export_subscribers, WRITE),
    View("POST", "/subscribers/{subscriber_id}/delete", delete_subscriber, WRITE),
)
