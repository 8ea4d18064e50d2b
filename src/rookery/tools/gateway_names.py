"""
Gateway names of tools and prompts, and gateway URIs of resources, at /mcp, where all servers share one namespace (D-30). No I/O.

`get_current_time` of the server `time` is `time__get_current_time`. Model APIs accept 64 characters of `[A-Za-z0-9_-]`. Other
characters are replaced by `_`, and longer names are truncated and end in part of a digest.

`memo://insights` of the server `sqlite` is `sqlite://memo/insights`. A URI whose scheme is the server's id stays unchanged. The
mapping is not reversible (`sqlite://memo/insights` might be the server's own URI), so the reverse returns candidates in order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import unquote

MAX_NAME_LENGTH = 64

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_SEPARATOR = "__"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_VARIABLE = re.compile(r"\{[^{}]*\}")


def to_gateway_name(server_id: str, name: str) -> str:
    """Return the gateway name of a tool or prompt *name* of a server."""
    full = server_id + _SEPARATOR + name
    safe_name = _FORBIDDEN.sub("_", full)
    return safe_name if len(safe_name) <= MAX_NAME_LENGTH else _with_digest(full)


def map_gateway_names(server_id: str, names: Iterable[str]) -> dict[str, str]:
    """
    Return the original names of one server's tools or prompts by their gateway names, in their order.

    If two names map to the same gateway name (`a.b` and `a_b`), a name that needed no change keeps it. The others get a digest.
    """
    unique_names = list(dict.fromkeys(names))
    unchanged = {name for name in unique_names if to_gateway_name(server_id, name) == server_id + _SEPARATOR + name}
    taken_names = {server_id + _SEPARATOR + name for name in unchanged}
    own_names: dict[str, str] = {}
    for name in unique_names:
        gateway_name = to_gateway_name(server_id, name)
        if name not in unchanged and gateway_name in taken_names:
            gateway_name = _with_digest(server_id + _SEPARATOR + name)
        taken_names.add(gateway_name)
        own_names[gateway_name] = name
    return own_names


def split_gateway_name(gateway_name: str) -> tuple[str, str] | None:
    """Return the server id and the original name, if *gateway_name* was neither truncated nor altered. Ids contain no `_`."""
    server_id, between, name = gateway_name.partition(_SEPARATOR)
    return (server_id, name) if between and server_id and name else None


def _with_digest(full: str) -> str:
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_FORBIDDEN.sub('_', full)[:57]}_{digest[:6]}"


def to_gateway_uri(server_id: str, uri: str) -> str:
    """Return the gateway URI for the *uri* of a server's resource or resource template."""
    if uri.startswith(f"{server_id}://"):
        return uri
    return f"{server_id}://{uri.replace('://', '/', 1)}"


def parse_server_id(uri: str) -> str | None:
    """Return the server id in a gateway URI, or None if it names no server."""
    scheme, separator, _ = _restore_slashes(uri).partition("://")
    return scheme if separator and scheme else None


def list_upstream_candidates(server_id: str, uri: str, listed_uris: Iterable[str], templates: Iterable[str]) -> list[str]:
    """
    Return the upstream URIs that a gateway *uri* may stand for, the likeliest first: listed, matching a template, possible.

    Args:
        listed_uris: The URIs of the server's resources, as the server lists them.
        templates: The server's URI templates.
    """
    restored_uri = _restore_slashes(uri)
    own_uris = {to_gateway_uri(server_id, own_uri): own_uri for own_uri in listed_uris}
    if restored_uri in own_uris:
        return [own_uris[restored_uri]]
    # If a client puts the URI into the path unescaped, its percent-escapes arrive decoded.
    decoded = [own_uri for name, own_uri in own_uris.items() if unquote(name) == restored_uri]
    if decoded:
        return decoded[:1]
    rest = restored_uri.removeprefix(f"{server_id}://")
    scheme, slash, tail = rest.partition("/")
    possible = [f"{scheme}://{tail}"] if slash and _SCHEME.fullmatch(scheme) else []
    possible += [rest, restored_uri] if ":" in rest else [restored_uri, rest]
    shapes = [_VARIABLE.split(template) for template in templates]
    return sorted(dict.fromkeys(possible), key=lambda candidate: not any(_matches_template(candidate, shape) for shape in shapes))


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
        position = uri.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return True
