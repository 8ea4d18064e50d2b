"""`rookery audit verify|export|list`: read, export and verify the audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO, cast

import typer

from rookery.access.audit_chain import ExportVerifier
from rookery.access.audit_log import PLATFORM_CHAIN, ChainVerification, entry_to_json
from rookery.access.build import AccessServices
from rookery.access.commands.key_services import read
from rookery.access.models import AuditEntry, AuditFilter
from rookery.access.operator import resolve_workspace
from rookery.kernel.pages import iter_items
from rookery.terminal.options import (
    JsonOption,
    OutputOption,
    WorkspaceOption,
    open_existing_file,
    open_new_file,
    parse_time,
    raise_usage_error,
    split_names,
)
from rookery.terminal.output import Fields, ProgressCallback, format_value, print_json, print_list, print_notice, print_rows, show_progress

app = typer.Typer(no_args_is_help=True)

_PAGE_SIZE = 1_000
_HASH_DIGITS = 64
_MAX_LINE_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a line. No entry is longer, so another file is rejected without being read into memory."""
_MAX_VALUE_LENGTH = 200
_PLATFORM_NAME = "the platform"

ChainOption = Annotated[
    str | None,
    typer.Option("--workspace", help="Only the chain of this workspace (name or number); by default all chains.", show_default=False),
]
PlatformOption = Annotated[bool, typer.Option("--platform", help="Only the platform's chain: workspaces created, renamed and deleted.")]
SinceOption = Annotated[
    str | None, typer.Option(help="Only entries from this time on: 2027-01-31, or 7d for seven days ago.", show_default=False)
]
UntilOption = Annotated[str | None, typer.Option(help="Only entries before this time.", show_default=False)]
ContainsOption = Annotated[
    list[str] | None,
    typer.Option("--contains", help="A hash stored elsewhere that one chain must contain; may be repeated.", show_default=False),
]


@app.command()
def verify(
    context: typer.Context,
    *,
    workspace: ChainOption = None,
    platform: PlatformOption = False,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Verify these exported files instead, in order, as one export; - is standard input.", show_default=False),
    ] = None,
    contains: ContainsOption = None,
    in_json: JsonOption = False,
) -> None:
    """Verify chains of the audit log from their first entry. If one is broken, show its first invalid entry and exit with code 1."""
    known_hashes = _parse_hashes(contains)
    if file:
        if workspace is not None or platform:
            raise_usage_error("--file verifies every chain in the files. Omit --workspace and --platform.")
        _print_verification(*_verify_files(file, known_hashes), known_hashes, in_json=in_json)
        return

    async def work(services: AccessServices) -> list[tuple[str, ChainVerification]]:
        chains = await _select_chains(services, workspace, platform=platform)
        total = sum(end.seq for end in await services.audit.list_chain_ends() if end.workspace_id in chains)
        verifications = list[tuple[str, ChainVerification]]()
        with show_progress("Verifying", total) as bar:
            for number, name in chains.items():
                before = sum(verdict.entry_count for _, verdict in verifications)
                verified = await services.audit.verify(number, known_hashes=known_hashes, progress=_offset_progress(bar, before))
                verifications.append((name, verified))
        return verifications

    _print_verification(read(context, work), "", known_hashes, in_json=in_json)


@app.command()
def export(
    context: typer.Context,
    *,
    workspace: ChainOption = None,
    platform: PlatformOption = False,
    since: SinceOption = None,
    until: UntilOption = None,
    out: OutputOption = None,
) -> None:
    """Export chains of the audit log as JSON lines, oldest entry first. `verify --file` verifies them without a database."""
    first, beyond = parse_time(since), parse_time(until)

    async def work(services: AccessServices, file: TextIO | None) -> None:
        chains, count = await _select_chains(services, workspace, platform=platform), 0
        total = sum(end.seq for end in await services.audit.list_chain_ends() if end.workspace_id in chains)
        with show_progress("Exporting", None if file is None else total) as bar:
            for number in chains:
                async for entry in _iter_between(services, number, first, beyond):
                    print(json.dumps(entry_to_json(entry), ensure_ascii=False), file=file)
                    count += 1
                    if count % _PAGE_SIZE == 0:
                        bar(count)

    with open_new_file(out) as file:
        read(context, lambda services: work(services, file))


