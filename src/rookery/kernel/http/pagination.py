"""Responses that are one page of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.http.responses import json_response
from rookery.kernel.pages import CURSOR_FIELD, Position
from rookery.kernel.schema import Links, Meta, PageQuery


def page_response(
    request: Request,
    items: Sequence[BaseModel | Mapping[str, object]],
    *,
    query: PageQuery,
    total: int,
    end: Position | None = None,
    summary: Mapping[str, object] | None = None,
) -> Response:
    """
    Return *items* as one page of *total* items. The links keep the other query parameters of the request.

    The link to the next page has a cursor if the request has one, and the number of the page otherwise.

    Args:
        end: The position of the last item, if there is a next page.
        summary: Fields of the whole list, sent beside the fields of the page.
    """
    last = max(1, -(-total // query.per_page))
    base = cast("str", request.scope["state"]["address"]) + request.url.path
    own = {*query.offset_fields, CURSOR_FIELD}
    parameters = [(name, value) for name, value in parse_qsl(request.url.query, keep_blank_values=True) if name not in own]
    next_cursor = query.encode_cursor(end)

    def link(value: int | str, name: str = "page") -> str:
        return f"{base}?{urlencode([*parameters, (name, str(value))])}"

    if query.cursor is None:
        following = link(query.page + 1) if query.page < last else None
    else:
        following = None if next_cursor is None else link(next_cursor, CURSOR_FIELD)
    links = Links(
        first=link(1),
        last=link(last),
        prev=link(min(query.number - 1, last)) if query.number > 1 else None,
        next=following,
    )
    meta = Meta(current_page=query.number, per_page=query.per_page, total=total, next_cursor=next_cursor)
    return json_response({"data": list(items), "links": links, "meta": meta, **(summary or {})})
