"""`rookery webhooks`: who is told of events (D-80)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rookery.access.commands.printing import Fields, print_json, print_many, print_one, print_thing, say
from rookery.access.commands.reading import read_names, read_text, usage_error
from rookery.access.commands.terminal import DryRun, Json, Where, Yes, confirm
from rookery.kernel.clock import utc_now
from rookery.kernel.secret import Secret
from rookery.webhooks import shown
from rookery.webhooks.catalogue import TYPES
from rookery.webhooks.commands import deliveries
from rookery.webhooks.commands.opening import WebhookId, WebhookServices, run
from rookery.webhooks.models import Endpoint, EndpointChange, EndpointChanged, Minted, NewEndpoint, Tenant

app = typer.Typer(help="Webhooks: who is told of events, and how that went.", no_args_is_help=True)

_PAGE = 100
_COLUMNS = ("id", "url", "enabled", "events", "failures", "last_success_at", "disabled_reason")
_OF_TYPES = ("name", "description", "data")

Events = Annotated[
    list[str] | None,
    typer.Option("--event", help="An event such as memory.stored, memory.* or *; may be repeated.", show_default=False),
]
SecretFile = Annotated[
    Path | None, typer.Option(help="A file with the secret, - for standard input; by default one is made.", show_default=False)
]


@app.command("list")
def list_(context: typer.Context, *, workspace: Where = None, as_json: Json = False) -> None:
    """List the endpoints of a workspace, newest first."""

    async def work(webhooks: WebhookServices, tenant: Tenant) -> Sequence[Endpoint]:
        found, total = await webhooks.endpoints.list(tenant, limit=_PAGE, offset=0)
        rows = list(found)
        while len(rows) < total and found:
            found, total = await webhooks.endpoints.list(tenant, limit=_PAGE, offset=len(rows))
            rows.extend(found)
        return rows

    rows = [_shown(each) for each in run(context, workspace, work)]
    if as_json:
        print_json(rows)
    elif rows:
        print_many(rows, _COLUMNS)
    else:
        say("There are none; `rookery webhooks add` adds one.")


@app.command()
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Where deliveries are posted.")],
    *,
    event: Events = None,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    include_content: Annotated[bool, typer.Option("--include-content", help="Send memories with their content.")] = False,
    strict_order: Annotated[bool, typer.Option("--strict-order", help="One at a time, in the order of the events.")] = False,
    concurrency: Annotated[int, typer.Option(help="How many may be under way at once.", min=1, max=16)] = 4,
    secret_file: SecretFile = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Tell an address of events from now on; the secret is shown this once."""
    new = NewEndpoint(
        url=url,
        events=read_names(event) or usage_error("Say of which events it is to be told: --event '*' is all but tool.called."),
        secret=_secret(secret_file),
        description=description,
        include_content=include_content,
        strict_order=strict_order,
        concurrency=concurrency,
    )
    _print_minted(run(context, workspace, lambda webhooks, tenant: webhooks.endpoints.create(tenant, new)), as_json=as_json)


@app.command()
def show(context: typer.Context, webhook_id: WebhookId, *, workspace: Where = None, as_json: Json = False) -> None:
    """Show an endpoint."""
    print_thing(_shown(run(context, workspace, lambda webhooks, tenant: webhooks.endpoints.get(tenant, webhook_id))), as_json=as_json)


