"""`rookery export` and `rookery import`: memories out of the store and into it."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from rookery.access.models import SYSTEM_ACTOR
from rookery.access.operator import get_operator
from rookery.kernel.clock import utc_now
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.sentences import format_count
from rookery.memory.batch_runs import RunReport
from rookery.memory.commands.maintenance_services import DryRunOption, ResumeOption, run_in_workspace
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.models import MemoryScope, read_fields
from rookery.memory.transfer import exporting, importing
from rookery.memory.transfer.formats import ImportSource, create_note_folder, open_source
from rookery.memory.transfer.items import TYPE_PATTERN, TYPE_RULE, ImportFormat, ImportOverrides, NoteSplit
from rookery.memory.transfer.jsonl import JsonlDestination
from rookery.memory.transfer.label_mappings import LabelMapping, parse_mapping
from rookery.terminal.options import JsonOption, WorkspaceOption, raise_usage_error

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.memory.build import MemoryServices

_STANDARD_STREAM = Path("-")

Org = Annotated[str | None, typer.Option(help="Set the org of all memories.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Set the project of all memories.", show_default=False)]
Agent = Annotated[str | None, typer.Option(help="Set the agent of all memories.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Set the type of all memories.", show_default=False)]
Scope = Annotated[MemoryScope | None, typer.Option(help="Set the scope of all memories.", show_default=False)]
StripPii = Annotated[bool, typer.Option("--strip-pii", help="Replace personal data and secrets by marks.")]


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
        Path, typer.Option(help="A new file, or a new folder for notes; - is standard output; a .gz file is compressed.")
    ] = _STANDARD_STREAM,
    include_archived: Annotated[bool, typer.Option("--include-archived", help="Include archived memories.")] = False,
    strip_pii: StripPii = False,
    as_json: JsonOption = False,
) -> None:
    """Write the memories of a workspace with all their fields, for `rookery import` or for reading. Safe while the server runs."""
    request = exporting.ExportRequest(
        workspace_id=0, org=org, project=project, agent_id=agent, type=type, includes_archived=include_archived, strip_pii=strip_pii
    )
    if out == _STANDARD_STREAM and (as_json or form == "markdown"):
        raise_usage_error(
            "--format markdown needs --out FOLDER."
            if form == "markdown"
            else "--json needs --out FILE, because the memories are written to standard output."
        )
    printer = RunReportPrinter(as_json=as_json, lists_items=False, dry_run=False)

    async def work(memory: MemoryServices, workspace_id: int, target: exporting.ExportDestination) -> RunReport:
        of_workspace = replace(request, workspace_id=workspace_id)
        options = {**read_fields(request, ("org", "project", "agent_id", "type", "includes_archived", "strip_pii")), "format": form}
        with printer.observe("Exporting") as observer:
            return await memory.audit.run(
                get_operator(),
                workspace_id,
                "memories.exported",
                options,
                lambda: memory.transfer.exporter.run(of_workspace, target, observer=observer),
            )

    try:
        with _open_destination(out, form) as target:
            report = run_in_workspace(context, workspace, lambda memory, number: work(memory, number, target))
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except OSError as error:
        raise RookeryError(f"Cannot write to {'standard output' if out == _STANDARD_STREAM else out}: {error.strerror or error}") from error
    if out == _STANDARD_STREAM:
        memories = format_count(report.counts["memories"], "memory", "memories")
        typer.echo(f"exported {memories}, {format_count(report.counts['tombstones'], 'tombstone')}", err=True)
    else:
        printer.print_report(report)


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
    tag: Annotated[list[str] | None, typer.Option(help="Add this tag to all memories; may be repeated.", show_default=False)] = None,
    mappings: Annotated[
        list[str] | None,
        typer.Option(
            "--map", help="Move a user, agent, project or tag: user:bo=agent:bo, user:*=agent:*; may be repeated.", show_default=False
        ),
    ] = None,
    form: Annotated[
        ImportFormat, typer.Option("--from", help="The program or format that wrote the source; detected by default.")
    ] = "auto",
    companion: Annotated[
        Path | None,
        typer.Option("--with", help="A second file of the program: history.db of mem0, memory.db of basic-memory.", show_default=False),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="The zone of times that have none, such as Europe/Berlin.", show_default=False)
    ] = None,
    on_conflict: Annotated[
        Literal["keep", "newer"], typer.Option(help="Keep the stored memory, or take the newer one, if a memory was changed in the source.")
    ] = "keep",
    by: Annotated[NoteSplit, typer.Option(help="One memory per note, or one per section.")] = "note",
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Skip memories whose content exists in the same space.")] = False,
    new_ids: Annotated[bool, typer.Option("--new-ids", help="Store copies with new ids.")] = False,
    strip_pii: StripPii = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Publish no events: no webhooks are sent and no training rows are recorded.")
    ] = False,
    dry_run: DryRunOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Store exported memories, Markdown notes, agents' instruction files or other programs' memories. Importing twice changes nothing."""
    if type is not None and TYPE_PATTERN.fullmatch(type) is None:
        raise_usage_error(f"{type!r} is not a valid type; {TYPE_RULE}.")
    for option, names in {"--org": [org], "--project": [project], "--agent": [agent], "--tag": tag or []}.items():
        if any(name is not None and not name.strip() for name in names):
            raise_usage_error(f"{option} must not be blank.")
    overrides = ImportOverrides(
        org=org,
        project=project,
        agent_id=agent,
        type=type,
        memory_scope=scope,
        tags=tuple(name.lower() for name in tag or ()),
        mappings=_parse_mappings(mappings or ()),
    )
    request = importing.ImportRequest(
        workspace_id=0,
        overrides=overrides,
        dedupe=dedupe,
        new_ids=new_ids,
        takes_newer=on_conflict == "newer",
        strip_pii=strip_pii,
        is_quiet=quiet,
        dry_run=dry_run,
        resume=resume,
    )
    path = None if source == _STANDARD_STREAM else source
    if resume and (path is None or path.is_dir()):
        raise_usage_error("--resume works only with a file. Without it, the same command skips memories that are already stored.")
    import_source = ImportSource(
        path=path,
        standard_input=sys.stdin.buffer,
        import_format=form,
        split_by=by,
        default_time=utc_now(),
        timezone=None if timezone is None else _parse_zone(timezone),
        companion=companion,
    )
    # Listed in every run, not only a dry run: the memories that were not stored, and why.
    printer = RunReportPrinter(as_json=as_json, lists_items=True, dry_run=dry_run)

    async def work(memory: MemoryServices, workspace_id: int) -> RunReport:
        of_workspace = replace(request, workspace_id=workspace_id, by=get_operator())
        resumable = replace(of_workspace, run=_run_name(import_source, of_workspace))
        with open_source(import_source) as items, printer.observe("Importing") as observer:
            async with memory.training.run_in_background():
                if dry_run:
                    return await memory.transfer.importer.run(resumable, items, observer=observer)
                options = {"source": source.name, "format": form, "dedupe": dedupe, "new_ids": new_ids, "strip_pii": strip_pii}
                return await memory.audit.run(
                    get_operator(),
                    workspace_id,
                    "memories.imported",
                    {**read_fields(overrides, ("org", "project", "agent_id", "type", "memory_scope", "tags")), **options},
                    lambda: memory.transfer.importer.run(resumable, items, observer=observer),
                )

    try:
        report = run_in_workspace(context, workspace, work)
    except ValidationFailed as error:
        raise_usage_error(error.message)
    printer.print_report(report)


