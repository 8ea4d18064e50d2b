"""How far the commands that go through the whole memory have come, kept until they end."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Tx, upsert
from rookery.memory.runs import Mark
from rookery.memory.store.tables import runs

_KEEP = upsert(runs, index_elements=["name"], set_=lambda new: {"cursor": new["cursor"], "done": new["done"], "at": new["at"]})
_ONE = select(runs).where(runs.c.name == bindparam("of_name"))
_DROP = delete(runs).where(runs.c.name == bindparam("of_name"))


def keep(tx: Tx, mark: Mark) -> None:
    """Remember how far a run came, instead of what was known of it."""
    tx.run(
        _KEEP,
        {"name": mark.name, "workspace_id": mark.workspace_id, "cursor": mark.cursor, "done": mark.done, "at": to_micros(mark.at)},
    )


def one(tx: Tx, name: str) -> Mark | None:
    """Return how far the run of that name came; None: it ended, or never began."""
    row = tx.one(_ONE, {"of_name": name})
    if row is None:
        return None
    return Mark(
        name=row.text("name"),
        workspace_id=row.maybe_integer("workspace_id"),
        cursor=row.text("cursor"),
        done=row.integer("done"),
        at=from_micros(row.integer("at")),
    )


def drop(tx: Tx, name: str) -> None:
    """Forget a run that has ended."""
    tx.run(_DROP, {"of_name": name})
