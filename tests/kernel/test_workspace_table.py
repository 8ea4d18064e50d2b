"""The queries that every table of a workspace has, with the same behaviour on both dialects."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import Index, MetaData, delete, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from rookery.kernel.db import Database, map_table
from rookery.kernel.db.sqlite import SqliteTx
from rookery.kernel.pages import PageSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A row of a workspace."""

    id: str
    workspace_id: int
    board: str = "a"
    title: str = ""
    owner: str | None = None
    created_by: str = "first"


cards, CARDS = map_table("cards", Card, Index("ix_cards_board", "board"), fixed=("created_by",), into=MetaData())
_OWN, _OTHER = 1, 2


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Database]:
    """A record store with three cards of a workspace and one of another."""
    dialect = sqlite.dialect() if database.dialect == "sqlite" else postgresql.dialect()
    await database.write(lambda tx: tx.execute(text(str(CreateTable(cards, if_not_exists=True).compile(dialect=dialect)))))
    items = [Card(id="1", workspace_id=_OWN), Card(id="2", workspace_id=_OWN, owner="me"), Card(id="3", workspace_id=_OWN, board="b")]
    await database.write(lambda tx: CARDS.insert(tx, *items, Card(id="4", workspace_id=_OTHER)))
    yield database
    await database.write(lambda tx: tx.execute(delete(cards)))


async def test_each_query_is_of_one_workspace(store: Database) -> None:
    """A row of another workspace is neither read, counted, changed nor deleted."""
    other = Card(id="4", workspace_id=_OWN, title="taken")

    assert await store.read(lambda tx: CARDS.find(tx, _OWN, id="4")) is None
    assert not await store.read(lambda tx: CARDS.has(tx, _OWN, id="4"))
    assert [card.id for card in await store.read(lambda tx: CARDS.find_all(tx, _OWN, board="a"))] == ["1", "2"]
    assert await store.read(lambda tx: (CARDS.count(tx, _OWN), CARDS.count(tx, _OTHER))) == (3, 1)
    assert await store.write(lambda tx: CARDS.update(tx, other)) == 0
    assert await store.write(lambda tx: CARDS.delete(tx, _OWN, id="4")) == 0
    assert await store.write(lambda tx: CARDS.delete(tx, _OWN)) == 3
    assert await store.read(lambda tx: CARDS.get(tx, _OTHER, id="4")) == Card(id="4", workspace_id=_OTHER)


async def test_a_value_may_be_null_or_one_of_several(store: Database) -> None:
    """None means null, and an empty list no row."""
    assert [card.id for card in await store.read(lambda tx: CARDS.find_all(tx, _OWN, "-id", owner=None))] == ["3", "1"]
    assert [card.id for card in await store.read(lambda tx: CARDS.find_all(tx, _OWN, id=["1", "3", "4"]))] == ["1", "3"]
    assert await store.read(lambda tx: CARDS.find_all(tx, _OWN, id=list[str]())) == []
    assert await store.write(lambda tx: CARDS.find(tx, _OWN, owner="me", lock=True)) == Card(id="2", workspace_id=_OWN, owner="me")


async def test_a_page_is_in_the_given_order(store: Database) -> None:
    """The total counts all rows with the values."""
    page = await store.read(lambda tx: CARDS.find_page(tx, _OWN, PageSlice(1, 1), "board", "-id", board=["a", "b"]))

    assert ([card.id for card in page.items], page.total, page.has_next) == (["1"], 3, True)


async def test_an_update_leaves_fixed_columns(store: Database) -> None:
    """The key, the workspace and the columns that the table names are written once."""
    changed = Card(id="1", workspace_id=_OWN, title="new", created_by="second")

    assert await store.write(lambda tx: CARDS.update(tx, changed, replace(changed, id="none"))) == 1
    assert await store.read(lambda tx: CARDS.get(tx, _OWN, id="1")) == replace(changed, created_by="first")
    with pytest.raises(LookupError, match="no row of cards"):
        await store.read(lambda tx: CARDS.get(tx, _OWN, id="none"))


async def test_an_update_may_require_values(store: Database) -> None:
    """A row without them is left alone; None means null."""
    changed = Card(id="2", workspace_id=_OWN, board="c")

    assert await store.write(lambda tx: CARDS.update(tx, changed, owner="you", board="a")) == 0
    assert await store.write(lambda tx: CARDS.update(tx, changed, owner="me", board="a")) == 1
    assert await store.write(lambda tx: CARDS.update(tx, changed, owner="me")) == 0
    assert await store.write(lambda tx: CARDS.update(tx, changed, owner=None)) == 1


async def test_a_row_may_exist_already(store: Database) -> None:
    """`add` leaves it, and `save` changes it as an update does."""
    first, new = Card(id="1", workspace_id=_OWN, title="new", created_by="second"), Card(id="5", workspace_id=_OWN)

    assert await store.write(lambda tx: CARDS.add(tx, first, new)) == 1
    assert await store.read(lambda tx: CARDS.get(tx, _OWN, id="1")) == Card(id="1", workspace_id=_OWN)
    await store.write(lambda tx: CARDS.save(tx, first, replace(new, id="6")))
    assert await store.read(lambda tx: CARDS.get(tx, _OWN, id="1")) == replace(first, created_by="first")
    assert await store.read(lambda tx: CARDS.count(tx, _OWN)) == 5


@pytest.mark.embedded_store
@pytest.mark.parametrize(
    ("where", "index"),
    [
        ({"id": "1"}, "sqlite_autoindex_seats_1 (id=?)"),
        ({"board": "a"}, "ix_seats_board (board=?)"),
        ({"board": "a", "owner": "me"}, "ux_seats_owner (workspace_id=? AND board=? AND owner=?)"),
        ({"title": "new"}, "ix_seats_title (workspace_id=? AND title=?)"),
    ],
)
def test_a_query_uses_the_index_that_finds_the_fewest_rows(where: Mapping[str, str], index: str) -> None:
    """SQLite 3.40.1, without statistics, may prefer any index that begins with the workspace to one that finds fewer rows."""
    indexes = [
        Index("ix_seats_board", "board"),
        Index("ix_seats_title", "workspace_id", "title"),
        Index("ux_seats_owner", "workspace_id", "board", "owner", unique=True),
    ]
    seats, rows = map_table("seats", Card, *indexes, into=MetaData())
    run = list[str]()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for element in (CreateTable(seats), *(CreateIndex(each) for each in indexes)):
            connection.execute(str(element.compile(dialect=sqlite.dialect())))
        connection.set_trace_callback(run.append)
        rows.delete(SqliteTx(connection), _OWN, **where)
        connection.set_trace_callback(None)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {run[0]}")]

    assert plan == [f"SEARCH seats USING INDEX {index}"]


@pytest.mark.parametrize("name", ["key", "fixed"])
def test_a_key_names_columns(name: str) -> None:
    """A mistake in the declaration is an error of the start."""
    key, fixed = (("number",), ()) if name == "key" else (("id",), ("number",))
    with pytest.raises(TypeError, match="the table cards has no column number"):
        map_table("cards", Card, key=key, fixed=fixed, into=MetaData())
