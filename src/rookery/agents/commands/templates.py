"""`rookery templates`: files of templates checked, tried and added; those that there are, listed and shown (D-63)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.commands.printing import Fields, print_json, print_many, say
from rookery.access.commands.reading import usage_error
from rookery.access.commands.terminal import DryRun, Json, Where, operator, workspace_of
from rookery.access.commands.terminal import Services as AccessServices
from rookery.agents.errors import SlugTaken, TemplateReadOnly
from rookery.agents.models.templates import Filled, JsonObject, KeptTemplate, Template, TemplateSource
from rookery.agents.schemas.templates import TemplateBody, read_template, shown
from rookery.agents.templates.files import LONGEST_FILE, read_file, write_file
from rookery.agents.templates.filling import filled, idle
from rookery.agents.templates.library import Author, Templates
from rookery.agents.templates.shipped import shipped
from rookery.agents.templates.variables import read_text
from rookery.agents.templates.versions import version_of
from rookery.kernel.errors import NotFound, RookeryError, ValidationFailed

app = typer.Typer(help="Templates of plans.", no_args_is_help=True)

_COLUMNS = ("slug", "name", "source", "category", "version", "variables", "phases", "tasks")
_IN_TABLE = ("slug", "name", "source", "variables", "phases", "tasks", "category", "version")
_ALL = 1_000

T = TypeVar("T")

Source = Annotated[str, typer.Argument(help="A template's slug, or a YAML or JSON file of one; - is standard input.")]
File = Annotated[str, typer.Argument(help="A YAML or JSON file; - is standard input.")]
Slug = Annotated[str | None, typer.Option("--slug", help="Its slug; by default what the file says, or its name.", show_default=False)]


class AgentServices(Protocol):
    """Agent work."""

    @property
    def templates(self) -> Templates: ...


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def agents(self) -> AgentServices: ...


class Context(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Open the platform on its store."""
        ...


class _Unusable(RookeryError):
    """The command cannot be done; exit code 1."""


@app.command("list")
def list_(context: typer.Context, *, workspace: Where = None, as_json: Json = False) -> None:
    """List the templates that come with Rookery, and a workspace's own."""

    async def work(opened: Opened) -> Sequence[KeptTemplate]:
        owner = await workspace_of(opened.access, workspace)
        found, _ = await opened.agents.templates.page(owner.id, limit=_ALL, offset=0)
        return found

    rows = [_row(each) for each in _run(context, work)]
    if as_json:
        print_json(rows)
    else:
        print_many(rows, _COLUMNS, in_table=_IN_TABLE)


@app.command()
def show(context: typer.Context, source: Source, *, workspace: Where = None, as_json: Json = False) -> None:
    """Show a template as the file that it would be; saved under another slug, it can be changed and added."""
    kept = _kept(context, source, workspace)
    if as_json:
        print_json(shown(kept).model_dump(mode="json"))
    else:
        print(write_file({"slug": kept.template.slug, **kept.template.document}), end="")  # noqa: T201 - the command's answer


@app.command()
def check(files: Annotated[list[str], typer.Argument(help="YAML or JSON files; - is standard input.")], *, as_json: Json = False) -> None:
    """Say what is wrong with files of templates; exit code 1 if one cannot be used. Nothing is opened."""
    found = [_checked(each) for each in files]
    if as_json:
        print_json(found)
    else:
        for each in found:
            print(f"{each['file']}: {'good' if each['ok'] else 'cannot be used'}")  # noqa: T201 - the command's answer
            for field, texts in cast("Mapping[str, Sequence[str]]", each["errors"]).items():
                for text in texts:
                    print(f"  {field}: {text}")  # noqa: T201 - as above
            for warning in cast("Sequence[str]", each["warnings"]):
                say(f"  {warning}")
    if not all(each["ok"] for each in found):
        raise typer.Exit(1)


