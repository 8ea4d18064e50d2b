"""`rookery content`: generate content, and show generations, usage and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from rookery.content import schemas
from rookery.content.commands import prompt_templates
from rookery.content.commands.content_services import add_content_commands, run_with_content
from rookery.content.models import ContentTenant, Generation, GenerationMode, GenerationStatus
from rookery.content.wiring import ContentServices
from rookery.kernel.errors import RookeryError
from rookery.kernel.schema import parse_model, to_json
from rookery.terminal.json_files import read_json_file
from rookery.terminal.operation_commands import ListLimit, OperationCommand
from rookery.terminal.options import JsonOption, WorkspaceOption, parse_pairs, raise_usage_error, read_text_file
from rookery.terminal.output import Fields, print_json, print_text

app = typer.Typer(no_args_is_help=True)
app.command("put-template")(prompt_templates.put_template)

_TEXTS = frozenset({"messages", "schema", "output", "score"})
"""The fields of a generation that its summary does not have."""

_GENERATION_ID = {"generation_id": "The generation's id."}


def _to_summary(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name not in _TEXTS}


def _to_row(fields: Fields) -> Fields:
    error, template = cast("Fields | None", fields["error"]), cast("Fields | None", fields["template"])
    return {**fields, "error": error and error["code"], "template": template and f"{template['slug']}@{template['version']}"}


def _to_budget_row(fields: Fields) -> Fields:
    return {**fields, **{f"month_{name}": value for name, value in cast("Fields", fields["month"]).items()}}


COMMANDS = (
    OperationCommand(
        name="list",
        operation="list_generations",
        help="List the newest generations of a workspace.",
        options={"status": "", "since": "Only generations since then: a time, or 7d for seven days ago."},
        limit=ListLimit(50, 10_000, "generations"),
        columns=("id", "status", "mode", "model", "cost", "created_at", "template", "error"),
        to_row=_to_row,
    ),
    OperationCommand(
        name="show",
        operation="get_generation",
        help="Show a generation with its messages and its output.",
        arguments=_GENERATION_ID,
    ),
    OperationCommand(
        name="cancel",
        operation="cancel_generation",
        help="Cancel a queued or running generation.",
        arguments=_GENERATION_ID,
        convert=_to_summary,
    ),
    *prompt_templates.COMMANDS,
    OperationCommand(
        name="usage",
        operation="list_content_usage",
        help="Show requests, tokens and cost by day, key and model, newest day first.",
        options={"since": "Only this day or later: a date, or 7d."},
        limit=ListLimit(100, 10_000, "rows"),
        columns=(
            *("day", "key_id", "model", "requests", "succeeded", "failed", "cancelled"),
            *("input_tokens", "output_tokens", "cost", "currency"),
        ),
        table_columns=(
            *("day", "model", "cost", "currency", "requests", "failed", "input_tokens", "output_tokens"),
            *("succeeded", "cancelled", "key_id"),
        ),
    ),
    OperationCommand(
        name="budgets",
        operation="list_content_budgets",
        help="Show the budgets of a workspace and of its keys, with what is left of each today and this month.",
        columns=(
            *("scope", "key_id", "daily", "spent", "reserved", "left", "resets_at", "source", "currency"),
            *("monthly", "month_spent", "month_reserved", "month_left", "month_resets_at", "month_source"),
        ),
        to_row=_to_budget_row,
    ),
)
add_content_commands(app, COMMANDS)


class _GenerationFailed(RookeryError):
    """The generation ended without success; exit code 1."""


@app.command()
def generate(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads standard input.", show_default=False)] = None,
    *,
    template: Annotated[str | None, typer.Option(help="The slug of a prompt template.", show_default=False)] = None,
    var: Annotated[list[str] | None, typer.Option("--var", help="NAME=VALUE; may be repeated.", show_default=False)] = None,
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
