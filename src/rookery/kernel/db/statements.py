"""
Statements and the rows of their results.

Statements are SQLAlchemy Core, compiled once for the sqlite3 driver (5 µs per call, against 90 µs through SQLAlchemy's engine). A row
is read by column name and expected type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Executable, FromClause, Insert, MetaData, Table, Update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler, SQLiteDialect
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import KeyedColumnElement

C = TypeVar("C")

Value = str | int | float | bytes | None
"""The types that a column holds in both dialects."""


class Row:
    """One row. Each accessor raises TypeError if the column holds another type, and KeyError if the column is missing."""

    __slots__ = ("index", "values")

    def __init__(self, values: Sequence[object], index: Mapping[str, int]) -> None:
        self.values = values
        self.index = index

    def text(self, name: str) -> str:
        """Return a text that is not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, str) else self._raise_wrong_type(name, "text")

    def maybe_text(self, name: str) -> str | None:
        """Return a text or None."""
        value = self.values[self.index[name]]
        return value if value is None or isinstance(value, str) else self._raise_wrong_type(name, "text or null")

    def integer(self, name: str) -> int:
        """Return an integer that is not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, int) else self._raise_wrong_type(name, "an integer")

    def maybe_integer(self, name: str) -> int | None:
        """Return an integer or None."""
        value = self.values[self.index[name]]
        return value if value is None or isinstance(value, int) else self._raise_wrong_type(name, "an integer or null")

    def number(self, name: str) -> float:
        """Return a number that is not null."""
        value = self.values[self.index[name]]
        return float(value) if isinstance(value, (float, int)) else self._raise_wrong_type(name, "a number")

    def blob(self, name: str) -> bytes:
        """Return bytes that are not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, bytes) else self._raise_wrong_type(name, "bytes")

    def flag(self, name: str) -> bool:
        """Return whether an integer column is not 0."""
        return self.integer(name) != 0

    def _raise_wrong_type(self, name: str, expected: str) -> NoReturn:
        actual = type(self.values[self.index[name]]).__name__
        msg = f"column {name!r} holds {actual}, not {expected}"
        raise TypeError(msg)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""The tables of every domain. A test checks that `migrations` creates the same tables."""

Columns = ReadOnlyColumnCollection[str, KeyedColumnElement[Any]]


@dataclass(frozen=True, eq=False)
class Upsert:
    """
    An insert of rows that may exist already. Each dialect builds its own statement from it by `build`.

    Attributes:
        index_elements: The columns that identify an existing row; none: any that are unique.
        set_: Takes the row to insert (`excluded`) and returns the new values of the existing row. None: the row stays unchanged.
        returning: Columns of the row to return.
    """

    table: Table
    index_elements: Sequence[str]
    set_: Callable[[Columns], Mapping[str, ColumnElement[Any] | Value]] | None
    returning: Sequence[ColumnElement[Any]]

    def build(self, insert: OnConflictInsert) -> Executable:
        """Return the statement for the dialect of *insert*."""
        existing = list(self.index_elements) or None
        if self.set_ is None:
            built = insert.on_conflict_do_nothing(index_elements=existing)
        else:
            built = insert.on_conflict_do_update(index_elements=existing, set_=dict(self.set_(insert.excluded)))
        return built.returning(*self.returning) if self.returning else built


class OnConflictInsert(Protocol):
    """The interface that the inserts of SQLite and PostgreSQL share."""

    @property
    def excluded(self) -> Any: ...  # noqa: ANN401 - a descriptor of SQLAlchemy's, for `Columns`

    def on_conflict_do_nothing(self, *, index_elements: list[str] | None) -> Insert: ...

    def on_conflict_do_update(self, *, index_elements: list[str] | None, set_: dict[str, Any]) -> Insert: ...


Statement = Executable | Upsert


def upsert(
    table: Table,
    *,
    index_elements: Sequence[str] = (),
    set_: Callable[[Columns], Mapping[str, ColumnElement[Any] | Value]] | None = None,
    returning: Sequence[ColumnElement[Any]] = (),
) -> Upsert:
    """
    Return an insert that updates or skips the rows that exist already by *index_elements*.

    Args:
        set_: Takes the row to insert (`excluded`) and returns the new values of the existing row. None: the row stays unchanged.
        returning: Columns of the resulting row. Without *set_*, a row that existed already is not returned.
    """
    return Upsert(table, index_elements, set_, returning)


class _HintCompiler(SQLiteCompiler):
    """A compiler that writes the text of `with_hint` after the table name, as SQLAlchemy does for other dialects only."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        return text


class _SqliteDialect(SQLiteDialect):
    statement_compiler = _HintCompiler


_SQLITE_DIALECT: DefaultDialect = _SqliteDialect(paramstyle="qmark")
_EMPTY_SELECT = "SELECT 1 WHERE 1 != 1"

_MAX_INSERT_VALUES = 1_000
"""Maximum values in one INSERT of many rows. SQLite takes more, but is not faster with more."""

_MAX_UNROUNDED_ROWS = 8
"""
Most rows for which an INSERT with exactly that number of rows is used. Larger batches are split by powers of two, so that the
driver finds the statement in its cache.
"""

_MIN_PADDED_ITEMS, _MAX_PADDED_ITEMS = 16, 4_096
"""Lengths of `IN` lists between which they are padded. SQLite allows 32,766 parameters in a statement."""


