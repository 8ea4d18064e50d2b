"""Filter rows of `texts.db` by access rights."""

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
"""  # contains only names of scopes


def filter_visible(
    connection: sqlite3.Connection, rows: Iterable[int], access_filter: AccessFilter, *, checks_owner: bool
) -> dict[int, str]:
    """
    Return {row: memory id} of those of *rows* that exist and that *access_filter* allows.

    Args:
        checks_owner: Also check the owner, for rows that were found without access conditions.
    """
    conditions, values = column_conditions(access_filter, first_number=0)
    values |= {
        "ids": rows_to_json(rows),
        "workspace_id": access_filter.workspace_id,
        "agent_id": access_filter.agent_id,
        "session_id": access_filter.session_id,
        "at": to_micros(access_filter.at),
    }
    statement = " AND ".join((_SELECT + (_IS_OWNED if checks_owner else ""), *conditions))
    # One JSON row: fetching several would release the GIL between rows and wait for it on a busy server.
    (ids_json,) = connection.execute(statement, values).fetchone()
    memory_ids: dict[str, str] = orjson.loads(ids_json)
    return {int(row): memory_id for row, memory_id in memory_ids.items()}


def column_conditions(access_filter: AccessFilter, *, first_number: int) -> tuple[list[str], dict[str, object]]:
    """Return the conditions that the full-text index does not cover, with their values, numbered from *first_number*."""
    filters: dict[str, object] = {
        "d.source =": access_filter.source,
        "d.created_at >=": None if access_filter.since is None else to_micros(access_filter.since),
        "d.created_at <": None if access_filter.until is None else to_micros(access_filter.until),
        "d.confidence >=": access_filter.min_confidence,
    }
    active_filters = [(condition, value) for condition, value in filters.items() if value is not None]
    conditions = [f"{condition} :v{number}" for number, (condition, _) in enumerate(active_filters, first_number)]
    return conditions, {f"v{number}": value for number, (_, value) in enumerate(active_filters, first_number)}


def rows_to_json(rows: Iterable[int]) -> str:
    """Return *rows* as JSON for json_each."""
    return orjson.dumps(list(rows)).decode()
