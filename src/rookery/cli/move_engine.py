"""`rookery move-engine`: the records, the vectors or the full texts in another engine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rookery.backup import record_move
from rookery.backup.record_move import RecordMove, RecordMoveResult
from rookery.cli.store import prepare_folder, require_data
from rookery.kernel.config import Settings, parse_address
from rookery.kernel.sealing import KeySource
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption
from rookery.terminal.output import print_fields, print_json, print_notice, show_progress

app = typer.Typer(no_args_is_help=True, help="Move the records, the vectors or the full texts to another engine.")

ToOption = Annotated[
    str, typer.Option("--to", help="The address of the new engine, as in the setting. ${NAME} is replaced by the variable.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check both engines, and print counts and an estimate; change nothing.")]

_ROWS_PER_S = 6_000
"""Rows per second that a move of records takes about, for estimates (measured: docs/how-to/move-engines.md)."""


@app.command("records")
def move_records(context: typer.Context, *, to: ToOption, dry_run: DryRunOption = False, as_json: JsonOption = False) -> None:
    """Move all records from SQLite to PostgreSQL, or back, while no server runs. Either all of them are moved or none."""
    settings = get_settings(context)
    move = RecordMove(data_dir=settings.data_dir, source=settings.database_url, target=parse_address(to, os.environ, name="--to"))
    require_data(settings)
    preview = record_move.preview(move)
    if dry_run:
        _print_records(preview, move, as_json=as_json, is_preview=True)
        return
    prepare_folder(settings)
    with show_progress("Moving records", preview.rows) as progress:
        result = record_move.run(move, progress=progress)
    _print_records(result, move, as_json=as_json, is_preview=False)
    _print_next_steps(move, settings, result.secret_key_id)


def _print_records(result: RecordMoveResult, move: RecordMove, *, as_json: bool, is_preview: bool) -> None:
    target = "postgresql" if move.is_to_postgresql else "embedded"
    if as_json:
        fields: dict[str, object] = {"target": target, "rows": result.rows, "dry_run": is_preview}
        if is_preview:
            print_json({**fields, "estimated_s": round(result.rows / _ROWS_PER_S, 1)})
            return
        tables = [{"name": table.name, "rows": table.rows, "checksum": table.checksum} for table in result.tables]
        print_json({**fields, "duration_s": round(result.duration_s, 3), "verified": True, "tables": tables})
        return
    if is_preview:
        print_fields({"target": target, "rows": f"{result.rows:,}", "estimated time": f"{result.rows / _ROWS_PER_S:.0f} s"})
        print_notice("Dry run: nothing was changed.")
        return
    filled = sum(table.rows > 0 for table in result.tables)
    print_fields(
        {
            "moved to": target,
            "rows": f"{result.rows:,} in {filled} of {len(result.tables)} tables",
            "verified": "the number of rows and the checksum of each table are equal",
            "duration": f"{result.duration_s:.1f} s",
        }
    )


def _print_next_steps(move: RecordMove, settings: Settings, key_id: str | None) -> None:
    source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
    is_available = key_id is None or key_id in source.load_keys()
    if not is_available:
        print_notice(f"The encrypted values need the secret key {key_id}, which is not available here: set ROOKERY_SECRET_KEY to it.")
    if not move.is_to_postgresql:
        print_notice("Remove ROOKERY_DATABASE_URL, or set it to embedded:, then start the server. The database is as it was.")
        return
    if is_available and settings.secret_key is None:
        value = f"the line without # in {source.path}" if source.path.exists() else "the output of `openssl rand -base64 32`"
        print_notice(f"PostgreSQL needs the secret key as a setting: set ROOKERY_SECRET_KEY to {value}.")
    print_notice(
        "Set ROOKERY_DATABASE_URL to the address of --to, then start the server. "
        f"{settings.data_dir / 'records.db'} is as it was; delete it when you no longer need it."
    )
