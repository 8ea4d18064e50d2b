"""`rookery notify`: campaigns, their deliveries, and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, cast

import typer

from rookery.access.models import Tenant
from rookery.kernel import schema
from rookery.kernel.pages import collect_items
from rookery.kernel.sentences import format_count
from rookery.notifications.build import NotificationServices
from rookery.notifications.commands import subscribers
from rookery.notifications.commands.notification_services import (
    add_notification_commands,
    run_with_notifications,
)
from rookery.notifications.models import CampaignStatus, CampaignTest, NotificationDelivery, NotificationFilter, NotificationState
from rookery.notifications.schemas.campaigns import CampaignPreviewResponse, NotificationResponse, serialize_campaign
from rookery.terminal.operation_commands import ListLimit, OperationCommand
from rookery.terminal.options import JsonOption, WorkspaceOption, YesOption, confirm
from rookery.terminal.output import Fields, print_fields, print_json, print_list, print_notice

app = typer.Typer(no_args_is_help=True)
campaigns = typer.Typer(no_args_is_help=True)
app.add_typer(subscribers.app, name="subscribers", help="List, import and export subscribers.")
app.add_typer(campaigns, name="campaigns", help="Create, list, preview, send, schedule, pause, resume, cancel and retry campaigns.")

_PAGE_SIZE = 100
_POLL_INTERVAL_S = 0.2
_COLUMNS = ("id", "name", "status", "sent", "failed", "unknown", "total", "created_at", "status_reason")
_DELIVERY_COLUMNS = ("id", "external_id", "channel", "state", "status", "attempt_count", "reason", "ended_at")
_NO_DELIVERIES = "There are no such deliveries."
_OPEN_STATUSES = frozenset({CampaignStatus.SENDING})

_CAMPAIGN = {"campaign": "The campaign's id."}

CampaignArgument = Annotated[str, typer.Argument(help=_CAMPAIGN["campaign"])]


def _to_row(fields: Fields) -> Fields:
    return {**fields, **cast("Fields", fields["statistics"])}


def _to_statistics(fields: Fields) -> Fields:
    return {"status": fields["status"], **cast("Fields", fields["statistics"])}


_summary = partial(OperationCommand, columns=_COLUMNS, to_row=_to_row)
_act = partial(_summary, arguments=_CAMPAIGN)

CAMPAIGN_COMMANDS = (
    _summary("list", "list_campaigns", "List campaigns, newest first.", options={"status": ""}, limit=ListLimit(50, 10_000, "campaigns"),
             empty="There are no such campaigns. Create one with `rookery notify campaigns create`."),
    _summary("create", "create_campaign", takes_body=True),
    OperationCommand("show", "get_campaign", "Show a campaign with its statistics.", arguments=_CAMPAIGN),
    OperationCommand("stats", "get_campaign", "Show the number of deliveries by state and channel.", arguments=_CAMPAIGN,
                     convert=_to_statistics),
    _act("pause", "pause_campaign"),
    _act("resume", "resume_campaign", "Resume a paused campaign."),
    _act("schedule", "schedule_campaign", names={"time_zone": "--timezone"},
         arguments={**_CAMPAIGN, "at": "A local time, such as 2030-12-01T09:00, or a time with an offset."},
         options={"time_zone": "The zone of a local time, such as Europe/Vienna; by default UTC."}),
    _act("unschedule", "unschedule_campaign"),
    _act("retry", "retry_campaign"),
    _act("cancel", "cancel_campaign", question="Cancel the campaign {campaign}?"),
)  # fmt: skip
COMMANDS = (
    OperationCommand("deliveries", "list_notifications", "List the deliveries of a campaign.", arguments=_CAMPAIGN,
                     options={"status": "Only deliveries in this state.", "channel": "Only deliveries to this type of channel."},
                     limit=ListLimit(100, 100_000, "deliveries"), columns=_DELIVERY_COLUMNS, empty=_NO_DELIVERIES),
)  # fmt: skip
add_notification_commands(campaigns, CAMPAIGN_COMMANDS)
add_notification_commands(app, COMMANDS)


@campaigns.command()
def preview(
    context: typer.Context,
    campaign: CampaignArgument,
    *,
    subscriber: Annotated[
        str | None, typer.Option(help="The subscriber to render the message for; by default the first one.", show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the audience of a campaign and one message. Nothing is sent. Exits with code 1 if something prevents a send."""
    result = run_with_notifications(
        context, workspace, lambda services, tenant: services.campaigns.preview(tenant, campaign, subscriber=subscriber)
    )
    fields = schema.to_json(CampaignPreviewResponse.from_parts(result))
    if as_json:
        print_json(fields)
    else:
        message = fields.pop("message")
        fields.pop("missing_variables")
        print_fields({**fields, **(cast("Fields", message) if message else {})})
        for missing in result.missing_variables:
            names = ", ".join(missing.external_ids)
            print_notice(f"{{{{ {missing.name} }}}} has no value for {format_count(missing.count, 'subscriber')}, such as {names}.")
    if result.missing_variables:
        raise typer.Exit(1)


@campaigns.command()
def send(
    context: typer.Context,
    campaign: CampaignArgument,
    *,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fix the audience of a campaign and send it. A running server or worker sends the messages."""
    preview = run_with_notifications(context, workspace, lambda services, tenant: services.campaigns.preview(tenant, campaign))
    sent_count = preview.delivery_count - preview.skipped_count
    confirm(
        f"Send the campaign to {format_count(preview.subscriber_count, 'subscriber')} ({format_count(sent_count, 'message')})?", yes=yes
    )
    view = run_with_notifications(context, workspace, lambda services, tenant: services.campaigns.send(tenant, campaign))
    fields = schema.to_json(serialize_campaign(view))
    if as_json:
        print_json(fields)
    else:
        row = _to_row(fields)
        print_fields({name: row[name] for name in _COLUMNS})


@app.command("test")
def send_test(
    context: typer.Context,
    campaign: CampaignArgument,
    subscriber: Annotated[list[str], typer.Argument(help="Ids or external ids of subscribers.")],
    *,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the results. Needs a running server.", min=0, max=600)] = 15,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a campaign to named subscribers and show the results. Exits with code 1 unless all were sent."""

    async def work(services: NotificationServices, tenant: Tenant) -> Sequence[NotificationDelivery]:
        view = await services.campaigns.test(tenant, campaign, CampaignTest(subscribers=tuple(subscriber)))
        deadline = time.monotonic() + wait
        while view.campaign.status in _OPEN_STATUSES and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_INTERVAL_S)
            view = await services.campaigns.get(tenant, view.campaign.id)
        fetch = partial(services.log.list_page, tenant, view.campaign.id, NotificationFilter())
        return await collect_items(fetch, limit=_PAGE_SIZE, page_size=_PAGE_SIZE)

    rows = run_with_notifications(context, workspace, work)
    fields = [schema.to_json(NotificationResponse.from_parts(row)) for row in rows]
    if as_json:
        print_json(fields)
    elif fields:
        print_list(fields, _DELIVERY_COLUMNS)
    else:
        print_notice(_NO_DELIVERIES)
    if any(row.state is NotificationState.PENDING and not row.attempt_count for row in rows):
        print_notice("A delivery was not attempted yet. Is `rookery serve` running with this data folder?")
    if not rows or any(row.state is not NotificationState.SENT for row in rows):
        raise typer.Exit(1)
