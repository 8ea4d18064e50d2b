"""
Gateway URIs of upstream resources (D-30). No I/O.

`memo://insights` of the server `sqlite` is `sqlite://memo/insights`. A URI whose scheme is the server's id stays unchanged. The
mapping is not reversible (`sqlite://memo/insights` might be the server's own URI), so the reverse returns candidates in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_VARIABLE = re.compile(r"\{[^{}]*\}")


def to_gateway_uri(server_id: str, uri: str) -> str:
    """Return the gateway URI for the *uri* of a server's resource or resource template."""
    if uri.startswith(f"{server_id}://"):
        return uri
    return f"{server_id}://{uri.replace('://', '/', 1)}"


def parse_server_id(uri: str) -> str | None:
    """Return the server id in a gateway URI, or None if it names no server."""
    scheme, found, _ = _restore_slashes(uri).partition("://")
    return scheme if found and scheme else None


def list_upstream_candidates(server_id: str, uri: str, listed: Iterable[str], templates: Iterable[str]) -> list[str]:
    """
    Return the upstream URIs that a gateway *uri* may stand for, the likeliest first: listed, matching a template, possible.

    Args:
        listed: The URIs of the server's resources, as the server lists them.
        templates: The server's URI templates.
    """
    restored = _restore_slashes(uri)
    known = {to_gateway_uri(server_id, each): each for each in listed}
    if restored in known:
        return [known[restored]]
    # If a client puts the URI into the path unescaped, its percent-escapes arrive decoded.
    decoded = [each for name, each in known.items() if unquote(name) == restored]
    if decoded:
        return decoded[:1]
    rest = restored.removeprefix(f"{server_id}://")
    scheme, slash, tail = rest.partition("/")
    possible = [f"{scheme}://{tail}"] if slash and _SCHEME.fullmatch(scheme) else []
    possible += [rest, restored] if ":" in rest else [restored, rest]
    shapes = [_VARIABLE.split(template) for template in templates]
    return sorted(dict.fromkeys(possible), key=lambda each: not any(_matches_template(each, shape) for shape in shapes))


def _restore_slashes(uri: str) -> str:
    """Return *uri* with the second slash restored that some proxies remove from `scheme://`."""
    return uri if "://" in uri else uri.replace(":/", "://", 1)


def _matches_template(uri: str, shape: list[str]) -> bool:
    """Return whether *uri* contains the fixed parts of a template (RFC 6570) in order. Expressions match any text. Linear time."""
    first, *middle = shape
    if not middle:
        return uri == first
    last = middle.pop()
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for part in middle:
        found = uri.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
