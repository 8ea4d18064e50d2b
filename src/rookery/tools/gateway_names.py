"""
What tools and prompts are called at /mcp, where those of all servers stand side by side (D-30). Pure.

`get_current_time` of the server `time` is `time__get_current_time`. Model APIs take 64 characters of `[A-Za-z0-9_-]`, so other
characters become `_`, and what is longer is cut, with a piece of its digest in the place of the rest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 64

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_SEPARATOR = "__"


def to_gateway_name(server_id: str, name: str) -> str:
    """Return what is called *name* at its own server."""
    full = server_id + _SEPARATOR + name
    plain = _FORBIDDEN.sub("_", full)
    return plain if len(plain) <= MAX_NAME_LENGTH else _with_digest(full)


def map_gateway_names(server_id: str, names: Iterable[str]) -> dict[str, str]:
    """
    Return the names of one server's things by what they are called at /mcp, in their order.

    Where two would be called the same (`a.b` and `a_b`), one that needed no change keeps the name; the others are marked.
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
    """Return the server and the name that *gateway_name* stands for, if it was neither cut nor changed; ids have no `_`."""
    server_id, between, name = gateway_name.partition(_SEPARATOR)
    return (server_id, name) if between and server_id and name else None


def _with_digest(full: str) -> str:
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_FORBIDDEN.sub('_', full)[:57]}_{digest[:6]}"
