"""Changes of the audit log in the store are detected: any single change is found and located."""

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
from rookery.engines.counters import open as open_counter
from rookery.kernel.clock import format_iso, from_micros
from rookery.kernel.db import open_database
from tests.access.makers import build_access, empty_store
from tests.conftest import OPERATOR, FakeClock

WORKSPACE, OTHER, LENGTH = 1, 2, 7

COLUMNS = [column.name for column in audit_store.entries.columns]
NUMBERS = [column.name for column in audit_store.entries.columns if column.name in {"workspace_id", "seq", "at"}]
TEXTS = [name for name in COLUMNS if name not in NUMBERS]


@cache
def audited_store() -> bytes:
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
        for resource in (access, db, counter):
            await resource.close()

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "records.db").write_bytes(empty_store())
        asyncio.run(write(folder))
        with closing(sqlite3.connect(folder / "records.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (folder / "records.db").read_bytes()


def verify_after(tamper: Callable[[sqlite3.Connection], object], workspace_id: int = WORKSPACE) -> ChainVerification:
    """Return the result of the verification after *tamper* changed the store."""

    async def verify(folder: Path) -> ChainVerification:
        db = open_database("embedded:", data_dir=folder)
        try:
            return await AuditLog(db, FakeClock()).verify(workspace_id)
        finally:
            await db.close()

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "records.db").write_bytes(audited_store())
        with closing(sqlite3.connect(folder / "records.db")) as connection, connection:
            tamper(connection)
        return asyncio.run(verify(folder))


def value_of(connection: sqlite3.Connection, column: str, seq: int) -> object:
    """Return a value of an entry."""
    query = f'SELECT "{column}" FROM access_audit WHERE workspace_id = ? AND seq = ?'  # noqa: S608 - a known column
    return connection.execute(query, (WORKSPACE, seq)).fetchone()[0]


def set_value(connection: sqlite3.Connection, column: str, seq: int, value: object) -> None:
    """Change a value of an entry."""
    statement = f'UPDATE access_audit SET "{column}" = ? WHERE workspace_id = ? AND seq = ?'  # noqa: S608 - a known column
    connection.execute(statement, (value, WORKSPACE, seq))


def test_an_unchanged_log_is_intact() -> None:
    """The other tests here detect their own change and nothing else."""
    assert (
        verify_after(lambda _: None).broken_at,
        verify_after(lambda _: None).entry_count,
        verify_after(lambda _: None, OTHER).entry_count,
    ) == (
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
def test_a_changed_text_is_detected(column: str, seq: int, how: str) -> None:
    """In any row and any column, down to invalid JSON; the report names the entry."""
    is_same = False

    def tamper(connection: sqlite3.Connection) -> None:
        nonlocal is_same
        old = value_of(connection, column, seq)
        new = TAMPERING[how](old) if isinstance(old, str) else "null "
        set_value(connection, column, seq, new)
        # Spaces around JSON mean the same.
        is_same = new == old or (column in {"before", "after"} and new.strip() == old)

    verdict = verify_after(tamper)
    assert verdict.broken_at == (None if is_same else seq)


@given(
    column=st.sampled_from(NUMBERS), seq=st.integers(1, LENGTH), by=st.sampled_from([-(2**62), -1_000_000, -1, 1, 100, 1_000_000, 2**62])
)
@settings(max_examples=40)
def test_a_changed_number_is_detected(column: str, seq: int, by: int) -> None:
    """Its workspace, its sequence number or its time. A row that was moved away is missing."""

    def tamper(connection: sqlite3.Connection) -> None:
        new = int(str(value_of(connection, column, seq))) + by
        if column == "seq":
            connection.execute("DELETE FROM access_audit WHERE workspace_id = ? AND seq = ?", (WORKSPACE, new))
        elif column == "workspace_id":
            connection.execute("DELETE FROM access_audit WHERE workspace_id = ? AND seq = ?", (new, seq))
        set_value(connection, column, seq, new)

    # If the row replaces another one, that is missing too, and the first broken entry is reported.
    first = min(seq, seq + by) if column == "seq" and seq + by >= 1 else seq
    assert verify_after(tamper).broken_at == first


@pytest.mark.parametrize("column", COLUMNS)
def test_any_value_of_a_column_is_detected(column: str) -> None:
    """A value that is no text, no number or no JSON is an altered entry, not an error of the verification."""
    for garbage in ("garbage", b"\xff\x00", 2.5, "[1, 2]", '"text"', "{", 2**63 - 1, -(2**63)):

        def tamper(connection: sqlite3.Connection, garbage: object = garbage) -> None:
            set_value(connection, column, 3, garbage)

        assert verify_after(tamper).broken_at == 3, garbage


@given(st.sets(st.integers(1, LENGTH), min_size=1))
@settings(max_examples=40)
def test_deleted_rows_are_detected(deleted: set[int]) -> None:
    """The first deleted row is reported; at the end of the chain too."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.executemany("DELETE FROM access_audit WHERE workspace_id = 1 AND seq = ?", [(seq,) for seq in deleted])

    assert verify_after(tamper).broken_at == min(deleted)


@given(st.permutations(range(1, LENGTH + 1)))
@settings(max_examples=40)
def test_reordered_rows_are_detected(order: list[int]) -> None:
    """The first row that is out of order is reported."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE access_audit SET seq = seq + 1000 WHERE workspace_id = 1")
        moves = [(new, 1000 + old) for new, old in enumerate(order, start=1)]
        connection.executemany("UPDATE access_audit SET seq = ? WHERE workspace_id = 1 AND seq = ?", moves)

    misplaced = [new for new, old in enumerate(order, start=1) if new != old]
    assert verify_after(tamper).broken_at == (misplaced[0] if misplaced else None)


@pytest.mark.parametrize("position", range(1, LENGTH + 2))
def test_an_inserted_entry_is_detected(position: int) -> None:
    """Even with a valid hash over the previous entry, anywhere in the chain and at its end."""

    def tamper(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE access_audit SET seq = seq + 1000 WHERE workspace_id = 1 AND seq >= ?", (position,))
        connection.execute("UPDATE access_audit SET seq = seq - 999 WHERE workspace_id = 1 AND seq > 1000")
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        row = connection.execute(f"SELECT {columns} FROM access_audit WHERE seq = 1 AND workspace_id = 2").fetchone()  # noqa: S608 - known columns
        forged = forge(
            dict(zip(COLUMNS, row, strict=True)),
            position,
            str(value_of(connection, "hash", position - 1)) if position > 1 else GENESIS_HASH,
        )
        placeholders = ", ".join("?" for _ in COLUMNS)
        connection.execute(f"INSERT INTO access_audit ({columns}) VALUES ({placeholders})", [forged[name] for name in COLUMNS])  # noqa: S608 - known columns

    # The forged entry itself is valid. The entry after it is not, or the end of the chain does not match.
    assert verify_after(tamper).broken_at == (position + 1 if position <= LENGTH else position)


def forge(row: dict[str, object], seq: int, previous: str) -> dict[str, object]:
    """Return *row* as an entry of the chain with a valid hash."""
    forged = {**row, "workspace_id": WORKSPACE, "seq": seq, "previous": previous}
    actor = {name: forged[f"actor_{name}"] for name in ("kind", "id", "name")}
    fields = {
        **{name: forged[name] for name in ("workspace_id", "seq", "action", "previous")},
        "at": format_iso(from_micros(int(str(forged["at"])))),
        "actor": {**actor, "address": forged["address"], "request_id": forged["request_id"]},
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
def test_a_changed_end_is_detected(statement: str, broken_at: int) -> None:
    """The end of a chain is stored separately, so that a chain can be neither truncated nor deleted unnoticed."""
    statements = "; ".join(f"{part} WHERE workspace_id = 1" for part in statement.split("; "))

    assert verify_after(lambda connection: connection.executescript(statements)).broken_at == broken_at
