"""The tables; `migrations/versions/0003_memory.py` makes the same."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Table, Text, and_, bindparam, literal_column

from rookery.kernel.db import metadata

memories = Table(
    "memories",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("org", Text),
    Column("project", Text),
    Column("agent_id", Text),
    Column("session_id", Text),
    Column("memory_scope", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("base_confidence", Double, nullable=False),
    Column("source", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("metadata", Text),
    Column("fingerprint", Text, nullable=False),
    Column("supersedes_id", Text),
    Column("expires_at", BigInteger),
    Column("archived_at", BigInteger),
    Column("index_failed_at", BigInteger),
    Column("indexed_at", BigInteger),
    Column("indexed_model", Text),
    Column("superseded_by", Text),
    Column("recalled_at", BigInteger),
    Column("content_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)
"""`fingerprint` is of the content, its space and workspace: equal ones are duplicates. `recalled_at` is a day exact (D-47)."""

Index("ix_memories_newest", memories.c.workspace_id, memories.c.created_at, memories.c.id)
IS_LIVE = and_(memories.c.archived_at.is_(None), memories.c.memory_scope != literal_column("''"))
"""
Of all that count. The second half says nothing: a statement has it to be counted in the index below, and SQLite, which knows
nothing of how many share a value, takes that index for no other one.
"""

LIVE_INDEX = Index(
    "ix_memories_live",
    *(memories.c[name] for name in ("workspace_id", "memory_scope", "agent_id", "org", "project", "expires_at", "session_id", "type")),
    sqlite_where=IS_LIVE,
    postgresql_where=memories.c.archived_at.is_(None),
)
"""All that tells who sees a memory: a million are counted in it in 0.08 s, row by row in half a second."""

Index("ix_memories_fingerprint", memories.c.fingerprint)
# Few rows have these, so the indexes are small and a memory without them costs nothing.
_expires, _failed = memories.c.expires_at, memories.c.index_failed_at
Index("ix_memories_expiry", _expires, sqlite_where=_expires.is_not(None), postgresql_where=_expires.is_not(None))
Index("ix_memories_failed", _failed, sqlite_where=_failed.is_not(None), postgresql_where=_failed.is_not(None))
IS_SESSION_SCOPE = memories.c.memory_scope == literal_column("'session'")
"""Of memories of scope session; spelt out, or SQLite would not see that the index below serves it."""

Index("ix_memories_session_id", memories.c.session_id, sqlite_where=IS_SESSION_SCOPE, postgresql_where=IS_SESSION_SCOPE)

IS_IN_WORKSPACE = memories.c.workspace_id + 0 == bindparam("workspace")
"""
The workspace as a condition that no index serves: for look-ups by id or fingerprint, which SQLite, knowing nothing of how
many rows share a value, would else do by reading the whole workspace (measured: 1.4 ms instead of 0.1 at 2,000 memories).
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
"""Which memories have a pair of metadata, by its digest (`metadata.label`)."""

tombstones = Table(
    "memory_tombstones",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("supersedes_id", Text),
    Column("superseded_by", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
)

recalls = Table(
    "recalls",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("memory_ids", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("asked", Text),
)
"""`asked` is what `PastQuestion` says; null, but where the workspace keeps training rows (D-57)."""

Index("ix_recalls_created_at", recalls.c.created_at)

recall_feedback = Table(
    "recall_feedback",
    metadata,
    Column("recall_id", Text, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False),
)
Index("ix_recall_feedback_memory_id", recall_feedback.c.memory_id)
Index("ix_recall_feedback_day", recall_feedback.c.day)

merges = Table(
    "memory_merges",
    metadata,
    Column("memory_id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("primary_id", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("is_done", BigInteger, nullable=False),
)
"""What `merging.Merge` says; no text of any memory, so that what is cleaned or forgotten is nowhere else."""

Index("ix_memory_merges_primary_id", merges.c.primary_id)

runs = Table(
    "memory_runs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("workspace_id", BigInteger),
    Column("cursor", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""How far a command came that was ended in the middle; a row goes with the end of its run."""

training_workspaces = Table(
    "training_workspaces",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("since", BigInteger, nullable=False),
)
"""Those that keep training rows; without a row here a workspace keeps none (D-57)."""

training_rows = Table(
    "training_rows",
    metadata,
    Column("memory_id", Text, primary_key=True),
    Column("recall_id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("query", Text),
    Column("mode", Text),
    Column("place", BigInteger),
    Column("semantic_rank", BigInteger),
    Column("keyword_rank", BigInteger),
    Column("at", BigInteger, nullable=False),
)
"""`recall_id` is empty of a memory that was stored: nobody asked for it yet. No text of any memory."""

Index("ix_training_rows_workspace", training_rows.c.workspace_id, training_rows.c.memory_id, training_rows.c.recall_id)
