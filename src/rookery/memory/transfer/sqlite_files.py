"""SQLite files of other programs, opened read-only. Rows that are still in a write-ahead log are read too."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.memory.transfer.items import field_error

MAGIC = b"SQLite format 3\0"
"""The first bytes of a SQLite file."""

ERRORS = (sqlite3.Error, UnicodeError)
"""Errors of a file that is damaged, locked or not what it seems."""

_WAIT_S = 5.0
_MAX_CELL_BYTES = 64 * 1024 * 1024
_WAL_VERSION_BYTE = 18
_WAL_VERSION = 2


@dataclass(frozen=True, slots=True)
class ForeignDatabase:
    """An open SQLite file: the columns of its tables, and their rows."""

    path: Path
    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]]

    def has(self, table: str, *columns: str) -> bool:
        """Return whether a table exists with these columns."""
        return table in self.tables and self.tables[table].issuperset(columns)

    def rows(self, query: str, *values: object) -> Iterator[dict[str, object]]:
        """Yield the rows of a query as objects."""
        cursor = self.connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return next(iter(self.connection.execute(f"SELECT count(*) FROM {_quote(table)}")))[0]  # noqa: S608 - a name of the caller

    def columns(self, table: str, names: Sequence[str]) -> str:
        """Return the columns of a SELECT: those of *names* that the table has, because older versions lack some."""
        return ", ".join(_quote(name) if name in self.tables[table] else f"NULL AS {_quote(name)}" for name in names)


@contextmanager
def open_sqlite(path: Path) -> Generator[ForeignDatabase]:
    """
    Open a SQLite file for reading. Nothing is written to it or beside it, and nothing in it is executed.

    Raises:
        sqlite3.Error: It cannot be opened or is no database.
        OSError: It cannot be read.
    """
    with ExitStack() as resources:
        connection = _connect(path, resources)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        names = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
        ]
        tables = {name: frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({_quote(name)})")) for name in names}
        yield ForeignDatabase(path, connection, tables)


@contextmanager
def open_companion(path: Path) -> Generator[ForeignDatabase]:
    """
    Open the SQLite file of `--with`.

    Raises:
        ValidationFailed: It cannot be read.
    """
    try:
        with open_sqlite(path) as database:
            yield database
    except (*ERRORS, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise field_error("with", f"{path} cannot be read as a SQLite file: {reason}") from error


def _connect(path: Path, resources: ExitStack) -> sqlite3.Connection:
    """
    Return a read-only connection that sees the write-ahead log.

    Without a log, the file is opened as immutable: otherwise SQLite would leave two files of a log beside a file in WAL mode. With a log
    whose index is missing in a folder without write permission, both are copied first.
    """
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    try:
        return _open(path, "mode=ro" if has_log or not _is_in_wal_mode(path) else "mode=ro&immutable=1", resources)
    except sqlite3.OperationalError:
        if not has_log:
            raise
    copy = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rookery-import-"))) / "copy.db"
    shutil.copyfile(path, copy)
    shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
    return _open(copy, "mode=ro", resources)


def _open(path: Path, options: str, resources: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{options}", uri=True, timeout=_WAIT_S)
    resources.callback(connection.close)
    connection.text_factory = _decode
    connection.execute("SELECT count(*) FROM sqlite_master")
    return connection


def _is_in_wal_mode(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_WAL_VERSION_BYTE + 1)
    return len(head) > _WAL_VERSION_BYTE and head[_WAL_VERSION_BYTE] == _WAL_VERSION


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
