"""An index of memories in the order of their sessions, for recall's look at neighbours."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the index. It has no rows for memories without a session."""
    condition = sa.text("session_id IS NOT NULL AND archived_at IS NULL")
    op.create_index(
        "ix_memories_session_order",
        "memories",
        ["workspace_id", "session_id", "created_at", "id"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
