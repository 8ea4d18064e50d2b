"""`rookery notify subscribers`: list, import and export."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from rookery.access.models import Tenant
from rookery.kernel import schema
from rookery.kernel.sentences import format_count
from rookery.notifications.build import NotificationServices
from rookery.notifications.commands.notification_services import (
    add_notification_commands,
    run_with_notifications,
)
from rookery.notifications.models import ImportLine, ImportReport
from rookery.notifications.schemas.import_lines import SubscriberFormat, export_lines, iter_batches, list_attribute_names
from rookery.notifications.schemas.subscribers import serialize_report
from rookery.terminal.operation_commands import ListLimit, OperationCommand
from rookery.terminal.options import OUTPUT_HELP, JsonOption, WorkspaceOption, open_existing_file, open_new_file, raise_usage_error
from rookery.terminal.output import Fields, print_json, print_notice, show_progress

app = typer.Typer(no_args_is_help=True)

_MAX_SHOWN_ERRORS = 20

FormatOption = Annotated[
    str | None, typer.Option("--format", help="jsonl or csv; by default the end of the file's name.", show_default=False)
]


def _to_row(fields: Fields) -> Fields:
    channels = cast("Sequence[Fields]", fields["channels"])
    return {**fields, "channels": [f"{channel['type']} {channel['status']}" for channel in channels]}


COMMANDS = (
    OperationCommand("list", "list_subscribers", names={"q": "--query"}, limit=ListLimit(100, 100_000, "subscribers"), to_row=_to_row,
                     options={"tag": "", "channel": "", "status": "Only subscribers with such a channel.", "q": ""},
                     columns=("external_id", "channels", "tags", "locale", "id", "created_at"), empty="There are no such subscribers."),
)  # fmt: skip
add_notification_commands(app, COMMANDS)


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file of JSON Lines or CSV; - is standard input.")],
    *,
    format: FormatOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create and change subscribers by their external ids. Exits with code 1 if a line is bad; the good ones are stored."""
    kind = _parse_format(format, file)
    total = file.stat().st_size if file.is_file() else None

    async def work(services: NotificationServices, tenant: Tenant) -> ImportReport:
        with open_existing_file(file) as source, show_progress("Importing", total) as move:
            batches = _read_batches(source, kind)
            return await services.subscriber_import.run(
                tenant, batches, on_progress=lambda _: move(source.tell() if total is not None else 0)
            )

    report = run_with_notifications(context, workspace, work)
    if as_json:
        print_json(schema.to_json(serialize_report(report)))
    else:
        counts = f"{report.created_count:,} created, {report.updated_count:,} changed, {report.unchanged_count:,} unchanged"
        print(f"{format_count(report.line_count, 'line')}: {counts}, {report.failed_count:,} failed.")  # noqa: T201 - the command's output
        for number, errors in report.errors[:_MAX_SHOWN_ERRORS]:
            print_notice(f"line {number}: " + "; ".join(f"{name}: {', '.join(texts)}" for name, texts in errors.items()))
    if report.failed_count:
        raise typer.Exit(1)


@app.command("export")
def export(
    context: typer.Context,
    *,
    output: Annotated[Path, typer.Option("--out", help=OUTPUT_HELP, show_default=False)] = Path("-"),
    format: FormatOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Export all subscribers, with the tokens and logins in their addresses. An import restores them."""
    kind = _parse_format(format or (None if output.suffix else "jsonl"), output)

    async def work(services: NotificationServices, tenant: Tenant) -> None:
        names = set[str]()
        if kind == "csv":
            async for batch in services.subscribers.iterate(tenant):
                names |= list_attribute_names(batch)
        with open_new_file(output) as file:
            target = file or sys.stdout
            async for part in export_lines(services.subscribers.iterate(tenant), kind, sorted(names)):
                target.write(part.decode())

    run_with_notifications(context, workspace, work)


async def _read_batches(source: BinaryIO, kind: SubscriberFormat) -> AsyncGenerator[Sequence[ImportLine]]:
    batches: Generator[Sequence[ImportLine]] = iter_batches(iter(source.readline, b""), kind)
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        yield batch


def _parse_format(format: str | None, file: Path) -> SubscriberFormat:
    name = format or file.suffix.removeprefix(".").lower()
    if name in {"csv", "jsonl"}:
        return "csv" if name == "csv" else "jsonl"
    if name != "ndjson":
        raise_usage_error("Use --format jsonl or --format csv, or a file whose name ends in .jsonl or .csv.")
    return "jsonl"
