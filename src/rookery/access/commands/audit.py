"""`rookery audit verify|export|list`: who changed what, and whether the log of it is whole (D-29)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO, cast

import typer

from rookery.access.audit import PLATFORM_CHAIN, Verdict, as_json
from rookery.access.chain import Export
from rookery.access.commands.printing import Bar, Fields, print_json, print_many, print_rows, progress, say, text_of
from rookery.access.commands.reading import Out, new_file, old_file, read_moment, read_names, usage_error
from rookery.access.commands.terminal import Json, Services, Where, read, workspace_of
from rookery.access.models import AuditEntry, AuditFilter

app = typer.Typer(help="The audit log: every change to keys and workspaces.", no_args_is_help=True)

_PAGE = 1_000
_HASH_DIGITS = 64
_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; more than any entry has, so that a file that is none of ours is refused without being read into memory."""
_LONGEST_VALUE = 200
_PLATFORM = "the platform"

Chain = Annotated[
    str | None,
    typer.Option("--workspace", help="Only this workspace's chain, by name or number; all chains by default.", show_default=False),
]
Platform = Annotated[bool, typer.Option("--platform", help="The platform's own chain: workspaces made, renamed, deleted.")]
Since = Annotated[str | None, typer.Option(help="Only from this time on: 2027-01-31, or 7d for seven days ago.", show_default=False)]
Until = Annotated[str | None, typer.Option(help="Only before this time.", show_default=False)]
Kept = Annotated[
    list[str] | None,
    typer.Option("--contains", help="A hash kept elsewhere, which must be in a chain; may be repeated.", show_default=False),
]


@app.command()
def verify(
    context: typer.Context,
    *,
    workspace: Chain = None,
    platform: Platform = False,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Check exported files instead, in this order, as one export; - is standard input.", show_default=False),
    ] = None,
    contains: Kept = None,
    in_json: Json = False,
) -> None:
    """Read chains of the audit log from their beginning; exit code 1, and where it is broken, if one is not what was written."""
    kept = _hashes(contains)
    if file:
        if workspace is not None or platform:
            usage_error("--file checks files, whatever chains are in them; leave out --workspace and --platform.")
        _conclude(*_read_files(file, kept), kept, in_json=in_json)
        return

    async def work(services: Services) -> list[tuple[str, Verdict]]:
        chains = await _chains(services, workspace, platform=platform)
        total = sum(end.seq for end in await services.audit.ends() if end.workspace_id in chains)
        found = list[tuple[str, Verdict]]()
        with progress("Verifying", total) as bar:
            for number, name in chains.items():
                before = sum(verdict.entries for _, verdict in found)
                found.append((name, await services.audit.verify(number, kept=kept, progress=_shifted(bar, before))))
        return found

    _conclude(read(context, work), "", kept, in_json=in_json)


@app.command()
def export(
    context: typer.Context,
    *,
    workspace: Chain = None,
    platform: Platform = False,
    since: Since = None,
    until: Until = None,
    out: Out = None,
) -> None:
    """Write chains of the audit log as JSON lines, an entry a line, oldest first; `verify --file` checks them without any store."""
    first, beyond = read_moment(since), read_moment(until)

    async def work(services: Services, file: TextIO | None) -> None:
        chains, count = await _chains(services, workspace, platform=platform), 0
        total = sum(end.seq for end in await services.audit.ends() if end.workspace_id in chains)
        with progress("Exporting", None if file is None else total) as bar:
            for number in chains:
                async for entry in _between(services, number, first, beyond):
                    print(json.dumps(as_json(entry), ensure_ascii=False), file=file)
                    count += 1
                    if count % _PAGE == 0:
                        bar(count)

    with new_file(out) as file:
        read(context, lambda services: work(services, file))


@app.command("list")
def list_(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(help="How many, the newest first.", min=1)] = 20,
    action: Annotated[str | None, typer.Option(help="Only such changes, as api_key.rotated.", show_default=False)] = None,
    subject: Annotated[str | None, typer.Option(help="Only changes of the key, or other thing, with this id.", show_default=False)] = None,
    actor: Annotated[str | None, typer.Option(help="Only changes made with the key of this id.", show_default=False)] = None,
    since: Since = None,
    until: Until = None,
    platform: Platform = False,
    workspace: Where = None,
    in_json: Json = False,
) -> None:
    """List the newest entries of a workspace's audit log: when, who, what, from what to what."""
    if platform and workspace is not None:
        usage_error("Say either --workspace or --platform.")
    which = AuditFilter(action=action, subject_id=subject, actor_id=actor, since=read_moment(since), until=read_moment(until))

    async def work(services: Services) -> None:
        number = PLATFORM_CHAIN if platform else (await workspace_of(services, workspace)).id

        async def rows() -> AsyncGenerator[Fields]:
            for offset in range(0, limit, _PAGE):
                found, _ = await services.audit.page(number, which, limit=min(_PAGE, limit - offset), offset=offset)
                for entry in found:
                    yield as_json(entry) if in_json else _row(entry)
                if len(found) < _PAGE:
                    return

        columns, in_table = ["when", "who", "what", "of", "id", "change"], ["when", "who", "done", "change"]
        await print_rows(rows(), columns, as_json=in_json, in_table=in_table)

    read(context, work)


