"""`rookery content templates` and the commands that show and change prompt templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rookery.content.commands.content_services import run_with_content
from rookery.content.models import ContentTenant, PromptTemplate
from rookery.kernel.errors import NotFound
from rookery.kernel.imports import import_lazily
from rookery.kernel.pages import PageSlice
from rookery.kernel.schema import parse_model, to_json
from rookery.terminal.json_files import read_json_object
from rookery.terminal.options import JsonOption, WorkspaceOption, YesOption, confirm
from rookery.terminal.output import Fields, print_json, print_list, print_record

if TYPE_CHECKING:
    from rookery.content import schemas
    from rookery.content.wiring import ContentServices
else:
    schemas = import_lazily("rookery.content.schemas")

_COLUMNS = ("slug", "version", "name", "variables", "updated_at")
_MAX_LISTED = 1_000

PromptSlugArgument = Annotated[str, typer.Argument(help="The slug of the template.")]
VersionOption = Annotated[int | None, typer.Option(help="The version; by default the current one.", min=1, show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands to `rookery content`."""
    for name, command in (
        ("templates", templates),
        ("template", template),
        ("put-template", put_template),
        ("delete-template", delete_template),
    ):
        app.command(name)(command)


def templates(context: typer.Context, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the prompt templates of a workspace in their current versions."""

    async def work(content: ContentServices, tenant: ContentTenant) -> Sequence[PromptTemplate]:
        return (await content.templates.list_page(tenant, page=PageSlice(_MAX_LISTED))).items

    rows = [_to_fields(item) for item in run_with_content(context, workspace, work)]
    if as_json:
        print_json(rows)
    else:
        print_list([{**row, "variables": list(cast("dict[str, object]", row["variables"]))} for row in rows], _COLUMNS)


def template(
    context: typer.Context,
    slug: PromptSlugArgument,
    *,
    version: VersionOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a prompt template."""
    stored = run_with_content(context, workspace, lambda content, tenant: content.templates.get(tenant, slug, version=version))
    print_record(_to_fields(stored), as_json=as_json)


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

    print_record(_to_fields(run_with_content(context, workspace, work)), as_json=as_json)


def delete_template(context: typer.Context, slug: PromptSlugArgument, *, yes: YesOption = False, workspace: WorkspaceOption = None) -> None:
    """Delete a prompt template with all its versions."""
    confirm(f"Delete the prompt template {slug!r} with all its versions?", yes=yes)
    run_with_content(context, workspace, lambda content, tenant: content.templates.delete(tenant, slug))


def _to_fields(template: PromptTemplate) -> Fields:
    return to_json(schemas.serialize_template(template))
