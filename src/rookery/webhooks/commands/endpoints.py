"""`rookery webhooks`: manage webhook endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.kernel.clock import utc_now
from rookery.kernel.imports import import_lazily
from rookery.kernel.pages import collect_items
from rookery.kernel.secret import Secret
from rookery.kernel.sentences import format_count
from rookery.kernel.unset import UNSET, or_unset
from rookery.kernel.urls import hide_secrets
from rookery.terminal.options import (
    DryRunOption,
    JsonOption,
    WorkspaceOption,
    YesOption,
    confirm,
    raise_usage_error,
    read_text_file,
    split_names,
)
from rookery.terminal.output import Fields, pick_fields, print_fields, print_json, print_list, print_notice, print_record
from rookery.webhooks.commands import deliveries
from rookery.webhooks.commands.webhook_services import WebhookCommandServices, WebhookIdArgument, list_event_types, run_with_webhooks
from rookery.webhooks.models import EndpointChange, EndpointUpdate, EndpointWithSecret, WebhookEndpoint, WebhookSettings, WebhookTenant

if TYPE_CHECKING:
    from rookery.kernel import schema
    from rookery.webhooks import schemas
else:  # `webhooks list` does not import pydantic
    schema, schemas = import_lazily("rookery.kernel.schema"), import_lazily("rookery.webhooks.schemas")

app = typer.Typer(no_args_is_help=True)

_PAGE_SIZE = 100
_COLUMNS = ("id", "url", "enabled", "events", "failures", "last_success_at", "disabled_reason")
_EVENT_TYPE_COLUMNS = ("name", "description", "data")

EventsOption = Annotated[
    list[str] | None,
    typer.Option("--event", help="An event, for example memory.stored, memory.* or *; may be repeated.", show_default=False),
]
SecretFileOption = Annotated[
    Path | None, typer.Option(help="A file with the secret, - for standard input; by default it is generated.", show_default=False)
]


@app.command("list")
def list_(context: typer.Context, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the endpoints of a workspace, newest first."""

    async def work(webhooks: WebhookCommandServices, tenant: WebhookTenant) -> Sequence[WebhookEndpoint]:
        return await collect_items(partial(webhooks.endpoints.list_page, tenant), page_size=_PAGE_SIZE)

    endpoints = run_with_webhooks(context, workspace, work)
    if as_json:
        print_json([_serialize(endpoint) for endpoint in endpoints])
    elif endpoints:
        print_list([pick_fields(endpoint, _COLUMNS) for endpoint in endpoints], _COLUMNS)
    else:
        print_notice("There are no webhooks. Add one with `rookery webhooks add`.")


@app.command()
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="The URL for deliveries.")],
    *,
    event: EventsOption = None,
    description: Annotated[str, typer.Option(help="The purpose of the webhook.")] = "",
    include_content: Annotated[bool, typer.Option("--include-content", help="Send the content of memories.")] = False,
    strict_order: Annotated[bool, typer.Option("--strict-order", help="Send one delivery at a time, in the order of events.")] = False,
    concurrency: Annotated[int, typer.Option(help="Maximum deliveries sent at the same time.", min=1, max=16)] = 4,
    secret_file: SecretFileOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an endpoint that receives events from now on. Its secret is shown only once."""
    secret = _read_secret(secret_file)
    settings = WebhookSettings(
        url=url,
        events=split_names(event) or raise_usage_error("Use --event at least once. '*' means all except tool.called and webhook.test."),
        description=description,
        include_content=include_content,
        strict_order=strict_order,
        concurrency=concurrency,
    )
    created = run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.endpoints.create(tenant, settings, secret=secret))
    _print_with_secret(created, as_json=as_json)


@app.command()
def show(context: typer.Context, webhook_id: WebhookIdArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show an endpoint."""
    print_record(
        _serialize(run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.endpoints.get(tenant, webhook_id))),
        as_json=as_json,
    )


