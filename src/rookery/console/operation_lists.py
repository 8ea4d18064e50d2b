"""Lists made from operations: columns from the fields of the response, filters from those of the query, and pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from starlette.responses import Response

from rookery.console.operation_schemas import ObjectSchema, SchemaField, get_value
from rookery.console.visit import PER_PAGE, ListedPage, PageLinks, View, Visit
from rookery_client import ApiError

CellKind = Literal["text", "list", "number", "time", "state"]
FilterKind = Literal["search", "select", "text"]

_STATE_FIELDS = frozenset({"status", "state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """
    A column of a list.

    Attributes:
        name: The field of the response, dotted inside others.
        show: Returns what a cell shows, given the item. None: the value of the field.
        note: Returns the small text below it.
        macro: A macro of `resource/cells.html` that shows the cell, given the item.
    """

    name: str
    title: str = ""
    kind: CellKind | None = None
    show: Callable[[Any], object] | None = None
    note: Callable[[Any], object] | None = None
    macro: str = ""


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column with what its field says."""

    column: Column
    title: str
    kind: CellKind

    @property
    def css_class(self) -> str:
        """The class of its cells."""
        return "num" if self.kind in {"number", "time"} else ""

    def get_value(self, item: object) -> object:
        """Return the value of its cell in the row of *item*."""
        return get_value(item, self.column.name) if self.column.show is None else self.column.show(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """
    A filter of a list.

    Attributes:
        name: The parameter of the operation.
        parameter: The parameter of the page, if its name differs.
    """

    name: str
    parameter: str = ""
    label: str = ""
    placeholder: str = ""
    options: Sequence[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class ShownFilter:
    """A filter with its text, and what its parameter says."""

    name: str
    label: str
    kind: FilterKind
    text: str
    declared: Filter
    options: Sequence[tuple[str, str]]
    max_length: int

    @property
    def value(self) -> object:
        """The value for the operation. A text that is no option counts as missing, as the page then shows."""
        if not self.text or (self.kind == "select" and all(self.text != value for value, _ in self.options)):
            return None
        return {"true": True, "false": False}.get(self.text, self.text) if self.kind == "select" else self.text


@dataclass(frozen=True, slots=True)
class OperationPage:
    """
    A page of a list.

    Attributes:
        problem: The message of a filter that is refused.
        hidden: Further parameters of the page that its filters keep.
    """

    declared: OperationList
    path: str
    columns: Sequence[ShownColumn]
    filters: Sequence[ShownFilter]
    items: Sequence[Any]
    links: PageLinks | None
    problem: str = ""
    status: int = 200
    hidden: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_filtered(self) -> bool:
        return any(control.text for control in self.filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationList:
    """
    A list of resources.

    Attributes:
        path: The path of its page below `/console/`.
        client: The attribute of the client with its operation.
        operation: The id of the operation.
        link: Returns the path of the page of an item; None: the items have none.
        noun, plural: What an item is called.
        empty: The title and the text in place of an empty list.
        new: The path, the scope and the label of the button for a new item.
        tabs: A template with the tabs of the section.
        tail: A macro of `resource/cells.html` with the actions of an item, in a last column for keys with *tail_scope*.
    """

    path: str
    client: str
    operation: str
    title: str
    lead: str = ""
    scope: str | None = None
    noun: str
    plural: str = ""
    icon: str = "search"
    columns: Sequence[Column]
    filters: Sequence[Filter] = ()
    link: Callable[[Any], str] | None = None
    empty: tuple[str, str]
    empty_label: str = ""
    new: tuple[str, str, str] | None = None
    tabs: str = ""
    tail: str = ""
    tail_scope: str = ""
    template: str = "resource/list.html"

    def view(self) -> View:
        return View("GET", f"/{self.path}", self.show, self.scope)

    async def show(self, visit: Visit) -> Response:
        """Show the page of the list."""
        page = await self.load(visit)
        return visit.render(self.template, status=page.status, listing=page)

    async def load(self, visit: Visit, *ids: str, path: str = "", hidden: Mapping[str, str] | None = None) -> OperationPage:
        """
        Return a page of the list.

        Args:
            ids: The path parameters of the operation.
            path: The path of the page, if it is not that of the declaration.
        """
        query, item = visit.operations.get_query(self.operation), visit.operations.get_item(self.operation)
        columns = [_show_column(item, column) for column in self.columns]
        filters = [_show_filter(query, declared, visit) for declared in self.filters]
        call = cast("Callable[..., Awaitable[ListedPage]]", getattr(getattr(visit.client, self.client), self.operation))
        values = {control.declared.name: value for control in filters if (value := control.value) is not None}
        place = path or self.path
        try:
            listed = await call(*ids, page=visit.page_number, per_page=PER_PAGE, **values)
        except ApiError as error:
            if error.status not in {404, 422} or not values:
                raise
            # A filter by something that does not exist is a 404 of the API.
            status = 200 if error.status == 404 else 422
            return OperationPage(self, place, columns, filters, [], None, error.message, status, hidden or {})
        return OperationPage(self, place, columns, filters, listed.items, PageLinks.of(visit, listed), hidden=hidden or {})


def _show_column(item: ObjectSchema, column: Column) -> ShownColumn:
    source = item.find(column.name)
    title = column.title or (source.label if source else column.name.capitalize())
    return ShownColumn(column, title, column.kind or ("text" if source is None or column.show or column.macro else _choose_kind(source)))


def _choose_kind(source: SchemaField) -> CellKind:
    if source.is_time:
        return "time"
    if source.kind in {"integer", "number"}:
        return "number"
    if source.kind == "array":
        return "list"
    return "state" if source.name.rpartition(".")[2] in _STATE_FIELDS else "text"


def _show_filter(query: ObjectSchema, declared: Filter, visit: Visit) -> ShownFilter:
    source = query.fields[declared.name]
    options = declared.options or [(option, option.replace("_", " ")) for option in source.options]
    if not options and source.kind == "boolean":
        options = [("true", "yes"), ("false", "no")]
    kind: FilterKind = "select" if options else "search" if declared.name == "q" else "text"
    name = declared.parameter or declared.name
    return ShownFilter(
        name, declared.label or source.label, kind, visit.query(name), declared, options, int(source.get_limit("maxLength") or 0)
    )
