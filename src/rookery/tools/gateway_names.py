"""
Names of tools and prompts at /mcp, where all servers share one namespace (D-30). No I/O.

`get_current_time` of the server `time` is `time__get_current_time`. Model APIs accept 64 characters of `[A-Za-z0-9_-]`. Other
characters are replaced by `_`, and longer names are truncated and end in part of a digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 64

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_SEPARATOR = "__"


def to_gateway_name(server_id: str, name: str) -> str:
    """Return the gateway name of a tool or prompt *name* of a server."""
    full = server_id + _SEPARATOR + name
    plain = _FORBIDDEN.sub("_", full)
    return plain if len(plain) <= MAX_NAME_LENGTH else _with_digest(full)


def map_gateway_names(server_id: str, names: Iterable[str]) -> dict[str, str]:
    """
    Return the original names of one server's tools or prompts by their gateway names, in their order.

    If two names map to the same gateway name (`a.b` and `a_b`), a name that needed no change keeps it. The others get a digest.
    """
    known = list(dict.fromkeys(names))
    unchanged = {name for name in known if to_gateway_name(server_id, name) == server_id + _SEPARATOR + name}
    taken = {server_id + _SEPARATOR + name for name in unchanged}
    found: dict[str, str] = {}
    for name in known:
        shown = to_gateway_name(server_id, name)
        if name not in unchanged and shown in taken:
            shown = _with_digest(server_id + _SEPARATOR + name)
        taken.add(shown)
        found[shown] = name
    return found


def split_gateway_name(gateway_name: str) -> tuple[str, str] | None:
    """Return the server id and the original name, if *gateway_name* was neither truncated nor altered. Ids contain no `_`."""
    server_id, between, name = gateway_name.partition(_SEPARATOR)
    return (server_id, name) if between and server_id and name else None


def _with_digest(full: str) -> str:
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_FORBIDDEN.sub('_', full)[:57]}_{digest[:6]}"
