"""`rookery audit verify|export|list`: who changed what, and whether the log of it is whole (D-29)."""

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
from rookery.access.commands.command_context import AccessCommandServices, JsonOption, WorkspaceOption, read, resolve_workspace
from rookery.access.commands.options import OutputOption, open_existing_file, open_new_file, parse_time, raise_usage_error, split_names
from rookery.access.commands.output import (
    Fields,
    ProgressCallback,
    format_value,
    print_json,
    print_list,
    print_notice,
    print_rows,
    show_progress,
)
from rookery.access.models import AuditEntry, AuditFilter

app = typer.Typer(help="The audit log: every change to keys and workspaces.", no_args_is_help=True)

_PAGE_SIZE = 1_000
_HASH_DIGITS = 64
_MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes; more than any entry has, so that a file that is none of ours is refused without being read into memory."""
_MAX_VALUE_LENGTH = 200
_PLATFORM_NAME = "the platform"

ChainOption = Annotated[
    str | None,
    typer.Option("--workspace", help="Only this workspace's chain, by name or number; all chains by default.", show_default=False),
]
PlatformOption = Annotated[bool, typer.Option("--platform", help="The platform's own chain: workspaces made, renamed, deleted.")]
SinceOption = Annotated[str | None, typer.Option(help="Only from this time on: 2027-01-31, or 7d for seven days ago.", show_default=False)]
UntilOption = Annotated[str | None, typer.Option(help="Only before this time.", show_default=False)]
ContainsOption = Annotated[
    list[str] | None,
    typer.Option("--contains", help="A hash kept elsewhere, which must be in a chain; may be repeated.", show_default=False),
]


@app.command()
def verify(
    context: typer.Context,
    *,
    workspace: ChainOption = None,
    platform: PlatformOption = False,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Check exported files instead, in this order, as one export; - is standard input.", show_default=False),
    ] = None,
    contains: ContainsOption = None,
    in_json: JsonOption = False,
) -> None:
    """Read chains of the audit log from their beginning; exit code 1, and where it is broken, if one is not what was written."""
    kept = _parse_hashes(contains)
    if file:
        if workspace is not None or platform:
            raise_usage_error("--file checks files, whatever chains are in them; leave out --workspace and --platform.")
        _print_verification(*_verify_files(file, kept), kept, in_json=in_json)
        return

    async def work(services: AccessCommandServices) -> list[tuple[str, ChainVerification]]:
        chains = await _select_chains(services, workspace, platform=platform)
        total = sum(end.seq for end in await services.audit.list_chain_ends() if end.workspace_id in chains)
        found = list[tuple[str, ChainVerification]]()
        with show_progress("Verifying", total) as bar:
            for number, name in chains.items():
                before = sum(verdict.entry_count for _, verdict in found)
                found.append((name, await services.audit.verify(number, known_hashes=kept, progress=_offset_progress(bar, before))))
        return found

    _print_verification(read(context, work), "", kept, in_json=in_json)


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
    """Write chains of the audit log as JSON lines, an entry a line, oldest first; `verify --file` checks them without any store."""
    first, beyond = parse_time(since), parse_time(until)

    async def work(services: AccessCommandServices, file: TextIO | None) -> None:
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
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 20,
    action: Annotated[str | None, typer.Option(help="Only such changes, as api_key.rotated.", show_default=False)] = None,
    subject: Annotated[str | None, typer.Option(help="Only changes of the key, or other thing, with this id.", show_default=False)] = None,
    actor: Annotated[str | None, typer.Option(help="Only changes made with the key of this id.", show_default=False)] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    platform: PlatformOption = False,
    workspace: WorkspaceOption = None,
    in_json: JsonOption = False,
) -> None:
    """List the newest entries of a workspace's audit log: when, who, what, from what to what."""
    if platform and workspace is not None:
        raise_usage_error("Say either --workspace or --platform.")
    which = AuditFilter(action=action, subject_id=subject, actor_id=actor, since=parse_time(since), until=parse_time(until))

    async def work(services: AccessCommandServices) -> None:
        number = PLATFORM_CHAIN if platform else (await resolve_workspace(services, workspace)).id

        async def rows() -> AsyncGenerator[Fields]:
            for offset in range(0, limit, _PAGE_SIZE):
                found, _ = await services.audit.list_page(number, which, limit=min(_PAGE_SIZE, limit - offset), offset=offset)
                for entry in found:
                    yield entry_to_json(entry) if in_json else _entry_row(entry)
                if len(found) < _PAGE_SIZE:
                    return

        columns, in_table = ["when", "who", "what", "of", "id", "change"], ["when", "who", "done", "change"]
        await print_rows(rows(), columns, as_json=in_json, table_columns=in_table)

    read(context, work)