@app.command()
def preview(
    context: typer.Context,
    source: Source,
    *,
    var: Annotated[list[str] | None, typer.Option("--var", help="NAME=VALUE; may be repeated.", show_default=False)] = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Show the plan that a template would make; nothing is kept."""
    kept = _kept(context, source, workspace)
    variables = kept.template.variables
    given = {name: read_text(variables[name], text) if name in variables else text for name, text in _pairs(var or [])}
    try:
        made = filled(kept, given)
    except ValidationFailed as error:
        fields = cast("Mapping[str, Sequence[str]]", error.detail["errors"])
        raise _Unusable("\n".join(f"{field}: {text}" for field, texts in fields.items() for text in texts)) from None
    if as_json:
        print_json({"template": kept.template.slug, "version": kept.version, "variables": made.variables, "plan": made.plan})
    else:
        print(_as_markdown(made))  # noqa: T201 - the command's answer


@app.command()
def add(
    context: typer.Context,
    file: File,
    *,
    slug: Slug = None,
    replace: Annotated[bool, typer.Option("--replace", help="Put it in the place of one of that slug, as another version.")] = False,
    workspace: Where = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Add a file's template to a workspace; everybody there sees it at once."""
    body = _body(file, slug)

    async def work(opened: Opened) -> KeptTemplate:
        owner = await workspace_of(opened.access, workspace)
        author, templates = Author(workspace_id=owner.id, shown_workspace_id=owner.id, by=operator()), opened.agents.templates
        if dry_run:
            return await _would_add(templates, owner.id, body, replace=replace)
        if replace:
            try:
                return await templates.replace(author, body.slug, body.document())
            except NotFound:
                pass
        return await templates.add(author, body.slug, body.document())

    kept = _run(context, work)
    if as_json:
        print_json({**_row(kept), "dry_run": dry_run})
    else:
        print(f"{'Would add' if dry_run else 'Added'} {kept.template.slug}, version {kept.version}.")  # noqa: T201 - the command's answer
        _warn(kept.template)


async def _would_add(templates: Templates, workspace_id: int, body: TemplateBody, *, replace: bool) -> KeptTemplate:
    """Return what would be kept, or refuse as it would be refused."""
    document = body.document()
    if body.slug in shipped() and replace:
        raise TemplateReadOnly(body.slug)
    with contextlib.suppress(NotFound):
        await templates.get(workspace_id, body.slug)
        if not replace:
            raise SlugTaken("template", body.slug)
    return KeptTemplate(template=Template.of(body.slug, document), version=version_of(document), source=TemplateSource.WORKSPACE)


def _kept(context: typer.Context, source: str, workspace: str | None) -> KeptTemplate:
    """Return the template of a file, or of a slug; one that comes with Rookery without opening anything."""
    if source == "-" or Path(source).suffix in {".yaml", ".yml", ".json"}:
        body = _body(source, None)
        document = body.document()
        return KeptTemplate(template=Template.of(body.slug, document), version=version_of(document), source=TemplateSource.WORKSPACE)
    if source in shipped():
        return shipped()[source]

    async def work(opened: Opened) -> KeptTemplate:
        owner = await workspace_of(opened.access, workspace)
        return await opened.agents.templates.get(owner.id, source)

    return _run(context, work)


def _body(file: str, slug: str | None) -> TemplateBody:
    """Return the template of *file*, which can be used."""
    document = read_file(_text(file))
    named = slug or document.get("slug") or Path(file).stem.lower().replace("_", "-")
    return read_template({**document, "slug": named})


def _text(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read(LONGEST_FILE + 1).decode()
        with Path(file).expanduser().open("rb") as opened:
            return opened.read(LONGEST_FILE + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _Unusable(f"{file} cannot be read: {error}") from None


def _checked(file: str) -> Fields:
    try:
        body = _body(file, None)
    except ValidationFailed as error:
        return {"file": file, "ok": False, "errors": error.detail["errors"], "warnings": []}
    except _Unusable as error:
        return {"file": file, "ok": False, "errors": {"file": [error.message]}, "warnings": []}
    return {"file": file, "ok": True, "errors": {}, "warnings": _warnings(Template.of(body.slug, body.document()))}


def _warn(template: Template) -> None:
    for warning in _warnings(template):
        say(warning)


def _warnings(template: Template) -> list[str]:
    return [f"The variable {name!r} is asked for, and stands nowhere." for name in idle(template)]


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name.strip():
            usage_error("--var takes NAME=VALUE.")
        pairs.append((name.strip(), value))
    return pairs


def _row(kept: KeptTemplate) -> Fields:
    template = kept.template
    return {
        "slug": template.slug,
        "name": template.name,
        "source": kept.source.value,
        "category": template.category or None,
        "version": kept.version,
        "variables": [name if each.required else f"{name}?" for name, each in template.variables.items()],
        "phases": len(template.phases),
        "tasks": sum(len(cast("Sequence[object]", phase.get("tasks", ()))) for phase in template.phases),
    }


def _as_markdown(made: Filled) -> str:
    """Return the plan as a person reads it."""
    lines = [f"# {made.plan['title']}", "", str(made.plan["description"])]
    for phase in cast("Sequence[JsonObject]", made.plan["phases"]):
        lines += ["", f"## {phase['name']}"]
        lines += [str(phase["description"])] if phase.get("description") else []
        for task in cast("Sequence[JsonObject]", phase.get("tasks", ())):
            lines.append(f"- [ ] {task['name']}")
    return "\n".join(lines)


def _run(context: typer.Context, work: Callable[[Opened], Awaitable[T]]) -> T:
    """Open the platform, do *work*, close it."""

    async def inside() -> T:
        async with cast("Context", context.obj).open() as opened:
            return await work(opened)

    return asyncio.run(inside())
