"""Changes of the audit log in the store are detected: any single change is found and located (D-29)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.access.audit_chain import GENESIS_HASH, hash_entry
from rookery.access.audit_log import AuditLog, ChainVerification
from rookery.access.key_fields import KeyChanges, NewApiKey
from rookery.access.store import audit as audit_store
from rookery.engines.counters import open_counter
from rookery.kernel.clock import format_iso, from_micros
from rookery.kernel.db import open_database
from tests.access.makers import build_access, empty_store
from tests.conftest import OPERATOR, FakeClock

WORKSPACE, OTHER, LENGTH = 1, 2, 7

COLUMNS = [column.name for column in audit_store.entries.columns]
NUMBERS = [column.name for column in audit_store.entries.columns if column.name in {"workspace_id", "seq", "at"}]
TEXTS = [name for name in COLUMNS if name not in NUMBERS]


@cache
def written() -> bytes:
    """Return a record store with two chains, of seven entries and of one."""

    async def write(folder: Path) -> None:
        db, counter = open_database("embedded:", data_dir=folder), open_counter("embedded:", data_dir=folder)
        access = build_access(db, counter, FakeClock())
        workspace, _ = await access.create_workspace(), await access.create_workspace("other")
        key_id = (await access.create_api_key(workspace, NewApiKey(name="first", scopes=("*",)))).key.id
        await access.api_keys.update(workspace, key_id, KeyChanges(name="second", tool_limits={"a": 1}), by=OPERATOR)
        await access.api_keys.suspend(workspace, key_id, by=OPERATOR)
        await access.api_keys.rotate(workspace, key_id, by=OPERATOR)
        await access.api_keys.delete(workspace, key_id, by=OPERATOR)
        for each in (access, db, counter):
            await each.close()

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "records.db").write_bytes(empty_store())
        asyncio.run(write(folder))
        with closing(sqlite3.connect(folder / "records.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (folder / "records.db").read_bytes()


def found(tamper: Callable[[sqlite3.Connection], object], workspace_id: int = WORKSPACE) -> ChainVerification:
    """Return what checking finds once *tamper* has had its way with the store."""

    async def verify(folder: Path) -> ChainVerification:
        db = open_database("embedded:", data_dir=folder)
        try:
            return await AuditLog(db, FakeClock()).verify(workspace_id)
        finally:
            await db.close()

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "records.db").write_bytes(written())
        with closing(sqlite3.connect(folder / "records.db")) as connection, connection:
            tamper(connection)
        return asyncio.run(verify(folder))


def value_of(connection: sqlite3.Connection, column: str, seq: int) -> object:
    """Return what is in a row."""
    query = f'SELECT "{column}" FROM access_audit WHERE workspace_id = ? AND seq = ?'  # noqa: S608 - a column of ours
    return connection.execute(query, (WORKSPACE, seq)).fetchone()[0]


def set_value(connection: sqlite3.Connection, column: str, seq: int, value: object) -> None:
    """Alter a row."""
    statement = f'UPDATE access_audit SET "{column}" = ? WHERE workspace_id = ? AND seq = ?'  # noqa: S608 - a column of ours
    connection.execute(statement, (value, WORKSPACE, seq))


def test_what_was_not_touched_is_whole() -> None:
    """D-29: so the other tests here find what they did, and nothing else."""
    assert (found(lambda _: None).broken_at, found(lambda _: None).entry_count, found(lambda _: None, OTHER).entry_count) == (
        None,
        LENGTH,
        1,
    )


TAMPERING: dict[str, Callable[[str], str]] = {
    "longer": lambda text: f"{text}x",
    "a space": lambda text: f" {text}",
    "shorter": lambda text: text[:-1],
    "case": str.swapcase,
    "nothing": lambda _: "",
    "reversed": lambda text: text[::-1],
    "an accent": lambda text: text.replace("e", "é"),
    "another name": lambda text: text.replace('"', '"x', 1),
}


@given(column=st.sampled_from(TEXTS), seq=st.integers(1, LENGTH), how=st.sampled_from(sorted(TAMPERING)))
@settings(max_examples=100)
def test_a_text_that_was_altered_is_found(column: str, seq: int, how: str) -> None:
    """D-29: in any row and any column, down to invalid JSON; the report names the entry."""
    is_same = False

    def tamper(connection: sqlite3.Connection) -> None:
        nonlocal is_same
        was = value_of(connection, column, seq)
        now = TAMPERING[how](was) if isinstance(was, str) else "null "
        set_value(connection, column, seq, now)
        # Spaces around JSON, or null for nothing, say the same.
        is_same = now == was or (column in {"before", "after"} and now.strip() in {was, "null"})

    verdict = found(tamper)
    assert verdict.broken_at == (None if is_same else seq)


@given(
    column=st.sampled_from(NUMBERS), seq=st.integers(1, LENGTH), by=st.sampled_from([-(2**62), -1_000_000, -1, 1, 100, 1_000_000, 2**62])
)
@settings(max_examples=40)
def test_a_number_that_was_altered_is_found(column: str, seq: int, by: int) -> None:
    """D-29: its workspace, its place or its time; a row that was moved away is missing."""

    def tamper(connection: sqlite3.Connection) -> None:
        now = int(str(value_of(connection, column, seq))) + by
        if column == "seq":
            connection.execute("DELETE FROM access_audit WHERE workspace_id = ? AND seq = ?", (WORKSPACE, now))
        elif column == "workspace_id":
            connection.execute("DELETE FROM access_audit WHERE workspace_id = ? AND seq = ?", (now, seq))
        set_value(connection, column, seq, now)

    # Where the row replaces another one, that is missing too, and it is the first that counts.
    first = min(seq, seq + by) if column == "seq" and seq + by >= 1 else seq
    assert found(tamper).broken_at == first


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_may_hold_anything(column: str) -> None:
    """D-29, D-16: what is no text, no number, no JSON at all is an entry that was altered, not an error of the check."""
    for garbage in ("garbage", b"\xff\x00", 2.5, "[1, 2]", '"text"', "{", 2**63 - 1, -(2**63)):

        def tamper(connection: sqlite3.Connection, garbage: object = garbage) -> None:
            set_value(connection, column, 3, garbage)

        assert found(tamper).broken_at == 3, garbage


@given(st.sets(st.integers(1, LENGTH), min_size=1))
@settings(max_examples=40)
def test_rows_that_were_dropped_are_found(dropped: set[int]) -> None:
    """D-29: at the first of them; at the end of the chain too."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.executemany("DELETE FROM access_audit WHERE workspace_id = 1 AND seq = ?", [(each,) for each in dropped])

    assert found(tamper).broken_at == min(dropped)


