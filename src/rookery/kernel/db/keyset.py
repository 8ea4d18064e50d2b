"""Lists whose pages are read by an offset or after a position (keyset pagination)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, or_, tuple_
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import UnaryExpression

from rookery.kernel.db.statements import Row, Value
from rookery.kernel.db.transaction import Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice, Position, check_position

T = TypeVar("T")
Params = Mapping[str, Value | Sequence[Value]]


class _Term(NamedTuple):
    """A term of ORDER BY. *bound* is the parameter with its value at the position, and *column* the name in the rows."""

    element: ColumnElement[Any]
    is_descending: bool
    bound: ColumnElement[Any]
    column: str


class KeysetList:
    """
    A list of rows in a total order.

    Its statements are compiled once if it is a constant of a module. Pages by offset and pages after a position have the same order.

    Args:
        statement: The rows, without ORDER BY.
        order: Columns without null in these rows. Together they are unique.
    """

    def __init__(self, statement: Select[Any], *order: ColumnElement[Any]) -> None:
        terms = list[_Term]()
        for number, term in enumerate(order):
            is_descending = isinstance(term, UnaryExpression) and term.modifier is operators.desc_op
            element = cast("ColumnElement[Any]", cast("Any", term).element if isinstance(term, UnaryExpression) else term)
            selected = [column for column in statement.selected_columns if column is element]
            if not selected:
                statement = statement.add_columns(element.label(f"position_{number}"))
            name = str(cast("Any", selected[0]).key) if selected else f"position_{number}"
            terms.append(_Term(element, is_descending, bindparam(f"position_{number}", type_=element.type), name))
        self._terms = terms
        self._statement = statement
        self._ordered = statement.order_by(*order).limit(bindparam("page_limit"))

    @cached_property
    def _by_offset(self) -> Select[Any]:
        return self._ordered.offset(bindparam("page_offset"))

    @cached_property
    def _after_position(self) -> Select[Any]:
        return self._by_offset.where(_build_condition(self._terms))

    @cached_property
    def _count(self) -> Select[Any]:
        return self._statement.with_only_columns(func.count(), maintain_column_froms=True)

    @cached_property
    def _kinds(self) -> Sequence[type]:
        return [term.element.type.python_type for term in self._terms]

    def fetch(self, tx: Tx, page: PageSlice, params: Params, build: Callable[[Row], T], *, total: int | None = None) -> ListPage[T]:
        """
        Return a page of the list.

        Args:
            params: The parameters of the statement.
            build: Returns the item of a row.
            total: The number of rows of the list, if it is known. None: they are counted.

        Raises:
            InvalidCursor: The position of the page does not belong to such a list.
        """
        values: dict[str, Value | Sequence[Value]] = {**params, "page_limit": page.limit + 1, "page_offset": page.offset}
        statement = self._by_offset
        if page.after is not None:
            statement = self._after_position
            position = check_position(page.after, self._kinds)
            values |= {f"position_{number}": value for number, value in enumerate(position)}
        rows = tx.fetch_all(statement, values)
        page_rows = rows[: page.limit]
        return ListPage(
            [build(row) for row in page_rows],
            fetch_count(tx, self._count, params) if total is None else total,
            [self._read_position(row) for row in page_rows],
            len(rows) > page.limit,
        )

    def _read_position(self, row: Row) -> Position:
        return cast("Position", tuple(row.values[row.index[term.column]] for term in self._terms))


def _build_condition(terms: Sequence[_Term]) -> ColumnElement[bool]:
    """
    Return the condition that a row comes after a position.

    Terms with the same direction are compared as one row value, which an index on them serves.
    """
    is_descending = terms[0].is_descending
    count = next((number for number, term in enumerate(terms) if term.is_descending != is_descending), len(terms))
    head, rest = terms[:count], terms[count:]
    row: ColumnElement[Any] = tuple_(*(term.element for term in head)) if count > 1 else head[0].element
    bound: ColumnElement[Any] = tuple_(*(term.bound for term in head)) if count > 1 else head[0].bound
    is_after = row < bound if is_descending else row > bound
    if not rest:
        return is_after
    is_tie = and_(*(term.element == term.bound for term in head))
    not_before = row <= bound if is_descending else row >= bound
    return and_(not_before, or_(is_after, and_(is_tie, _build_condition(rest))))
