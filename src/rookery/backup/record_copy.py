"""
Copies of all records between SQLite and PostgreSQL.

Both dialects hold the same primitive values (`kernel.db`), so a row is copied as it is. Each table is read back from the target, and its
number of rows and its checksum are compared with those of the source.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import psycopg
from psycopg import sql

from rookery.kernel.errors import RookeryError

Row = tuple[object, ...]
Postgres = psycopg.Connection[Row]

_BATCH_ROWS = 1_000
_VERSION_TABLE = "alembic_version"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTable:
    """A table of the record store. *key*: the columns of its primary key, in order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """A copied table. The checksum covers all values of all rows, in any order of the rows."""

    name: str
    rows: int
    checksum: str


class RecordSide(Protocol):
    """The source or the target of a copy: an open transaction of a record store."""

    def read(self, table: RecordTable) -> Iterator[Sequence[Row]]:
        """Return all rows in batches, in the order of the key."""
        ...

    def write(self, table: RecordTable, batches: Iterable[Sequence[Row]]) -> None: ...

    def count(self, table: RecordTable) -> int:
        """Return the number of rows."""
        ...

    def read_sequences(self, tables: Sequence[RecordTable]) -> Mapping[str, int]:
        """Return the last number that was given to a new row, by table. Tables without such numbers are left out."""
        ...

    def write_sequences(self, tables: Sequence[RecordTable], last: Mapping[str, int]) -> None:
        """Let new rows get numbers above those of *last* and of all rows."""
        ...


class SqliteSide:
    """A record store on SQLite. The caller begins and commits the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def list_tables(self) -> tuple[RecordTable, ...]:
        """Return the tables of the records, by name. The table of the schema's revision is not one of them."""
        names = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name <> ? ORDER BY name",
            (_VERSION_TABLE,),
        ).fetchall()
        return tuple(self._describe(str(name)) for (name,) in names)

    def read(self, table: RecordTable) -> Iterator[Sequence[Row]]:
        """Return all rows in batches, in the order of the key."""
        cursor = self._connection.execute(
            f"SELECT {_quote_all(table.columns)} FROM {_quote(table.name)} ORDER BY {_quote_all(table.key)}"  # noqa: S608 - names of the schema
        )
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield rows

    def write(self, table: RecordTable, batches: Iterable[Sequence[Row]]) -> None:
        marks = ", ".join("?" * len(table.columns))
        statement = f"INSERT INTO {_quote(table.name)} ({_quote_all(table.columns)}) VALUES ({marks})"  # noqa: S608 - names of the schema
        for rows in batches:
            self._connection.executemany(statement, rows)

    def count(self, table: RecordTable) -> int:
        """Return the number of rows."""
        return int(self._connection.execute(f"SELECT count(*) FROM {_quote(table.name)}").fetchone()[0])  # noqa: S608 - a name of the schema

    def read_sequences(self, tables: Sequence[RecordTable]) -> Mapping[str, int]:
        """Return the last number of each table that never gives a number twice."""
        names = {table.name for table in tables}
        return {str(name): int(last) for name, last in self._connection.execute("SELECT name, seq FROM sqlite_sequence") if name in names}

    def write_sequences(self, tables: Sequence[RecordTable], last: Mapping[str, int]) -> None:
        """Raise the last number of each table that never gives a number twice. In other tables it is that of the last row."""
        definitions = self._connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'").fetchall()
        names = {table.name for table in tables}
        for name in sorted({str(name) for (name,) in definitions} & names & last.keys()):
            current = self.read_sequences(tables).get(name, 0)
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, max(current, last[name])))

    def _describe(self, name: str) -> RecordTable:
        columns = self._connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
        key = sorted((int(place), str(column)) for column, place in columns if place)
        return RecordTable(name=name, columns=tuple(str(column) for column, _ in columns), key=tuple(column for _, column in key))


