"""The tables of memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Table, Text, and_, bindparam, literal_column, select

from rookery.kernel.db import Nested, Tx, Value, WorkspaceTable, map_table, metadata, purge_tables
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.ports import ModelVersion, VectorSet
from rookery.memory.recall_models import RecallRecord, TrainingExample
from rookery.memory.store.codecs import AUTHOR, LOGGED_REQUEST, METADATA, QUERY_RECORD, RECALL_ID, fingerprint


class _Memories(WorkspaceTable[Memory]):
    """Memories as rows, each with its fingerprint."""

    def to_row(self, item: Memory, only: Iterable[str] | None = None) -> dict[str, Value]:
        row = {**super().to_row(item), "fingerprint": fingerprint(item)}
        return row if only is None else {column: row[column] for column in only}


_CODECS = {"metadata": METADATA, "created_by": AUTHOR, "updated_by": AUTHOR}
memories, _ = map_table("memories", Memory, Column("fingerprint", Text, nullable=False), Column("recalled_at", BigInteger), codecs=_CODECS)
"""The memories. `fingerprint` covers content, space and workspace: equal values are duplicates. `recalled_at` is exact to a day."""

MEMORIES = _Memories(Memory, memories, codecs=_CODECS, fixed=("agent_id", "session_id", "created_at", "created_by"))

Index("ix_memories_newest", memories.c.workspace_id, memories.c.created_at, memories.c.id)
IS_LIVE = and_(memories.c.archived_at.is_(None), memories.c.memory_scope != literal_column("''"))
"""
The condition of a live memory.

Its second half is always true. It makes SQLite use the index below for counts, and keeps it from using that index for other statements,
because SQLite has no statistics of repeated values.
"""

LIVE_INDEX = Index(
    "ix_memories_live",
    *(memories.c[name] for name in ("workspace_id", "memory_scope", "agent_id", "org", "project", "expires_at", "session_id", "type")),
    sqlite_where=IS_LIVE,
)
"""An index with all columns that determine visibility. A count of a million memories takes 0.08 s with it, and half a second by rows."""

Index("ix_memories_fingerprint", memories.c.fingerprint)
# Few rows have these, so the indexes are small and a memory without them costs nothing.
_expires, _failed = memories.c.expires_at, memories.c.index_failed_at
Index("ix_memories_expiry", _expires, sqlite_where=_expires.is_not(None))
Index("ix_memories_failed", _failed, sqlite_where=_failed.is_not(None))
IS_SESSION_SCOPE = memories.c.memory_scope == literal_column("'session'")
"""The condition of scope session, as a literal, because SQLite would otherwise not use the partial index below."""

Index("ix_memories_session_id", memories.c.session_id, sqlite_where=IS_SESSION_SCOPE)
_IS_IN_SESSION = and_(memories.c.session_id.is_not(None), memories.c.archived_at.is_(None))
Index(
    "ix_memories_session_order",
    *(memories.c[name] for name in ("workspace_id", "session_id", "created_at", "id")),
    sqlite_where=_IS_IN_SESSION,
)

IS_IN_WORKSPACE = memories.c.workspace_id + 0 == bindparam("workspace")
"""
The workspace as a condition that no index serves, for look-ups by id or fingerprint.

SQLite has no statistics of repeated values. It would otherwise read the whole workspace (1.4 ms instead of 0.1 ms at 2,000 memories).
"""

memory_tags = Table(
    "memory_tags",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tag", Text, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    sqlite_with_rowid=False,
)

memory_labels = Table(
    "memory_labels",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("label", Text, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    sqlite_with_rowid=False,
)
"""The labels of memories: digests of metadata pairs (`metadata.build_label`)."""

tombstones, TOMBSTONES = map_table("memory_tombstones", Tombstone)

recalls, RECALLS = map_table(
    "recalls", RecallRecord, columns={"query_record": "asked"}, codecs={"query_record": QUERY_RECORD, "request": LOGGED_REQUEST}
)
"""
Recalls. `asked` holds a `RecallQueryRecord`; it is null unless the workspace records training examples.

`request` holds a `LoggedRequest`. It and the columns after it are null if the workspace keeps no log of recalls.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSetting:
    """A setting of a workspace that differs from its default, since that time."""

    workspace_id: int
    since: datetime


recall_log_exclusions, RECALL_LOG_EXCLUSIONS = map_table("recall_log_exclusions", WorkspaceSetting, key=("workspace_id",))
"""Workspaces that keep no log of recalls."""

training_workspaces, TRAINING_WORKSPACES = map_table("training_workspaces", WorkspaceSetting, key=("workspace_id",))
"""Workspaces that record training examples."""

Index("ix_recalls_created_at", recalls.c.created_at)
Index("ix_recalls_workspace_id", recalls.c.workspace_id, recalls.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeedback:
    """Feedback on a memory of a recall. *day* counts UTC days."""

    recall_id: str
    memory_id: str
    workspace_id: int
    key_id: str
    day: int
    used: bool


recall_feedback, FEEDBACK = map_table("recall_feedback", StoredFeedback, key=("recall_id", "memory_id"))
Index("ix_recall_feedback_memory_id", recall_feedback.c.memory_id)
Index("ix_recall_feedback_day", recall_feedback.c.day)

merges, MERGES = map_table("memory_merges", Merge, key=("memory_id",))
"""Rows of `merging.Merge`. They contain no text of a memory, so that cleaned and deleted text does not remain here."""

Index("ix_memory_merges_primary_id", merges.c.primary_id)

runs, RUNS = map_table("memory_runs", RunCheckpoint, key=("name",))
"""Checkpoints of interrupted commands. A row is deleted when its run completes."""

training_rows, TRAINING_EXAMPLES = map_table(
    "training_rows",
    TrainingExample,
    key=("memory_id", "recall_id"),
    columns={"label": "verdict"},
    codecs={"recall_id": RECALL_ID},
)
"""Training examples, without any text of a memory. `recall_id` is empty for an example of a stored memory."""

Index("ix_training_rows_workspace", training_rows.c.workspace_id, training_rows.c.memory_id, training_rows.c.recall_id)

active_models, ACTIVE_MODELS = map_table(
    "memory_active_models",
    ModelVersion,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    key=("workspace_id",),
)
"""The model version whose vectors recall searches, by workspace."""

vector_sets, VECTOR_SETS = map_table(
    "memory_vector_sets",
    VectorSet,
    Column("model", Text, primary_key=True),
    Column("dimension", BigInteger, primary_key=True, autoincrement=False),
    key=("workspace_id", "model", "dimension"),
    nested={"version": Nested(ModelVersion)},
    sqlite_with_rowid=False,
)
"""The model versions that have vectors in a workspace. The vectors of a retired one are being deleted."""

_IDS = select(memories.c.id).where(memories.c.workspace_id == bindparam("of_workspace"))
_delete_rows = purge_tables(
    memory_tags,
    memory_labels,
    tombstones,
    recall_feedback,
    recalls,
    recall_log_exclusions,
    merges,
    runs,
    training_rows,
    training_workspaces,
    active_models,
    vector_sets,
    memories,
)


def purge_workspace(tx: Tx, workspace_id: int) -> tuple[list[str], int]:
    """Delete every row of *workspace_id*. Return the ids of its memories, which the indexes still hold, and the number of rows."""
    ids = [row.text("id") for row in tx.fetch_all(_IDS, {"of_workspace": workspace_id})]
    return ids, _delete_rows(tx, workspace_id)