class CompiledStatement:
    """A statement for the sqlite3 driver: the SQL text, and the names of the parameters in the order of the question marks."""

    __slots__ = ("_defaults", "_expanding", "_names", "_sql_by_row_count", "_values_clause", "index", "sql")

    def __init__(self, statement: Executable, keys: frozenset[str]) -> None:
        clause = cast("ClauseElement", statement)
        columns = find_written_columns(statement, keys)
        compiled = cast("SQLCompiler", clause.compile(dialect=_SQLITE_DIALECT, column_keys=columns))
        self.sql = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        values = {name: bind.effective_value for name, bind in compiled.binds.items() if not bind.required}
        self._defaults: dict[str, object] = {name: value for name, value in values.items() if name not in keys}
        self._expanding = frozenset(compiled.bind_names[parameter] for parameter in compiled.post_compile_params)
        self.index: dict[str, int] | None = None
        single = f"({', '.join('?' * len(self._names))})"
        is_plain = isinstance(statement, Insert) and f" VALUES {single}" in self.sql and not self._expanding
        self._values_clause = single if is_plain and self._names else None
        self._sql_by_row_count: dict[int, str] = {}

    def bind(self, params: Mapping[str, Value | Sequence[Value]]) -> tuple[str, list[object]]:
        """
        Return the SQL text and the values in order. `IN` lists (expanding parameters) are written out.

        Raises:
            KeyError: A parameter is missing.
        """
        if self._expanding:
            return self._bind_expanding(params)
        defaults = self._defaults
        if not defaults:
            return self.sql, [params[name] for name in self._names]
        return self.sql, [params[name] if name in params else defaults[name] for name in self._names]

    def split_inserts(self, params: Sequence[Mapping[str, Value]]) -> Iterator[tuple[str, list[object]]] | None:
        """
        Return SQL texts and values that insert all of *params* in few statements. None if this is not an INSERT of plain values.

        One statement with many rows does the same as one statement for each row, in order. The driver releases the GIL once per
        statement, and `executemany` once per row, which costs more than the insert of the row.
        """
        if self._values_clause is None:
            return None
        return self._iter_inserts(params, max(1, _MAX_INSERT_VALUES // len(self._names)))

    def _iter_inserts(self, params: Sequence[Mapping[str, Value]], max_rows: int) -> Iterator[tuple[str, list[object]]]:
        start = 0
        while (remaining := min(max_rows, len(params) - start)) > 0:
            count = remaining if remaining <= _MAX_UNROUNDED_ROWS else 1 << (remaining.bit_length() - 1)
            values = list[object]()
            for row in params[start : start + count]:
                values += self.bind(row)[1]
            yield self._insert_sql(count), values
            start += count

    def _insert_sql(self, count: int) -> str:
        text = self._sql_by_row_count.get(count)
        if text is None:
            clause = f" VALUES {self._values_clause}"
            text = self._sql_by_row_count[count] = self.sql.replace(clause, clause + f", {self._values_clause}" * (count - 1), 1)
        return text

    def _bind_expanding(self, params: Mapping[str, Value | Sequence[Value]]) -> tuple[str, list[object]]:
        sql, values = self.sql, list[object]()
        for name in self._names:
            value = params[name] if name in params else self._defaults[name]
            if name in self._expanding:
                items = _pad(list(cast("Sequence[Value]", value)))
                values.extend(items)
                sql = sql.replace(f"__[POSTCOMPILE_{name}]", ", ".join("?" * len(items)) or _EMPTY_SELECT, 1)
            else:
                values.append(value)
        return sql, values


def _pad(items: list[Value]) -> list[Value]:
    """
    Return the items of an `IN` list, the last one repeated up to one of eight lengths per power of two.

    Otherwise almost every long list would be a new SQL text, which SQLite parses again: 0.15 ms for 200 items.
    """
    count = len(items)
    if not _MIN_PADDED_ITEMS <= count <= _MAX_PADDED_ITEMS:
        return items
    step = 1 << (count.bit_length() - 4)
    return items + items[-1:] * (-count % step)


def find_written_columns(statement: Executable, keys: frozenset[str]) -> list[str] | None:
    """Return those of *keys* that are columns of an INSERT or UPDATE without values of its own; None for any other statement."""
    if not isinstance(statement, (Insert, Update)) or getattr(statement, "_values", None) or getattr(statement, "_multi_values", None):
        return None
    table_columns = cast("Table", statement.table).c
    return [key for key in keys if key in table_columns]


class StatementCache(Generic[C]):
    """
    Statements compiled for one dialect, once in a process for each set of parameter names. An entry is dropped with its statement.

    Args:
        insert: The insert of the dialect, for upserts.
        compile_statement: Compiles a statement for the given parameter names.
    """

    def __init__(self, insert: Callable[[Table], OnConflictInsert], compile_statement: Callable[[Executable, frozenset[str]], C]) -> None:
        self._insert = insert
        self._compile = compile_statement
        self._compiled: WeakKeyDictionary[Statement, dict[frozenset[str], C]] = WeakKeyDictionary()

    def get(self, statement: Statement, params: Mapping[str, object]) -> C:
        """Return *statement* compiled. An INSERT or UPDATE without values gets the columns in *params*."""
        variants = self._compiled.get(statement)
        if variants is None:
            variants = self._compiled[statement] = {}
        # Only an INSERT or UPDATE without values, and literal values, depend on the given parameters.
        keys = frozenset(params)
        compiled = variants.get(keys)
        if compiled is None:
            executable = statement.build(self._insert(statement.table)) if isinstance(statement, Upsert) else statement
            compiled = variants[keys] = self._compile(executable, keys)
        return compiled


compile_statement = StatementCache(sqlite.insert, CompiledStatement).get
"""Returns a statement compiled for SQLite."""


def match_part(text: str) -> str:
    r"""Return the pattern of LIKE, with the escape character `\`, that finds *text* in lower case anywhere in a value."""
    escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