async def _select_chains(services: AccessCommandServices, workspace: str | None, *, platform: bool) -> dict[int, str]:
    """Return the chains that are asked for, by number, with their names: all without a choice, the platform's first."""
    if platform and workspace is not None:
        raise_usage_error("Say either --workspace or --platform.")
    if workspace is not None:
        found = await resolve_workspace(services, workspace)
        return {found.id: found.name}
    if platform:
        return {PLATFORM_CHAIN: _PLATFORM_NAME}
    known = {each.id: each.name for each in await services.workspaces.list()}
    # A chain without a workspace is none that we would leave, so it is looked at too.
    numbers = {PLATFORM_CHAIN, *known, *(end.workspace_id for end in await services.audit.list_chain_ends())}
    return {number: known.get(number, _PLATFORM_NAME if number == PLATFORM_CHAIN else f"workspace {number}") for number in sorted(numbers)}


async def _iter_between(
    services: AccessCommandServices, number: int, first: datetime | None, beyond: datetime | None
) -> AsyncGenerator[AuditEntry]:
    """
    Yield a chain from its first entry at *first* or later, up to its first at *beyond* or later.

    Clocks of two processes may differ, so times may step back within a chain: cut thus, there is never a hole in what is
    exported, and the exports of two months that meet go on from each other.
    """
    has_begun = first is None
    async for entry in services.audit.iter_entries(number):
        if beyond is not None and entry.at >= beyond:
            return
        has_begun = has_begun or (first is not None and entry.at >= first)
        if has_begun:
            yield entry


def _verify_files(paths: Sequence[Path], kept: Sequence[str]) -> tuple[list[tuple[str, ChainVerification]], str]:
    """Check exported files; return how far each chain in them is whole, and what is wrong at which line, if something is."""
    export, fault = ExportVerifier(known_hashes=kept), ""
    for path in paths:
        number = 0
        with open_existing_file(path) as file, show_progress("Verifying", None) as bar:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE_BYTES), b""), 1):
                wrong = export.add_line(line)
                if wrong:
                    fault = f"{path}, line {number}: {wrong}"
                    break
                if number % _PAGE_SIZE == 0:
                    bar(number)
        if not number:
            fault = f"{path}: there is no entry in it"
        if fault:
            break
    found = [
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
    return found, fault


def _print_verification(found: Sequence[tuple[str, ChainVerification]], fault: str, kept: Sequence[str], *, in_json: bool) -> None:
    """Print what was found; exit code 1 if not all is whole."""
    met = {each for _, verdict in found for each in verdict.found_hashes}
    absent = [each for each in kept if each not in met]
    is_whole = not fault and not absent and all(verdict.broken_at is None for _, verdict in found)
    rows: list[dict[str, object]] = [
        {
            "workspace_id": verdict.workspace_id,
            "name": name,
            "entries": verdict.entry_count,
            "last_hash": verdict.last_hash,
            "broken_at": verdict.broken_at,
            "reason": verdict.reason or None,
        }
        for name, verdict in found
    ]
    if in_json:
        print_json({"whole": is_whole, "chains": rows, "fault": fault or None, "not_contained": absent})
    else:
        for row in rows:
            row["state"] = "whole" if row["broken_at"] is None else "broken"
        columns, in_table = (
            ["workspace_id", "name", "entries", "last_hash", "state", "broken_at", "reason"],
            ["name", "entries", "last_hash", "state"],
        )
        print_list(rows, columns, table_columns=in_table)
        for name, verdict in found:
            if verdict.broken_at is not None:
                print_notice(f"The chain of {name} is broken at entry {verdict.broken_at}: {verdict.reason}.")
        if fault:
            print_notice(f"{fault}.")
        for each in absent:
            print_notice(f"No entry has the hash {each}: its chain was rewritten, or is not among these.")
    if not is_whole:
        raise typer.Exit(1)


def _parse_hashes(given: Sequence[str] | None) -> tuple[str, ...]:
    kept = tuple(each.lower() for each in split_names(given))
    for each in kept:
        if len(each) != _HASH_DIGITS or not set(each) <= set("0123456789abcdef"):
            raise_usage_error(f"{each!r} is no hash: {_HASH_DIGITS} hexadecimal digits.")
    return kept


def _offset_progress(bar: ProgressCallback, before: int) -> ProgressCallback:
    return lambda done: bar(before + done)


def _entry_row(entry: AuditEntry) -> Fields:
    who = " ".join(part for part in (entry.actor_kind, entry.actor_name, entry.address) if part)
    return {
        "when": cast("str", entry_to_json(entry)["at"]),
        "who": who,
        "what": entry.action,
        "done": f"{entry.action} {entry.subject_name}",
        "of": entry.subject_name,
        "id": entry.subject_id,
        "change": _format_change(entry.before, entry.after),
    }


def _format_change(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> str:
    """Return from what to what; of a thing made or deleted, what it was, without what it was not."""
    if before is not None and after is not None:
        return "; ".join(f"{name}: {_shorten(before.get(name))} → {_shorten(value)}" for name, value in after.items())
    fields = before or after or {}
    told = {"id", "name", "workspace_id", "created_at"}  # in the other columns
    return "; ".join(
        f"{name}: {_shorten(value)}" for name, value in fields.items() if name not in told and value not in (None, [], {}, False)
    )


def _shorten(value: object) -> str:
    text = format_value(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
