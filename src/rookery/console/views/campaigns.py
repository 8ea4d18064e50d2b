"""Campaigns: write, preview, test, send and follow them, with every delivery and its attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from starlette.responses import Response

from rookery.console.operation_forms import ControlGroup, ControlHint, ResourceForm
from rookery.console.operation_lists import Column, Filter, OperationList
from rookery.console.visit import Notice, View, Visit
from rookery_client import AsyncRookery
from rookery_client.calls import UNSET
from rookery_client.generated import models

READ, WRITE, SEND = "notify:read", "notify:write", "notify:send"
UNSENT = frozenset({"draft", "scheduled", "missed"})
"""The statuses of a campaign that can be sent or scheduled. Its page shows the message instead of deliveries."""

EDITABLE = frozenset({"draft", "scheduled"})
DELETABLE = frozenset({"draft", "sent", "cancelled", "failed", "missed"})
_PREVIEW_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox"
"""The policy of the frame with a message, which a campaign's author wrote: it loads nothing but the stylesheet and runs nothing."""


@dataclass(frozen=True, slots=True)
class ActionButton:
    """
    A button of a campaign, whose action takes no fields.

    Attributes:
        label: The text of its button.
        scope: The scope that the API needs for it.
        notice: The notice after it.
        statuses: The statuses of a campaign in which it is possible.
    """

    label: str
    scope: str
    notice: Notice
    act: Callable[[AsyncRookery, str], Awaitable[models.Campaign]]
    statuses: frozenset[str]


