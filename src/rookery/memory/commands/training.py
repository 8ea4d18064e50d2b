"""`brain training` and `brain export-training`: training examples from recalls and feedback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

import typer

from rookery.access.operator import get_operator
from rookery.kernel.clock import format_iso
from rookery.kernel.sentences import format_count
from rookery.memory.commands.maintenance_services import run_in_workspace
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder, redact
from rookery.memory.recall_models import LabelledMemory, TrainingStatus
from rookery.terminal.options import JsonOption, OutputOption, WorkspaceOption, YesOption, confirm, open_new_file, raise_usage_error
from rookery.terminal.output import show_progress

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.memory.build import MemoryServices

T = TypeVar("T")


def training(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Start recording training rows.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Stop recording training rows.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the existing rows.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start or stop recording training rows in a workspace. Without an option, print the status."""
    if on and off:
        raise_usage_error("--on and --off exclude each other; pass one of them.")
    if forget:
        confirm("Delete all training rows of the workspace? They cannot be restored.", yes=yes)

    async def work(memory: MemoryServices, workspace_id: int) -> tuple[TrainingStatus, int]:
        if on or off:
            await memory.training.set_enabled(workspace_id, is_enabled=on, by=get_operator())
        deleted_count = await memory.training.delete_all(workspace_id, by=get_operator()) if forget else 0
        return await memory.training.get_status(workspace_id), deleted_count

    status, deleted_count = run_in_workspace(context, workspace, work)
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

    async def work(memory: MemoryServices, workspace_id: int, file: TextIO | None) -> int:
        total, written_count = (await memory.training.get_status(workspace_id)).example_count, 0
        with show_progress("Exporting", total) as bar:
            async for page in memory.training.iter_pages(workspace_id, by=get_operator()):
                for example in page:
                    print(json.dumps(_to_json(example, finders), ensure_ascii=False), file=file)
                written_count += len(page)
                bar(written_count)
        return written_count

    with open_new_file(out) as file:
        row_count = run_in_workspace(context, workspace, lambda memory, number: work(memory, number, file))
    _print_summary(out, row_count)


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
    typer.echo(f"{format_count(row_count, 'training row')}{'' if out is None or str(out) == '-' else f' written to {out}'}", err=True)
