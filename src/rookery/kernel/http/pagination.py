"""The envelope of paginated lists (spec 4.6, D-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, TypeVar, cast
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.http.responses import json_response
from rookery.kernel.schema import QueryModel

T = TypeVar("T")

_MAX_PAGE_NUMBER = 10_000_000


class PageQuery(QueryModel):
    """The query parameters that every list has."""

    page: Annotated[int, Field(ge=1, le=_MAX_PAGE_NUMBER, description="The number of the page, from 1.")] = 1
    per_page: Annotated[int, Field(ge=1, le=100, description="The number of items on a page.")] = 15

    @property
    def offset(self) -> int:
        """The number of items before the page."""
        return (self.page - 1) * self.per_page


class Links(BaseModel):
    """URLs of the neighbouring pages; null if there is no such page."""

    first: str
    last: str
    prev: str | None
    next: str | None


class Meta(BaseModel):
    """The position of the page in the list."""

    current_page: int
    per_page: int
    total: int


class Page(BaseModel, Generic[T]):
    """One page of a list, as `page_response` sends it."""

    data: list[T]
    links: Links
    meta: Meta


def page_response(
    request: Request,
    items: Sequence[BaseModel | Mapping[str, object]],
    *,
    query: PageQuery,
    total: int,
    aliases: Mapping[str, object] | None = None,
) -> Response:
    """
    Return *items* as one page of *total* items. The links keep the other query parameters of the request.

    Args:
        aliases: Deprecated fields of lists that had no pages at first, sent beside the fields of the page.
    """
    last = max(1, -(-total // query.per_page))
    base = cast("str", request.scope["state"]["address"]) + request.url.path
    parameters = [(name, value) for name, value in parse_qsl(request.url.query, keep_blank_values=True) if name != "page"]

    def link(number: int) -> str:
        return f"{base}?{urlencode([*parameters, ('page', str(number))])}"

    links = Links(
        first=link(1),
        last=link(last),
        prev=link(min(query.page - 1, last)) if query.page > 1 else None,
        next=link(query.page + 1) if query.page < last else None,
    )
    meta = Meta(current_page=query.page, per_page=query.per_page, total=total)
    return json_response({"data": list(items), "links": links, "meta": meta, **(aliases or {})})
