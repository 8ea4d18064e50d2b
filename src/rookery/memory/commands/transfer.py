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
from rookery.memory.batch_runs import RunReport
from rookery.memory.commands.command_context import (
    DryRun,
    Json,
    MaintenanceCommandContext,
    Resume,
    WorkspaceOption,
    fail_usage,
    get_platform,
    resolve_workspace,
)
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.models import MemoryScope
from rookery.memory.transfer import exporting, importing
from rookery.memory.transfer.destinations import JsonlDestination
from rookery.memory.transfer.field_reader import TYPE_PATTERN
from rookery.memory.transfer.formats import create_note_folder
from rookery.memory.transfer.import_source import ImportFormat, ImportSource, NoteSplit
from rookery.memory.transfer.items import ImportOverrides
from rookery.memory.transfer.sources import open_source

_STANDARD_STREAM = Path("-")

Org = Annotated[str | None, typer.Option(help="Put all into this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Put all into this project.", show_default=False)]
Agent = Annotated[str | None, typer.Option(help="Make this agent the one that all belongs to.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Give all this type.", show_default=False)]
Scope = Annotated[Literal["project", "agent", "session", "shared"] | None, typer.Option(help="Give all this scope.", show_default=False)]
StripPii = Annotated[bool, typer.Option("--strip-pii", help="Put marks for personal data and secrets.")]


def export(
    context: typer.Context,
    *,
    workspace: WorkspaceOption = None,
    org: Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)] = None,
    project: Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(help="Only memories of this agent.", show_default=False)] = None,
    type: Annotated[str | None, typer.Option(help="Only memories of this type.", show_default=False)] = None,
    form: Annotated[Literal["jsonl", "markdown"], typer.Option("--format", help="JSON lines, or a folder of notes.")] = "jsonl",
    out: Annotated[
        Path, typer.Option(help="A new file, for notes a new folder; - is standard output; .gz is compressed.")
    ] = _STANDARD_STREAM,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Archived memories too.")] = False,
    strip_pii: StripPii = False,
    as_json: Json = False,
) -> None:
    """Write the memories of a workspace, all of each of them, for `rookery import` or for people to read; safe while the server runs."""
    wanted = exporting.ExportRequest(
        workspace_id=0, org=org, project=project, agent_id=agent, type=type, includes_archived=include_archived, strip_pii=strip_pii
    )
    if out == _STANDARD_STREAM and (as_json or form == "markdown"):
        fail_usage(
            "Name a --out for notes." if form == "markdown" else "--json prints the report where the memories go: name a --out FILE."
        )
    screen = RunReportPrinter(as_json=as_json, lists_items=False, dry_run=False)
    platform = get_platform(context)
    try:
        with _open_destination(out, form) as target:
            report = asyncio.run(_export(platform, workspace, wanted, target, screen))
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # whoever reads has enough
    except OSError as error:
        raise RookeryError(
            f"{'Standard output' if out == _STANDARD_STREAM else out} cannot be written: {error.strerror or error}"
        ) from error
    if out == _STANDARD_STREAM:
        typer.echo(f"exported {report.counts['memories']:,} memories, {report.counts['tombstones']:,} tombstones", err=True)
    else:
        screen.print_report(report)


def import_(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file, a folder of notes, or - for standard input.")],
    *,
    workspace: WorkspaceOption = None,
    org: Org = None,
    project: Project = None,
    agent: Agent = None,
    type: Type = None,
    scope: Scope = None,
    tag: Annotated[list[str] | None, typer.Option(help="Give all this tag too; may be repeated.", show_default=False)] = None,
    form: Annotated[ImportFormat, typer.Option("--format", help="How it is written; by default that is found out.")] = "auto",
    by: Annotated[NoteSplit, typer.Option(help="A memory for each note, or for each section of one.")] = "note",
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Leave out what a memory of the same space says already.")] = False,
    new_ids: Annotated[bool, typer.Option("--new-ids", help="Store copies with ids of their own.")] = False,
    strip_pii: StripPii = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Announce nothing: webhooks are not told, and no training rows left.")] = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Store memories that were exported, Markdown notes, agents' instructions or mem0's memories; twice is as once."""
    if type is not None and TYPE_PATTERN.fullmatch(type) is None:
        fail_usage(f"{type!r} is no type: small letters, digits, _ and -, a letter first.")
    place = ImportOverrides(
        org=org,
        project=project,
        agent_id=agent,
        type=type,
        memory_scope=None if scope is None else MemoryScope(scope),
        tags=tuple(each.lower() for each in tag or ()),
    )
    wanted = importing.ImportRequest(
        workspace_id=0,
        overrides=place,
        dedupe=dedupe,
        new_ids=new_ids,
        strip_pii=strip_pii,
        is_quiet=quiet,
        dry_run=dry_run,
        resume=resume,
    )
    path = None if source == _STANDARD_STREAM else source
    if resume and (path is None or path.is_dir()):
        fail_usage("--resume is for a file. Without it, the same command passes over what is here already.")
    asked = ImportSource(path=path, standard_input=sys.stdin.buffer, import_format=form, split_by=by, default_time=utc_now())
    # Not only a dry run has something to list: what was not stored, and why.
    screen = RunReportPrinter(as_json=as_json, lists_items=True, dry_run=dry_run)
    try:
        report = asyncio.run(_import(get_platform(context), workspace, wanted, asked, screen))
    except ValidationFailed as error:
        fail_usage(error.message)
    screen.print_report(report)


async def _export(
    platform: MaintenanceCommandContext,
    where: str | None,
    request: exporting.ExportRequest,
    target: exporting.ExportDestination,
    printer: RunReportPrinter,
) -> RunReport:
    async with platform.open() as opened:
        workspace_id = await resolve_workspace(opened, where)
        with printer.observe("Exporting") as watch:
            return await opened.transfer.exporter.run(replace(request, workspace_id=workspace_id), target, observer=watch)


async def _import(
    platform: MaintenanceCommandContext,
    where: str | None,
    request: importing.ImportRequest,
    import_source: ImportSource,
    printer: RunReportPrinter,
) -> RunReport:
    async with platform.open() as opened:
        workspace_id = await resolve_workspace(opened, where)
        request = replace(request, workspace_id=workspace_id)
        with open_source(import_source) as source, printer.observe("Importing") as watch:
            async with opened.training.run_in_background():
                return await opened.transfer.importer.run(replace(request, run=_run_name(import_source, request)), source, observer=watch)


def _run_name(source: ImportSource, request: importing.ImportRequest) -> str | None:
    """Return the name of an import by what it reads, as it is now, and how; None: it cannot be gone on with."""
    if source.path is None or not source.path.is_file():
        return None
    status = source.path.stat()
    of = replace(request, dry_run=False, resume=False)
    told = f"{source.path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{source.import_format}\0{source.split_by}\0{of}"
    return f"import {request.workspace_id} {blake2b(os.fsencode(told), digest_size=12).hexdigest()}"


@contextmanager
def _open_destination(out: Path, form: Literal["jsonl", "markdown"]) -> Generator[exporting.ExportDestination]:
    """Return where the export goes; nothing that is there is written over, and no half file stays after an error."""
    if form == "markdown":
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            fail_usage(f"{out} is there already; name a new folder.")
        yield create_note_folder(out)
    elif out == _STANDARD_STREAM:
        yield JsonlDestination(sys.stdout.buffer, utc_now)
    else:
        with _new_file(out) as file:
            yield JsonlDestination(file, utc_now)


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        fail_usage(f"Cannot make {path}: {error.strerror}")
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