@app.command()
def change(
    context: typer.Context,
    webhook_id: WebhookId,
    *,
    url: Annotated[str | None, typer.Option(help="Where deliveries are posted.", show_default=False)] = None,
    event: Events = None,
    description: Annotated[str | None, typer.Option(help="What it is for.", show_default=False)] = None,
    include_content: Annotated[
        bool | None, typer.Option("--include-content/--no-content", help="Send memories with their content, or not.", show_default=False)
    ] = None,
    strict_order: Annotated[
        bool | None,
        typer.Option("--strict-order/--any-order", help="One at a time, in the order of the events, or not.", show_default=False),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="How many may be under way at once.", min=1, max=16, show_default=False)] = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Change an endpoint; each option replaces what it names, and the rest stays."""
    wanted = EndpointChange(
        url=url,
        events=read_names(event) or None,
        description=description,
        include_content=include_content,
        strict_order=strict_order,
        concurrency=concurrency,
    )
    if wanted == EndpointChange():
        usage_error("Say what to change; --help lists what there is.")
    print_thing(_shown(_change(context, workspace, webhook_id, wanted).endpoint), as_json=as_json)


@app.command()
def enable(context: typer.Context, webhook_id: WebhookId, *, workspace: Where = None, as_json: Json = False) -> None:
    """Tell an endpoint of events again, whatever disabled it."""
    changed = _change(context, workspace, webhook_id, EndpointChange(enabled=True))
    print_thing(shown.changed(changed, utc_now()), as_json=as_json)
    if changed.held:
        say(f"{changed.held:,} deliveries were held; to send them: rookery webhooks resend-failed {webhook_id}")


@app.command()
def disable(context: typer.Context, webhook_id: WebhookId, *, workspace: Where = None, as_json: Json = False) -> None:
    """Tell an endpoint nothing until it is enabled; what it would have been told is held."""
    print_thing(_shown(_change(context, workspace, webhook_id, EndpointChange(enabled=False)).endpoint), as_json=as_json)


@app.command("rotate-secret")
def rotate_secret(
    context: typer.Context,
    webhook_id: WebhookId,
    *,
    grace_hours: Annotated[
        int, typer.Option("--grace-period-hours", "--grace-hours", help="How long the old secret signs too.", min=0, max=720)
    ] = 24,
    secret_file: SecretFile = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Give an endpoint a new secret, and show it this once."""
    given = _secret(secret_file)

    async def work(webhooks: WebhookServices, tenant: Tenant) -> Minted:
        return await webhooks.endpoints.rotate_secret(
            tenant, webhook_id, grace_hours=grace_hours, secret=None if given is None else given.reveal()
        )

    _print_minted(run(context, workspace, work), as_json=as_json)


@app.command()
def remove(
    context: typer.Context,
    webhook_id: WebhookId,
    *,
    workspace: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove an endpoint; what was on its way to it is cancelled."""
    endpoint = run(context, workspace, lambda webhooks, tenant: webhooks.endpoints.get(tenant, webhook_id))
    if not dry_run:
        confirm(f"Remove the webhook to {endpoint.url}?", yes=yes)
        run(context, workspace, lambda webhooks, tenant: webhooks.endpoints.delete(tenant, webhook_id))
    if as_json:
        print_json({"removed": webhook_id, "dry_run": dry_run})
    else:
        print(f"{'Would remove' if dry_run else 'Removed'} {webhook_id}, to {endpoint.url}.")  # noqa: T201 - the command's answer


@app.command()
def events(*, as_json: Json = False) -> None:
    """List the types of events that there are; nothing is opened."""
    rows = [shown.event_type(each) for each in TYPES]
    if as_json:
        print_json(rows)
    else:
        print_many(rows, _OF_TYPES)


def _change(context: typer.Context, workspace: str | None, webhook_id: str, wanted: EndpointChange) -> EndpointChanged:
    return run(context, workspace, lambda webhooks, tenant: webhooks.endpoints.change(tenant, webhook_id, wanted))


def _secret(path: Path | None) -> Secret | None:
    """Read a secret from a file: as an argument, every user of the host could see it."""
    return None if path is None else Secret(read_text(path).strip())


def _print_minted(made: Minted, *, as_json: bool) -> None:
    fields = shown.minted(made, utc_now())
    if as_json:
        print_json(fields)
    else:
        print_one({"id": fields["id"], "url": fields["url"], "events": fields["events"], "secret": fields["secret"]})
        say("The secret is shown this once; the receiver needs it to check what comes.")


def _shown(endpoint: Endpoint) -> Fields:
    return shown.webhook(endpoint, utc_now())


deliveries.register(app)
