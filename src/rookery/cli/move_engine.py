"""`rookery move-engine`: the records, the vectors or the full texts in another engine."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.operator import get_operator
from rookery.access.operator_audit import write_entries
from rookery.backup import record_move
from rookery.backup.record_move import RecordMove, RecordMoveResult
from rookery.cli.store import prepare_folder, require_data
from rookery.engines import texts, vectors
from rookery.kernel.config import Settings, parse_address
from rookery.kernel.copy_log import delete_copy_log, open_copy_log
from rookery.kernel.db import Tx
from rookery.kernel.errors import Conflict
from rookery.kernel.sealing import KeySource
from rookery.kernel.secret import Secret
from rookery.memory.maintenance.index_move import IndexMove, MovedIndex, MovedTexts, MovedVectors, MovePreview, MoveReport
from rookery.memory.ports import IndexName
from rookery.terminal.context import get_settings, run
from rookery.terminal.options import JsonOption
from rookery.terminal.output import print_fields, print_json, print_notice, show_progress

if TYPE_CHECKING:  # records move without the rest of the platform, which takes a second to import
    from rookery.wiring import Rookery


app = typer.Typer(no_args_is_help=True, help="Move the records, the vectors or the full texts to another engine.")

ToOption = Annotated[
    str, typer.Option("--to", help="The address of the new engine, as in the setting. ${NAME} is replaced by the variable.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check both engines, and print counts and an estimate; copy nothing.")]

_ROWS_PER_S = 6_000
"""Rows per second that a move of records takes about, for estimates (measured: docs/how-to/move-engines.md)."""

_ENTRIES_PER_S = {"vectors": 700, "texts": 1_500}
"""Memories per second that a move takes about, for estimates (measured likewise). Embedding takes longer."""

_LOGIN = re.compile(r"//[^/@]*@")


@app.command("vectors")
def move_vectors(context: typer.Context, *, to: ToOption, dry_run: DryRunOption = False, as_json: JsonOption = False) -> None:
    """Copy the vectors to another engine while servers run. Run it again after they use the new one: it closes the gap."""
    _move_index(context, "vectors", to, dry_run=dry_run, as_json=as_json)


@app.command("texts")
def move_texts(context: typer.Context, *, to: ToOption, dry_run: DryRunOption = False, as_json: JsonOption = False) -> None:
    """Fill another full-text engine while servers run. Run it again after they use the new one: it closes the gap."""
    _move_index(context, "texts", to, dry_run=dry_run, as_json=as_json)


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
    subject = AuditSubject(kind="records", id="records", name=_LOGIN.sub("//", move.target.reveal()))

    def write(audit: AuditLog, tx: Tx) -> None:
        audit.record(tx, get_operator(), PLATFORM_CHAIN, "records.moved", subject, before=None, after={"rows": result.rows})

    reason = write_entries(settings.data_dir, move.target, write)
    if reason is not None:
        print_notice(f"The audit log has no entry of it: {reason}")
    _print_records(result, move, as_json=as_json, is_preview=False)
    _print_next_steps(move, settings, result.secret_key_id)


def _move_index(context: typer.Context, kind: IndexName, to: str, *, dry_run: bool, as_json: bool) -> None:
    target = parse_address(to, os.environ, name="--to")
    settings = get_settings(context)
    is_finish = target.reveal() == (settings.vectors if kind == "vectors" else settings.texts).reveal()
    path = settings.data_dir / f"move-{kind}.db"
    label = f"Finishing {kind}" if is_finish else f"Moving {kind}"

    async def work(platform: Rookery) -> MovePreview | MoveReport:
        outdated = await platform.memory.migration.list_progress()
        if outdated and kind == "vectors":
            raise Conflict(
                "The embedding model is being changed, so the old engine still serves the vectors of the previous one. "
                "Finish it first: rookery brain:reindex --stale"
            )
        goal = _describe_goal(kind, target, platform)
        async with _open_index(platform, kind, target, is_finish=is_finish) as index:
            with open_copy_log(path, goal) as log:
                move = IndexMove(
                    db=platform.db, clock=platform.clock, index=index, log=log, model=platform.engines.embedder.model, is_finish=is_finish
                )
                if dry_run:
                    return await move.preview()
                subject = AuditSubject(kind="index", id=kind, name=_LOGIN.sub("//", target.reveal()))
                fields = {"is_finish": is_finish}
                await platform.access.audit.record_alone(get_operator(), PLATFORM_CHAIN, "indexes.moved", subject, after=fields)
                with show_progress(label, await move.count_live()) as progress:
                    return await move.run(on_progress=lambda done, _: progress(done))

    result = run(context, work)
    if isinstance(result, MovePreview):
        _print_index_preview(result, kind, as_json=as_json)
        return
    if is_finish and not result.missing:
        delete_copy_log(path)
    _print_index_move(result, kind, is_finish=is_finish, as_json=as_json)


def _describe_goal(kind: IndexName, target: Secret, platform: Rookery) -> str:
    """Return a name of the target without its login, so that a new password continues the move."""
    address = hashlib.sha256(_LOGIN.sub("//", target.reveal()).encode()).hexdigest()
    embedder = platform.engines.embedder
    return f"{address} {embedder.model} {embedder.dimension}" if kind == "vectors" else address


@asynccontextmanager
async def _open_index(platform: Rookery, kind: IndexName, target: Secret, *, is_finish: bool) -> AsyncGenerator[MovedIndex]:
    """Yield the target. When the servers use it already, vectors are not copied from the old engine, which may be out of date."""
    settings, engines = platform.settings, platform.engines
    if kind == "vectors":
        if is_finish:
            yield MovedVectors(target=engines.vectors, embedder=engines.embedder, source=None)
            return
        index = vectors.open(
            target.reveal(),
            data_dir=settings.data_dir,
            model=engines.embedder.model,
            dimension=engines.embedder.dimension,
            verify_ssl=settings.verify_ssl,
        )
        try:
            await index.start()
            yield MovedVectors(target=index, embedder=engines.embedder, source=engines.vectors)
        finally:
            await index.close()
        return
    if is_finish:
        yield MovedTexts(target=engines.texts)
        return
    text_index = texts.open(target.reveal(), data_dir=settings.data_dir, verify_ssl=settings.verify_ssl)
    try:
        await text_index.setup()
        yield MovedTexts(target=text_index)
    finally:
        await text_index.close()


def _print_index_preview(preview: MovePreview, kind: IndexName, *, as_json: bool) -> None:
    seconds = preview.to_copy / _ENTRIES_PER_S[kind]
    if as_json:
        print_json(
            {
                "kind": kind,
                "total": preview.total,
                "to_copy": preview.to_copy,
                "pending": preview.pending,
                "bytes": preview.bytes_to_copy,
                "estimated_s": round(seconds, 1),
                "dry_run": True,
            }
        )
        return
    print_fields(
        {
            "memories": f"{preview.total:,}",
            "to copy": f"{preview.to_copy:,}, about {preview.bytes_to_copy:,} bytes",
            "to be embedded by a server": f"{preview.pending:,}",
            "estimated time": f"{seconds:.0f} s",
        }
    )
    print_notice("Dry run: nothing was copied.")


def _print_index_move(report: MoveReport, kind: IndexName, *, is_finish: bool, as_json: bool) -> None:
    is_complete = is_finish and not report.missing
    if as_json:
        print_json(
            {
                "kind": kind,
                "total": report.total,
                "copied": report.copied,
                "dropped": report.dropped,
                "pending": report.pending,
                "not_embeddable": len(report.rejected_ids),
                "sampled": report.sampled,
                "missing": report.missing,
                "passes": report.passes,
                "duration_s": round(report.duration_s, 3),
                "is_complete": is_complete,
            }
        )
    else:
        print_fields(
            {
                "memories": f"{report.total:,}",
                "copied": f"{report.copied:,} in {report.passes} passes",
                "deleted in the target": f"{report.dropped:,}",
                "to be embedded by a server": f"{report.pending:,}",
                "rejected by the embedder": f"{len(report.rejected_ids):,}",
                "missing": f"{report.missing:,} by the counts and by {report.sampled} searches",
                "duration": f"{report.duration_s:.1f} s",
            }
        )
    if report.missing:
        print_notice("Some entries are missing in the target. Run the command again; it copies them.")
        raise typer.Exit(1)
    if is_complete:
        print_notice("The move is complete. You may delete the data of the old engine.")
        return
    print_notice(
        f"Now set ROOKERY_{kind.upper()} to the address of --to, and restart each server and worker. Then run the same command again "
        "with the new setting: it copies what changed meanwhile. Until then, memories stored since this run may be missing in searches."
    )


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
