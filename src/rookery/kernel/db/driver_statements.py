"""Statements of SQLAlchemy Core, compiled once for psycopg."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    BinaryExpression,
    BindParameter,
    ColumnElement,
    Enum,
    Executable,
    Float,
    Integer,
    LargeBinary,
    SelectBase,
    String,
    UpdateBase,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.psycopg import PGCompiler_psycopg, PGDialect_psycopg
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import NullType, TypeEngine

from rookery.kernel.db.postgresql_connections import PostgresConnection
from rookery.kernel.db.statements import StatementCache, Value, find_written_columns

_PLAIN_TYPES = (String, Integer, Float, LargeBinary, ARRAY, NullType)
"""Types whose values the driver takes and returns as they are, with their subclasses except `Enum`. Arrays are those of `IN` lists."""

Params = Mapping[str, Value | Sequence[Value]]


class _ArrayCompiler(PGCompiler_psycopg):
    """
    A compiler that writes `IN` lists as arrays: `x = ANY(array)`.

    So a list of any length is one parameter of one text, which PostgreSQL prepares once. An empty array matches nothing.

    Attributes:
        array_names: The parameters that are lists.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of the base class, which compiles here
        self.array_names = set[str]()
        self._arrays: dict[BindParameter[Any], BindParameter[Any]] = {}
        super().__init__(*arguments, **options)

    def visit_in_op_binary(self, binary: BinaryExpression[Any], operator: object, **options: Any) -> str:  # noqa: ANN401, ARG002
        return self._process_membership(binary, "IN", "= ANY", **options)

    def visit_not_in_op_binary(self, binary: BinaryExpression[Any], operator: object, **options: Any) -> str:  # noqa: ANN401, ARG002
        return f"({self._process_membership(binary, 'NOT IN', '!= ALL', **options)})"

    def _process_membership(self, binary: BinaryExpression[Any], operator: str, array_operator: str, **options: Any) -> str:  # noqa: ANN401
        left, items = self.process(binary.left, **options), binary.right
        if not isinstance(items, BindParameter) or not items.expanding:
            return f"{left} {operator} {self.process(items, **options)}"
        array = self._arrays.get(items)
        if array is None:
            array = self._arrays[items] = copy(items)  # it keeps its name, as `bindparam` would not
            array.expanding = False
            if not isinstance(items.type, NullType):  # then the server infers the type from the left side
                array.type = ARRAY(items.type)
        text = self.process(array, **options)
        self.array_names.add(self.bind_names[array])
        return f"{left} {array_operator} ({text})"


class _ArrayDialect(PGDialect_psycopg):
    statement_compiler = _ArrayCompiler


_DIALECT = _ArrayDialect()


class DriverStatement:
    """
    A statement for psycopg.

    Attributes:
        sql: Its text, in which `%(name)s` stands for a value.
        index: The place of each column of the result, as of the first execution.
    """

    __slots__ = ("_array_names", "_defaults", "index", "sql")

    def __init__(self, sql: str, defaults: Mapping[str, object], array_names: Collection[str]) -> None:
        self.sql = sql.encode()
        self.index: dict[str, int] | None = None
        self._defaults = defaults
        self._array_names = array_names

    def bind(self, params: Params) -> Mapping[str, object]:
        """Return *params* with the values that the statement itself has, and with lists as the driver takes them: no other sequence."""
        if not self._defaults and not self._array_names:
            return params
        values: dict[str, object] = {**self._defaults, **params}
        for name in self._array_names:
            values[name] = list(cast("Sequence[Value]", values[name]))
        return values

    async def fetch_all(self, connection: PostgresConnection, params: Params) -> tuple[list[tuple[object, ...]], dict[str, int]]:
        """Run it, and return its rows and the place of each column."""
        cursor = await connection.execute(self.sql, self.bind(params))
        if self.index is None:
            self.index = {column.name: place for place, column in enumerate(cursor.description or ())}
        return await cursor.fetchall(), self.index

    async def execute(self, connection: PostgresConnection, params: Params) -> int:
        """Run it, and return the number of rows that it changed."""
        return (await connection.execute(self.sql, self.bind(params))).rowcount

    async def execute_many(self, connection: PostgresConnection, params: Sequence[Params]) -> int:
        """Run it once for each of *params*, without a wait between them; return the number of rows that it changed."""
        cursor = connection.cursor()
        await cursor.executemany(self.sql, [self.bind(row) for row in params])
        return cursor.rowcount


def _compile(statement: Executable, keys: frozenset[str]) -> DriverStatement:
    clause = cast("ClauseElement", statement)
    compiled = cast("_ArrayCompiler", clause.compile(dialect=_DIALECT, column_keys=find_written_columns(statement, keys)))
    types = [*(bind.type for bind in compiled.bind_names), *(column.type for column in _list_columns(statement))]
    if faulty_types := [repr(column_type) for column_type in types if not _is_plain(column_type)]:
        msg = f"The driver converts no values, so a statement cannot have the type {faulty_types[0]}: {compiled}"
        raise TypeError(msg)
    if compiled.post_compile_params or compiled.literal_execute_params or compiled.insert_prefetch or compiled.update_prefetch:
        msg = f"The statement has a part that SQLAlchemy fills in when it runs, such as a default of a column: {compiled}"
        raise TypeError(msg)
    own = {name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required}
    return DriverStatement(str(compiled), {name: value for name, value in own.items() if name not in keys}, compiled.array_names)


def _list_columns(statement: Executable) -> list[ColumnElement[Any]]:
    return list(statement.exported_columns) if isinstance(statement, (SelectBase, UpdateBase)) else []


def _is_plain(column_type: TypeEngine[Any]) -> bool:
    return isinstance(column_type, _PLAIN_TYPES) and not isinstance(column_type, Enum)


compile_for_driver = StatementCache(insert, _compile).get
"""Returns a statement compiled for psycopg."""
