"""Which memory's content is in a webhook's event, so that it goes when the memory does (D-41)."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_NOTE = "UPDATE webhook_events SET about = {memory} WHERE type LIKE 'memory.%' AND {content} IS NOT NULL"
_BY_SQLITE = "json_extract(CAST(coalesce(full_body, body) AS TEXT), '$.data.{name}')"
_BY_POSTGRESQL = "convert_from(coalesce(full_body, body), 'UTF8')::json -> 'data' ->> '{name}'"


def upgrade() -> None:
    """Note it of all that is kept; a memory that went before takes its content along when its events are forgotten, in 30 days."""
    op.add_column("webhook_events", sa.Column("about", sa.Text))
    has_one = sa.text("about IS NOT NULL")
    op.create_index("ix_webhook_events_about", "webhook_events", ["workspace_id", "about"], sqlite_where=has_one, postgresql_where=has_one)
    said = _BY_SQLITE if op.get_bind().dialect.name == "sqlite" else _BY_POSTGRESQL
    op.execute(_NOTE.format(memory=said.format(name="id"), content=f"({said.format(name='content')})"))
