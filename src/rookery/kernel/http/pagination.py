"""Responses that are one page of a list (spec 4.6, D-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.http.responses import json_response
from rookery.kernel.schema import Links, Meta, PageQuery


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
