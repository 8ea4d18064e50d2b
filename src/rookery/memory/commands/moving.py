"""`rookery export` and `rookery import`: memories out of the store and into it (D-04)."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

import typer

from rookery.kernel.clock import utc_now
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.memory.commands.opening import DryRun, Json, Opens, Resume, Where, one, opens, wrong
from rookery.memory.commands.showing import Screen
from rookery.memory.models import MemoryScope
from rookery.memory.runs import Report
from rookery.memory.transfer import exporting, importing
from rookery.memory.transfer.asked import Asked, By, Format
from rookery.memory.transfer.fields import TYPE
from rookery.memory.transfer.forms import folder
from rookery.memory.transfer.parcels import Place
from rookery.memory.transfer.sources import reading
from rookery.memory.transfer.targets import Lines

_STANDARD = Path("-")

Org = Annotated[str | None, typer.Option(help="Put all into this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Put all into this project.", show_default=False)]
Agent = Annotated[str | None, typer.Option(help="Make this agent the one that all belongs to.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Give all this type.", show_default=False)]
Scope = Annotated[Literal["project", "agent", "session", "shared"] | None, typer.Option(help="Give all this scope.", show_default=False)]
StripPii = Annotated[bool, typer.Option("--strip-pii", help="Put marks for personal data and secrets.")]


def export(
    context: typer.Context,
    *,
    workspace: Where = None,
    org: Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)] = None,
    project: Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(help="Only memories of this agent.", show_default=False)] = None,
    type: Annotated[str | None, typer.Option(help="Only memories of this type.", show_default=False)] = None,
    form: Annotated[Literal["jsonl", "markdown"], typer.Option("--format", help="JSON lines, or a folder of notes.")] = "jsonl",
    out: Annotated[Path, typer.Option(help="A new file, for notes a new folder; - is standard output; .gz is compressed.")] = _STANDARD,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Archived memories too.")] = False,
    strip_pii: StripPii = False,
    as_json: Json = False,
) -> None:
    """Write the memories of a workspace, all of each of them, for `rookery import` or for people to read; safe while the server runs."""
    wanted = exporting.Wanted(
        workspace_id=0, org=org, project=project, agent_id=agent, type=type, archived_too=include_archived, strip_pii=strip_pii
    )
    if out == _STANDARD and (as_json or form == "markdown"):
        wrong("Name a --out for notes." if form == "markdown" else "--json prints the report where the memories go: name a --out FILE.")
    screen = Screen(as_json=as_json, lists=False, dry_run=False)
    platform = opens(context)
    try:
        with _target(out, form) as target:
            report = asyncio.run(_export(platform, workspace, wanted, target, screen))
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # whoever reads has enough
    except OSError as error:
        raise RookeryError(f"{'Standard output' if out == _STANDARD else out} cannot be written: {error.strerror or error}") from error
    if out == _STANDARD:
        typer.echo(f"exported {report.counts['memories']:,} memories, {report.counts['tombstones']:,} tombstones", err=True)
    else:
        screen.close(report)


def import_(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file, a folder of notes, or - for standard input.")],
    *,
    workspace: Where = None,
    org: Org = None,
    project: Project = None,
    agent: Agent = None,
    type: Type = None,
    scope: Scope = None,
    tag: Annotated[list[str] | None, typer.Option(help="Give all this tag too; may be repeated.", show_default=False)] = None,
    form: Annotated[Format, typer.Option("--format", help="How it is written; by default that is found out.")] = "auto",
    by: Annotated[By, typer.Option(help="A memory for each note, or for each section of one.")] = "note",
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Leave out what a memory of the same space says already.")] = False,
    new_ids: Annotated[bool, typer.Option("--new-ids", help="Store copies with ids of their own.")] = False,
    strip_pii: StripPii = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Announce nothing: webhooks are not told, and no training rows left.")] = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Store memories that were exported, Markdown notes, agents' instructions or mem0's memories; twice is as once."""
    if type is not None and TYPE.fullmatch(type) is None:
        wrong(f"{type!r} is no type: small letters, digits, _ and -, a letter first.")
    place = Place(
        org=org,
        project=project,
        agent_id=agent,
        type=type,
        memory_scope=None if scope is None else MemoryScope(scope),
        tags=tuple(each.lower() for each in tag or ()),
    )
    wanted = importing.Wanted(
        workspace_id=0,
        place=place,
        dedupe=dedupe,
        new_ids=new_ids,
        strip_pii=strip_pii,
        is_quiet=quiet,
        dry_run=dry_run,
        resume=resume,
    )
    path = None if source == _STANDARD else source
    if resume and (path is None or path.is_dir()):
        wrong("--resume is for a file. Without it, the same command passes over what is here already.")
    asked = Asked(path=path, standard_input=sys.stdin.buffer, form=form, by=by, at=utc_now())
    # Not only a dry run has something to list: what was not stored, and why.
    screen = Screen(as_json=as_json, lists=True, dry_run=dry_run)
    try:
        report = asyncio.run(_import(opens(context), workspace, wanted, asked, screen))
    except ValidationFailed as error:
        wrong(error.message)
    screen.close(report)


async def _export(platform: Opens, where: str | None, wanted: exporting.Wanted, target: exporting.Target, screen: Screen) -> Report:
    async with platform.open() as opened:
        workspace_id = await one(opened, where)
        with screen.watch("Exporting") as watch:
            return await opened.moving.exporting.run(replace(wanted, workspace_id=workspace_id), target, watch=watch)


async def _import(platform: Opens, where: str | None, wanted: importing.Wanted, asked: Asked, screen: Screen) -> Report:
    async with platform.open() as opened:
        workspace_id = await one(opened, where)
        wanted = replace(wanted, workspace_id=workspace_id)
        with reading(asked) as source, screen.watch("Importing") as watch:
            async with opened.training.kept():
                return await opened.moving.importing.run(replace(wanted, run=_named(asked, wanted)), source, watch=watch)


def _named(asked: Asked, wanted: importing.Wanted) -> str | None:
    """Return the name of an import by what it reads, as it is now, and how; None: it cannot be gone on with."""
    if asked.path is None or not asked.path.is_file():
        return None
    status = asked.path.stat()
    of = replace(wanted, dry_run=False, resume=False)
    told = f"{asked.path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{asked.form}\0{asked.by}\0{of}"
    return f"import {wanted.workspace_id} {blake2b(os.fsencode(told), digest_size=12).hexdigest()}"


@contextmanager
def _target(out: Path, form: Literal["jsonl", "markdown"]) -> Generator[exporting.Target]:
    """Return where the export goes; nothing that is there is written over, and no half file stays after an error."""
    if form == "markdown":
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            wrong(f"{out} is there already; name a new folder.")
        yield folder(out)
    elif out == _STANDARD:
        yield Lines(sys.stdout.buffer, utc_now)
    else:
        with _new_file(out) as file:
            yield Lines(file, utc_now)


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        wrong(f"Cannot make {path}: {error.strerror}")
    is_whole = False
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
        is_whole = True
    finally:
        if not is_whole:
            path.unlink(missing_ok=True)
