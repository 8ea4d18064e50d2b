"""Workspaces, keys and their usage."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of access."""
    op.create_table(
        "workspaces",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("parent_id", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("name", name="uq_workspaces_name"),
        sa.UniqueConstraint("parent_id", name="uq_workspaces_parent_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "access_once",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "access_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("lookup", sa.Text, nullable=False),
        sa.Column("key_hash", sa.Text),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("acts_in", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("tier", sa.Text),
        sa.Column("rate_limit", sa.BigInteger),
        sa.Column("agent_id", sa.Text),
        sa.Column("servers", sa.Text),
        sa.Column("tools", sa.Text),
        sa.Column("orgs", sa.Text),
        sa.Column("projects", sa.Text),
        sa.Column("tool_limits", sa.Text, nullable=False),
        sa.Column("ip_restriction", sa.BigInteger, nullable=False),
        sa.Column("ip_list", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("suspended_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("delete_after", sa.BigInteger),
        sa.Column("call_count", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("last_used_ip", sa.Text),
    )
    op.create_index("ix_access_keys_lookup", "access_keys", ["lookup"])
    op.create_index("ix_access_keys_workspace_id_kind_id", "access_keys", ["workspace_id", "kind", "id"])
    op.create_index("ix_access_keys_delete_after", "access_keys", ["delete_after"])
    op.create_table(
        "access_calls",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("status", sa.BigInteger, nullable=False),
        sa.Column("duration_ms", sa.Double, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
    )
    op.create_index("ix_access_calls_workspace_id_key_id_at", "access_calls", ["workspace_id", "key_id", "at"])
    op.create_index("ix_access_calls_at", "access_calls", ["at"])
    op.create_table(
        "access_days",
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("status", sa.BigInteger, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("total_ms", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "key_id", "day", "method", "route", "status", name="pk_access_days"),
    )
