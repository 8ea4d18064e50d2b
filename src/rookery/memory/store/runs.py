"""Checkpoints of the commands over all memories, kept until the command completes."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from rookery.kernel.db import Mapper, Tx, upsert
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.store.tables import runs

RUNS = Mapper(RunCheckpoint, runs)
_SAVE = upsert(runs, index_elements=["name"], set_=lambda new: {"cursor": new["cursor"], "done": new["done"], "at": new["at"]})
_GET = select(runs).where(runs.c.name == bindparam("of_name"))
_DELETE = delete(runs).where(runs.c.name == bindparam("of_name"))


def save_checkpoint(tx: Tx, checkpoint: RunCheckpoint) -> None:
    """Insert or replace the checkpoint of a run."""
    tx.execute(_SAVE, RUNS.to_row(checkpoint))


def get_checkpoint(tx: Tx, name: str) -> RunCheckpoint | None:
    """Return the checkpoint of the run. None if it completed or never started."""
    return RUNS.fetch_one(tx, _GET, {"of_name": name})


def delete_checkpoint(tx: Tx, name: str) -> None:
    """Delete the checkpoint of a completed run."""
    tx.execute(_DELETE, {"of_name": name})
