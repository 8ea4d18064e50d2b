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
    """The two query fields of every list."""

    page: Annotated[int, Field(ge=1, le=_MAX_PAGE_NUMBER, description="Which page, from 1.")] = 1
    per_page: Annotated[int, Field(ge=1, le=100, description="How many items a page has.")] = 15

    @property
    def offset(self) -> int:
        """How many items come before the page."""
        return (self.page - 1) * self.per_page


class Links(BaseModel):
    """Addresses of the neighbouring pages; null where there is none."""

    first: str
    last: str
    prev: str | None
    next: str | None


class Meta(BaseModel):
    """Where in the list the page stands."""

    current_page: int
    per_page: int
    total: int


class Page(BaseModel, Generic[T]):
    """One page of a list; what `page_response` sends, for routes to say so."""

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
    Return *items* as one page of *total*; links keep the request's other query fields, under our own address.

    Args:
        aliases: Deprecated fields that the list had before it was a page, sent beside the page's own.
    """
    last = max(1, -(-total // query.per_page))
    base = cast("str", request.scope["state"]["address"]) + request.url.path
    kept = [(name, value) for name, value in parse_qsl(request.url.query, keep_blank_values=True) if name != "page"]

    def link(number: int) -> str:
        return f"{base}?{urlencode([*kept, ('page', str(number))])}"

    links = Links(
        first=link(1),
        last=link(last),
        prev=link(min(query.page - 1, last)) if query.page > 1 else None,
        next=link(query.page + 1) if query.page < last else None,
    )
    meta = Meta(current_page=query.page, per_page=query.per_page, total=total)
    return json_response({"data": list(items), "links": links, "meta": meta, **(aliases or {})})
