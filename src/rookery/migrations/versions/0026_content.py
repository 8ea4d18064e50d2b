"""Generations, their batches, prompt templates, daily budgets and usage."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Create the tables of content generation."""
    op.create_table(
        "generations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("is_canned", sa.BigInteger, nullable=False),
        sa.Column("batch_id", sa.Text),
        sa.Column("batch_index", sa.BigInteger),
        sa.Column("retry_of", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("provider_model", sa.Text),
        sa.Column("template", sa.Text),
        sa.Column("template_version", sa.BigInteger),
        sa.Column("messages", sa.Text, nullable=False),
        sa.Column("max_tokens", sa.BigInteger, nullable=False),
        sa.Column("temperature", sa.Double),
        sa.Column("response_schema", sa.Text),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("output", sa.Text),
        sa.Column("schema_mode", sa.Text),
        sa.Column("finish_reason", sa.Text),
        sa.Column("input_tokens", sa.BigInteger),
        sa.Column("output_tokens", sa.BigInteger),
        sa.Column("is_estimated", sa.BigInteger, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger),
        sa.Column("reserved_nanos", sa.BigInteger, nullable=False),
        sa.Column("reserved_on", sa.Text),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("run_count", sa.BigInteger, nullable=False),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        sa.Column("latency_ms", sa.Double),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index("ix_generations_newest", "generations", ["workspace_id", "created_at", "id"])
    op.create_index("ix_generations_batch", "generations", ["batch_id", "batch_index"])
    op.create_index("ix_generations_ended_at", "generations", ["ended_at"])
    is_owned = sa.text("owner IS NOT NULL")
    op.create_index("ix_generations_lease", "generations", ["lease_until"], sqlite_where=is_owned, postgresql_where=is_owned)
    op.create_table(
        "generation_batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("open_count", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index("ix_generation_batches_newest", "generation_batches", ["workspace_id", "created_at", "id"])
    op.create_index("ix_generation_batches_ended_at", "generation_batches", ["ended_at"])
    op.create_table(
        "prompt_templates",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slug", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "prompt_template_versions",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slug", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("messages", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("max_tokens", sa.BigInteger),
        sa.Column("temperature", sa.Double),
        sa.Column("response_schema", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "content_budgets",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("daily_nanos", sa.BigInteger),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "content_spending",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("reserved_nanos", sa.BigInteger, nullable=False),
        sa.Column("spent_nanos", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "content_usage",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("succeeded", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
    )
