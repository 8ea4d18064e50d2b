"""The memory whose content a webhook event contains, so that the content is deleted with the memory."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_NOTE = "UPDATE webhook_events SET about = {memory} WHERE type LIKE 'memory.%' AND {content} IS NOT NULL"
_BY_SQLITE = "json_extract(CAST(coalesce(full_body, body) AS TEXT), '$.data.{name}')"
_BY_POSTGRESQL = "convert_from(coalesce(full_body, body), 'UTF8')::json -> 'data' ->> '{name}'"


def upgrade() -> None:
    """Add the column and fill it for stored events. Content of memories deleted before is deleted with its events, after 30 days."""
    op.add_column("webhook_events", sa.Column("about", sa.Text))
    has_one = sa.text("about IS NOT NULL")
    op.create_index("ix_webhook_events_about", "webhook_events", ["workspace_id", "about"], sqlite_where=has_one, postgresql_where=has_one)
    extract = _BY_SQLITE if op.get_bind().dialect.name == "sqlite" else _BY_POSTGRESQL
    op.execute(_NOTE.format(memory=extract.format(name="id"), content=f"({extract.format(name='content')})"))
