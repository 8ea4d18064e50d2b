"""Tests of the statements that the record store on PostgreSQL runs by the driver. They do the same as by SQLAlchemy's engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Enum, Executable, LargeBinary, bindparam, cast, delete, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql.psycopg import PGDialectAsync_psycopg

from rookery.kernel.db import open_database, upsert
from rookery.kernel.db.driver_statements import DriverStatements
from rookery.kernel.errors import Conflict
from rookery.kernel.jobs import jobs

_JOB = {"id": "a", "kind": "K", "workspace_id": 1, "payload": "100 %", "attempts": 0, "run_at": 0, "created_at": 0}
_BY_ID = jobs.c.id == bindparam("wanted_id")


@pytest.fixture
def statements() -> DriverStatements:
    """An empty cache."""
    return DriverStatements(PGDialectAsync_psycopg())


@pytest.mark.embedded_store
@pytest.mark.parametrize(
    ("statement", "params", "is_for_driver"),
    [
        (select(jobs.c.id, func.count()).where(_BY_ID).group_by(jobs.c.id), {"wanted_id": "a"}, True),
        (insert(jobs), _JOB, True),
        (update(jobs).where(_BY_ID).values(kind="L"), {"wanted_id": "a"}, True),
        (delete(jobs).where(_BY_ID).returning(jobs.c.id), {"wanted_id": "a"}, True),
        (select(jobs.c.id).where(jobs.c.id.in_(bindparam("ids", expanding=True))), {"ids": ["a"]}, False),
        (select(cast(jobs.c.payload, LargeBinary)), {}, False),
        (select(cast(jobs.c.kind, Enum("K", name="kind"))), {}, False),
        (select(func.now()), {}, False),
    ],
)
def test_only_plain_statements_run_by_the_driver(
    statements: DriverStatements, statement: Executable, params: dict[str, object], *, is_for_driver: bool
) -> None:
    """Lists have a text for each length, and other types need conversions of SQLAlchemy."""
    assert (statements.get(statement, params) is not None) == is_for_driver
    assert statements.get(statement, params) is statements.get(statement, params)


@pytest.mark.external_service
async def test_statements_return_rows_counts_and_errors(postgres_database: str, tmp_path: Path) -> None:
    """Values of the statement itself, a percent sign, upserts, row counts, and an error of PostgreSQL."""
    db = open_database(postgres_database, data_dir=tmp_path)
    put = upsert(jobs, index_elements=["id"], set_=lambda new: {"kind": new.kind}, returning=[jobs.c.id, jobs.c.kind])
    with_percent = select(jobs.c.payload, literal("50 %").label("share")).where(jobs.c.payload.like("%\\%", escape="\\"))
    change = update(jobs).where(_BY_ID).values(kind="L", attempts=jobs.c.attempts + 1)

    count = await db.write(lambda tx: tx.execute(insert(jobs), _JOB))
    with pytest.raises(Conflict):
        await db.write(lambda tx: tx.execute(insert(jobs), _JOB))
    changed = await db.write(lambda tx: [tx.execute(change, {"wanted_id": wanted}) for wanted in ("a", "b")])
    row = await db.write(lambda tx: tx.fetch_one(put, _JOB))
    shares = await db.read(lambda tx: [(found.text("payload"), found.text("share")) for found in tx.fetch_all(with_percent)])
    attempts = await db.lookup(lambda tx: [found.integer("attempts") for found in tx.fetch_all(select(jobs.c.attempts))])
    await db.close()

    assert (count, changed, attempts) == (1, [1, 0], [1])
    assert row is not None
    assert (row.text("id"), row.text("kind")) == ("a", "K")
    assert shares == [("100 %", "50 %")]
