"""`rookery content`: generate content, and show generations, prompt templates, usage and budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.build import AccessServices
from rookery.access.models import Caller
from rookery.access.operator import get_operator, resolve_caller, resolve_workspace
from rookery.content import schemas
from rookery.content.build import ContentServices
from rookery.content.models import ContentTenant, Generation, GenerationMode, GenerationStatus, PromptTemplate
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.schema import parse_model, to_json
from rookery.terminal.context import run
from rookery.terminal.operation_commands import ListLimit, OperationCommand, add_operation_commands
from rookery.terminal.options import (
    JsonOption,
    WorkspaceOption,
    parse_pairs,
    raise_usage_error,
    read_json_file,
    read_json_object,
    read_text_file,
)
from rookery.terminal.output import Fields, print_json, print_record, print_text

app = typer.Typer(no_args_is_help=True)

_API = "rookery.content.api"
_APIS = (f"{_API}.generations:GenerationApi", f"{_API}.prompt_templates:PromptTemplateApi", f"{_API}.budgets:BudgetApi")
_COLUMNS = ("id", "status", "mode", "model", "cost", "created_at", "template", "error")
_TEMPLATE_COLUMNS = ("slug", "version", "name", "variables", "updated_at")
_USAGE_COLUMNS = (
    *("day", "key_id", "model", "requests", "succeeded", "failed", "cancelled"),
    *("input_tokens", "output_tokens", "cost", "currency"),
)
_USAGE_TABLE_COLUMNS = (
    *("day", "model", "cost", "currency", "requests", "failed", "input_tokens", "output_tokens"),
    *("succeeded", "cancelled", "key_id"),
)
_BUDGET_COLUMNS = (
    *("scope", "key_id", "daily", "spent", "reserved", "left", "resets_at", "source", "currency"),
    *("monthly", "month_spent", "month_reserved", "month_left", "month_resets_at", "month_source"),
)
_TEXTS = frozenset({"messages", "schema", "output", "score"})
"""The fields of a generation that its summary does not have."""

_GENERATION_ID = {"generation_id": "The generation's id."}
_SLUG = {"slug": "The slug of the template."}

T = TypeVar("T")


class _GenerationFailed(RookeryError):
    """The generation ended without success; exit code 1."""


class ContentPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def content(self) -> ContentServices: ...


def _to_summary(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name not in _TEXTS}


def _to_row(fields: Fields) -> Fields:
    error, template = cast("Fields | None", fields["error"]), cast("Fields | None", fields["template"])
    return {**fields, "error": error and error["code"], "template": template and f"{template['slug']}@{template['version']}"}


def _to_template_row(fields: Fields) -> Fields:
    return {**fields, "variables": list(cast("Fields", fields["variables"]))}


def _to_budget_row(fields: Fields) -> Fields:
    return {**fields, **{f"month_{name}": value for name, value in cast("Fields", fields["month"]).items()}}


async def _resolve_caller(platform: ContentPlatform, workspace: str | None) -> Caller:
    return await resolve_caller(platform.access, workspace)


COMMANDS = (
    OperationCommand("list", "list_generations", "List the newest generations of a workspace.",
                     options={"status": "", "since": "Only generations since then: a time, or 7d for seven days ago."},
                     limit=ListLimit(50, 10_000, "generations"), columns=_COLUMNS, to_row=_to_row),
    OperationCommand("show", "get_generation", "Show a generation with its messages and its output.", arguments=_GENERATION_ID),
    OperationCommand("cancel", "cancel_generation", "Cancel a queued or running generation.", arguments=_GENERATION_ID,
                     convert=_to_summary),
    OperationCommand("templates", "list_prompt_templates", "List the prompt templates of a workspace in their current versions.",
                     columns=_TEMPLATE_COLUMNS, to_row=_to_template_row),
    OperationCommand("template", "get_prompt_template", "Show a prompt template.", arguments=_SLUG,
                     options={"version": "The version; by default the current one."}),
    OperationCommand("delete-template", "delete_prompt_template", "Delete a prompt template with all its versions.", arguments=_SLUG,
                     question="Delete the prompt template {slug!r} with all its versions?"),
    OperationCommand("usage", "list_content_usage", "Show requests, tokens and cost by day, key and model, newest day first.",
                     options={"since": "Only this day or later: a date, or 7d."}, limit=ListLimit(100, 10_000, "rows"),
                     columns=_USAGE_COLUMNS, table_columns=_USAGE_TABLE_COLUMNS),
    OperationCommand("budgets", "list_content_budgets",
                     "Show the budgets of a workspace and of its keys, with what is left of each today and this month.",
                     columns=_BUDGET_COLUMNS, to_row=_to_budget_row),
)  # fmt: skip
add_operation_commands(app, COMMANDS, apis=_APIS, resolve_caller=_resolve_caller)


def run_with_content(context: typer.Context, workspace: str | None, work: Callable[[ContentServices, ContentTenant], Awaitable[T]]) -> T:
    """Open the platform, run *work* with its content services in the workspace, and close it."""

    async def run_in_workspace(platform: ContentPlatform) -> T:
        owner = await resolve_workspace(platform.access, workspace)
        return await work(platform.content, ContentTenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace)


@app.command("put-template")
def put_template(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON file with the fields of POST /content/templates; - reads standard input.")],
    *,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a prompt template, or a new version of it if the slug exists."""
    draft = parse_model(schemas.NewPromptTemplateBody, read_json_object(file)).to_model()

    async def work(content: ContentServices, tenant: ContentTenant) -> PromptTemplate:
        try:
            return await content.templates.replace(tenant, draft)
        except NotFound:
            return await content.templates.create(tenant, draft)

    print_record(to_json(schemas.PromptTemplateResponse.from_parts(run_with_content(context, workspace, work))), as_json=as_json)


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
    draft = parse_model(schemas.GenerationRequestBody, {name: value for name, value in fields.items() if value}).to_model()

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
