"""The ids that MCP clients send of their own sessions, which hooks report too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import cast

_MAX_IDS = 4
_MAX_ID_CHARS = 200
_NAME = re.compile(r"(?:^|[/._-])(?:session|thread|conversation)[_-]?id$", re.IGNORECASE)
"""`sessionId` and `threadId` of Codex, and the like in the keys of other clients."""


def list_client_sessions(meta: Mapping[str, object]) -> tuple[str, ...]:
    """Return the texts in the `_meta` of a message, or in an object in it, that may be the client's id of its session."""
    return tuple(dict.fromkeys(islice(_find_ids(meta), _MAX_IDS)))


def _find_ids(meta: Mapping[str, object]) -> Iterator[str]:
    nested = (cast("Mapping[str, object]", value) for value in meta.values() if isinstance(value, Mapping))
    for fields in (meta, *nested):
        for name, value in fields.items():
            if _NAME.search(name) and isinstance(value, str) and 0 < len(value) <= _MAX_ID_CHARS and value.isprintable():
                yield value
