"""The conversion between dataclasses and rows, with the same behaviour on both dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import pytest
from sqlalchemy import MetaData, bindparam, delete, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from rookery.kernel.db import Codec, Database, KeysetList, Mapper, Nested, fetch_count, map_table
from rookery.kernel.pages import PageSlice

_NOW = datetime(2026, 11, 21, 9, 30, 0, 123, UTC)


class Colour(StrEnum):
    """The colour of a note."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteLease:
    """The lease of a note."""

    owner: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a note."""

    lines: tuple[str, ...]
    refs: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A dataclass with a field of each type."""

    id: str
    colour: Colour | None = None
    kind: Literal["plain", "rich"] = "plain"
    done: bool = False
    weight: float = 0.5
    image: bytes | None = None
    tags: tuple[str, ...] = ()
    shades: tuple[Colour, ...] = ()
    names: frozenset[str] | None = None
    extra: Mapping[str, object]
    result: object = None
    page: Page | None = None
    words: tuple[str, ...] = ("a", "b")
    written_at: datetime = _NOW
    read_at: datetime | None = None
    lease: NoteLease | None = None


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


notes, _MAPPER = map_table(
    "notes",
    Note,
    columns={"written_at": "written"},
    codecs={"words": Codec((str,), _split, " ".join)},
    nested={"lease": Nested(NoteLease, {"owner": "lease_owner", "until": "lease_until"})},
    into=MetaData(),
)
_BY_ID = select(notes).where(notes.c.id == bindparam("of_id"))
_CHANGE = update(notes).where(notes.c.id == bindparam("of_id"))

_EMPTY = Note(id="empty", extra={})
_FULL = Note(
    id="full",
    colour=Colour.BLUE,
    kind="rich",
    done=True,
    weight=2.0,
    image=b"\x00",
    tags=("x", "y"),
    shades=(Colour.RED, Colour.BLUE),
    names=frozenset({"b", "a"}),
    extra={"é": [1, None]},
    result=[False],
    page=Page(lines=("1", "2"), refs={"n": [1]}),
    read_at=_NOW,
    lease=NoteLease(owner="me", until=_NOW),
)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Database]:
    """A record store with the table of notes."""
    dialect = sqlite.dialect() if database.dialect == "sqlite" else postgresql.dialect()
    await database.write(lambda tx: tx.execute(text(str(CreateTable(notes, if_not_exists=True).compile(dialect=dialect)))))
    yield database
    await database.write(lambda tx: tx.execute(delete(notes)))


async def test_an_object_is_read_back_as_stored(store: Database) -> None:
    """Each type of field survives the round trip, set and not set."""
    await store.write(lambda tx: _MAPPER.insert(tx, _EMPTY, _FULL))

    assert await store.read(lambda tx: _MAPPER.fetch_all(tx, select(*_MAPPER.columns).order_by(notes.c.id))) == [_EMPTY, _FULL]
    assert await store.read(lambda tx: _MAPPER.fetch_one(tx, _BY_ID, {"of_id": "none"})) is None
    full = await store.read(lambda tx: _MAPPER.fetch_one(tx, _BY_ID, {"of_id": "full"}))
    assert full is not None
    assert [type(shade) for shade in full.shades] == [Colour, Colour]


async def test_an_update_without_values_writes_the_given_columns(store: Database) -> None:
    """The parameters that are columns are written, and the others belong to the condition."""
    await store.write(lambda tx: _MAPPER.insert(tx, _EMPTY, _FULL))

    changed = replace(_FULL, tags=("z",), lease=None, weight=3.0)
    columns = ("tags", "lease_owner", "lease_until")
    assert await store.write(lambda tx: tx.execute(_CHANGE, {"of_id": "full", **_MAPPER.to_row(changed, columns)})) == 1

    assert await store.read(lambda tx: _MAPPER.fetch_one(tx, _BY_ID, {"of_id": "full"})) == replace(changed, weight=2.0)
    assert await store.read(lambda tx: _MAPPER.fetch_one(tx, _BY_ID, {"of_id": "empty"})) == _EMPTY


async def test_a_page_has_the_total_count(store: Database) -> None:
    """The count covers all rows that match, not only those of the page."""
    await store.write(lambda tx: _MAPPER.insert(tx, *(replace(_EMPTY, id=f"n{number}", done=number > 0) for number in range(5))))

    matching = KeysetList(select(notes).where(notes.c.done == 1), notes.c.id)
    page, total, *_ = await store.read(lambda tx: _MAPPER.fetch_page(tx, matching, PageSlice(2, 1)))

    assert ([note.id for note in page], total) == (["n2", "n3"], 4)
    assert await store.read(lambda tx: fetch_count(tx, select(notes.c.read_at))) == 0


@pytest.mark.parametrize("damage", [{"tags": "{}"}, {"extra": "[]"}, {"colour": "green"}])
async def test_a_damaged_value_is_an_error(store: Database, damage: Mapping[str, str]) -> None:
    """A stored value of another type is never returned as the field's value."""
    await store.write(lambda tx: tx.execute(insert(notes), {**_MAPPER.to_row(_FULL), **damage}))

    with pytest.raises((TypeError, KeyError)):
        await store.read(lambda tx: _MAPPER.fetch_one(tx, _BY_ID, {"of_id": "full"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoColumn:
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotNullable:
    tags: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnknownType:
    extra: complex


@pytest.mark.parametrize(
    ("model", "reason"), [(_NoColumn, "no column missing"), (_NotNullable, "not nullable"), (_UnknownType, "needs a codec")]
)
def test_a_dataclass_that_does_not_fit_its_table_is_rejected(model: type[object], reason: str) -> None:
    """The mistake is found when the module is imported, not at the first row."""
    with pytest.raises(TypeError, match=reason):
        Mapper(model, notes)
