"""
Which of a caller's headers go on to an HTTP upstream: those that its entry names, under the name it gives them (D-31). Pure.

A name of `forward_headers` is "X-Tenant", or "X-Upstream-Authorization as Authorization" where the upstream knows it by another
name: the caller's own Authorization and X-API-Key carry a Rookery key on every request that gets this far, so they never go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from rookery.tools.models import Server

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token of RFC 9110."""

_AS = re.compile(r"\s+as\s+", re.IGNORECASE)

_CONNECTION = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    "content-length content-type content-encoding content-range accept accept-encoding expect range last-event-id "
    "forwarded via x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-real-ip".split()
)
"""Of one connection, or of one body, or a proxy's word on who asks: our requests have their own."""

_CARRIES = frozenset(
    "connection keep-alive proxy-connection proxy-authorization te trailer transfer-encoding upgrade host content-length expect".split()
)

_OURS = frozenset("authorization x-api-key cookie set-cookie idempotency-key x-workspace-id traceparent tracestate".split())
"""What callers send to Rookery itself. Traces go on by themselves, with our span in them."""

_PROTOCOL = "mcp-"
"""What begins so belongs to the session with the upstream."""

_OUR_KEY = re.compile(r"(?:sk_(?:live|test)|ak)_[A-Za-z0-9]{32}")

_NOTHING: Mapping[str, str] = {}


def forwarded(server: Server, headers: Mapping[str, str]) -> Mapping[str, str]:
    """
    Return what goes on to *server* of *headers*, which are all of a caller's by lower-case name; names as the upstream gets them.

    A value that holds a Rookery key stays here, whatever its header is called.
    """
    if not server.forward_headers or not headers:
        return _NOTHING
    found: dict[str, str] = {}
    for source, target in _pairs(server.forward_headers):
        value = headers.get(source)
        if value is not None and _OUR_KEY.search(value) is None and not (server.auth is not None and target == "authorization"):
            found[target] = value
    return found


def why_not(name: str) -> str | None:
    """Return why *name*, of an entry's `forward_headers`, can never be forwarded; None: it can."""
    source, target = _names(name)
    for each in (source, target):
        if _NAME.fullmatch(each) is None:
            return f"{name!r} is neither the name of a header nor 'Name as Other-Name'."
        if each in _CONNECTION:
            return f"{each!r} belongs to one connection and is never forwarded."
        if each.startswith(_PROTOCOL):
            return f"{each!r} belongs to the session with the server and is never forwarded."
    if source in _OURS:
        return (
            f"{source!r} is for Rookery and is never forwarded; let callers send another header, such as "
            f"'X-Upstream-{source.title()} as {source.title()}'."
        )
    return None


def is_of_the_connection(name: str) -> bool:
    """Tell whether a header says how a request is carried, or to whom: none that somebody else may write for us."""
    return name.lower() in _CARRIES


@lru_cache(maxsize=1024)
def _pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(_allowed(names))


def _allowed(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return (_names(name) for name in names if why_not(name) is None)


def _names(name: str) -> tuple[str, str]:
    """Return under which name a header comes and under which it goes on."""
    source, *rest = _AS.split(name.strip().lower(), maxsplit=1)
    return source, rest[0] if rest else source
