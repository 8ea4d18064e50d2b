"""`rookery notify`: campaigns, their deliveries, and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, cast

import typer

from rookery.access.models import Tenant
from rookery.kernel import schema
from rookery.kernel.clock import utc_now
from rookery.kernel.pages import collect_items
from rookery.kernel.sentences import format_count
from rookery.notifications.campaigns import Campaigns
from rookery.notifications.commands import subscribers
from rookery.notifications.commands.notification_services import NotificationCommandServices, run_with_notifications
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    CampaignStatus,
    CampaignTest,
    CampaignView,
    NotificationDelivery,
    NotificationFilter,
    NotificationState,
)
from rookery.notifications.schedules import parse_schedule
from rookery.notifications.schemas.campaigns import CampaignBody, CampaignPreviewResponse, NotificationResponse, serialize_campaign
from rookery.terminal.json_files import FieldsFile, read_json_object
from rookery.terminal.options import JsonOption, WorkspaceOption, YesOption, confirm
from rookery.terminal.output import Fields, print_fields, print_json, print_list, print_notice, print_record

app = typer.Typer(no_args_is_help=True)
campaigns = typer.Typer(no_args_is_help=True)
app.add_typer(subscribers.app, name="subscribers", help="List, import and export subscribers.")
app.add_typer(campaigns, name="campaigns", help="Create, list, preview, send, schedule, pause, resume, cancel and retry campaigns.")

_PAGE_SIZE = 100
_POLL_INTERVAL_S = 0.2
_COLUMNS = ("id", "name", "status", "sent", "failed", "unknown", "total", "created_at", "status_reason")
_DELIVERY_COLUMNS = ("id", "external_id", "channel", "state", "status", "attempt_count", "reason", "ended_at")
_OPEN_STATUSES = frozenset({CampaignStatus.SENDING})

CampaignArgument = Annotated[str, typer.Argument(help="The campaign's id.")]


@campaigns.command("list")
def list_(
    context: typer.Context,
    *,
    status: Annotated[CampaignStatus | None, typer.Option(help="Only campaigns with this status.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of campaigns.", min=1, max=10_000)] = 50,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List campaigns, newest first."""

    async def work(services: NotificationCommandServices, tenant: Tenant) -> Sequence[CampaignView]:
        fetch = partial(services.campaigns.list_page, tenant, status=status, text=None, test_of=None)
        return await collect_items(fetch, limit=limit, page_size=_PAGE_SIZE)

    rows = [schema.to_json(serialize_campaign(view)) for view in run_with_notifications(context, workspace, work)]
    if as_json:
        print_json(rows)
    elif rows:
        print_list([_to_row(fields) for fields in rows], _COLUMNS)
    else:
        print_notice("There are no such campaigns. Create one with `rookery notify campaigns create`.")