@app.command("list")
def list_(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(help="Maximum number of entries.", min=1)] = 20,
    action: Annotated[str | None, typer.Option(help="Only this action, for example api_key.rotated.", show_default=False)] = None,
    subject: Annotated[str | None, typer.Option(help="Only changes of the key or other resource with this id.", show_default=False)] = None,
    actor: Annotated[str | None, typer.Option(help="Only changes made with the key with this id.", show_default=False)] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    platform: PlatformOption = False,
    workspace: WorkspaceOption = None,
    in_json: JsonOption = False,
) -> None:
    """List the newest entries of a workspace's audit log: time, actor, action, old and new values."""
    if platform and workspace is not None:
        raise_usage_error("Use either --workspace or --platform.")
    filters = AuditFilter(action=action, subject_id=subject, actor_id=actor, since=parse_time(since), until=parse_time(until))

    async def work(services: AccessServices) -> None:
        number = PLATFORM_CHAIN if platform else (await resolve_workspace(services, workspace)).id

        async def rows() -> AsyncGenerator[Fields]:
            async for entry in iter_items(partial(services.audit.list_page, number, filters), limit=limit, page_size=_PAGE_SIZE):
                yield entry_to_json(entry) if in_json else _entry_row(entry)

        columns, in_table = ["when", "who", "what", "of", "id", "change"], ["when", "who", "done", "change"]
        await print_rows(rows(), columns, as_json=in_json, table_columns=in_table)

    read(context, work)


async def _select_chains(services: AccessServices, workspace: str | None, *, platform: bool) -> dict[int, str]:
    """Return the selected chains by number, with their names; without a selection all, the platform's first."""
    if platform and workspace is not None:
        raise_usage_error("Use either --workspace or --platform.")
    if workspace is not None:
        owner = await resolve_workspace(services, workspace)
        return {owner.id: owner.name}
    if platform:
        return {PLATFORM_CHAIN: _PLATFORM_NAME}
    names_by_id = {workspace.id: workspace.name for workspace in await services.workspaces.list()}
    # Deleting a workspace deletes its chain, so a chain without a workspace is suspect and verified too.
    numbers = {PLATFORM_CHAIN, *names_by_id, *(end.workspace_id for end in await services.audit.list_chain_ends())}
    return {
        number: names_by_id.get(number, _PLATFORM_NAME if number == PLATFORM_CHAIN else f"workspace {number}") for number in sorted(numbers)
    }


async def _iter_between(
    services: AccessServices, number: int, first: datetime | None, beyond: datetime | None
) -> AsyncGenerator[AuditEntry]:
    """
    Yield a chain from its first entry at or after *first*, up to its first entry at or after *beyond*.

    Clocks of two processes may differ, so times can step back within a chain. These bounds leave no gaps in an export, and
    the exports of two adjacent months join without a gap.
    """
    has_begun = first is None
    async for entry in services.audit.iter_entries(number):
        if beyond is not None and entry.at >= beyond:
            return
        has_begun = has_begun or (first is not None and entry.at >= first)
        if has_begun:
            yield entry


