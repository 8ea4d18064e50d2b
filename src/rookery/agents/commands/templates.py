"""The command `rookery templates`: list, show, check, preview and add plan templates."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, cast

import typer

from rookery.access.operator import get_operator, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.agents.errors import SlugTaken, TemplateReadOnly
from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateSource
from rookery.agents.schemas.templates import TemplateBody, TemplateResponse, parse_template
from rookery.agents.templates.library import TemplateAuthor, Templates, compute_version, load_shipped_templates
from rookery.agents.templates.render import list_unused_variables, render_template
from rookery.agents.templates.template_files import MAX_FILE_BYTES, parse_template_file, render_template_file
from rookery.kernel.errors import NotFound, RookeryError, ValidationFailed
from rookery.kernel.pages import PageSlice
from rookery.kernel.variables import parse_text
from rookery.terminal.context import run
from rookery.terminal.options import DryRunOption, JsonOption, WorkspaceOption, parse_pairs
from rookery.terminal.output import Fields, print_json, print_list, print_notice

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("slug", "name", "source", "category", "version", "variables", "phases", "tasks")
_TABLE_COLUMNS = ("slug", "name", "source", "variables", "phases", "tasks", "category", "version")
_MAX_LISTED = 1_000

T = TypeVar("T")

TemplateSourceArgument = Annotated[str, typer.Argument(help="The slug of a template, or a YAML or JSON file; - reads standard input.")]
TemplateFileArgument = Annotated[str, typer.Argument(help="A YAML or JSON file; - reads standard input.")]
TemplateSlugOption = Annotated[
    str | None, typer.Option("--slug", help="The slug; by default the slug in the file, else the file name.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServices:
    """The templates in the record store and those shipped with Rookery, and the workspaces."""

    workspaces: Workspaces
    templates: Templates


class _CommandFailed(RookeryError):
    """The command failed; exit code 1."""


@app.command("list")
def list_(context: typer.Context, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the templates shipped with Rookery and those of a workspace."""

    async def work(services: TemplateServices) -> Sequence[StoredTemplate]:
        owner = await resolve_workspace(services, workspace)
        return (await services.templates.list_page(owner.id, page=PageSlice(_MAX_LISTED))).items

    rows = [_to_row(stored_template) for stored_template in _run(context, work)]
    if as_json:
        print_json(rows)
    else:
        print_list(rows, _COLUMNS, table_columns=_TABLE_COLUMNS)


