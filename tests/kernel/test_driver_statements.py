"""Tests of the statements that the record store on PostgreSQL runs by the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from sqlalchemy import BindParameter, DateTime, Enum, Executable, bindparam, case, cast, func, insert, literal, select, update

from rookery.kernel.db import open_database, upsert
from rookery.kernel.db.driver_statements import compile_for_driver
from rookery.kernel.db.statements import Value
from rookery.kernel.errors import Conflict
from rookery.kernel.jobs import jobs

_JOB = {"id": "a", "kind": "K", "workspace_id": 1, "payload": "100 %", "attempts": 0, "run_at": 0, "created_at": 0}
_BY_ID = jobs.c.id == bindparam("wanted_id")
_NOW = bindparam("now", type_=DateTime)


@pytest.mark.embedded_store
@pytest.mark.parametrize(
    "statement", [select(cast(jobs.c.kind, Enum("K", name="kind"))), select(func.now()), select(jobs).where(jobs.c.run_at == _NOW)]
)
def test_a_statement_whose_values_need_a_conversion_is_refused(statement: Executable) -> None:
    """The driver would return an object of its own."""
    with pytest.raises(TypeError, match="cannot have the type"):
        compile_for_driver(statement, {"now": 1})


@pytest.mark.external_service
async def test_a_list_is_one_parameter(postgres_database: str, tmp_path: Path) -> None:
    """Also an empty one, a tuple, one with thousands of items, and one that is part of the statement, also twice."""
    db = open_database(postgres_database, data_dir=tmp_path)
    ids: BindParameter[str] = bindparam("ids", expanding=True)
    inside, outside = select(jobs.c.id).where(jobs.c.id.in_(ids)), select(jobs.c.id).where(jobs.c.id.not_in(ids))
    numbers = select(jobs.c.id).where(jobs.c.attempts.in_(bindparam("counts", expanding=True)), jobs.c.kind.in_(["K", "L"]))
    is_first = case((jobs.c.id.in_(["a"]), "first"), else_="other")
    twice = select(is_first.label("id")).group_by(is_first).order_by(is_first)
    untyped = select(jobs.c.id).where(func.lower(jobs.c.id).in_(ids))
    nested = select(jobs.c.id).where(jobs.c.id.in_(select(jobs.c.id).where(jobs.c.attempts == 1)))
    await db.write(lambda tx: tx.execute_many(insert(jobs), [{**_JOB, "id": name, "attempts": place} for place, name in enumerate("abc")]))

    async def list_ids(statement: Executable, params: Mapping[str, Sequence[Value]] | None = None) -> str:
        return "".join(sorted(row.text("id") for row in await db.read(lambda tx: tx.fetch_all(statement, params))))

    assert await list_ids(inside, {"ids": ["c", "a", "z", "a"]}) == "ac"
    assert await list_ids(outside, {"ids": ["c", "a", "z"]}) == "b"
    assert (await list_ids(inside, {"ids": []}), await list_ids(outside, {"ids": []})) == ("", "abc")
    assert await list_ids(inside, {"ids": [f"a{number}" for number in range(5_000)] + ["b"]}) == "b"
    assert await list_ids(numbers, {"counts": [0, 2, 2**40]}) == "ac"
    assert (await list_ids(inside, {"ids": ("c",)}), await list_ids(inside, {"ids": ()})) == ("c", "")
    assert await list_ids(nested) == "b"
    assert await list_ids(twice) == "firstother"
    assert await list_ids(untyped, {"ids": ["a"]}) == "a"
    await db.close()


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