def _verify_files(paths: Sequence[Path], known_hashes: Sequence[str]) -> tuple[list[tuple[str, ChainVerification]], str]:
    """Verify exported files; return the result of each chain, and the first error with its file and line."""
    export, fault = ExportVerifier(known_hashes=known_hashes), ""
    for path in paths:
        number = 0
        with open_existing_file(path) as file, show_progress("Verifying", None) as bar:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE_BYTES), b""), 1):
                error = export.add_line(line)
                if error:
                    fault = f"{path}, line {number}: {error}"
                    break
                if number % _PAGE_SIZE == 0:
                    bar(number)
        if not number:
            fault = f"{path}: the file has no entry"
        if fault:
            break
    verifications = [
        (
            _PLATFORM_NAME if chain.workspace_id == PLATFORM_CHAIN else f"workspace {chain.workspace_id}",
            ChainVerification(
                workspace_id=chain.workspace_id,
                entry_count=chain.entry_count,
                last_hash=chain.last_hash,
                found_hashes=frozenset(export.found_hashes),
            ),
        )
        for chain in export.chains.values()
    ]
    return verifications, fault


def _print_verification(
    verifications: Sequence[tuple[str, ChainVerification]], fault: str, known_hashes: Sequence[str], *, in_json: bool
) -> None:
    """Print the results; exit with code 1 unless every chain is valid."""
    found_hashes = {entry_hash for _, verdict in verifications for entry_hash in verdict.found_hashes}
    absent = [entry_hash for entry_hash in known_hashes if entry_hash not in found_hashes]
    is_whole = not fault and not absent and all(verdict.broken_at is None for _, verdict in verifications)
    rows: list[dict[str, object]] = [
        {
            "workspace_id": verdict.workspace_id,
            "name": name,
            "entries": verdict.entry_count,
            "last_hash": verdict.last_hash,
            "broken_at": verdict.broken_at,
            "reason": verdict.reason or None,
        }
        for name, verdict in verifications
    ]
    if in_json:
        print_json({"whole": is_whole, "chains": rows, "fault": fault or None, "not_contained": absent})
    else:
        for row in rows:
            row["state"] = "intact" if row["broken_at"] is None else "broken"
        columns, in_table = (
            ["workspace_id", "name", "entries", "last_hash", "state", "broken_at", "reason"],
            ["name", "entries", "last_hash", "state"],
        )
        print_list(rows, columns, table_columns=in_table)
        for name, verdict in verifications:
            if verdict.broken_at is not None:
                print_notice(f"The chain of {name} is broken at entry {verdict.broken_at}: {verdict.reason}.")
        if fault:
            print_notice(f"{fault}.")
        for entry_hash in absent:
            print_notice(f"No entry has the hash {entry_hash}: its chain was rewritten, or is not one of these.")
    if not is_whole:
        raise typer.Exit(1)


def _parse_hashes(values: Sequence[str] | None) -> tuple[str, ...]:
    hashes = tuple(entry_hash.lower() for entry_hash in split_names(values))
    for entry_hash in hashes:
        if len(entry_hash) != _HASH_DIGITS or not set(entry_hash) <= set("0123456789abcdef"):
            raise_usage_error(f"{entry_hash!r} is not a hash, which has {_HASH_DIGITS} hexadecimal digits.")
    return hashes


def _offset_progress(bar: ProgressCallback, before: int) -> ProgressCallback:
    return lambda done: bar(before + done)


def _entry_row(entry: AuditEntry) -> Fields:
    actor = " ".join(part for part in (entry.actor_kind, entry.actor_name, entry.address) if part)
    return {
        "when": cast("str", entry_to_json(entry)["at"]),
        "who": actor,
        "what": entry.action,
        "done": f"{entry.action} {entry.subject_name}",
        "of": entry.subject_name,
        "id": entry.subject_id,
        "change": _format_change(entry.before, entry.after),
    }


def _format_change(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> str:
    """Return the old and new values; for a created or deleted thing, its fields that are not empty."""
    if before is not None and after is not None:
        return "; ".join(f"{name}: {_shorten(before.get(name))} → {_shorten(value)}" for name, value in after.items())
    fields = before or after or {}
    in_other_columns = {"id", "name", "workspace_id", "created_at"}
    return "; ".join(
        f"{name}: {_shorten(value)}"
        for name, value in fields.items()
        if name not in in_other_columns and value not in (None, [], {}, False)
    )


def _shorten(value: object) -> str:
    text = format_value(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
