"""
The gateway's names for upstreams' resources (D-30). Pure.

`memo://insights` of the server `sqlite` is `sqlite://memo/insights`; a uri whose scheme is the server's id stays as it is. The way
back is not unique (`sqlite://memo/insights` might be the server's own), so it is a list of candidates in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_VARIABLE = re.compile(r"\{[^{}]*\}")


def to_gateway_uri(server_id: str, uri: str) -> str:
    """Return our name for the *uri* of a server's resource, or of a template of such."""
    if uri.startswith(f"{server_id}://"):
        return uri
    return f"{server_id}://{uri.replace('://', '/', 1)}"


def parse_server_id(uri: str) -> str | None:
    """Return the server that a gateway's uri names; None if it names none."""
    scheme, found, _ = _restore_slashes(uri).partition("://")
    return scheme if found and scheme else None


def list_upstream_candidates(server_id: str, uri: str, listed: Iterable[str], templates: Iterable[str]) -> list[str]:
    """
    Return what a gateway's *uri* may be upstream, the likeliest first: what is listed, what a template makes, what is possible.

    Args:
        listed: The uris of the server's resources, as the server names them.
        templates: Its uri templates.
    """
    asked = _restore_slashes(uri)
    known = {to_gateway_uri(server_id, each): each for each in listed}
    if asked in known:
        return [known[asked]]
    # A client that put the uri into the path as it is had its percent-escapes decoded on the way here.
    decoded = [each for name, each in known.items() if unquote(name) == asked]
    if decoded:
        return decoded[:1]
    rest = asked.removeprefix(f"{server_id}://")
    scheme, slash, tail = rest.partition("/")
    possible = [f"{scheme}://{tail}"] if slash and _SCHEME.fullmatch(scheme) else []
    possible += [rest, asked] if ":" in rest else [asked, rest]
    shapes = [_VARIABLE.split(template) for template in templates]
    return sorted(dict.fromkeys(possible), key=lambda each: not any(_matches_template(each, shape) for shape in shapes))


def _restore_slashes(uri: str) -> str:
    """Return *uri* with the second slash that some proxies take away from `scheme://`."""
    return uri if "://" in uri else uri.replace(":/", "://", 1)


def _matches_template(uri: str, shape: list[str]) -> bool:
    """Tell whether *uri* has the fixed parts of a template (RFC 6570) in order; each expression stands for anything. Linear."""
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
