"""Checkpoints of the commands over all memories, kept until the command completes."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Tx, upsert
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.store.tables import runs

_SAVE = upsert(runs, index_elements=["name"], set_=lambda new: {"cursor": new["cursor"], "done": new["done"], "at": new["at"]})
_GET = select(runs).where(runs.c.name == bindparam("of_name"))
_DELETE = delete(runs).where(runs.c.name == bindparam("of_name"))


def save_checkpoint(tx: Tx, checkpoint: RunCheckpoint) -> None:
    """Insert or replace the checkpoint of a run."""
    tx.execute(
        _SAVE,
        {
            "name": checkpoint.name,
            "workspace_id": checkpoint.workspace_id,
            "cursor": checkpoint.cursor,
            "done": checkpoint.done,
            "at": to_micros(checkpoint.at),
        },
    )


def get_checkpoint(tx: Tx, name: str) -> RunCheckpoint | None:
    """Return the checkpoint of the run. None if it completed or never started."""
    row = tx.fetch_one(_GET, {"of_name": name})
    if row is None:
        return None
    return RunCheckpoint(
        name=row.text("name"),
        workspace_id=row.maybe_integer("workspace_id"),
        cursor=row.text("cursor"),
        done=row.integer("done"),
        at=from_micros(row.integer("at")),
    )


def delete_checkpoint(tx: Tx, name: str) -> None:
    """Delete the checkpoint of a completed run."""
    tx.execute(_DELETE, {"of_name": name})
