"""
Conversion between a dataclass and the rows of its table, derived from the types of the fields.

The dataclass declares what a column type cannot: a time is stored as microseconds, a flag as 0 or 1, an enumeration as its value, and a
mapping, tuple, set or other dataclass, whose sequences are tuples, as JSON. A field that may be None has a nullable column.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson
from sqlalchemy import Table, insert
from sqlalchemy.sql import ColumnElement

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db.keyset import KeysetList, Params
from rookery.kernel.db.statements import Row, Statement, Value, upsert
from rookery.kernel.db.transaction import Tx
from rookery.kernel.pages import ListPage, PageSlice

T = TypeVar("T")


class Codec(NamedTuple):
    """
    The conversion between a field and its column.

    Attributes:
        stored_types: The types of values that the column holds. Null is allowed if NoneType is one of them.
        decode: Convert a stored value; None: take it as it is. It receives null only if NoneType is one of *stored_types*.
        encode: The inverse of *decode*. It receives None only if NoneType is one of *stored_types*.
    """

    stored_types: tuple[type, ...]
    decode: Callable[[Any], object] | None = None
    encode: Callable[[Any], Value] | None = None


class _Field(NamedTuple):
    name: str
    column: str
    stored_types: frozenset[type]
    decode: Callable[[Any], object] | None
    encode: Callable[[Any], Value] | None
    converts_none: bool


class Mapper(Generic[T]):
    """
    The conversion between *model*, a dataclass, and rows of *table*.

    Args:
        columns: The columns of fields with another name than their column.
        codecs: The conversions of fields whose type does not determine it.
        nested: The mappers of fields that are dataclasses in columns of the same row. Such a field, if it may be None, is None while the
            first column of its mapper is null.

    Raises:
        TypeError: A field has no column or no known conversion, or may be None although its column is not nullable.
    """

    def __init__(
        self,
        model: type[T],
        table: Table,
        *,
        columns: Mapping[str, str] | None = None,
        codecs: Mapping[str, Codec] | None = None,
        nested: Mapping[str, Mapper[Any]] | None = None,
    ) -> None:
        self._model = model
        self._table = table
        self._insert, self._add = insert(table), upsert(table)
        self._fixed = frozenset(column.name for column in table.primary_key)
        self._save = upsert(table, index_elements=sorted(self._fixed), set_=lambda new: {name: new[name] for name in self._changeable})
        hints, names, nested = get_hints(model), columns or {}, nested or {}
        self._nested = tuple((name, mapper, may_be_none(hints[name])) for name, mapper in nested.items())
        self._fields = tuple(
            _make_field(field.name, table, names.get(field.name, field.name), hints[field.name], (codecs or {}).get(field.name))
            for field in dataclasses.fields(cast("Any", model))
            if field.name not in nested
        )
        self._names = tuple(field.name for field in self._fields)
        self._selection: tuple[Mapping[str, int] | None, Callable[[Sequence[object]], tuple[object, ...]]] = (None, tuple)
        """The columns of the last row's statement, and the function that returns the values of the fields in such a row."""
        self._valid_types: set[tuple[type, ...]] = set()
        """The types of rows that were valid. Values of other types are checked one by one."""
        self._decodes = tuple((field.name, field.decode, field.converts_none) for field in self._fields if field.decode is not None)
        self._columns_by_name = tuple((field.name, field.column) for field in self._fields)
        self._encodes = tuple((field.column, field.encode, field.converts_none) for field in self._fields if field.encode is not None)

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        """The columns of all fields, for statements that do not select the whole table."""
        own = [self._table.c[field.column] for field in self._fields]
        return own + [column for _, mapper, _ in self._nested for column in mapper.columns]

    @property
    def _changeable(self) -> list[str]:
        return [column.name for column in self.columns if column.name not in self._fixed]

    def from_row(self, row: Row) -> T:
        """
        Return the object of a row with the columns of all fields.

        Raises:
            TypeError: A column holds a value of another type.
        """
        values, index = row.values, row.index
        selected_index, select_fields = self._selection
        if selected_index is not index:
            select_fields = _build_selection([index[field.column] for field in self._fields])
            self._selection = index, select_fields
        fields = select_fields(values)
        types_of_row = tuple(map(type, fields))
        if types_of_row not in self._valid_types:
            self._check_types(types_of_row)
        arguments = dict(zip(self._names, fields, strict=True))
        for name, decode, converts_none in self._decodes:
            value = arguments[name]
            if value is not None or converts_none:
                arguments[name] = decode(value)
        for name, mapper, may_be_none in self._nested:
            is_none = may_be_none and values[index[mapper._fields[0].column]] is None
            arguments[name] = None if is_none else mapper.from_row(row)
        return self._model(**arguments)

    def _check_types(self, types_of_row: tuple[type, ...]) -> None:
        for field, kind in zip(self._fields, types_of_row, strict=True):
            if kind not in field.stored_types:
                expected = " or ".join(sorted(stored.__name__ for stored in field.stored_types))
                msg = f"column {field.column!r} holds {kind.__name__}, not {expected}"
                raise TypeError(msg)
        self._valid_types.add(types_of_row)

    def to_row(self, item: T, only: Iterable[str] | None = None) -> dict[str, Value]:
        """Return the columns of *item*, or those that *only* names."""
        row: dict[str, Value] = {column: getattr(item, name) for name, column in self._columns_by_name}
        for column, encode, converts_none in self._encodes:
            if row[column] is not None or converts_none:
                row[column] = encode(row[column])
        for name, mapper, _ in self._nested:
            value = getattr(item, name)
            row |= dict.fromkeys(field.column for field in mapper._fields) if value is None else mapper.to_row(value)
        return row if only is None else {column: row[column] for column in only}

    def fetch_one(self, tx: Tx, statement: Statement, params: Params | None = None) -> T | None:
        """Return the object of the first row, or None."""
        row = tx.fetch_one(statement, params)
        return None if row is None else self.from_row(row)

    def fetch_all(self, tx: Tx, statement: Statement, params: Params | None = None) -> list[T]:
        """Return the objects of all rows, in the statement's order."""
        return [self.from_row(row) for row in tx.fetch_all(statement, params)]

    def fetch_page(
        self, tx: Tx, rows: KeysetList, page: PageSlice, params: Params | None = None, *, total: int | None = None
    ) -> ListPage[T]:
        """
        Return a page of the objects of *rows*.

        Raises:
            InvalidCursor: The position of the page does not belong to such a list.
        """
        return rows.fetch(tx, page, params or {}, self.from_row, total=total)

    def insert(self, tx: Tx, *items: T) -> None:
        """Insert *items*."""
        tx.execute_many(self._insert, [self.to_row(item) for item in items])

    def add(self, tx: Tx, *items: T) -> int:
        """Insert those of *items* whose key and other unique columns no row has yet; return their number."""
        return tx.execute_many(self._add, [self.to_row(item) for item in items])

    def save(self, tx: Tx, *items: T) -> None:
        """Insert *items*. A row that has the key of one gets its changeable fields."""
        tx.execute_many(self._save, [self.to_row(item) for item in items])


