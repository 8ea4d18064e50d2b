"""A server of toy routes, for the behaviour that kernel/http gives every route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Annotated

import httpx2
import pytest
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import EdgeMiddleware, Operation, json_response, mount_routes, page_response
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.pages import slice_sorted
from rookery.kernel.schema import PageQuery, RequestModel, ResponseModel, Timestamp
from tests.guards import FakeGuard


class Note(RequestModel):
    """A body with one field of each kind."""

    text: Annotated[str, Field(min_length=1, max_length=50)]
    count: int = 0
    weight: float = 0.0
    at: Timestamp | None = None
    free: dict[str, object] = Field(default_factory=dict[str, object])


class Item(ResponseModel):
    """One item of a list."""

    number: int


class ToyRoutes:
    """Routes of every kind."""

    def routes(self) -> list[Operation]:
        """Return the routes."""
        return [
            Operation(method="POST", path="/notes", handler=self.post, required_scope="notes:write", max_body_bytes=1000),
            Operation(method="GET", path="/notes", handler=self.list, required_scope="notes:read"),
            Operation(method="GET", path="/notes/{name}", handler=self.get, required_scope="notes:read"),
            Operation(method="DELETE", path="/notes/{name}", handler=self.get, required_scope="notes:delete"),
            Operation(method="GET", path="/files/{uri:path}", handler=self.file, required_scope="notes:read"),
            Operation(method="GET", path="/broken", handler=self.broken, required_scope=None, public=True),
        ]

    async def post(self, body: Note) -> Response:
        """Return the parsed body."""
        return json_response(body, status=201)

    async def list(self, request: Request, query: PageQuery) -> Response:
        """Return a page of forty numbers."""
        page = slice_sorted(range(40), query.slice, lambda number: (number,))
        return page_response(request, [Item(number=number) for number in page.items], query=query, total=page.total, end=page.end)

    async def get(self, name: str) -> Response:
        """Return the name."""
        return json_response({"name": name})

    async def file(self, uri: str) -> Response:
        """Return the rest of the path."""
        return json_response({"uri": uri})

    async def broken(self) -> Response:
        """Raise an unexpected error."""
        secret = "sk_live_hidden"
        raise ZeroDivisionError(secret)


def find_caller_by_scope(headers: Mapping[bytes, bytes], required_scope: str | None) -> str:
    """Return a caller if the X-Test-Scope header names the required scope, or says `known` for a route without one."""
    sent = headers.get(b"x-test-scope", b"").decode()
    if sent != (required_scope or "known"):
        raise PermissionDenied(str(required_scope))
    return "somebody"


@pytest.fixture
async def connections() -> AsyncIterator[AsyncExitStack]:
    """Yield an exit stack that closes the test's connections."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def guard() -> FakeGuard:
    """Return a guard that admits requests by their X-Test-Scope header."""
    return FakeGuard(find_caller_by_scope, headers=((b"x-ratelimit-limit", b"7"),))


@pytest.fixture
async def toy(guard: FakeGuard) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of the toy server with the Host rookery.test."""
    routes = RouteTable()
    mount_routes(routes, "/api", ToyRoutes().routes(), guard)
    edge = EdgeMiddleware(
        endpoints_by_path=routes.endpoints_by_path,
        router=routes.router,
        hosts={"rookery.test"},
        origins={"http://rookery.test"},
        public_url=lambda path: "https://shown.example",
        guard=guard,
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(edge), base_url="http://rookery.test") as client:
        yield client
