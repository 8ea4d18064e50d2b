"""
The rows of a table as objects of a dataclass, and the queries that every table has.

A query is of one workspace and of the rows whose columns have the given values: `PLANS.find(tx, workspace_id, id=plan_id)`. A list of
values means any of them, and None means null. Other conditions, and what looks at all workspaces, are statements of the stores.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Constraint,
    Double,
    Index,
    LargeBinary,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.types import TypeEngine

from rookery.kernel.db.keyset import KeysetList, Params
from rookery.kernel.db.mapper import Codec, Mapper, codec_for, get_hints, may_be_none
from rookery.kernel.db.statements import Statement, Value, metadata
from rookery.kernel.db.transaction import Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice

T = TypeVar("T")
B = TypeVar("B")
Where = Mapping[str, Value | Sequence[Value]]

_COLUMN_TYPES: Mapping[type, type[TypeEngine[Any]]] = {str: Text, int: BigInteger, float: Double, bytes: LargeBinary}


class WorkspaceTable(Mapper[T]):
    """
    The rows of *table*, which has a column `workspace_id`, as objects of *model*.

    The values of a query are those of columns, not of fields: a time in microseconds, a flag as 0 or 1. Its order is a list of columns, of
    which `-` before a name reverses one; without it, rows come in the order of the key. A statement is built at its first use.

    Args:
        fixed: The columns that `update` and `save` never change, besides the key and the workspace.
    """

    def __init__(
        self,
        model: type[T],
        table: Table,
        *,
        columns: Mapping[str, str] | None = None,
        codecs: Mapping[str, Codec] | None = None,
        nested: Mapping[str, Mapper[Any]] | None = None,
        fixed: Sequence[str] = (),
    ) -> None:
        super().__init__(model, table, columns=columns, codecs=codecs, nested=nested)
        self._key = tuple(column.name for column in table.primary_key)
        self._identity = tuple(name for name in self._key if name != "workspace_id")
        self._fixed |= {"workspace_id", *fixed}
        self._built: dict[tuple[object, ...], Any] = {}
        """Statements and lists, by what determines them."""

    def find(self, tx: Tx, workspace_id: int, *, lock: bool = False, **where: Value) -> T | None:
        """Return the row with these values, or None; *lock* locks it until the transaction ends (PostgreSQL; SQLite has one writer)."""
        return self.fetch_one(tx, self._select((), where, lock=lock), _bind(workspace_id, where))

    def get(self, tx: Tx, workspace_id: int, *, lock: bool = False, **where: Value) -> T:
        """
        Return the row with these values, as `find` does.

        Raises:
            LookupError: No row has them; use it for a row that this transaction has read.
        """
        item = self.find(tx, workspace_id, lock=lock, **where)
        if item is None:
            msg = f"no row of {self._table.name} has {where}"
            raise LookupError(msg)
        return item

    def has(self, tx: Tx, workspace_id: int, **where: Value) -> bool:
        """Return whether a row has these values."""
        statement = self._build_once(("has", _get_form(where)), lambda: self._build_select(where, literal(1).label("n")).limit(1))
        return tx.fetch_one(statement, _bind(workspace_id, where)) is not None

    def find_all(self, tx: Tx, workspace_id: int, *order: str, lock: bool = False, **where: Value | Sequence[Value]) -> list[T]:
        """Return all rows with these values in *order*."""
        return self.fetch_all(tx, self._select(order or self._key, where, lock=lock), _bind(workspace_id, where))

    def find_page(self, tx: Tx, workspace_id: int, page: PageSlice, *order: str, **where: Value | Sequence[Value]) -> ListPage[T]:
        """
        Return a page of the rows with these values, and the total. *order* ends with what is unique.

        Raises:
            InvalidCursor: The position of the page does not belong to such a list.
        """
        form = ("page", order, _get_form(where))
        rows = self._build_once(form, lambda: KeysetList(self._build_select(where, *self.columns), *self._order(order)))
        return self.fetch_page(tx, rows, page, _bind(workspace_id, where))

    def count(self, tx: Tx, workspace_id: int, **where: Value | Sequence[Value]) -> int:
        """Return the number of rows with these values."""
        statement = self._build_once(("count", _get_form(where)), lambda: self._build_select(where, func.count().label("n")))
        return fetch_count(tx, statement, _bind(workspace_id, where))

    def update(self, tx: Tx, *items: T, **where: Value) -> int:
        """Store the changed fields of rows, found by key and workspace, that have the values *where*; return the number of these rows."""
        form = ("update", _get_form(where))
        statement = self._build_once(
            form, lambda: update(self._table).where(*self._conditions({**dict.fromkeys(self._identity, ""), **where}))
        )
        return tx.execute_many(statement, [self._to_update(item, where) for item in items])

    def _to_update(self, item: T, where: Mapping[str, Value]) -> dict[str, Value]:
        row = self.to_row(item)
        conditions = {f"of_{name}": row[name] for name in (*self._identity, "workspace_id")}
        conditions |= {f"of_{name}": value for name, value in where.items() if value is not None}
        return conditions | {column: value for column, value in row.items() if column not in self._fixed}

    def delete(self, tx: Tx, workspace_id: int, **where: Value | Sequence[Value]) -> int:
        """Delete the rows with these values, all of the workspace without any; return the number."""
        statement = self._build_once(("delete", _get_form(where)), lambda: delete(self._table).where(*self._conditions(where)))
        return tx.execute(statement, _bind(workspace_id, where))

    def _select(self, order: Sequence[str], where: Where, *, lock: bool) -> Statement:
        def build() -> Select[Any]:
            statement = self._build_select(where, *self.columns).order_by(*self._order(order))
            return statement.with_for_update(key_share=True) if lock else statement

        return self._build_once(("select", order, lock, _get_form(where)), build)

    def _build_once(self, form: tuple[object, ...], build: Callable[[], B]) -> B:
        if form not in self._built:
            self._built[form] = build()
        return self._built[form]

    def _build_select(self, where: Where, *columns: ColumnElement[Any]) -> Select[Any]:
        return select(*columns).select_from(self._table).where(*self._conditions(where))

    def _order(self, names: Sequence[str]) -> list[ColumnElement[Any]]:
        return [self._table.c[name[1:]].desc() if name.startswith("-") else self._table.c[name] for name in names]

    def _has_unique(self, where: Where) -> bool:
        """Return whether the workspace and columns of *where* are those of a unique index that begins with the workspace."""
        unique = [self._key, *(list(index.columns.keys()) for index in self._table.indexes if index.unique)]
        return any(columns[0] == "workspace_id" and where.keys() >= set(columns[1:]) for columns in unique)

    def _conditions(self, where: Where) -> list[ColumnElement[bool]]:
        tenant: ColumnElement[int] = self._table.c.workspace_id
        indexes = [list(index.columns.keys()) for index in self._table.indexes]
        if not self._has_unique(where) and any(columns[0] in where for columns in (self._key, *indexes)):
            tenant = tenant + literal_column("0")  # otherwise SQLite may prefer an index of the workspace to the one that finds few rows
        conditions = [tenant == bindparam("of_workspace_id")]
        for name, value in where.items():
            column = self._table.c[name]
            if value is None:
                conditions.append(column.is_(None))
            elif _is_list(value):
                conditions.append(column.in_(bindparam(f"of_{name}", expanding=True)))
            else:
                conditions.append(column == bindparam(f"of_{name}"))
        return conditions


def _is_list(value: Value | Sequence[Value]) -> bool:
    return not isinstance(value, (str, int, bytes)) and isinstance(value, Sequence)


def _get_form(where: Where) -> tuple[object, ...]:
    """Return what determines the statement: the columns, and the kind of each value."""
    return tuple((name, value is None, _is_list(value)) for name, value in where.items())


def _bind(workspace_id: int, where: Where) -> Params:
    return {"of_workspace_id": workspace_id, **{f"of_{name}": value for name, value in where.items() if value is not None}}


class Nested(NamedTuple):
    """A dataclass in columns of the row of another one. *columns*: the columns of fields with another name than their column."""

    model: type[Any]
    columns: Mapping[str, str] | None = None


def map_table(
    name: str,
    model: type[T],
    *items: Column[Any] | Index | Constraint,
    key: Sequence[str] = ("id",),
    columns: Mapping[str, str] | None = None,
    codecs: Mapping[str, Codec] | None = None,
    nested: Mapping[str, Nested] | None = None,
    sqlite_with_rowid: bool = True,
    sqlite_autoincrement: bool = False,
    fixed: Sequence[str] = (),
    into: MetaData = metadata,
) -> tuple[Table, WorkspaceTable[T]]:
    """
    Return the table of *model*, whose columns follow from the types of its fields, and its rows as objects.

    Args:
        items: Columns that are no field of the model or differ from its type, constraints, and indexes.
        key: The columns of the primary key.
        columns: As of `Mapper`.
        codecs: As of `Mapper`.
        nested: The fields that are dataclasses in columns of the same row.
        sqlite_with_rowid: Keep the rows in the order of an own number, and not in that of the key.
        sqlite_autoincrement: Never use a number of a deleted row again.
        fixed: As of `WorkspaceTable`.
        into: The tables to which it is added.

    Raises:
        TypeError: As `Mapper`, or a column of *key* or *fixed* does not exist.
    """
    nested = nested or {}
    own = [item for item in items if isinstance(item, Column)]
    names = {column.name for column in own}
    derived = [column for column in _derive_columns(model, key, columns or {}, codecs or {}, nested) if column.name not in names]
    table = Table(
        name,
        into,
        *sorted([*derived, *own], key=lambda column: key.index(column.name) if column.name in key else len(key)),
        *(item for item in items if not isinstance(item, Column)),
        sqlite_with_rowid=sqlite_with_rowid,
        sqlite_autoincrement=sqlite_autoincrement,
    )
    mappers = {field: Mapper(part.model, table, columns=part.columns) for field, part in nested.items()}
    for column in (*key, *fixed):
        if column not in table.c:
            msg = f"the table {name} has no column {column}"
            raise TypeError(msg)
    return table, WorkspaceTable(model, table, columns=columns, codecs=codecs, nested=mappers, fixed=fixed)


def _derive_columns(
    model: type[Any], key: Sequence[str], names: Mapping[str, str], codecs: Mapping[str, Codec], nested: Mapping[str, Nested]
) -> Iterator[Column[Any]]:
    hints = get_hints(model)
    for field in dataclasses.fields(model):
        hint = hints[field.name]
        if field.name in nested:
            part = nested[field.name]
            for column in _derive_columns(part.model, (), part.columns or {}, {}, {}):
                column.nullable = column.nullable or may_be_none(hint)
                yield column
            continue
        column_name, codec = names.get(field.name, field.name), codecs.get(field.name) or codec_for(hint)
        stored_type = next(stored for stored in codec.stored_types if stored is not types.NoneType)
        is_nullable = may_be_none(hint) or types.NoneType in codec.stored_types
        is_key = column_name in key
        yield Column(column_name, _COLUMN_TYPES[stored_type], primary_key=is_key, nullable=is_nullable and not is_key, autoincrement=False)