def _parse_mappings(texts: Sequence[str]) -> tuple[LabelMapping, ...]:
    try:
        return tuple(parse_mapping(text) for text in texts)
    except ValueError as error:
        raise_usage_error(f"{error}.")


def _parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        raise_usage_error(f"{name!r} is not a time zone; use a name such as Europe/Berlin or UTC.")


def _run_name(source: ImportSource, request: importing.ImportRequest) -> str | None:
    """Return a name that identifies the file, its version and the options, for --resume. None if the source is not a file."""
    if source.path is None or not source.path.is_file():
        return None
    status = source.path.stat()
    options = replace(request, dry_run=False, resume=False, by=SYSTEM_ACTOR)
    version = f"{source.path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    identity = "\0".join(map(str, (version, source.import_format, source.split_by, source.timezone, source.companion, options)))
    return f"import {request.workspace_id} {blake2b(os.fsencode(identity), digest_size=12).hexdigest()}"


@contextmanager
def _open_destination(out: Path, form: Literal["jsonl", "markdown"]) -> Generator[exporting.ExportDestination]:
    """Return the destination of an export. Existing files are not overwritten, and a failed export leaves no partial file."""
    if form == "markdown":
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise_usage_error(f"{out} already exists; choose a new folder.")
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
        raise_usage_error(f"Cannot create {path}: {error.strerror}")
    is_complete = False
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
        is_complete = True
    finally:
        if not is_complete:
            path.unlink(missing_ok=True)