@given(st.permutations(range(1, LENGTH + 1)))
@settings(max_examples=40)
def test_rows_that_were_put_in_another_order_are_found(order: list[int]) -> None:
    """D-29: at the first that is not in its place."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE access_audit SET seq = seq + 1000 WHERE workspace_id = 1")
        moves = [(now, 1000 + was) for now, was in enumerate(order, start=1)]
        connection.executemany("UPDATE access_audit SET seq = ? WHERE workspace_id = 1 AND seq = ?", moves)

    misplaced = [now for now, was in enumerate(order, start=1) if now != was]
    assert found(tamper).broken_at == (misplaced[0] if misplaced else None)


@pytest.mark.parametrize("place", range(1, LENGTH + 2))
def test_an_entry_that_was_slipped_in_is_found(place: int) -> None:
    """D-29: even one with a right hash that follows the one before it; at its own place, at the end too."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE access_audit SET seq = seq + 1000 WHERE workspace_id = 1 AND seq >= ?", (place,))
        connection.execute("UPDATE access_audit SET seq = seq - 999 WHERE workspace_id = 1 AND seq > 1000")
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        row = connection.execute(f"SELECT {columns} FROM access_audit WHERE seq = 1 AND workspace_id = 2").fetchone()  # noqa: S608 - ours
        forged = forge(
            dict(zip(COLUMNS, row, strict=True)), place, str(value_of(connection, "hash", place - 1)) if place > 1 else GENESIS_HASH
        )
        marks = ", ".join("?" for _ in COLUMNS)
        connection.execute(f"INSERT INTO access_audit ({columns}) VALUES ({marks})", [forged[name] for name in COLUMNS])  # noqa: S608 - ours

    # The forged entry itself is in order; what follows it is not, or it was never the end.
    assert found(tamper).broken_at == (place + 1 if place <= LENGTH else place)


def forge(row: dict[str, object], seq: int, previous: str) -> dict[str, object]:
    """Return *row* as an entry of the chain, signed as ours are."""
    forged = {**row, "workspace_id": WORKSPACE, "seq": seq, "previous": previous}
    named = {name: forged[f"actor_{name}"] for name in ("kind", "id", "name")}
    fields = {
        **{name: forged[name] for name in ("workspace_id", "seq", "action", "previous")},
        "at": format_iso(from_micros(int(str(forged["at"])))),
        "actor": {**named, "address": forged["address"], "request_id": forged["request_id"]},
        "subject": {"environment": forged["environment"], **{name: forged[f"subject_{name}"] for name in ("kind", "id", "name")}},
        **{name: None if forged[name] is None else json.loads(str(forged[name])) for name in ("before", "after")},
    }
    return {**forged, "hash": hash_entry(fields)}


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE access_audit_ends SET seq = seq + 1", LENGTH + 1),
        ("UPDATE access_audit_ends SET seq = seq - 1", LENGTH - 1),
        ("UPDATE access_audit_ends SET hash = upper(hash)", LENGTH),
        ("DELETE FROM access_audit_ends", 1),
        ("DELETE FROM access_audit; DELETE FROM access_audit_ends", 1),
    ],
)
def test_an_end_that_was_altered_is_found(statement: str, broken_at: int) -> None:
    """D-29: the end of a chain is kept apart, so that it cannot be cut short, nor go altogether, while the platform tells of it."""
    wheres = "; ".join(f"{each} WHERE workspace_id = 1" for each in statement.split("; "))

    assert found(lambda connection: connection.executescript(wheres)).broken_at == broken_at
