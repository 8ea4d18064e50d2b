"""A server of toy routes, for what kernel/http does for every route."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from typing import Annotated

import httpx2
import pytest
from fastapi import FastAPI, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import PermissionDenied, RookeryError
from rookery.kernel.http import Route, Shell, mount, page, reply
from rookery.kernel.http.pages import PageQuery
from rookery.kernel.http.routes import Admission, Mounted
from rookery.kernel.http.shell import unknown_route
from rookery.kernel.wire import Answer, Body, Moment


class Note(Body):
    """A body with one field of each kind."""

    text: Annotated[str, Field(min_length=1, max_length=50)]
    count: int = 0
    weight: float = 0.0
    at: Moment | None = None
    free: dict[str, object] = Field(default_factory=dict[str, object])


class Item(Answer):
    """One item of a list."""

    number: int


class Toy:
    """Routes of every kind."""

    def routes(self) -> list[Route]:
        """Return the table."""
        return [
            Route(method="POST", path="/notes", handler=self.post, needs="notes:write", max_body=1000),
            Route(method="GET", path="/notes", handler=self.list, needs="notes:read"),
            Route(method="GET", path="/notes/{name}", handler=self.get, needs="notes:read"),
            Route(method="DELETE", path="/notes/{name}", handler=self.get, needs="notes:delete"),
            Route(method="GET", path="/files/{uri:path}", handler=self.file, needs="notes:read"),
            Route(method="GET", path="/broken", handler=self.broken, needs=None, public=True),
        ]

    async def post(self, body: Note) -> Response:
        """Give back what was understood."""
        return reply(body, status=201)

    async def list(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """Return a page of forty numbers."""
        numbers = range(40)[query.offset : query.offset + query.per_page]
        return page(request, [Item(number=number) for number in numbers], query=query, total=40)

    async def get(self, name: str) -> Response:
        """Return the name."""
        return reply({"name": name})

    async def file(self, uri: str) -> Response:
        """Return the rest of the path."""
        return reply({"uri": uri})

    async def broken(self) -> Response:
        """Fail as only a mistake does."""
        secret = "sk_live_hidden"
        raise ZeroDivisionError(secret)


class Letting:
    """An admission of anybody who names a scope in X-Test-Scope."""

    caller = "somebody"
    headers = ((b"x-ratelimit-limit", b"7"),)

    def __init__(self, recorded: list[tuple[str, str, int]]) -> None:
        self.recorded = recorded

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Keep it."""
        assert duration_ms >= 0
        self.recorded.append((method, route, status))


class Doorman:
    """Admits whoever names the scope that is needed."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, int]] = []

    async def admit(self, scope: MutableMapping[str, object], *, needs: str | None, spend: bool = True) -> Admission:
        """Let in, or raise."""
        headers = scope["headers"]
        assert isinstance(headers, list)
        assert spend is (needs is not None)
        if needs is None and (b"x-test-scope", b"known") in headers:
            return Letting(self.recorded)
        if (b"x-test-scope", str(needs).encode()) not in headers:
            raise PermissionDenied(str(needs))
        return Letting(self.recorded)


@pytest.fixture
def doorman() -> Doorman:
    """Who admits."""
    return Doorman()


@pytest.fixture
async def toy(doorman: Doorman) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the toy server, whose Host is rookery.test."""
    mounted = Mounted(FastAPI())
    mount(mounted, "/api", Toy().routes(), doorman)
    mounted.app.router.default = unknown_route
    shell = Shell(
        exact=mounted.exact,
        router=mounted.app.router,
        hosts={"rookery.test"},
        origins={"http://rookery.test"},
        address=lambda path: "https://shown.example",
        admit=doorman,
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://rookery.test") as client:
        yield client


__all__ = ["Doorman", "RookeryError", "doorman", "toy"]
