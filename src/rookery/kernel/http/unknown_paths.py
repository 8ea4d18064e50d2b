"""Requests to unknown paths: redirected to the intended path, or answered with the nearest paths (D-10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.oauth_paths import find_oauth_error
from rookery.kernel.http.responses import RouteNotFound, error_response, set_error
from rookery.kernel.http.routes import RequestGuard, RouteTable
from rookery.kernel.redaction import redact
from rookery.kernel.suggestions import find_nearest

_PERMANENT_REDIRECT = 308
_MAX_PATH_LENGTH = 200
_MAX_SUGGESTIONS = 3
_MAX_SEGMENTS = 12
"""Longest path for which similar paths are searched."""

RenderErrorPage = Callable[[Request, RookeryError], Response | None]


def _render_no_page(_: Request, __: RookeryError) -> None:
    """Render no page."""


class UnknownPathHandler:
    """
    The ASGI application for paths that match no route.

    Args:
        table: The routes of the server.
        aliases: Paths of this server by the common path that redirects to them, such as `/docs`.
        guard: Finds out why the key of a request to a path of OAuth is refused.
        render_page: Returns the error as a page for a request of a browser; None: any other request, which gets the JSON body.
    """

    def __init__(
        self,
        table: RouteTable,
        aliases: Mapping[str, str],
        *,
        guard: RequestGuard | None = None,
        render_page: RenderErrorPage = _render_no_page,
    ) -> None:
        self._table = table
        self._guard = guard
        self._render_page = render_page
        self._aliases = {alias: path for alias, path in aliases.items() if path in table.methods_by_path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect the request, or respond with 404."""
        path = cast("str", scope["path"])
        target = self._redirect_target(scope, path)
        response = await self._not_found_response(scope, path) if target is None else _redirect_response(scope, target)
        await response(scope, receive, send)

    def _redirect_target(self, scope: Scope, path: str) -> str | None:
        """Return the path to redirect to: the same path without its final slash, or the target of an alias."""
        bare = path.rstrip("/")
        if bare in self._aliases:
            return self._aliases[bare]
        if bare == path or not bare or path.startswith("//"):
            return None
        is_known = self._table.has_path({**scope, "path": bare})
        raw = cast("bytes", scope.get("raw_path") or path.encode()).partition(b"?")[0].decode("latin-1")
        return raw.rstrip("/") if is_known else None

    async def _not_found_response(self, scope: Scope, path: str) -> Response:
        error = await find_oauth_error(scope, path, self._guard) or self._build_error(path)
        page = self._render_page(Request(scope), error)
        if page is None:
            return error_response(error)
        set_error(scope.setdefault("state", {}), error.code, is_upstream=error.is_upstream)
        return page

    def _build_error(self, path: str) -> RouteNotFound:
        safe_path = redact(path)[:_MAX_PATH_LENGTH]  # a key in the path must not end up in the caller's logs
        near_paths = self._nearest_paths(path.rstrip("/"))
        if not near_paths:
            return RouteNotFound(f"The path {safe_path!r} does not exist. GET / lists the main paths.")
        path_list = ", ".join(repr(near_path) for near_path in near_paths)
        return RouteNotFound(f"The path {safe_path!r} does not exist. The nearest is {path_list}.", nearest=near_paths)

    def _nearest_paths(self, path: str) -> list[str]:
        """Return the first paths below *path*; otherwise the path that differs in one segment by a likely typing error."""
        below = [known_path for known_path in self._known_paths if path and known_path.startswith(f"{path}/")]
        if below:
            return below[:_MAX_SUGGESTIONS]
        segments = path.split("/")
        if len(segments) > _MAX_SEGMENTS:
            return []
        candidates: dict[str, list[str]] = {}
        for known_path, its in self._path_segments:
            mismatches = [
                place for place, (one, other) in enumerate(zip(segments, its, strict=False)) if one != other and not _is_parameter(other)
            ]
            if len(its) == len(segments) and len(mismatches) == 1:
                candidates.setdefault(segments[mismatches[0]], []).append(known_path)
        for segment, paths in candidates.items():
            place = segments.index(segment)
            nearest = find_nearest(segment, [candidate.split("/")[place] for candidate in paths])
            if nearest is not None:
                return [candidate for candidate in paths if candidate.split("/")[place] == nearest][:1]
        return []

    @cached_property
    def _known_paths(self) -> list[str]:
        return sorted(self._table.methods_by_path, key=lambda path: (path.count("/"), path))

    @cached_property
    def _path_segments(self) -> list[tuple[str, list[str]]]:
        return [(path, path.split("/")) for path in self._known_paths]


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{")


def _redirect_response(scope: Scope, path: str) -> Response:
    query = cast("bytes", scope["query_string"]).decode("latin-1")
    return Response(status_code=_PERMANENT_REDIRECT, headers={"Location": f"{path}?{query}" if query else path})
