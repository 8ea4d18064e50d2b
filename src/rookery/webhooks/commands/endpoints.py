"""`rookery webhooks`: manage webhook endpoints."""

from __future__ import annotations

from functools import partial

import typer

from rookery.access.operator import resolve_caller
from rookery.kernel import schema
from rookery.kernel.sentences import format_count
from rookery.kernel.urls import hide_secrets
from rookery.terminal.operation_commands import OperationCommand, add_operation_commands
from rookery.terminal.options import DryRunOption, JsonOption, WorkspaceOption, YesOption, confirm
from rookery.terminal.output import Fields, print_json, print_list
from rookery.webhooks import schemas
from rookery.webhooks.commands import deliveries
from rookery.webhooks.commands.webhook_services import PART, WebhookIdArgument, list_event_types, run_with_webhooks

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("id", "url", "enabled", "events", "failures", "last_success_at", "disabled_reason")
_SECRET_COLUMNS = ("id", "url", "events", "secret")
_EVENT_TYPE_COLUMNS = ("name", "description", "data")

_WEBHOOK_ID = {"webhook_id": "The endpoint's id."}
_SECRET = {"secret": "A file with the secret, - for standard input; by default it is generated."}
_EVENTS = {"events": "An event, for example memory.stored, memory.* or *; may be repeated."}


def _hide_url(fields: Fields) -> Fields:
    return {**fields, "url": hide_secrets(str(fields["url"]))}


def _explain_held(fields: Fields) -> str:
    held = int(str(fields.get("held", 0)))
    if not held:
        return ""
    return f"{format_count(held, 'delivery was', 'deliveries were')} held. To send them: rookery webhooks resend-failed {fields['id']}"


def _explain_secret(_: Fields) -> str:
    return "The secret is shown only once. The receiver needs it to verify signatures."


_Command = partial(OperationCommand, names={"events": "--event", "secret": "--secret-file"}, files=("secret",))
_with_secret = partial(_Command, columns=_SECRET_COLUMNS, notice=_explain_secret)

COMMANDS = (
    _Command(
        name="list",
        operation="list_webhooks",
        help="List the endpoints of a workspace, newest first.",
        columns=_COLUMNS,
        empty="There are no webhooks. Add one with `rookery webhooks add`.",
        convert=_hide_url,
    ),
    _with_secret(
        name="add",
        operation="create_webhook",
        help="Add an endpoint that receives events from now on. Its secret is shown only once.",
        arguments={"url": "The URL for deliveries."},
        options={
            **_EVENTS,
            "description": "The purpose of the webhook.",
            "include_content": "Send the content of memories.",
            "strict_order": "Send one delivery at a time, in the order of events.",
            "concurrency": "",
            **_SECRET,
        },
    ),
    _Command(name="show", operation="get_webhook", help="Show an endpoint.", arguments=_WEBHOOK_ID, convert=_hide_url),
    _Command(
        name="change",
        operation="update_webhook",
        help="Change an endpoint. Options that are omitted keep their value.",
        arguments=_WEBHOOK_ID,
        options={
            "url": "",
            **_EVENTS,
            "description": "The purpose of the webhook.",
            "include_content": "Send the content of memories, or not.",
            "strict_order": "Send one delivery at a time, in the order of events, or not.",
            "concurrency": "",
        },
        names={"events": "--event", "include_content": "--include-content/--no-content", "strict_order": "--strict-order/--any-order"},
        convert=_hide_url,
    ),
    _Command(
        name="enable",
        operation="update_webhook",
        help="Enable an endpoint, also after it was disabled automatically.",
        arguments=_WEBHOOK_ID,
        fixed={"enabled": True},
        convert=_hide_url,
        notice=_explain_held,
    ),
    _Command(
        name="disable",
        operation="update_webhook",
        help="Disable an endpoint. Its deliveries are held until they are resent.",
        arguments=_WEBHOOK_ID,
        fixed={"enabled": False},
        convert=_hide_url,
    ),
    _with_secret(
        name="rotate-secret",
        operation="rotate_webhook_secret",
        help="Replace the secret of an endpoint. The new secret is shown only once.",
        arguments=_WEBHOOK_ID,
        options={"grace_period_hours": "", **_SECRET},
    ),
    *deliveries.COMMANDS,
)
add_operation_commands(app, COMMANDS, apis=["rookery.webhooks.api:WebhooksApi"], part=PART, resolve_caller=resolve_caller)


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


deliveries.register(app)
