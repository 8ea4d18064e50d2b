"""The move of all records from SQLite to PostgreSQL, or back, while nothing uses them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.backup.contents import RECORDS_FILE
from rookery.backup.creation import open_work_folder
from rookery.backup.errors import DatabaseNotEmpty, RecordsInUse
from rookery.backup.postgres_records import RecordSnapshot, fill_postgres, open_record_snapshot, require_empty
from rookery.backup.record_copy import SqliteSide, TableCopy
from rookery.backup.snapshot import read_sealing_key_id
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.running_server import find_server
from rookery.kernel.secret import Secret
from rookery.kernel.sentences import format_count
from rookery.migrations import HEAD_REVISION

EMBEDDED = "embedded:"
_LOCK_TIMEOUT_S = 2.0
_POLL_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMove:
    """
    A move of the records.

    Attributes:
        data_dir: The data folder, which has `records.db` on one side of the move.
        source: The address of the current store.
        target: The address of the new one.
    """

    data_dir: Path
    source: Secret
    target: Secret

    @property
    def is_to_postgresql(self) -> bool:
        """True for a move from SQLite to PostgreSQL, false for one back."""
        return self.source.reveal() == EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMoveResult:
    """
    A move or its preview. A preview has no *tables*, and from PostgreSQL only an estimate of the *rows*.

    Attributes:
        secret_key_id: The key that encrypts values in the records. None: nothing was encrypted, or it is a preview.
    """

    rows: int
    duration_s: float
    tables: tuple[TableCopy, ...] = ()
    secret_key_id: str | None = None


def preview(move: RecordMove) -> RecordMoveResult:
    """
    Check everything that `run` checks before it copies, and count the rows. Nothing is changed.

    Raises:
        RecordsInUse: A process uses the records.
        DatabaseNotEmpty: The target has records.
        EngineUnavailable: A store is unavailable.
        WrongSettings: The addresses are not those of SQLite and PostgreSQL, or the source has an older revision.
    """
    _require_two_dialects(move)
    started_s = time.perf_counter()
    if move.is_to_postgresql:
        with _open_exclusively(move.data_dir) as raw:
            side = SqliteSide(raw)
            tables = side.list_tables()
            rows = sum(side.count(table) for table in tables)
        require_empty(move.target.reveal(), tables)
    else:
        _require_no_file(move.data_dir)
        with open_record_snapshot(move.source.reveal()) as records:
            _require_head_revision(records.begin())
            _require_no_sessions(records)
            rows = records.estimate_rows()
    return RecordMoveResult(rows=rows, duration_s=time.perf_counter() - started_s)


def run(move: RecordMove, *, progress: Callable[[int], None]) -> RecordMoveResult:
    """
    Copy all records into the target and verify them. The source stays as it is.

    The target gets all records or nothing, also if the process is killed; then run the move again.

    Args:
        move: The move.
        progress: Called with the number of rows copied so far.

    Raises:
        RecordsInUse: A process uses the records.
        DatabaseNotEmpty: The target has records.
        EngineUnavailable: A store is unavailable.
        StorageFull: The disk has too little space.
        WrongSettings: The addresses are not those of SQLite and PostgreSQL, or the source has an older revision.
        RookeryError: A row cannot be stored in the target.
    """
    _require_two_dialects(move)
    started_s = time.perf_counter()
    key_id = None
    if move.is_to_postgresql:
        with _open_exclusively(move.data_dir) as raw:
            row = raw.execute("SELECT key_id FROM sealing").fetchone()
            key_id = None if row is None else str(row[0])
            tables = fill_postgres(move.target.reveal(), raw, progress=progress)
    else:
        _require_no_file(move.data_dir)
        move.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_work_folder(move.data_dir) as folder, open_record_snapshot(move.source.reveal(), is_locked=True) as records:
            _require_head_revision(records.begin())
            _require_no_sessions(records)
            tables = records.export(folder / RECORDS_FILE, progress=progress)
            key_id = read_sealing_key_id(folder / RECORDS_FILE)
            _publish(folder / RECORDS_FILE, move.data_dir / RECORDS_FILE)
    duration_s = time.perf_counter() - started_s
    return RecordMoveResult(rows=sum(table.rows for table in tables), duration_s=duration_s, tables=tables, secret_key_id=key_id)


def _publish(staged: Path, path: Path) -> None:
    """Give a complete file its name, unless there is one meanwhile."""
    descriptor = os.open(staged, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        path.hardlink_to(staged)
    except FileExistsError as error:
        raise DatabaseNotEmpty(f"{path} exists already.") from error


@contextmanager
def _open_exclusively(folder: Path) -> Generator[sqlite3.Connection]:
    """
    Yield a connection to the records that no other process can use until the end of the block.

    SQLite's exclusive mode fails if any process has the file open: a server, a worker or a command.
    """
    path = folder / RECORDS_FILE
    if not path.is_file():
        raise WrongSettings(f"There are no records in {folder}: the file {RECORDS_FILE} is missing. Check --data-dir.")
    server = find_server(folder)
    if server is not None:
        raise RecordsInUse(f"The server at {server.url} (process {server.pid}) uses the records. Stop it, and each worker, first.")
    with closing(sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)) as raw:
        try:
            raw.execute("PRAGMA locking_mode=EXCLUSIVE")
            row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise RecordsInUse(f"Another process has {path} open. Stop each server, worker and command first.") from error
            raise EngineUnavailable("database", f"{path}: {error}") from error
        except sqlite3.Error as error:
            raise EngineUnavailable("database", f"{path}: {error}") from error
        _require_head_revision("" if row is None else str(row[0]))
        try:
            yield raw
        except sqlite3.Error as error:
            raise EngineUnavailable("database", f"{path}: {error}") from error


def _require_no_file(folder: Path) -> None:
    if (folder / RECORDS_FILE).exists():
        raise DatabaseNotEmpty(f"{folder / RECORDS_FILE} exists already. Move it away first, with its files -wal and -shm.")


def _require_no_sessions(records: RecordSnapshot) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while (count := records.count_other_sessions()) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)  # a session that was closed just now is listed until its process has ended
    if count:
        sessions = format_count(count, "other session uses", "other sessions use")
        raise RecordsInUse(f"{sessions} the database. Stop each server, worker and command, and close other clients, first.")


def _require_head_revision(revision: str) -> None:
    if revision != HEAD_REVISION:
        raise WrongSettings(
            f"The records have revision {revision or 'none'}, but this Rookery moves records of revision {HEAD_REVISION}. "
            "Run `rookery migrate` first."
        )


def _require_two_dialects(move: RecordMove) -> None:
    source, target = move.source.reveal(), move.target.reveal()
    if source == target:
        raise WrongSettings("The records are in that store already: --to is the address in ROOKERY_DATABASE_URL.")
    if (source == EMBEDDED) == (target == EMBEDDED) or not all(
        url == EMBEDDED or url.startswith(("postgresql://", "postgres://")) for url in (source, target)
    ):
        raise WrongSettings(
            "Records move between embedded: and postgresql://user:password@host/name. From one PostgreSQL to another, use pg_dump."
        )
