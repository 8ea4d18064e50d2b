"""The router of paths with parameters (`kernel.http.routes`): it finds what Starlette's router finds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.kernel.http.routes import PathRouter

_SEGMENTS = st.sampled_from(["a", "b", "ab", "{x}", "a{x}", "{x}.json"])
_ENDS = st.sampled_from(["", "/", "/{rest:path}"])
_PATHS = st.lists(st.sampled_from(["a", "b", "ab", "abc", "a.json", "", "c"]), max_size=5).map(lambda segments: "/" + "/".join(segments))
_METHODS = st.sampled_from(["GET", "POST", "DELETE"])


def _join_route_path(segments: Sequence[str], end: str) -> str:
    """Return the path of a route. Each parameter has a name of its own, which Starlette requires."""
    named = [segment.replace("{x}", f"{{x{number}}}") for number, segment in enumerate(segments)]
    return f"/{'/'.join(named)}{end}".replace("//", "/")


_ROUTE_PATHS = st.builds(_join_route_path, st.lists(_SEGMENTS, max_size=3), _ENDS)
_ROUTES = st.lists(st.tuples(_ROUTE_PATHS, _METHODS, st.booleans()), max_size=8)


def _make_routes(rows: Sequence[tuple[str, str, bool]]) -> list[Route | Mount]:
    return [_make_route(number, *row) for number, row in enumerate(rows)]


def _make_route(number: int, path: str, method: str, is_mount: bool) -> Route | Mount:
    async def respond(request: Request) -> Response:
        return Response(f"{number} {request.path_params}")

    async def respond_below(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(f"{number} {scope['path_params']}")(scope, receive, send)

    if is_mount and "{" not in path and path.strip("/"):
        return Mount(path.rstrip("/"), app=respond_below)
    return Route(path, respond, methods=[method])


async def _send(app: ASGIApp, method: str, path: str) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await Response("nothing", status_code=404)(scope, receive, send)


@given(rows=_ROUTES, method=_METHODS, path=_PATHS)
async def test_a_request_reaches_the_route_that_starlette_would_choose(rows: list[tuple[str, str, bool]], method: str, path: str) -> None:
    """The first route that matches path and method wins, then the first that matches the path; others get the default."""
    routes = _make_routes(rows)
    router = PathRouter(_not_found)
    for route in routes:
        router.add(route)

    expected = await _send(Router(routes, redirect_slashes=False, default=_not_found), method, path)

    assert await _send(router, method, path) == expected


async def test_a_route_added_after_a_request_is_found() -> None:
    """The console adds its routes last."""
    router = PathRouter(_not_found)
    router.add(_make_route(0, "/a/{x}", "GET", is_mount=False))
    before = await _send(router, "GET", "/a/b/c")
    router.add(_make_route(1, "/a/{x}/{y}", "GET", is_mount=False))

    assert (before[0], await _send(router, "GET", "/a/b/c")) == (404, (200, b"1 {'x': 'b', 'y': 'c'}"))
