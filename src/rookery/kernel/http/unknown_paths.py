"""
Requests to unknown paths: redirected to the intended path, or answered with the nearest paths.

MCP clients try the paths of an OAuth sign-in, which Rookery does not have, after a refused key, and some before the first request. The
error is all that many of them show, so it says what is wrong with the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache, cached_property
from http import HTTPStatus
from typing import NamedTuple, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import RouteNotFound, error_response, set_error
from rookery.kernel.http.routes import RequestGuard, RouteTable
from rookery.kernel.safe_texts import redact
from rookery.kernel.sentences import find_nearest

_PATH = re.compile(
    r"(?:/mcp(?:/[^/]+)?)?/(?:register|authorize|token"
    r"|\.well-known/(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)(?:/.*)?)/?"
)
_NO_SIGN_IN = "Rookery has no OAuth sign-in. Clients send a key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."

FAMILIES: Mapping[str, str] = {
    "/api/v1": "Running the server: tool servers and their tools, keys, workspaces, webhooks, events and the audit log.",
    "/api/agent": "What an agent works with: plans, tasks, sessions, templates, tools, notifications and content.",
    "/v1": "Memory and scoring, and the paths of /api/agent once more, in short.",
}
"""The prefix of each family, and what is in it."""

_MAX_PATH_LENGTH = 200
_MAX_SUGGESTIONS = 3
_MAX_SEGMENTS = 12
"""Longest path for which similar paths are searched."""

_FAMILY_SEGMENTS = frozenset("/".join(FAMILIES).split("/")) - {""} | {"brain", "mcp", "notify", "content"}
"""The segments with which paths begin: those of the families, and of the parts in them that people leave out."""


class NoOAuth(RouteNotFound):
    """No OAuth sign-in exists. `error_description` is the message, which OAuth clients show (RFC 6749, section 5.2)."""

    def __init__(self, refusal: RookeryError | None) -> None:
        message = _NO_SIGN_IN if refusal is None else f"{_NO_SIGN_IN} The key of this request was refused: {refusal.message}"
        super().__init__(message, error_description=message)


async def find_oauth_error(scope: Scope, path: str, guard: RequestGuard | None) -> NoOAuth | None:
    """Return the error of a request to a path of OAuth, with the reason why its key is refused; None for other paths."""
    if not _PATH.fullmatch(path):
        return None
    return NoOAuth(None if guard is None else await _find_refusal(scope, guard))


async def _find_refusal(scope: Scope, guard: RequestGuard) -> RookeryError | None:
    if not {name for name, _ in scope["headers"]} & {b"authorization", b"x-api-key"}:
        return None
    try:
        await guard.admit(cast("MutableMapping[str, object]", scope), required_scope=None, rate_limited=False)
    except RookeryError as error:
        return error if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else None
    return None


def list_resources(family: str, paths: Iterable[str]) -> Sequence[str]:
    """Return the first segments that follow the prefix of *family* in *paths*, sorted."""
    segments = {path.removeprefix(f"{family}/").partition("/")[0] for path in paths if path.startswith(f"{family}/")}
    return sorted(segment for segment in segments if not segment.startswith("{"))


CompareSegments = Callable[[str, str], int | None]
"""Returns the distance of a segment of a request to one of a path; None if they are different."""

RenderErrorPage = Callable[[Request, RookeryError], Response | None]


def _render_no_page(_: Request, __: RookeryError) -> None:
    """Render no page."""


class _PathTail(NamedTuple):
    """The last segments of a path, and those of its family before them. The place is that of the path among all that are mounted."""

    place: int
    path: str
    start: list[str]
    segments: list[str]


class UnknownPathHandler:
    """
    The ASGI application for paths that match no route.

    Args:
        table: The routes of the server.
        redirects: Paths of this server by the common path that redirects to them, such as `/docs`.
        guard: Finds out why the key of a request to a path of OAuth is refused.
        render_page: Returns the error as a page for a request of a browser; None: any other request, which gets the JSON body.
    """

    def __init__(
        self,
        table: RouteTable,
        redirects: Mapping[str, str],
        *,
        guard: RequestGuard | None = None,
        render_page: RenderErrorPage = _render_no_page,
    ) -> None:
        self._table = table
        self._guard = guard
        self._render_page = render_page
        self._redirects = {path: target for path, target in redirects.items() if target in table.methods_by_path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect the request, or respond with 404."""
        path = cast("str", scope["path"])
        target = self._redirect_target(scope, path)
        response = await self._not_found_response(scope, path) if target is None else _redirect_response(scope, target)
        await response(scope, receive, send)

    def _redirect_target(self, scope: Scope, path: str) -> str | None:
        """Return the path to redirect to: the same path without its final slash, or that of a common path."""
        bare = path.rstrip("/")
        if bare in self._redirects:
            return self._redirects[bare]
        if bare == path or not bare or path.startswith("//"):
            return None
        is_known = self._table.has_path({**scope, "path": bare})
        raw = cast("bytes", scope.get("raw_path") or path.encode()).partition(b"?")[0].decode("latin-1")
        return raw.rstrip("/") if is_known else None

    async def _not_found_response(self, scope: Scope, path: str) -> Response:
        error = await find_oauth_error(scope, path, self._guard) or self._build_error(cast("str", scope.get("method", "")), path)
        page = self._render_page(Request(scope), error)
        if page is None:
            return error_response(error)
        set_error(scope.setdefault("state", {}), error.code, is_upstream=error.is_upstream)
        return page

    def _build_error(self, method: str, path: str) -> RouteNotFound:
        safe_path = _to_safe_text(path)
        near_paths = self._nearest_paths(method, path.rstrip("/"))
        if not near_paths:
            return RouteNotFound(f"The path {safe_path!r} does not exist. GET / lists the main paths.")
        path_list = ", ".join(repr(near_path) for near_path in near_paths)
        return RouteNotFound(f"The path {safe_path!r} does not exist. The nearest is {path_list}.", nearest=near_paths)

    def _nearest_paths(self, method: str, path: str) -> list[str]:
        """
        Return the first paths below *path*; otherwise the same path in another family, or under a longer name.

        Without these, it is the path that differs in one segment by a likely typing error, in this family or in another one.
        """
        below = [known_path for known_path in self._known_paths if path and known_path.startswith(f"{path}/")]
        if below:
            return below[:_MAX_SUGGESTIONS]
        segments = path.split("/")[1:]
        if not path or len(segments) > _MAX_SEGMENTS:
            return []
        return (
            self._find_in_families(method, segments, _compare_words)
            or self._find_typing_error(path.split("/"))
            or self._find_in_families(method, segments, _compare_spelling)
        )

    def _find_in_families(self, method: str, segments: list[str], compare: CompareSegments) -> list[str]:
        """Return the paths whose last segments are those of the request, with its ids, after the segments of any family."""
        compare = cache(compare)
        matches = list[tuple[int, bool, int, str]]()
        for own_tail in _iter_tails(segments):
            for path_tail in self._find_tails(own_tail, compare):
                distance = _compare_tails(own_tail, path_tail.segments, compare)
                if distance is not None:
                    is_allowed = method in self._table.methods_by_path[path_tail.path]
                    target = "/".join(["", *path_tail.start, *_fill(path_tail.segments, own_tail)])
                    matches.append((distance, is_allowed, path_tail.place, target))
        matches.sort(key=lambda match: match[2])
        candidates = [match for match in matches if match[1]] or matches
        nearest = min((match[0] for match in candidates), default=0)
        targets = dict.fromkeys(target for distance, _, _, target in candidates if distance == nearest)
        return [_to_safe_text(target) for target in targets][:_MAX_SUGGESTIONS]

    def _find_tails(self, own_tail: list[str], compare: CompareSegments) -> Iterator[_PathTail]:
        """Yield the tails that have as many segments as that of a request, and a similar first one."""
        for length, tails_by_segment in self._tails.items():
            for segment, tails in tails_by_segment.items():
                is_long_enough = length == len(own_tail) or (length < len(own_tail) and any(_is_rest(tail.segments[-1]) for tail in tails))
                if is_long_enough and compare(own_tail[0], segment) is not None:
                    yield from tails

    def _find_typing_error(self, segments: list[str]) -> list[str]:
        candidates: dict[str, list[str]] = {}
        for known_path, its in self._paths_by_length.get(len(segments), ()):
            mismatches = [
                place for place, (one, other) in enumerate(zip(segments, its, strict=True)) if one != other and not _is_parameter(other)
            ]
            if len(mismatches) == 1:
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
    def _tails(self) -> dict[int, dict[str, list[_PathTail]]]:
        """The segments that follow the families in each path, by their number and by the first one."""
        tails: dict[int, dict[str, list[_PathTail]]] = {}
        for place, path in enumerate(self._table.methods_by_path):
            segments = path.split("/")[1:]
            for tail in _iter_tails(segments):
                path_tail = _PathTail(place, path, segments[: len(segments) - len(tail)], tail)
                tails.setdefault(len(tail), {}).setdefault(tail[0], []).append(path_tail)
        return tails

    @cached_property
    def _paths_by_length(self) -> dict[int, list[tuple[str, list[str]]]]:
        paths: dict[int, list[tuple[str, list[str]]]] = {}
        for path in self._known_paths:
            segments = path.split("/")
            paths.setdefault(len(segments), []).append((path, segments))
        return paths


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{")


def _is_rest(segment: str) -> bool:
    """Return whether a parameter takes the rest of the path, slashes included."""
    return segment.endswith(":path}")


def _iter_tails(segments: list[str]) -> Iterator[list[str]]:
    """Yield what follows the first segments that are those of a family: the whole, and all shorter ones."""
    for start, segment in enumerate(segments):
        if not _is_parameter(segment):
            yield segments[start:]
        if segment not in _FAMILY_SEGMENTS:
            return


def _compare_tails(segments: list[str], its: list[str], compare: CompareSegments) -> int | None:
    """Return the distance of the last segments of a request to those of a path; None if they are different."""
    if len(segments) != len(its) and not (_is_rest(its[-1]) and len(segments) > len(its)):
        return None
    total = 0
    for one, other in zip(segments, its, strict=False):
        if _is_parameter(other):
            if not one:
                return None
            continue
        distance = compare(one, other)
        if distance is None:
            return None
        total += distance
    return total


def _compare_words(one: str, other: str) -> int | None:
    """Return 0 for the same segment, and 1 for one whose words are some of the other's, such as `keys` for `api-keys`."""
    if one == other:
        return 0
    return 1 if set(one.split("-")) <= set(other.split("-")) else None


def _compare_spelling(one: str, other: str) -> int | None:
    """Return the distance as `_compare_words` does, and 2 for a likely typing error."""
    distance = _compare_words(one, other)
    return 2 if distance is None and find_nearest(one, [other]) is not None else distance


def _fill(its: list[str], segments: list[str]) -> list[str]:
    """Return the last segments of a path with the ids of the request in place of its parameters."""
    filled = [one if _is_parameter(other) else other for one, other in zip(segments, its, strict=False)]
    return [*filled, *segments[len(its) :]]


def _to_safe_text(path: str) -> str:
    """Return *path*, shortened: a key in it must not end up in the caller's logs."""
    return redact(path)[:_MAX_PATH_LENGTH]


def _redirect_response(scope: Scope, path: str) -> Response:
    query = cast("bytes", scope["query_string"]).decode("latin-1")
    return Response(status_code=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": f"{path}?{query}" if query else path})
