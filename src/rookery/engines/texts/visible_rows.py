"""Rows of `texts.db` that were found, and which of them *access_filter* may see."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import orjson

from rookery.kernel.clock import to_micros
from rookery.memory.models import AccessFilter, MemoryScope

_SELECT = """
SELECT json_group_object(d.id, d.memory_id) FROM json_each(:ids) AS found CROSS JOIN document AS d ON d.id = found.value
WHERE d.workspace_id = :workspace_id
  AND (d.expires_at IS NULL OR d.expires_at > :at)
"""
_IS_OWNED = f"""
  AND (d.memory_scope IN ('{MemoryScope.PROJECT}', '{MemoryScope.SHARED}')
       OR (d.memory_scope = '{MemoryScope.AGENT}' AND d.agent_id = :agent_id)
       OR (d.memory_scope = '{MemoryScope.SESSION}' AND d.session_id = :session_id))
"""  # made of the scopes' names


def filter_visible(
    connection: sqlite3.Connection, rows: Iterable[int], access_filter: AccessFilter, *, checks_owner: bool
) -> dict[int, str]:
    """
    Return the memories of those of *rows* that are there and may be seen.

    Args:
        checks_owner: Look at whose they are, too: they were found by words alone.
    """
    conditions, values = column_conditions(access_filter, first_number=0)
    values |= {
        "ids": rows_to_json(rows),
        "workspace_id": access_filter.workspace_id,
        "agent_id": access_filter.agent_id,
        "session_id": access_filter.session_id,
        "at": to_micros(access_filter.at),
    }
    asked = " AND ".join((_SELECT + (_IS_OWNED if checks_owner else ""), *conditions))
    # As one row: for each one more, this thread would give up the interpreter's lock, and wait for it beside a busy server.
    (answer,) = connection.execute(asked, values).fetchone()
    found: dict[str, str] = orjson.loads(answer)
    return {int(row): memory_id for row, memory_id in found.items()}


def column_conditions(access_filter: AccessFilter, *, first_number: int) -> tuple[list[str], dict[str, object]]:
    """Return the conditions that no token of the full-text index covers, and their values, numbered from *first_number*."""
    filters: dict[str, object] = {
        "d.source =": access_filter.source,
        "d.created_at >=": None if access_filter.since is None else to_micros(access_filter.since),
        "d.created_at <": None if access_filter.until is None else to_micros(access_filter.until),
        "d.confidence >=": access_filter.min_confidence,
    }
    given = [(condition, value) for condition, value in filters.items() if value is not None]
    conditions = [f"{condition} :v{number}" for number, (condition, _) in enumerate(given, first_number)]
    return conditions, {f"v{number}": value for number, (_, value) in enumerate(given, first_number)}


def rows_to_json(rows: Iterable[int]) -> str:
    """Return *rows* as JSON, for json_each."""
    return orjson.dumps(list(rows)).decode()
