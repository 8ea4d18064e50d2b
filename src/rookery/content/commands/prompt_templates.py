"""`rookery content templates` and the commands that show and change prompt templates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from rookery.content import schemas
from rookery.content.commands.content_services import run_with_content
from rookery.content.models import ContentTenant, PromptTemplate
from rookery.content.wiring import ContentServices
from rookery.kernel.errors import NotFound
from rookery.kernel.schema import parse_model, to_json
from rookery.terminal.json_files import read_json_object
from rookery.terminal.operation_commands import OperationCommand
from rookery.terminal.options import JsonOption, WorkspaceOption
from rookery.terminal.output import Fields, print_record

_SLUG = {"slug": "The slug of the template."}


def _to_row(fields: Fields) -> Fields:
    return {**fields, "variables": list(cast("Fields", fields["variables"]))}


COMMANDS = (
    OperationCommand(
        name="templates",
        operation="list_prompt_templates",
        help="List the prompt templates of a workspace in their current versions.",
        columns=("slug", "version", "name", "variables", "updated_at"),
        to_row=_to_row,
    ),
    OperationCommand(
        name="template",
        operation="get_prompt_template",
        help="Show a prompt template.",
        arguments=_SLUG,
        options={"version": "The version; by default the current one."},
    ),
    OperationCommand(
        name="delete-template",
        operation="delete_prompt_template",
        help="Delete a prompt template with all its versions.",
        arguments=_SLUG,
        question="Delete the prompt template {slug!r} with all its versions?",
    ),
)


def put_template(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON file with the fields of POST /content/templates; - reads standard input.")],
    *,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a prompt template, or a new version of it if the slug exists."""
    body = parse_model(schemas.NewPromptTemplateBody, read_json_object(file))

    async def work(content: ContentServices, tenant: ContentTenant) -> PromptTemplate:
        try:
            return await content.templates.replace(tenant, body.slug, body.to_draft())
        except NotFound:
            return await content.templates.create(tenant, body.slug, body.to_draft())

    print_record(to_json(schemas.serialize_template(run_with_content(context, workspace, work))), as_json=as_json)
