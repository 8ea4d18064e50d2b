"""
The text of tool answers for a model: the same JSON with fewer fields.

The full answer is in structuredContent. The text omits fields that are null, empty or at their default, and fields that only programs
need. Scores have two decimals; times are dates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

_DECIMALS = 2
_DATE_CHARS = len("2026-11-21")

_OMITTED_FIELDS = frozenset(
    {
        *("workspace_id", "base_confidence", "effective_confidence", "similarity", "highlight", "took_ms"),
        *("indexed", "indexed_at", "updated_at", "duplicate"),
    }
)
_DEFAULTS: Mapping[str, object] = {"memory_scope": "project", "source": "manual", "state": "indexed"}
_LIST_FIELDS = frozenset({"memories", "hits", "agent", "shared", "project", "session", "history"})


def render_text(tool: str, output: Mapping[str, object]) -> str:
    """Return the text of *output*, the response of *tool*."""
    if tool in {"tags", "scopes", "forget", "feedback"}:
        return _to_json(_compact_value(output))
    compact = {
        name: [_compact_memory(item) for item in cast("Sequence[Mapping[str, object]]", value)]
        if name in _LIST_FIELDS and isinstance(value, list)
        else value
        for name, value in output.items()
    }
    return _to_json(_compact_memory(compact))


def _compact_memory(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return a memory, or an object that contains memories, with only the fields that a model needs."""
    compact = {
        name: _compact_field(name, value) for name, value in fields.items() if name not in _OMITTED_FIELDS and _DEFAULTS.get(name) != value
    }
    return {name: value for name, value in compact.items() if not _is_empty(value)}


def _compact_field(name: str, value: object) -> object:
    if name == "metadata":
        return value
    if name == "memory" and isinstance(value, dict):
        return _compact_memory(cast("Mapping[str, object]", value))
    if name.endswith("_at") and isinstance(value, str):
        return value[:_DATE_CHARS]
    return _compact_value(value)


def _compact_value(value: object) -> object:
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, list):
        return [_compact_value(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        return {name: _compact_value(item) for name, item in cast("Mapping[str, object]", value).items() if item is not None}
    return value


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _to_json(value: object) -> str:
    return orjson.dumps(value).decode()