@cache
def get_hints(model: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields. Reading them takes 0.7 ms for a class of 20 fields, and a table and its mapper both need them."""
    return get_type_hints(model)


def _build_selection(places: Sequence[int]) -> Callable[[Sequence[object]], tuple[object, ...]]:
    """Return a function that returns the values at *places* of a row."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)


def _make_field(name: str, table: Table, column: str, hint: Any, codec: Codec | None) -> _Field:  # noqa: ANN401 - a type form
    if column not in table.c:
        msg = f"{name}: the table {table.name} has no column {column}"
        raise TypeError(msg)
    codec = codec or codec_for(hint)
    is_optional = may_be_none(hint)
    converts_none = types.NoneType in codec.stored_types
    if is_optional and not converts_none and not table.c[column].nullable:
        msg = f"{name}: the field may be None, but the column {table.name}.{column} is not nullable"
        raise TypeError(msg)
    stored_types = frozenset(codec.stored_types) | ({types.NoneType} if is_optional else set[type]())
    return _Field(name, column, stored_types, codec.decode, codec.encode, converts_none)


def may_be_none(hint: object) -> bool:
    """Return whether a field of this type may be None."""
    return hint is object or hint is types.NoneType or (get_origin(hint) in (Union, types.UnionType) and types.NoneType in get_args(hint))


def codec_for(hint: Any) -> Codec:  # noqa: ANN401 - a type form
    """
    Return the conversion of a field of type *hint*.

    Raises:
        TypeError: The type does not determine it.
    """
    if get_origin(hint) in (Union, types.UnionType):
        others = [part for part in get_args(hint) if part is not types.NoneType]
        if len(others) == 1:
            return codec_for(others[0])
    if hint in _CODECS:
        return _CODECS[hint]
    origin = get_origin(hint)
    if origin is Literal:
        return _CODECS[type(get_args(hint)[0])]
    if dataclasses.is_dataclass(hint):
        return Codec((str,), partial(_decode_dataclass, cast("type[object]", hint)), encode_json)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Codec((str,), {member.value: member for member in hint}.__getitem__, attrgetter("value"))
    if origin in _JSON_TYPES and get_args(hint)[-1] is not types.NoneType:
        make, parsed_type = _JSON_TYPES[origin]
        item = get_args(hint)[0]
        if origin is tuple and isinstance(item, type) and issubclass(item, Enum):
            make = partial(_decode_members, item)
        return Codec((str,), _json_decoder(parsed_type, make), _encode_set if make is frozenset else encode_json)
    msg = f"the type {hint} needs a codec"
    raise TypeError(msg)


def _json_decoder(parsed_type: type, make: Callable[[Any], object] | None) -> Callable[[str], object]:
    def decode(text: str) -> object:
        parsed = orjson.loads(text)
        if not isinstance(parsed, parsed_type):
            msg = f"a JSON column holds {type(parsed).__name__}, not {parsed_type.__name__}"
            raise TypeError(msg)
        return parsed if make is None else make(parsed)

    return decode


def _decode_members(kind: type[Enum], values: Iterable[object]) -> tuple[Enum, ...]:
    return tuple(map(kind, values))


def _decode_dataclass(model: Callable[..., object], text: str) -> object:
    fields = cast("dict[str, object]", orjson.loads(text))
    return model(**{name: tuple(cast("list[object]", value)) if isinstance(value, list) else value for name, value in fields.items()})


def encode_json(value: object) -> str:
    """Return *value* as compact JSON."""
    return orjson.dumps(value).decode()


def _encode_set(value: frozenset[str]) -> str:
    return encode_json(sorted(value))


_CODECS: Mapping[Any, Codec] = {
    str: Codec((str,)),
    int: Codec((int,)),
    bytes: Codec((bytes,)),
    float: Codec((float, int), float),
    bool: Codec((int,), bool, int),
    datetime: Codec((int,), from_micros, to_micros),
    object: Codec((str,), orjson.loads, encode_json),
}
_JSON_TYPES: Mapping[object, tuple[Callable[[Any], object] | None, type]] = {
    dict: (None, dict),
    Mapping: (None, dict),
    tuple: (tuple, list),
    frozenset: (frozenset, list),
}
