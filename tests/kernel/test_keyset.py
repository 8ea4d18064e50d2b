"""Lists that are read after a position, with the same behaviour on both dialects."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import BigInteger, Column, ColumnElement, MetaData, Table, Text, bindparam, delete, insert, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from rookery.kernel.db import Database, KeysetList, Row
from rookery.kernel.pages import InvalidCursor, PageSlice

steps = Table(
    "steps",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("colour", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("weight", BigInteger, nullable=False),
)
_c = steps.c
_OF_WEIGHT = select(_c.id).where(_c.weight == bindparam("weight"))
_INSERT = insert(steps)
_DELETE = delete(steps).where(_c.id.in_(bindparam("ids", expanding=True)))

ORDERS: dict[str, Sequence[ColumnElement[object]]] = {
    "one column": (_c.id,),
    "one column, descending": (_c.id.desc(),),
    "one direction": (_c.size, _c.colour, _c.id),
    "one direction, descending": (_c.size.desc(), _c.colour.desc(), _c.id.desc()),
    "two directions": (_c.size.desc(), _c.colour, _c.id),
    "three turns": (_c.size, _c.colour.desc(), _c.id),
    "an expression": ((_c.size % 2).desc(), _c.id),
}


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Database]:
    """A record store with a table of its own, in which many rows have the same values."""
    dialect = sqlite.dialect() if database.dialect == "sqlite" else postgresql.dialect()
    generator = random.Random(34)
    rows = [
        {"id": f"{number:03}", "colour": generator.choice("rgb"), "size": generator.randrange(4), "weight": number % 4 // 3}
        for number in generator.sample(range(200), 120)
    ]
    await database.write(lambda tx: tx.execute(text(str(CreateTable(steps, if_not_exists=True).compile(dialect=dialect)))))
    await database.write(lambda tx: tx.execute_many(_INSERT, rows))
    yield database
    await database.write(lambda tx: tx.execute(delete(steps)))


def _read_id(row: Row) -> str:
    return row.text("id")


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
async def test_pages_after_a_position_are_the_list(store: Database, order: Sequence[ColumnElement[object]]) -> None:
    """The pages together are the rows in order, also if the rows of each page are deleted before the next is read."""
    listed = KeysetList(_OF_WEIGHT, *order)
    params = {"weight": 0}
    whole = await store.read(lambda tx: listed.fetch(tx, PageSlice(1000), params, _read_id))
    seen, page = list[str](), PageSlice(7)
    while True:
        found = await store.read(lambda tx, page=page: listed.fetch(tx, page, params, _read_id))
        seen += found.items
        assert found.total == len(whole.items) - max(0, len(seen) - len(found.items))
        await store.write(lambda tx, ids=found.items: tx.execute(_DELETE, {"ids": ids}))
        following = found.following(7)
        if following is None:
            break
        page = following

    assert seen == whole.items
    assert len(seen) == whole.total > 80


async def test_an_offset_counts_from_the_position(store: Database) -> None:
    """A page by offset has the same order, and has positions too."""
    listed = KeysetList(_OF_WEIGHT, _c.size.desc(), _c.id)
    whole, by_offset = [
        await store.read(lambda tx, page=page: listed.fetch(tx, page, {"weight": 0}, _read_id))
        for page in (PageSlice(200), PageSlice(5, 10))
    ]
    after = await store.read(lambda tx: listed.fetch(tx, PageSlice(5, 2, by_offset.positions[0]), {"weight": 0}, _read_id, total=3))

    assert by_offset.items == whole.items[10:15]
    assert by_offset.end == whole.positions[14]
    assert (after.items, after.total) == (whole.items[13:18], 3)
    assert (whole.has_next, whole.end) == (False, None)


@pytest.mark.parametrize("position", [(), (1,), (1, 2), ("1", "2"), (1, "2", 3), (1.5, "2")])
async def test_a_position_of_another_list_is_rejected(store: Database, position: tuple[str | int, ...]) -> None:
    """The number of values and their types are those of the order; the database never compares a text with a number."""
    listed = KeysetList(_OF_WEIGHT, _c.size, _c.id)

    with pytest.raises(InvalidCursor):
        await store.read(lambda tx: listed.fetch(tx, PageSlice(5, 0, position), {"weight": 0}, _read_id))