async def _chains(services: Services, workspace: str | None, *, platform: bool) -> dict[int, str]:
    """Return the chains that are asked for, by number, with their names: all without a choice, the platform's first."""
    if platform and workspace is not None:
        usage_error("Say either --workspace or --platform.")
    if workspace is not None:
        found = await workspace_of(services, workspace)
        return {found.id: found.name}
    if platform:
        return {PLATFORM_CHAIN: _PLATFORM}
    known = {each.id: each.name for each in await services.workspaces.list()}
    # A chain without a workspace is none that we would leave, so it is looked at too.
    numbers = {PLATFORM_CHAIN, *known, *(end.workspace_id for end in await services.audit.ends())}
    return {number: known.get(number, _PLATFORM if number == PLATFORM_CHAIN else f"workspace {number}") for number in sorted(numbers)}


async def _between(services: Services, number: int, first: datetime | None, beyond: datetime | None) -> AsyncGenerator[AuditEntry]:
    """
    Yield a chain from its first entry at *first* or later, up to its first at *beyond* or later.

    Clocks of two processes may differ, so times may step back within a chain: cut thus, there is never a hole in what is
    exported, and the exports of two months that meet go on from each other.
    """
    has_begun = first is None
    async for entry in services.audit.entries(number):
        if beyond is not None and entry.at >= beyond:
            return
        has_begun = has_begun or (first is not None and entry.at >= first)
        if has_begun:
            yield entry


def _read_files(paths: Sequence[Path], kept: Sequence[str]) -> tuple[list[tuple[str, Verdict]], str]:
    """Check exported files; return how far each chain in them is whole, and what is wrong at which line, if something is."""
    export, fault = Export(kept=kept), ""
    for path in paths:
        number = 0
        with old_file(path) as file, progress("Verifying", None) as bar:
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
                wrong = export.read(line)
                if wrong:
                    fault = f"{path}, line {number}: {wrong}"
                    break
                if number % _PAGE == 0:
                    bar(number)
        if not number:
            fault = f"{path}: there is no entry in it"
        if fault:
            break
    found = [
        (
            _PLATFORM if chain.workspace_id == PLATFORM_CHAIN else f"workspace {chain.workspace_id}",
            Verdict(workspace_id=chain.workspace_id, entries=chain.entries, last_hash=chain.last_hash, has=frozenset(export.has)),
        )
        for chain in export.chains.values()
    ]
    return found, fault


def _conclude(found: Sequence[tuple[str, Verdict]], fault: str, kept: Sequence[str], *, in_json: bool) -> None:
    """Print what was found; exit code 1 if not all is whole."""
    met = {each for _, verdict in found for each in verdict.has}
    absent = [each for each in kept if each not in met]
    is_whole = not fault and not absent and all(verdict.broken_at is None for _, verdict in found)
    rows: list[dict[str, object]] = [
        {
            "workspace_id": verdict.workspace_id,
            "name": name,
            "entries": verdict.entries,
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
        print_many(rows, columns, in_table=in_table)
        for name, verdict in found:
            if verdict.broken_at is not None:
                say(f"The chain of {name} is broken at entry {verdict.broken_at}: {verdict.reason}.")
        if fault:
            say(f"{fault}.")
        for each in absent:
            say(f"No entry has the hash {each}: its chain was rewritten, or is not among these.")
    if not is_whole:
        raise typer.Exit(1)


def _hashes(given: Sequence[str] | None) -> tuple[str, ...]:
    kept = tuple(each.lower() for each in read_names(given))
    for each in kept:
        if len(each) != _HASH_DIGITS or not set(each) <= set("0123456789abcdef"):
            usage_error(f"{each!r} is no hash: {_HASH_DIGITS} hexadecimal digits.")
    return kept


def _shifted(bar: Bar, before: int) -> Bar:
    return lambda done: bar(before + done)


def _row(entry: AuditEntry) -> Fields:
    who = " ".join(part for part in (entry.actor_kind, entry.actor_name, entry.address) if part)
    return {
        "when": cast("str", as_json(entry)["at"]),
        "who": who,
        "what": entry.action,
        "done": f"{entry.action} {entry.subject_name}",
        "of": entry.subject_name,
        "id": entry.subject_id,
        "change": _change(entry.before, entry.after),
    }


def _change(before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> str:
    """Return from what to what; of a thing made or deleted, what it was, without what it was not."""
    if before is not None and after is not None:
        return "; ".join(f"{name}: {_short(before.get(name))} → {_short(value)}" for name, value in after.items())
    fields = before or after or {}
    told = {"id", "name", "workspace_id", "created_at"}  # in the other columns
    return "; ".join(
        f"{name}: {_short(value)}" for name, value in fields.items() if name not in told and value not in (None, [], {}, False)
    )


def _short(value: object) -> str:
    text = text_of(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
