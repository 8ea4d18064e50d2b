"""Rows of `texts.db` that were found, and which of them *within* may see."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import orjson

from rookery.kernel.clock import to_micros
from rookery.memory.models import MemoryScope, Within

_FOUND = """
SELECT json_group_object(d.id, d.memory_id) FROM json_each(:ids) AS found CROSS JOIN document AS d ON d.id = found.value
WHERE d.workspace_id = :workspace_id
  AND (d.expires_at IS NULL OR d.expires_at > :at)
"""
_OWNED = f"""
  AND (d.memory_scope IN ('{MemoryScope.PROJECT}', '{MemoryScope.SHARED}')
       OR (d.memory_scope = '{MemoryScope.AGENT}' AND d.agent_id = :agent_id)
       OR (d.memory_scope = '{MemoryScope.SESSION}' AND d.session_id = :session_id))
"""  # made of the scopes' names


def seen(connection: sqlite3.Connection, rows: Iterable[int], within: Within, *, by_owner: bool) -> dict[int, str]:
    """
    Return the memories of those of *rows* that are there and may be seen.

    Args:
        by_owner: Look at whose they are, too: they were found by words alone.
    """
    conditions, values = compared(within, first=0)
    values |= {
        "ids": numbers(rows),
        "workspace_id": within.workspace_id,
        "agent_id": within.agent_id,
        "session_id": within.session_id,
        "at": to_micros(within.at),
    }
    asked = " AND ".join((_FOUND + (_OWNED if by_owner else ""), *conditions))
    # As one row: for each one more, this thread would give up the interpreter's lock, and wait for it beside a busy server.
    (answer,) = connection.execute(asked, values).fetchone()
    found: dict[str, str] = orjson.loads(answer)
    return {int(row): memory_id for row, memory_id in found.items()}


def compared(within: Within, *, first: int) -> tuple[list[str], dict[str, object]]:
    """Return the conditions on columns of the table that no token of the full-text index stands for, and their values from *first* on."""
    filters: dict[str, object] = {
        "d.source =": within.source,
        "d.created_at >=": None if within.since is None else to_micros(within.since),
        "d.created_at <": None if within.until is None else to_micros(within.until),
        "d.confidence >=": within.min_confidence,
    }
    given = [(condition, value) for condition, value in filters.items() if value is not None]
    conditions = [f"{condition} :v{number}" for number, (condition, _) in enumerate(given, first)]
    return conditions, {f"v{number}": value for number, (_, value) in enumerate(given, first)}


def numbers(rows: Iterable[int]) -> str:
    """Return *rows* as JSON, for json_each."""
    return orjson.dumps(list(rows)).decode()