@campaigns.command()
def create(context: typer.Context, file: FieldsFile, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Create a campaign as a draft. Nothing is sent before `send` or `schedule`."""
    settings = schema.parse_model(CampaignBody, read_json_object(file)).to_settings(utc_now())
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.create(tenant, settings))


@campaigns.command()
def show(context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show a campaign with its statistics."""
    view = run_with_notifications(context, workspace, lambda services, tenant: services.campaigns.get(tenant, campaign))
    print_record(schema.to_json(serialize_campaign(view)), as_json=as_json)


@campaigns.command()
def stats(context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show the number of deliveries by state and channel."""
    view = run_with_notifications(context, workspace, lambda services, tenant: services.campaigns.get(tenant, campaign))
    statistics = serialize_campaign(view).statistics.model_dump()
    print_record({"status": view.campaign.status.value, **statistics}, as_json=as_json)


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
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.send(tenant, campaign))


@campaigns.command()
def pause(context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Pause a campaign. Messages that are being sent are finished."""
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.pause(tenant, campaign))


@campaigns.command()
def resume(context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Resume a paused campaign."""
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.resume(tenant, campaign))


@campaigns.command()
def schedule(
    context: typer.Context,
    campaign: CampaignArgument,
    at: Annotated[str, typer.Argument(help="A local time, such as 2030-12-01T09:00, or a time with an offset.")],
    *,
    time_zone: Annotated[
        str | None,
        typer.Option("--timezone", help="The zone of a local time, such as Europe/Vienna; by default UTC.", show_default=False),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a campaign at a time. If no server runs within an hour after it, the campaign is missed and not sent."""
    planned = parse_schedule(at, time_zone, utc_now())
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.schedule(tenant, campaign, planned))


@campaigns.command()
def unschedule(
    context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """Return a scheduled or missed campaign to draft."""
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.unschedule(tenant, campaign))


@campaigns.command()
def retry(context: typer.Context, campaign: CampaignArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Send the failed deliveries of a finished campaign again. Sent and unknown ones are never repeated."""
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.retry(tenant, campaign))


@campaigns.command()
def cancel(
    context: typer.Context,
    campaign: CampaignArgument,
    *,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel a campaign. Its pending deliveries are skipped."""
    confirm(f"Cancel the campaign {campaign}?", yes=yes)
    _change(context, workspace, as_json=as_json, act=lambda service, tenant: service.cancel(tenant, campaign))


@app.command()
def deliveries(
    context: typer.Context,
    campaign: CampaignArgument,
    *,
    status: Annotated[NotificationState | None, typer.Option(help="Only deliveries in this state.", show_default=False)] = None,
    channel: Annotated[ChannelType | None, typer.Option(help="Only deliveries to this type of channel.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of deliveries.", min=1, max=100_000)] = 100,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the deliveries of a campaign."""
    filters = NotificationFilter(state=status, channel=channel)

    async def work(services: NotificationCommandServices, tenant: Tenant) -> Sequence[NotificationDelivery]:
        return await _list_deliveries(services, tenant, campaign, filters, limit)

    _print_deliveries(run_with_notifications(context, workspace, work), as_json=as_json)


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

    async def work(services: NotificationCommandServices, tenant: Tenant) -> Sequence[NotificationDelivery]:
        view = await services.campaigns.test(tenant, campaign, CampaignTest(subscribers=tuple(subscriber)))
        deadline = time.monotonic() + wait
        while view.campaign.status in _OPEN_STATUSES and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_INTERVAL_S)
            view = await services.campaigns.get(tenant, view.campaign.id)
        return await _list_deliveries(services, tenant, view.campaign.id, NotificationFilter(), _PAGE_SIZE)

    rows = run_with_notifications(context, workspace, work)
    _print_deliveries(rows, as_json=as_json)
    if any(row.state is NotificationState.PENDING and not row.attempt_count for row in rows):
        print_notice("A delivery was not attempted yet. Is `rookery serve` running with this data folder?")
    if not rows or any(row.state is not NotificationState.SENT for row in rows):
        raise typer.Exit(1)


async def _list_deliveries(
    services: NotificationCommandServices, tenant: Tenant, campaign: str, filters: NotificationFilter, limit: int
) -> Sequence[NotificationDelivery]:
    return await collect_items(partial(services.log.list_page, tenant, campaign, filters), limit=limit, page_size=_PAGE_SIZE)


def _print_deliveries(items: Sequence[NotificationDelivery], *, as_json: bool) -> None:
    rows = [schema.to_json(NotificationResponse.from_parts(item)) for item in items]
    if as_json:
        print_json(rows)
    elif rows:
        print_list(rows, _DELIVERY_COLUMNS)
    else:
        print_notice("There are no such deliveries.")


def _change(
    context: typer.Context,
    workspace: str | None,
    *,
    act: Callable[[Campaigns, Tenant], Awaitable[CampaignView]],
    as_json: bool,
) -> None:
    view = run_with_notifications(context, workspace, lambda services, tenant: act(services.campaigns, tenant))
    fields = schema.to_json(serialize_campaign(view))
    if as_json:
        print_json(fields)
    else:
        print_fields({name: value for name, value in _to_row(fields).items() if name in _COLUMNS})


def _to_row(fields: Fields) -> Fields:
    statistics = fields["statistics"]
    return {**fields, **cast("Fields", statistics)} if isinstance(statistics, dict) else fields
