"""
Forwarding of a caller's headers to an HTTP upstream: selected and renamed by the server's entry. No I/O.

An item of `forward_headers` is "X-Tenant", or "X-Upstream-Authorization as Authorization" if the upstream expects another name.
The caller's own Authorization and X-API-Key carry a Rookery key on every authenticated request, so they are never forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit

from rookery.tools.models import HttpTarget, Server

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token as defined in RFC 9110."""

_RENAME_SEPARATOR = re.compile(r"\s+as\s+", re.IGNORECASE)

_NEVER_FORWARDED = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    "content-length content-type content-encoding content-range accept accept-encoding expect range last-event-id "
    "forwarded via x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-real-ip".split()
)
"""Headers of one connection, of one body, or added by a proxy. Rookery's own requests set them."""

_HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-connection proxy-authorization te trailer transfer-encoding upgrade host content-length expect".split()
)

_ROOKERY_HEADERS = frozenset("authorization x-api-key cookie set-cookie idempotency-key x-workspace-id traceparent tracestate".split())
"""Headers that callers send to Rookery itself. Trace headers are forwarded automatically, with Rookery's span."""

_MCP_PREFIX = "mcp-"
"""Prefix of headers that belong to the upstream session."""

_ROOKERY_KEY = re.compile(r"(?:sk_(?:live|test)|ak)_[A-Za-z0-9]{32}")

_LOGIN_NAME = re.compile(r"auth|login|key|token|secret|cookie|credential|session|jwt|passw", re.IGNORECASE)
"""Names of headers and query parameters that carry a login."""

_NO_HEADERS: Mapping[str, str] = {}


def select_forwarded_headers(server: Server, headers: Mapping[str, str]) -> Mapping[str, str]:
    """
    Return the *headers* to forward to *server*, under the names that it expects. *headers* are all of the caller's, in lower case.

    A value that contains a Rookery key is never forwarded.
    """
    if not server.forward_headers or not headers:
        return _NO_HEADERS
    forwarded: dict[str, str] = {}
    for source, target in _list_allowed_pairs(server.forward_headers):
        value = headers.get(source)
        if value is not None and not has_rookery_key(value) and not (server.auth is not None and target == "authorization"):
            forwarded[target] = value
    return forwarded


def describe_caller_login(server: Server) -> str:
    """Return how callers log in at a server that accepts only the login in their headers."""
    names = " or ".join(list_caller_names(server))
    return f"The server requires the login of a caller. Send it in the header {names}; the first such request lists the tools."


def list_caller_names(server: Server, forwarded: Iterable[str] | None = None) -> list[str]:
    """Return the caller's own names, as the entry spells them, of the *forwarded* headers; None: of all that are allowed."""
    names: list[str] = []
    for item in server.forward_headers:
        _, target = _parse_names(item)
        if find_forwarding_fault(item) is None and (forwarded is None or target in forwarded):
            names.append(_RENAME_SEPARATOR.split(item.strip(), maxsplit=1)[0])
    return list(dict.fromkeys(names))


def has_own_login(server: Server, address: HttpTarget, forwarded: Iterable[str] = ()) -> bool:
    """Return whether the entry itself carries a login: `auth`, a header that none of *forwarded* replaces, or one in its URL."""
    replaced = set(forwarded)
    return (
        server.auth is not None
        or any(name.lower() not in replaced and is_login_header(address, name, value) for name, value in address.headers.items())
        or _has_login_in_url(address)
    )


def forwards_login(server: Server, address: HttpTarget, forwarded: Mapping[str, str]) -> bool:
    """Return whether *forwarded* headers of a caller carry a login, by their names here or at the caller, or by their values."""
    names = list_caller_names(server, forwarded)
    return any(_LOGIN_NAME.search(name) for name in names) or any(
        is_login_header(address, name, value) for name, value in forwarded.items()
    )


def is_login_header(address: HttpTarget, name: str, value: str) -> bool:
    """Return whether a header carries a login: by its name, or because its value contains a secret of the entry."""
    return _LOGIN_NAME.search(name) is not None or _has_secret(address, value)


def has_rookery_key(text: str) -> bool:
    """Return whether *text* contains a key of Rookery, which no tool server may get."""
    return _ROOKERY_KEY.search(text) is not None


def find_forwarding_fault(name: str) -> str | None:
    """Return why *name*, an item of `forward_headers`, can never be forwarded, or None if it can."""
    source, target = _parse_names(name)
    for header in (source, target):
        if any(mark in header for mark in "*?["):
            return f"{name!r} is no name of a header: write each name in full. Only `forward_meta` takes globs."
        if HEADER_NAME.fullmatch(header) is None:
            return f"{name!r} is neither a header name nor 'Name as Other-Name'."
        if header in _NEVER_FORWARDED:
            return f"{header!r} applies to one connection and is never forwarded."
        if header.startswith(_MCP_PREFIX):
            return f"{header!r} belongs to the session with the server and is never forwarded."
    if source in _ROOKERY_HEADERS:
        return (
            f"{source!r} is read by Rookery and is never forwarded; use another header, such as "
            f"'X-Upstream-{source.title()} as {source.title()}'."
        )
    return None


def is_hop_by_hop(name: str) -> bool:
    """Return whether a header controls the transport of a request. Entries may not set such headers."""
    return name.lower() in _HOP_BY_HOP


@lru_cache(maxsize=1024)
def _list_allowed_pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(_iter_allowed_pairs(names))


def _iter_allowed_pairs(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return (_parse_names(name) for name in names if find_forwarding_fault(name) is None)


def _has_secret(address: HttpTarget, text: str) -> bool:
    return any(secret and secret in text for secret in address.secrets)


def _has_login_in_url(address: HttpTarget) -> bool:
    parts = urlsplit(address.url)
    return (
        parts.username is not None
        or any(_LOGIN_NAME.search(name) for name, _ in parse_qsl(parts.query))
        or _has_secret(address, parts.query)
        or _has_secret(address, parts.path)
    )


def _parse_names(name: str) -> tuple[str, str]:
    """Return the caller's name and the upstream's name of a header."""
    source, *rest = _RENAME_SEPARATOR.split(name.strip().lower(), maxsplit=1)
    return source, rest[0] if rest else source