def _send(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.send_campaign(campaign)


def _unschedule(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.unschedule_campaign(campaign)


def _pause(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.pause_campaign(campaign)


def _resume(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.resume_campaign(campaign)


def _cancel(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.cancel_campaign(campaign)


def _retry(client: AsyncRookery, campaign: str) -> Awaitable[models.Campaign]:
    return client.notifications.retry_campaign(campaign)


ACTIONS: Mapping[str, ActionButton] = {
    "send": ActionButton("Send now", SEND, "started", _send, UNSENT),
    "unschedule": ActionButton("Unschedule", WRITE, "saved", _unschedule, frozenset({"scheduled", "missed"})),
    "pause": ActionButton("Pause", WRITE, "stopped", _pause, frozenset({"sending"})),
    "resume": ActionButton("Resume", SEND, "started", _resume, frozenset({"paused"})),
    "cancel": ActionButton("Cancel", WRITE, "stopped", _cancel, frozenset({"scheduled", "sending", "paused", "missed"})),
    "retry": ActionButton("Retry failed", SEND, "queued", _retry, frozenset({"sent", "failed"})),
}


CAMPAIGN_LIST = OperationList(
    path="campaigns",
    client="notifications",
    operation="list_campaigns",
    scope=READ,
    title="Campaigns",
    lead="Messages to many subscribers. What is known to be sent is never sent again.",
    noun="campaign",
    icon="campaigns",
    columns=(
        Column(name="name", title="Campaign", macro="campaign_test", note=lambda campaign: campaign.title),
        Column(name="status"),
        Column(name="statistics.sent"),
        Column(name="statistics.failed"),
        Column(name="statistics.unknown"),
        Column(name="statistics.total"),
        Column(name="updated_at", title="Changed"),
    ),
    filters=(Filter(name="q", label="Search campaigns", placeholder="Search names and titles"), Filter(name="status")),
    link=lambda campaign: f"campaigns/{campaign.id}",
    empty=("No campaigns here", "A campaign is one message to subscribers, by webhook, e-mail, ntfy or in their browser."),
    empty_label="Write a campaign",
    new=("campaigns/new", WRITE, "New campaign"),
    tabs="campaigns/tabs.html",
)
NOTIFICATION_LIST = OperationList(
    path="campaigns",
    client="notifications",
    operation="list_notifications",
    title="Deliveries",
    noun="delivery",
    plural="deliveries",
    icon="campaigns",
    columns=(
        Column(name="external_id", title="Subscriber", show=lambda delivery: delivery.external_id or delivery.subscriber_id),
        Column(name="channel"),
        Column(name="state"),
        Column(name="reason"),
        Column(name="attempt_count", title="Attempts"),
        Column(name="next_at", title="Next attempt"),
    ),
    filters=(Filter(name="status", parameter="state", label="State"), Filter(name="channel")),
    link=lambda delivery: f"campaigns/{delivery.campaign_id}/deliveries/{delivery.id}",
    empty=("No deliveries", "The audience was empty."),
)
CAMPAIGN_FORM = ResourceForm(
    path="campaigns",
    parameter="campaign_id",
    client="notifications",
    scope=WRITE,
    create="create_campaign",
    get="get_campaign",
    change="update_campaign",
    noun="campaign",
    back="Campaigns",
    lead="Title and body may use attributes of the subscriber as variables.",
    create_label="Create draft",
    groups=(
        ControlGroup("", ("name",)),
        ControlGroup("Message", ("title", "body", "url")),
        ControlGroup("Recipients", ("audience", "channels")),
    ),
    hints={
        "name": ControlHint(help="Only you see it."),
        "title": ControlHint(help=""),
        "body": ControlHint(help="", rows=6),
        "url": ControlHint(label="Link", kind="url", help="The page that a click on the message opens."),
        "audience": ControlHint(help=""),
        "audience.all": ControlHint(label="All subscribers"),
        "audience.tags": ControlHint(help="Subscribers with one of these tags, one a line."),
        "audience.subscribers": ControlHint(help="Ids or external ids, one a line."),
        "channels": ControlHint(help="Without a choice, every channel of a subscriber gets the message."),
        "rate_per_second": ControlHint(label="Messages per second", help="Empty: no limit."),
        "ttl_s": ControlHint(label="Seconds until deliveries are given up", help="They count from the start of the campaign."),
        "variables": ControlHint(
            help="One a line, such as `sale: 20 %`. An attribute of the subscriber with the same name takes precedence."
        ),
        "schedule": ControlHint(help="The campaign stays a draft until you schedule it."),
        "schedule.at": ControlHint(label="Time", help="Such as `2026-12-24T09:00`, in this time zone."),
        "schedule.time_zone": ControlHint(help="Such as `Europe/Berlin`. Empty: UTC."),
    },
)


async def show_campaign(visit: Visit) -> Response:
    """Show a campaign: its audience and message before it is sent, and its deliveries afterwards."""
    client, campaign_id = visit.client.notifications, visit.path("campaign_id")
    campaign = await client.get_campaign(campaign_id)
    is_unsent = campaign.status in UNSENT
    return visit.render(
        "campaigns/campaign.html",
        campaign=campaign,
        preview=await client.preview_campaign(campaign_id) if is_unsent else None,
        deliveries=None if is_unsent else await NOTIFICATION_LIST.load(visit, campaign_id, path=f"campaigns/{campaign_id}"),
        is_unsent=is_unsent,
        is_editable=campaign.status in EDITABLE,
        is_deletable=campaign.status in DELETABLE,
        actions=[
            (name, action)
            for name, action in ACTIONS.items()
            if name != "send"
            and visit.can(action.scope)
            and campaign.status in action.statuses
            and (name != "retry" or campaign.statistics.failed)
        ],
        schedule=_describe_schedule(campaign.schedule),
    )


async def show_message(visit: Visit) -> Response:
    """Return the message for one subscriber as a page of its own, for a sandboxed frame."""
    preview = await visit.client.notifications.preview_campaign(visit.path("campaign_id"), subscriber=visit.query("subscriber") or UNSET)
    response = visit.render("campaigns/message.html", message=preview.message)
    response.headers["Content-Security-Policy"] = _PREVIEW_POLICY
    return response


def _make_action_view(name: str, action: ActionButton) -> View:
    async def act(visit: Visit) -> Response:
        campaign_id = visit.path("campaign_id")
        await action.act(visit.client, campaign_id)
        return visit.redirect(f"campaigns/{campaign_id}", action.notice)

    return View("POST", f"/campaigns/{{campaign_id}}/do/{name}", act, action.scope)


async def schedule_campaign(visit: Visit) -> Response:
    """Schedule a campaign for a local time of a time zone."""
    form, campaign_id = await visit.form(), visit.path("campaign_id")
    await visit.client.notifications.schedule_campaign(campaign_id, at=form.get("at"), time_zone=form.get("time_zone") or "UTC")
    return visit.redirect(f"campaigns/{campaign_id}", "saved")


async def send_test(visit: Visit) -> Response:
    """Send the campaign to named subscribers as a test, which is a campaign of its own."""
    form, campaign_id = await visit.form(), visit.path("campaign_id")
    test = await visit.client.notifications.test_campaign(campaign_id, subscribers=form.split("subscribers"))
    return visit.redirect(f"campaigns/{test.id}", "queued")


async def duplicate_campaign(visit: Visit) -> Response:
    """Create a draft with the same content."""
    copy = await visit.client.notifications.duplicate_campaign(visit.path("campaign_id"))
    return visit.redirect(f"campaigns/{copy.id}/edit", "created")


async def delete_campaign(visit: Visit) -> Response:
    """Delete a campaign with its deliveries."""
    await visit.client.notifications.delete_campaign(visit.path("campaign_id"))
    return visit.redirect("campaigns", "deleted")


async def show_notification(visit: Visit) -> Response:
    """Show one delivery with its attempts."""
    campaign = await visit.client.notifications.get_campaign(visit.path("campaign_id"))
    delivery = await visit.client.notifications.get_notification(campaign.id, visit.path("delivery_id"))
    return visit.render("campaigns/delivery.html", campaign=campaign, delivery=delivery)


def _describe_schedule(schedule: models.Schedule | None) -> tuple[str, str]:
    """Return the time of a schedule as the field of a form has it, and its time zone."""
    if schedule is None:
        return "", "UTC"
    return f"{schedule.at_utc.astimezone(ZoneInfo(schedule.time_zone)):%Y-%m-%dT%H:%M}", schedule.time_zone


VIEWS = (
    CAMPAIGN_LIST.view(),
    *CAMPAIGN_FORM.views(),
    View("GET", "/campaigns/{campaign_id}", show_campaign, READ),
    View("GET", "/campaigns/{campaign_id}/message", show_message, READ),
    *(_make_action_view(name, action) for name, action in ACTIONS.items()),
    View("POST", "/campaigns/{campaign_id}/schedule", schedule_campaign, SEND),
    View("POST", "/campaigns/{campaign_id}/test", send_test, SEND),
    View("POST", "/campaigns/{campaign_id}/duplicate", duplicate_campaign, WRITE),
    View("POST", "/campaigns/{campaign_id}/delete", delete_campaign, WRITE),
    View("GET", "/campaigns/{campaign_id}/deliveries/{delivery_id}", show_notification, READ),
)
