"""`brain training` and `brain export-training`: what recalls were used for, for those who train on it (D-57)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TextIO, TypeVar

import typer

from rookery.access.commands.printing import progress
from rookery.access.commands.reading import Out, new_file
from rookery.kernel.clock import iso
from rookery.memory.commands.opening import Json, Opened, Opens, Where, one, opens, wrong
from rookery.memory.maintenance.cleaning import finders
from rookery.memory.maintenance.cleaning.marks import Finder, strip
from rookery.memory.past import Schooling, Taught

T = TypeVar("T")


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("training")(training)
    brain.command("export-training")(export_training)


def training(
    context: typer.Context,
    workspace: Where = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Keep rows from now on.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Keep no more rows.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the rows that are there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Keep rows to train on in a workspace, or no more; without an option, tell whether it does."""
    if on and off:
        wrong("Say either --on or --off.")
    if forget and not yes:
        if not sys.stdin.isatty():
            wrong("The rows cannot be brought back. Say --yes to delete them.")
        typer.confirm("Delete all training rows of the workspace?", abort=True, err=True)

    async def work(opened: Opened, workspace_id: int) -> tuple[Schooling, int]:
        if on or off:
            await opened.training.switch(workspace_id, on=on)
        gone = await opened.training.forget(workspace_id) if forget else 0
        return await opened.training.standing(workspace_id), gone

    standing, gone = asyncio.run(_with(opens(context), workspace, work))
    since = None if standing.since is None else iso(standing.since)
    if as_json:
        typer.echo(json.dumps({"on": since is not None, "since": since, "rows": standing.rows, "forgotten": gone}))
        return
    kept = "Training rows are not kept" if since is None else f"Training rows are kept since {since}"
    typer.echo(f"{kept}; there are {standing.rows:,}.{f' {gone:,} were deleted.' if forget else ''}")


def export_training(
    context: typer.Context,
    workspace: Where = None,
    out: Out = None,
    *,
    strip_pii: Annotated[bool, typer.Option("--strip-pii", help=r"Put marks such as \[email] for personal data and secrets.")] = False,
) -> None:
    """Write the training rows of a workspace as JSON lines, each with its memory as it is now."""
    known = finders() if strip_pii else ()

    async def work(opened: Opened, workspace_id: int, file: TextIO | None) -> int:
        total, done = (await opened.training.standing(workspace_id)).rows, 0
        with progress("Exporting", total) as bar:
            async for page in opened.training.pages(workspace_id):
                for taught in page:
                    print(json.dumps(_line(taught, known), ensure_ascii=False), file=file)
                done += len(page)
                bar(done)
        return done

    with new_file(out) as file:
        done = asyncio.run(_with(opens(context), workspace, lambda opened, number: work(opened, number, file)))
    _say(out, done)


async def _with(platform: Opens, where: str | None, work: Callable[[Opened, int], Awaitable[T]]) -> T:
    async with platform.open() as opened:
        return await work(opened, await one(opened, where))


def _line(taught: Taught, known: Sequence[Finder]) -> Mapping[str, object]:
    row, memory = taught.row, taught.memory

    def clean(text: str | None) -> str | None:
        return strip(text, known).text if text is not None and known else text

    return {
        "verdict": row.lesson,
        "query": clean(row.query),
        "content": clean(memory.content),
        "memory_id": row.memory_id,
        "recall_id": row.recall_id,
        "mode": row.mode,
        "place": row.place,
        "semantic_rank": row.semantic_rank,
        "keyword_rank": row.keyword_rank,
        "at": iso(row.at),
        "type": memory.type,
        "tags": [clean(tag) for tag in memory.tags],
        "org": memory.org,
        "project": memory.project,
        "memory_scope": memory.memory_scope.value,
        "confidence": memory.confidence,
        "archived": memory.archived_at is not None,
    }


def _say(out: Path | None, done: int) -> None:
    """Tell how it ended, where that is no part of what was asked for."""
    typer.echo(f"{done:,} training rows{'' if out is None or str(out) == '-' else f' are in {out}'}", err=True)
