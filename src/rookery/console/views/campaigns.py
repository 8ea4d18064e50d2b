"""Campaigns: write, preview, test, send and follow them, with every delivery and its attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from starlette.responses import Response

from rookery.console.arguments import choose, or_unset
from rookery.console.visit import PER_PAGE, Notice, PageLinks, SubmittedForm, View, Visit, get_field_errors
from rookery_client import ApiError, AsyncRookery
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import models
from rookery_client.generated.inputs import AudienceBody

READ, WRITE, SEND = "notify:read", "notify:write", "notify:send"
Channel = Literal["webhook", "email", "ntfy", "webpush", "apprise"]
STATUSES = ("draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed")
STATES = ("pending", "sending", "sent", "failed", "unknown", "skipped")
CHANNELS: tuple[Channel, ...] = get_args(Channel)
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


async def list_campaigns(visit: Visit) -> Response:
    """List the campaigns, newest first."""
    status, words = visit.query("status"), visit.query("q")
    page = await visit.client.notifications.list_campaigns(
        page=visit.page_number, per_page=PER_PAGE, status=choose(status, STATUSES), q=words or UNSET
    )
    content: dict[str, str] = {"chosen_status": status, "words": words}
    return visit.render("campaigns/campaigns.html", page=page, links=PageLinks.of(visit, page), statuses=STATUSES, values=content)


async def show_new_campaign(visit: Visit) -> Response:
    """Show the form for a new campaign."""
    return _show_form(visit, {}, {})


async def create_campaign(visit: Visit) -> Response:
    """Create a draft."""
    form = await visit.form()
    try:
        campaign = await visit.client.notifications.create_campaign(
            name=form.get("name"),
            title=form.get("title"),
            body=form.get_text("body"),
            url=form.get("url") or None,
            audience=_read_audience(form),
            channels=_read_channels(form),
            rate_per_second=or_unset(form.number("rate_per_second")),
        )
    except ApiError as error:
        return _show_form(visit, form.as_dict(), get_field_errors(error), status=error.status)
    return visit.redirect(f"campaigns/{campaign.id}", "created")


async def show_campaign(visit: Visit) -> Response:
    """Show a campaign: its audience and message before it is sent, and its deliveries afterwards."""
    client, campaign_id = visit.client.notifications, visit.path("campaign_id")
    campaign = await client.get_campaign(campaign_id)
    preview = await client.preview_campaign(campaign_id) if campaign.status in UNSENT else None
    state, channel = visit.query("state"), visit.query("channel")
    page = await client.list_notifications(
        campaign_id,
        page=visit.page_number,
        per_page=PER_PAGE,
        status=choose(state, STATES),
        channel=choose(channel, CHANNELS),
    )
    filters = {"state": state, "channel": channel}
    return visit.render(
        "campaigns/campaign.html",
        campaign=campaign,
        preview=preview,
        page=page,
        links=PageLinks.of(visit, page),
        states=STATES,
        channels=CHANNELS,
        filters=filters,
        is_unsent=campaign.status in UNSENT,
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


async def show_edit_form(visit: Visit) -> Response:
    """Show the form for a campaign that has not been sent."""
    campaign = await visit.client.notifications.get_campaign(visit.path("campaign_id"))
    values = {
        "id": campaign.id,
        "name": campaign.name,
        "title": campaign.title,
        "body": campaign.body,
        "url": campaign.url or "",
        "all": "yes" if campaign.audience.all else "",
        "tags": " ".join(campaign.audience.tags),
        "subscribers": " ".join(campaign.audience.subscribers),
        "channels": ",".join(campaign.channels or []),
        "rate_per_second": "" if campaign.rate_per_second is None else f"{campaign.rate_per_second:g}",
    }
    return _show_form(visit, values, {})


async def save_campaign(visit: Visit) -> Response:
    """Change a campaign that has not been sent."""
    form, campaign_id = await visit.form(), visit.path("campaign_id")
    try:
        await visit.client.notifications.update_campaign(
            campaign_id,
            name=form.get("name"),
            title=form.get("title"),
            body=form.get_text("body"),
            url=form.get("url") or None,
            audience=_read_audience(form),
            channels=_read_channels(form) or None,
            rate_per_second=form.number("rate_per_second"),
        )
    except ApiError as error:
        return _show_form(visit, form.as_dict() | {"id": campaign_id}, get_field_errors(error), status=error.status)
    return visit.redirect(f"campaigns/{campaign_id}", "saved")


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


def _show_form(visit: Visit, values: Mapping[str, str], errors: Mapping[str, list[str]], *, status: int = 200) -> Response:
    names = ("id", "name", "title", "body", "url", "all", "tags", "subscribers", "channels", "rate_per_second")
    return visit.render(
        "campaigns/form.html", status=status, values=dict.fromkeys(names, "") | dict(values), errors=errors, channels=CHANNELS
    )


def _read_audience(form: SubmittedForm) -> AudienceBody:
    if form.get("all"):
        return {"all": True}
    return {"tags": form.split("tags"), "subscribers": form.split("subscribers")}


def _read_channels(form: SubmittedForm) -> list[Channel] | Unset:
    """Return the chosen channels; unset: all channels of a subscriber."""
    channels: list[Channel] = [channel for channel in CHANNELS if channel in form.list("channels")]
    return channels or UNSET


VIEWS = (
    View("GET", "/campaigns", list_campaigns, READ),
    View("GET", "/campaigns/new", show_new_campaign, WRITE),
    View("POST", "/campaigns/new", create_campaign, WRITE),
    View("GET", "/campaigns/{campaign_id}", show_campaign, READ),
    View("GET", "/campaigns/{campaign_id}/message", show_message, READ),
    View("GET", "/campaigns/{campaign_id}/edit", show_edit_form, WRITE),
    View("POST", "/campaigns/{campaign_id}/edit", save_campaign, WRITE),
    *(_make_action_view(name, action) for name, action in ACTIONS.items()),
    View("POST", "/campaigns/{campaign_id}/schedule", schedule_campaign, SEND),
    View("POST", "/campaigns/{campaign_id}/test", send_test, SEND),
    View("POST", "/campaigns/{campaign_id}/duplicate", duplicate_campaign, WRITE),
    View("POST", "/campaigns/{campaign_id}/delete", delete_campaign, WRITE),
    View("GET", "/campaigns/{campaign_id}/deliveries/{delivery_id}", show_notification, READ),
)
