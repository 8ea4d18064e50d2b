"""`rookery content`: generate content, and show generations, usage and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rookery.content.commands import prompt_templates
from rookery.content.commands.content_services import run_with_content
from rookery.content.models import (
    ContentTenant,
    Generation,
    GenerationFilter,
    GenerationMode,
    GenerationStatus,
    GenerationSummary,
)
from rookery.kernel.errors import RookeryError
from rookery.kernel.imports import import_lazily
from rookery.kernel.pages import PageSlice, collect_items
from rookery.kernel.schema import parse_model, to_json
from rookery.terminal.json_files import read_json_file
from rookery.terminal.options import JsonOption, WorkspaceOption, parse_day, parse_pairs, parse_time, raise_usage_error, read_text_file
from rookery.terminal.output import print_json, print_list, print_record, print_text
from rookery.usage.models import LedgerFilter, NamedUsage

if TYPE_CHECKING:
    from rookery.content import schemas
    from rookery.content.wiring import ContentServices
else:
    schemas = import_lazily("rookery.content.schemas")

app = typer.Typer(no_args_is_help=True)
prompt_templates.register(app)

_COLUMNS = ("id", "status", "mode", "model", "cost", "created_at", "template", "error")
_USAGE_COLUMNS = (
    "day",
    "key_id",
    "model",
    "requests",
    "succeeded",
    "failed",
    "cancelled",
    "input_tokens",
    "output_tokens",
    "cost",
    "currency",
)
_USAGE_TABLE_COLUMNS = (
    *("day", "model", "cost", "currency", "requests", "failed", "input_tokens", "output_tokens"),
    *("succeeded", "cancelled", "key_id"),
)
_BUDGET_COLUMNS = (
    *("scope", "key_id", "daily", "spent", "reserved", "left", "resets_at", "source", "currency"),
    *("monthly", "month_spent", "month_reserved", "month_left", "month_resets_at", "month_source"),
)
_PAGE_SIZE = 100

GenerationIdArgument = Annotated[str, typer.Argument(help="The generation's id.")]
VariablesOption = Annotated[list[str] | None, typer.Option("--var", help="NAME=VALUE; may be repeated.", show_default=False)]


class _GenerationFailed(RookeryError):
    """The generation ended without success; exit code 1."""


@app.command()
def generate(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads standard input.", show_default=False)] = None,
    *,
    template: Annotated[str | None, typer.Option(help="The slug of a prompt template.", show_default=False)] = None,
    var: VariablesOption = None,
    model: Annotated[str | None, typer.Option(help="The model; by default that of ROOKERY_GENERATION.", show_default=False)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens of the answer.", min=1, show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option(help="A file with the JSON schema of the answer.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate content and print it while it arrives, or the whole generation with --json."""
    if (prompt is None) == (template is None):
        raise_usage_error("Use either a prompt or --template.")
    fields: dict[str, object] = {
        "prompt": read_text_file(Path("-")) if prompt == "-" else prompt,
        "template": template,
        "variables": parse_pairs(var or (), "=", "--var"),
        "model": model,
        "max_tokens": max_tokens,
        "schema": None if schema is None else read_json_file(schema),
    }
    draft = parse_model(schemas.GenerationRequestBody, {name: value for name, value in fields.items() if value}).to_draft()

    async def work(content: ContentServices, tenant: ContentTenant) -> Generation:
        if as_json or schema is not None:
            return await content.generations.generate(tenant, draft)
        generation = await content.generations.start(tenant, draft, GenerationMode.STREAM)
        async for part in content.generations.stream(generation):
            if isinstance(part, Generation):
                generation = part
            elif part.text:
                print_text(part.text)
        print()  # noqa: T201 - the command's output
        return generation

    generation = run_with_content(context, workspace, work)
    if as_json:
        print_json(to_json(schemas.serialize_generation(generation)))
    elif schema is not None:
        print_text(f"{generation.output}\n")
    elif generation.status is not GenerationStatus.SUCCEEDED:
        raise _GenerationFailed(generation.error_message or f"The generation has the status {generation.status.value}.")


@app.command("list")
def list_(
    context: typer.Context,
    *,
    status: Annotated[GenerationStatus | None, typer.Option(help="Only generations with this status.", show_default=False)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only generations since then: a time, or 7d for seven days ago.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of generations.", min=1, max=10_000)] = 50,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest generations of a workspace."""
    filters = GenerationFilter(status=status, since=parse_time(since))

    async def work(content: ContentServices, tenant: ContentTenant) -> Sequence[GenerationSummary]:
        return await collect_items(partial(content.generations.list_page, tenant, filters), limit=limit, page_size=_PAGE_SIZE)

    rows = [to_json(schemas.serialize_summary(generation)) for generation in run_with_content(context, workspace, work)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        error, template = cast("dict[str, object] | None", row["error"]), cast("dict[str, object] | None", row["template"])
        row["error"], row["template"] = error and error["code"], template and f"{template['slug']}@{template['version']}"
    print_list(rows, _COLUMNS)


@app.command()
def show(
    context: typer.Context, generation_id: GenerationIdArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """Show a generation with its messages and its output."""
    generation = run_with_content(context, workspace, lambda content, tenant: content.generations.get(tenant, generation_id))
    print_record(to_json(schemas.serialize_generation(generation)), as_json=as_json)


@app.command()
def cancel(
    context: typer.Context, generation_id: GenerationIdArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False
) -> None:
    """Cancel a queued or running generation."""
    generation = run_with_content(context, workspace, lambda content, tenant: content.generations.cancel(tenant, generation_id))
    print_record(to_json(schemas.serialize_summary(generation)), as_json=as_json)


@app.command()
def usage(
    context: typer.Context,
    *,
    since: Annotated[str | None, typer.Option(help="Only this day or later: a date, or 7d.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows.", min=1, max=10_000)] = 100,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show requests, tokens and cost by day, key and model, newest day first."""
    day = parse_day(since)

    async def work(content: ContentServices, tenant: ContentTenant) -> Sequence[NamedUsage]:
        filters = LedgerFilter(tenants=[tenant.workspace_id], since=day or date.min, until=date.max)
        return (await content.budgets.list_usage(filters, page=PageSlice(limit))).items

    rows = [to_json(schemas.serialize_usage(record)) for record in run_with_content(context, workspace, work)]
    if as_json:
        print_json(rows)
    else:
        print_list(rows, _USAGE_COLUMNS, table_columns=_USAGE_TABLE_COLUMNS)


@app.command()
def budgets(context: typer.Context, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show the budgets of a workspace and of its keys, with what is left of each today and this month."""
    statuses = run_with_content(context, workspace, lambda content, tenant: content.budgets.list_budgets(tenant))
    rows = [to_json(schemas.serialize_budget(status)) for status in statuses]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row |= {f"month_{name}": value for name, value in cast("dict[str, object]", row["month"]).items()}
    print_list(rows, _BUDGET_COLUMNS)