class PostgresSide:
    """A record store on PostgreSQL. The caller begins and commits the transaction."""

    def __init__(self, connection: Postgres) -> None:
        self._connection = connection

    def read(self, table: RecordTable) -> Iterator[Sequence[Row]]:
        """Return all rows in batches, in the order of the key."""
        statement = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
            _identifiers(table.columns), sql.Identifier(table.name), _identifiers(table.key)
        )
        with self._connection.cursor(name="rookery_copy") as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                yield rows

    def write(self, table: RecordTable, batches: Iterable[Sequence[Row]]) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), _identifiers(table.columns))
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for rows in batches:
                    for row in rows:
                        copy.write_row(row)
        except psycopg.DataError as error:
            raise RookeryError(f"PostgreSQL rejects a row of the table {table.name}: {_first_line(error)} Nothing was written.") from error

    def count(self, table: RecordTable) -> int:
        """Return the number of rows."""
        return self._fetch_number(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.name)))

    def lock(self, tables: Sequence[RecordTable], *, for_writing: bool) -> None:
        """Make all other writers of *tables* wait until the end of this transaction; with *for_writing*, other copies too."""
        mode = sql.SQL("EXCLUSIVE" if for_writing else "SHARE")
        self._connection.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(_identifiers([table.name for table in tables]), mode))

    def list_missing(self, tables: Sequence[RecordTable]) -> list[str]:
        """Return the columns that this store has and *tables* do not, and the reverse."""
        rows = self._connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        )
        names = {table.name for table in tables}
        actual = {f"{name}.{column}" for name, column in rows if name in names}
        return sorted(actual ^ {f"{table.name}.{column}" for table in tables for column in table.columns})

    def read_sequences(self, tables: Sequence[RecordTable]) -> Mapping[str, int]:
        """Return the last number of each table whose rows get numbers from a sequence."""
        return {
            name: self._fetch_number(sql.SQL("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}").format(sequence))
            for name, sequence in self._find_sequences(tables).items()
        }

    def write_sequences(self, tables: Sequence[RecordTable], last: Mapping[str, int]) -> None:
        """Let new rows get numbers above those of *last* and of all rows."""
        for name, sequence in self._find_sequences(tables).items():
            newest = self._fetch_number(sql.SQL("SELECT coalesce(max(id), 0) FROM {}").format(sql.Identifier(name)))
            number = max(newest, last.get(name, 0))
            self._connection.execute(
                sql.SQL("SELECT setval({}::regclass, %s, %s)").format(sql.Literal(sequence.as_string(self._connection))),
                (max(number, 1), number > 0),
            )

    def _find_sequences(self, tables: Sequence[RecordTable]) -> dict[str, sql.Identifier]:
        """Return the sequence of the column `id` of each table that has one."""
        sequences = dict[str, sql.Identifier]()
        for table in tables:
            if "id" not in table.columns:
                continue
            query = (
                "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.oid = pg_get_serial_sequence(%s, 'id')::regclass"
            )
            row = self._connection.execute(query, (sql.Identifier(table.name).as_string(self._connection),)).fetchone()
            if row is not None:
                sequences[table.name] = sql.Identifier(str(row[0]), str(row[1]))
        return sequences

    def _fetch_number(self, statement: sql.Composed) -> int:
        row = self._connection.execute(statement).fetchone()
        value = 0 if row is None else row[0]
        return value if isinstance(value, int) else 0


def copy_records(
    source: RecordSide, target: RecordSide, tables: Sequence[RecordTable], *, progress: Callable[[int], None]
) -> tuple[TableCopy, ...]:
    """
    Copy all rows of *tables* into the empty tables of *target*, and verify them. The caller commits.

    Args:
        source: A snapshot, or a store that nothing writes.
        target: The store with the same tables.
        tables: The tables of both stores.
        progress: Called with the number of rows copied so far.

    Raises:
        RookeryError: A row cannot be stored, or a table read back from the target differs.
    """
    copies, done = list[TableCopy](), 0
    for table in tables:
        copied = _Tally()
        target.write(table, _watch(source.read(table), copied, lambda rows, before=done: progress(before + rows)))
        done += copied.rows
        read_back = _Tally()
        for rows in target.read(table):
            read_back.add(rows)
        if read_back != copied:
            raise RookeryError(
                f"The copy of the table {table.name} differs from its source: {read_back.rows:,} rows instead of {copied.rows:,}, "
                f"or other values. Nothing was kept; try again."
            )
        copies.append(TableCopy(name=table.name, rows=copied.rows, checksum=copied.checksum))
    target.write_sequences(tables, source.read_sequences(tables))
    return tuple(copies)


@dataclass(slots=True)
class _Tally:
    """The number of rows, and the sum of their digests, which does not depend on their order."""

    rows: int = 0
    total: int = 0

    @property
    def checksum(self) -> str:
        return f"{self.total:0{2 * _DIGEST_BYTES}x}"

    def add(self, rows: Sequence[Row]) -> None:
        total = self.total
        for row in rows:
            # SQLite stores -0.0 as 0.0.
            text = repr(tuple(value + 0.0 if isinstance(value, float) else value for value in row))
            total += int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest())
        self.rows += len(rows)
        self.total = total % (1 << 8 * _DIGEST_BYTES)


def _watch(batches: Iterable[Sequence[Row]], tally: _Tally, progress: Callable[[int], None]) -> Iterator[Sequence[Row]]:
    """Yield *batches* unchanged, and count their rows."""
    for rows in batches:
        tally.add(rows)
        yield rows
        progress(tally.rows)


def _identifiers(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote_all(names: Sequence[str]) -> str:
    return ", ".join(_quote(name) for name in names)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
