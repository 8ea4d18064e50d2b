"""The schema, on which all later revisions build. Commit 7bcf9942 has it too, so its stores are upgraded."""

from pathlib import Path

from alembic import op

revision = "0033"
down_revision = None

_WORDS = {
    "sqlite": {
        "bytes": "BLOB",
        "double": "DOUBLE",
        "counted": "INTEGER",
        "never_reused": " AUTOINCREMENT",
        "clustered": " WITHOUT ROWID",
        "any_scope": " AND memory_scope != ''",  # always true; `memory.store.tables` says what for
    },
    "postgresql": {
        "bytes": "BYTEA",
        "double": "DOUBLE PRECISION",
        "counted": "BIGSERIAL",
        "never_reused": "",
        "clustered": "",
        "any_scope": "",
    },
}


def upgrade() -> None:
    """Create the tables and their indexes."""
    connection = op.get_bind()
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in script.format(**_WORDS[connection.dialect.name]).split(";"):
        if statement.strip():
            connection.exec_driver_sql(statement)