@app.command()
def change(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    url: Annotated[str | None, typer.Option(help="The URL for deliveries.", show_default=False)] = None,
    event: EventsOption = None,
    description: Annotated[str | None, typer.Option(help="The purpose of the webhook.", show_default=False)] = None,
    include_content: Annotated[
        bool | None, typer.Option("--include-content/--no-content", help="Send the content of memories, or not.", show_default=False)
    ] = None,
    strict_order: Annotated[
        bool | None,
        typer.Option("--strict-order/--any-order", help="Send one delivery at a time, in the order of events, or not.", show_default=False),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Maximum deliveries sent at the same time.", min=1, max=16, show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an endpoint. Options that are omitted keep their value."""
    changes = EndpointChange.of(
        url=or_unset(url),
        events=split_names(event) or UNSET,
        description=or_unset(description),
        include_content=or_unset(include_content),
        strict_order=or_unset(strict_order),
        concurrency=or_unset(concurrency),
    )
    if not changes.get_set_fields():
        raise_usage_error("Use at least one option that changes the endpoint; --help lists them.")
    print_record(_serialize(_update_endpoint(context, workspace, webhook_id, changes).endpoint), as_json=as_json)


@app.command()
def enable(
    context: typer.Context, webhook_id: WebhookIdArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """Enable an endpoint, also after it was disabled automatically."""
    update = _update_endpoint(context, workspace, webhook_id, EndpointChange.of(enabled=True))
    print_record(schema.to_json(schemas.serialize_endpoint_update(update, utc_now())), as_json=as_json)
    if update.held_count:
        count_text = format_count(update.held_count, "delivery was", "deliveries were")
        print_notice(f"{count_text} held. To send them: rookery webhooks resend-failed {webhook_id}")


@app.command()
def disable(
    context: typer.Context, webhook_id: WebhookIdArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """Disable an endpoint. Its deliveries are held until they are resent."""
    print_record(_serialize(_update_endpoint(context, workspace, webhook_id, EndpointChange.of(enabled=False)).endpoint), as_json=as_json)


@app.command("rotate-secret")
def rotate_secret(
    context: typer.Context,
    webhook_id: WebhookIdArgument,
    *,
    grace_hours: Annotated[
        int,
        typer.Option("--grace-period-hours", help="Hours during which the old secret signs too.", min=0, max=720),
    ] = 24,
    secret_file: SecretFileOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the secret of an endpoint. The new secret is shown only once."""
    secret = _read_secret(secret_file)

    async def work(webhooks: WebhookCommandServices, tenant: WebhookTenant) -> EndpointWithSecret:
        return await webhooks.endpoints.rotate_secret(
            tenant, webhook_id, grace_hours=grace_hours, secret=None if secret is None else secret.reveal()
        )

    _print_with_secret(run_with_webhooks(context, workspace, work), as_json=as_json)


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


def _update_endpoint(context: typer.Context, workspace: str | None, webhook_id: str, changes: EndpointChange) -> EndpointUpdate:
    return run_with_webhooks(context, workspace, lambda webhooks, tenant: webhooks.endpoints.update(tenant, webhook_id, changes))


def _read_secret(path: Path | None) -> Secret | None:
    """Read a secret from a file. Every user of the host could see it in an argument."""
    return None if path is None else Secret(read_text_file(path).strip())


def _print_with_secret(endpoint_with_secret: EndpointWithSecret, *, as_json: bool) -> None:
    fields = schema.to_json(schemas.serialize_endpoint_with_secret(endpoint_with_secret, utc_now()))
    if as_json:
        print_json(fields)
    else:
        print_fields({"id": fields["id"], "url": fields["url"], "events": fields["events"], "secret": fields["secret"]})
        print_notice("The secret is shown only once. The receiver needs it to verify signatures.")


def _serialize(endpoint: WebhookEndpoint) -> Fields:
    return schema.to_json(schemas.serialize_endpoint(endpoint, utc_now()))


deliveries.register(app)