@app.command()
def show(context: typer.Context, source: TemplateSourceArgument, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show a template as a YAML file. To make your own, save it, change the slug and add it."""
    stored_template = _load_template(context, source, workspace)
    if as_json:
        print_json(TemplateResponse.model_validate(stored_template, from_attributes=True).model_dump(mode="json"))
    else:
        print(render_template_file({"slug": stored_template.template.slug, **stored_template.template.document}), end="")  # noqa: T201 - the command's output


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="YAML or JSON files; - reads standard input.")], *, as_json: JsonOption = False
) -> None:
    """Check template files without a server. Exit code 1 if one is invalid."""
    results = [_check_file(file) for file in files]
    if as_json:
        print_json(results)
    else:
        for result in results:
            print(f"{result['file']}: {'valid' if result['ok'] else 'invalid'}")  # noqa: T201 - the command's output
            for field, texts in cast("Mapping[str, Sequence[str]]", result["errors"]).items():
                for text in texts:
                    print(f"  {field}: {text}")  # noqa: T201 - as above
            for warning in cast("Sequence[str]", result["warnings"]):
                print_notice(f"  {warning}")
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@app.command()
def preview(
    context: typer.Context,
    source: TemplateSourceArgument,
    *,
    var: Annotated[list[str] | None, typer.Option("--var", help="NAME=VALUE; may be repeated.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the plan that a template would create, without storing it."""
    stored_template = _load_template(context, source, workspace)
    variables = stored_template.template.variables
    given_values = {
        name: parse_text(variables[name], text) if name in variables else text
        for name, text in parse_pairs(var or (), "=", "--var").items()
    }
    try:
        rendered_template = render_template(stored_template, given_values)
    except ValidationFailed as error:
        fields = error.field_errors
        raise _CommandFailed("\n".join(f"{field}: {text}" for field, texts in fields.items() for text in texts)) from None
    if as_json:
        print_json(
            {
                "template": stored_template.template.slug,
                "version": stored_template.version,
                "variables": rendered_template.variables,
                "plan": rendered_template.plan,
            }
        )
    else:
        print(_render_markdown(rendered_template))  # noqa: T201 - the command's output


@app.command()
def add(
    context: typer.Context,
    file: TemplateFileArgument,
    *,
    slug: TemplateSlugOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing template by a new version.")] = False,
    workspace: WorkspaceOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add the template of a file to a workspace."""
    body = _parse_file(file, slug)

    async def work(services: TemplateServices) -> StoredTemplate:
        owner = await resolve_workspace(services, workspace)
        author = TemplateAuthor(workspace_id=owner.id, shown_workspace_id=owner.id, actor=get_operator())
        templates = services.templates
        if dry_run:
            return await _preview_add(templates, owner.id, body, replace=replace)
        if replace:
            try:
                return await templates.replace(author, body.slug, body.to_document())
            except NotFound:
                pass
        return await templates.add(author, body.slug, body.to_document())

    stored_template = _run(context, work)
    if as_json:
        print_json({**_to_row(stored_template), "dry_run": dry_run})
    else:
        print(f"{'Would add' if dry_run else 'Added'} {stored_template.template.slug}, version {stored_template.version}.")  # noqa: T201 - the command's output
        _warn(stored_template.template)


async def _preview_add(templates: Templates, workspace_id: int, body: TemplateBody, *, replace: bool) -> StoredTemplate:
    """Return the template that would be stored, or raise the error that adding it would raise."""
    document = body.to_document()
    if body.slug in load_shipped_templates() and replace:
        raise TemplateReadOnly(body.slug)
    with contextlib.suppress(NotFound):
        await templates.get(workspace_id, body.slug)
        if not replace:
            raise SlugTaken("template", body.slug)
    return StoredTemplate(
        template=Template.from_document(body.slug, document), version=compute_version(document), source=TemplateSource.WORKSPACE
    )


def _load_template(context: typer.Context, source: str, workspace: str | None) -> StoredTemplate:
    """Return the template of a file or of a slug. Files and shipped templates need no open store."""
    if source == "-" or Path(source).suffix in {".yaml", ".yml", ".json"}:
        body = _parse_file(source, None)
        document = body.to_document()
        return StoredTemplate(
            template=Template.from_document(body.slug, document), version=compute_version(document), source=TemplateSource.WORKSPACE
        )
    if source in load_shipped_templates():
        return load_shipped_templates()[source]

    async def work(services: TemplateServices) -> StoredTemplate:
        owner = await resolve_workspace(services, workspace)
        return await services.templates.get(owner.id, source)

    return _run(context, work)


def _parse_file(file: str, slug: str | None) -> TemplateBody:
    """Return the valid template of *file*."""
    document = parse_template_file(_read_file(file))
    chosen_slug = slug or document.get("slug") or Path(file).stem.lower().replace("_", "-")
    return parse_template({**document, "slug": chosen_slug})


def _read_file(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1).decode()
        with Path(file).expanduser().open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        raise _CommandFailed(f"Cannot read {file}: {reason}") from None


def _check_file(file: str) -> Fields:
    try:
        body = _parse_file(file, None)
    except ValidationFailed as error:
        return {"file": file, "ok": False, "errors": error.field_errors, "warnings": []}
    except _CommandFailed as error:
        return {"file": file, "ok": False, "errors": {"file": [error.message]}, "warnings": []}
    return {"file": file, "ok": True, "errors": {}, "warnings": _list_warnings(Template.from_document(body.slug, body.to_document()))}


def _warn(template: Template) -> None:
    for warning in _list_warnings(template):
        print_notice(warning)


def _list_warnings(template: Template) -> list[str]:
    return [f"The variable {name!r} is not used in the template." for name in list_unused_variables(template)]


def _to_row(stored_template: StoredTemplate) -> Fields:
    template = stored_template.template
    return {
        "slug": template.slug,
        "name": template.name,
        "source": stored_template.source.value,
        "category": template.category or None,
        "version": stored_template.version,
        "variables": [name if variable.required else f"{name}?" for name, variable in template.variables.items()],
        "phases": len(template.phases),
        "tasks": sum(len(cast("Sequence[object]", phase.get("tasks", ()))) for phase in template.phases),
    }


def _render_markdown(rendered_template: RenderedTemplate) -> str:
    """Return the rendered plan as Markdown."""
    lines = [f"# {rendered_template.plan['title']}", "", str(rendered_template.plan["description"])]
    for phase in cast("Sequence[JsonObject]", rendered_template.plan["phases"]):
        lines += ["", f"## {phase['name']}"]
        lines += [str(phase["description"])] if phase.get("description") else []
        for task in cast("Sequence[JsonObject]", phase.get("tasks", ())):
            lines.append(f"- [ ] {task['name']}")
    return "\n".join(lines)


def _run(context: typer.Context, work: Callable[[TemplateServices], Awaitable[T]]) -> T:
    """Run *work* with the opened templates, and close them."""
    return run(context, work, part="templates")
