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

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token of RFC 9110."""

_RENAME_SEPARATOR = re.compile(r"\s+as\s+", re.IGNORECASE)

_NEVER_FORWARDED = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    "content-length content-type content-encoding content-range accept accept-encoding expect range last-event-id "
    "forwarded via x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-real-ip".split()
)
"""Of one connection, or of one body, or a proxy's word on who asks: our requests have their own."""

_HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-connection proxy-authorization te trailer transfer-encoding upgrade host content-length expect".split()
)

_ROOKERY_HEADERS = frozenset("authorization x-api-key cookie set-cookie idempotency-key x-workspace-id traceparent tracestate".split())
"""What callers send to Rookery itself. Traces go on by themselves, with our span in them."""

_MCP_PREFIX = "mcp-"
"""What begins so belongs to the session with the upstream."""

_ROOKERY_KEY = re.compile(r"(?:sk_(?:live|test)|ak)_[A-Za-z0-9]{32}")

_NO_HEADERS: Mapping[str, str] = {}


def select_forwarded_headers(server: Server, headers: Mapping[str, str]) -> Mapping[str, str]:
    """
    Return what goes on to *server* of *headers*, which are all of a caller's by lower-case name; names as the upstream gets them.

    A value that holds a Rookery key stays here, whatever its header is called.
    """
    if not server.forward_headers or not headers:
        return _NO_HEADERS
    found: dict[str, str] = {}
    for source, target in _list_allowed_pairs(server.forward_headers):
        value = headers.get(source)
        if value is not None and _ROOKERY_KEY.search(value) is None and not (server.auth is not None and target == "authorization"):
            found[target] = value
    return found


def find_forwarding_fault(name: str) -> str | None:
    """Return why *name*, of an entry's `forward_headers`, can never be forwarded; None: it can."""
    source, target = _parse_names(name)
    for each in (source, target):
        if _HEADER_NAME.fullmatch(each) is None:
            return f"{name!r} is neither the name of a header nor 'Name as Other-Name'."
        if each in _NEVER_FORWARDED:
            return f"{each!r} belongs to one connection and is never forwarded."
        if each.startswith(_MCP_PREFIX):
            return f"{each!r} belongs to the session with the server and is never forwarded."
    if source in _ROOKERY_HEADERS:
        return (
            f"{source!r} is for Rookery and is never forwarded; let callers send another header, such as "
            f"'X-Upstream-{source.title()} as {source.title()}'."
        )
    return None


def is_hop_by_hop(name: str) -> bool:
    """Return whether a header says how a request is carried, or to whom: none that somebody else may write for us."""
    return name.lower() in _HOP_BY_HOP


@lru_cache(maxsize=1024)
def _list_allowed_pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(_iter_allowed_pairs(names))


def _iter_allowed_pairs(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return (_parse_names(name) for name in names if find_forwarding_fault(name) is None)


def _parse_names(name: str) -> tuple[str, str]:
    """Return under which name a header comes and under which it goes on."""
    source, *rest = _RENAME_SEPARATOR.split(name.strip().lower(), maxsplit=1)
    return source, rest[0] if rest else source
