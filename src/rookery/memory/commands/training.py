"""`brain training` and `brain export-training`: training examples from recalls and feedback (D-57)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TextIO, TypeVar

import typer

from rookery.access.commands.options import OutputOption, open_new_file
from rookery.access.commands.output import show_progress
from rookery.kernel.clock import format_iso
from rookery.memory.commands.command_context import (
    Json,
    MaintenanceCommandContext,
    MaintenancePlatform,
    WorkspaceOption,
    fail_usage,
    get_platform,
    resolve_workspace,
)
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder, redact
from rookery.memory.recall_records import LabelledMemory, TrainingStatus

T = TypeVar("T")


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("training")(training)
    brain.command("export-training")(export_training)


def training(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Start recording training rows.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Stop recording training rows.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the existing rows.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Start or stop recording training rows in a workspace. Without an option, print the status."""
    if on and off:
        fail_usage("--on and --off exclude each other; pass one of them.")
    if forget and not yes:
        if not sys.stdin.isatty():
            fail_usage("Deleted rows cannot be restored. Add --yes to confirm.")
        typer.confirm("Delete all training rows of the workspace?", abort=True, err=True)

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int) -> tuple[TrainingStatus, int]:
        if on or off:
            await maintenance_platform.training.set_enabled(workspace_id, is_enabled=on)
        deleted_count = await maintenance_platform.training.delete_all(workspace_id) if forget else 0
        return await maintenance_platform.training.get_status(workspace_id), deleted_count

    status, deleted_count = asyncio.run(_run_in_workspace(get_platform(context), workspace, work))
    since = None if status.enabled_since is None else format_iso(status.enabled_since)
    if as_json:
        typer.echo(json.dumps({"on": since is not None, "since": since, "rows": status.example_count, "forgotten": deleted_count}))
        return
    state = "Training rows are not recorded" if since is None else f"Training rows are recorded since {since}"
    typer.echo(f"{state}. Stored rows: {status.example_count:,}.{f' Deleted rows: {deleted_count:,}.' if forget else ''}")


def export_training(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    out: OutputOption = None,
    *,
    strip_pii: Annotated[bool, typer.Option("--strip-pii", help=r"Replace personal data and secrets by marks such as \[email].")] = False,
) -> None:
    """Write the training rows of a workspace as JSON lines, each with the current version of its memory."""
    finders = load_finders() if strip_pii else ()

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int, file: TextIO | None) -> int:
        total, written_count = (await maintenance_platform.training.get_status(workspace_id)).example_count, 0
        with show_progress("Exporting", total) as bar:
            async for page in maintenance_platform.training.iter_pages(workspace_id):
                for example in page:
                    print(json.dumps(_to_json(example, finders), ensure_ascii=False), file=file)
                written_count += len(page)
                bar(written_count)
        return written_count

    with open_new_file(out) as file:
        row_count = asyncio.run(
            _run_in_workspace(
                get_platform(context), workspace, lambda maintenance_platform, number: work(maintenance_platform, number, file)
            )
        )
    _print_summary(out, row_count)


async def _run_in_workspace(
    platform: MaintenanceCommandContext, workspace: str | None, work: Callable[[MaintenancePlatform, int], Awaitable[T]]
) -> T:
    async with platform.open() as maintenance_platform:
        return await work(maintenance_platform, await resolve_workspace(maintenance_platform, workspace))


def _to_json(example: LabelledMemory, finders: Sequence[PiiFinder]) -> Mapping[str, object]:
    row, memory = example.example, example.memory

    def clean(text: str | None) -> str | None:
        return redact(text, finders).text if text is not None and finders else text

    return {
        "verdict": row.label,
        "query": clean(row.query),
        "content": clean(memory.content),
        "memory_id": row.memory_id,
        "recall_id": row.recall_id,
        "mode": row.mode,
        "place": row.place,
        "semantic_rank": row.semantic_rank,
        "keyword_rank": row.keyword_rank,
        "at": format_iso(row.at),
        "type": memory.type,
        "tags": [clean(tag) for tag in memory.tags],
        "org": memory.org,
        "project": memory.project,
        "memory_scope": memory.memory_scope.value,
        "confidence": memory.confidence,
        "archived": memory.archived_at is not None,
    }


def _print_summary(out: Path | None, row_count: int) -> None:
    """Print the number of rows exported, to standard error."""
    typer.echo(f"{row_count:,} training rows{'' if out is None or str(out) == '-' else f' written to {out}'}", err=True)
