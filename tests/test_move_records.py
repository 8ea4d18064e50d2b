"""`rookery move-engine records`: from SQLite to PostgreSQL and back, with nothing lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.conftest import SECRET_KEY, eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, get_environment, run_rookery, run_server
from tests.test_records_elsewhere import AUDIT_TABLES, count_rows, dump, fill, is_waiting

pytestmark = pytest.mark.external_service


def _environment(database: str = "embedded:") -> dict[str, str]:
    return get_environment() | {"ROOKERY_DATABASE_URL": database, "ROOKERY_SECRET_KEY": SECRET_KEY, "ROOKERY_MIN_FREE_DISK_MB": "0"}


def _move(folder: Path, to: str, *options: str, database: str = "embedded:") -> subprocess.CompletedProcess[str]:
    environment = _environment(database) | {"TARGET": to}
    return run_rookery("move-engine", "records", "--to", "${TARGET}", *options, data_dir=folder, environment=environment)


def test_records_move_to_postgresql_and_back_unchanged(data_dir: Path, tmp_path: Path, postgres_empty: str) -> None:
    """Every table with rows; the counts and checksums are equal, and the source stays as it is."""
    fill(data_dir / "records.db")
    before, back = dump(data_dir / "records.db"), tmp_path / "back"

    preview = json.loads(_move(data_dir, postgres_empty, "--dry-run", "--json").stdout)
    assert count_rows(postgres_empty) == 0
    forth = _move(data_dir, postgres_empty, "--json")
    assert forth.returncode == 0, forth.stderr
    report = json.loads(forth.stdout)
    returned = _move(back, "embedded:", "--json", database=postgres_empty)
    assert returned.returncode == 0, returned.stderr

    assert (preview["rows"], report["rows"], report["verified"], report["target"]) == (
        report["rows"],
        count_rows(postgres_empty),
        True,
        "postgresql",
    )
    for tables in (returned_tables := json.loads(returned.stdout)["tables"], report["tables"]):
        tables[:] = [table for table in tables if table["name"] not in AUDIT_TABLES]
    assert returned_tables == report["tables"]
    assert dump(data_dir / "records.db") == before
    after = dump(back / "records.db")
    assert {name for name in before if before[name] != after[name]} == set()
    assert {entry.name for entry in back.iterdir()} == {"records.db"}
    assert ((back / "records.db").stat().st_mode & 0o777) == 0o600


def test_a_server_continues_on_postgresql_with_its_keys_and_memories(tmp_path: Path, model_folder: Path, postgres_empty: str) -> None:
    """After the move the same keys work, memories are recalled by meaning from the same index, and plans are there."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder, secret_key=SECRET_KEY) as server:
        body = {"type": "decision", "content": "The herons nest on the roof of the mill.", "wait_ms": 5000}
        assert server.client.post("/v1/brain/remember", json=body).status_code in {200, 201}
        plan = {"title": "Roof", "phases": [{"name": "One", "tasks": ["Look"]}]}
        assert server.client.post("/api/agent/plans", json=plan).is_success
        in_use = _move(folder, postgres_empty)
        headers = dict(server.client.headers)

    moved = _move(folder, postgres_empty)
    with run_server(folder, database_url=postgres_empty, secret_key=SECRET_KEY) as server:
        answers = _ask(server, headers)
        busy = _move(folder, "embedded:", database=postgres_empty)

    assert (in_use.returncode, "Stop it" in in_use.stderr) == (1, True)
    assert (moved.returncode, "ROOKERY_DATABASE_URL" in moved.stderr) == (0, True), moved.stderr
    assert answers == (["The herons nest on the roof of the mill."], ["Roof"])
    assert (busy.returncode, "records.db exists already" in busy.stderr) == (1, True)


def _ask(server: Server, headers: dict[str, str]) -> tuple[list[str], list[str]]:
    with httpx2.Client(base_url=server.url, headers=headers, timeout=HANG_S) as client:
        recalled = client.post("/v1/brain/recall", json={"query": "where do birds breed?", "mode": "semantic"}).json()
        plans = client.get("/api/agent/plans").json()
    return [memory["content"] for memory in recalled["memories"]], [plan["title"] for plan in plans["data"]]


def test_records_in_use_are_not_moved(data_dir: Path, tmp_path: Path, postgres_database: str) -> None:
    """A worker has no address, but has the file open, or a session on the database; both are detected."""
    fill(data_dir / "records.db", rows=2)
    environment = _environment()
    worker = subprocess.Popen(
        [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), "worker"], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        assert "works on" in worker.stdout.readline()
        while_used = _move(data_dir, postgres_database)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=HANG_S)
    with psycopg.connect(postgres_database):
        while_connected = _move(tmp_path / "new", "embedded:", database=postgres_database)

    assert (while_used.returncode, "has" in while_used.stderr, "open" in while_used.stderr) == (1, True, True), while_used.stderr
    assert (while_connected.returncode, "1 other session uses the database" in while_connected.stderr) == (1, True)
    assert count_rows(postgres_database) == 0
    assert _move(data_dir, postgres_database).returncode == 0


async def test_a_killed_move_leaves_nothing_and_is_repeated(data_dir: Path, tmp_path: Path, postgres_database: str) -> None:
    """Kill -9 in the middle of a move in each direction; the target is empty, the source unchanged, and a second run succeeds."""
    fill(data_dir / "records.db")
    before, back = dump(data_dir / "records.db"), tmp_path / "back"
    with psycopg.connect(postgres_database) as blocker:
        blocker.execute("LOCK TABLE webhook_events IN ROW EXCLUSIVE MODE")  # the move waits for this lock
        await _kill_move(data_dir, "embedded:", postgres_database, when=lambda: is_waiting(postgres_database))
    assert (count_rows(postgres_database), dump(data_dir / "records.db")) == (0, before)
    assert _move(data_dir, postgres_database).returncode == 0

    await _kill_move(back, postgres_database, "embedded:", when=lambda: any(back.glob(".rookery-backup-*/records.db")))
    assert not (back / "records.db").exists()
    assert _move(back, "embedded:", database=postgres_database).returncode == 0
    assert {entry.name for entry in back.iterdir()} == {"records.db"}
    assert dump(back / "records.db") == before


async def _kill_move(folder: Path, source: str, target: str, *, when: Callable[[], bool]) -> None:
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "move-engine", "records", "--to", target]
    process = subprocess.Popen(command, env=_environment(source), stderr=subprocess.DEVNULL)
    try:
        await eventually(lambda: when() or process.poll() is not None)
    finally:
        process.kill()
    assert process.wait(HANG_S) == -signal.SIGKILL


def test_wrong_targets_are_refused(data_dir: Path, tmp_path: Path, postgres_database: str) -> None:
    """An unreachable, filled or equal target is a clear error without the password, and nothing is changed."""
    fill(data_dir / "records.db", rows=2)
    same = _move(data_dir, "embedded:")
    unreachable = _move(data_dir, "postgresql://somebody:hush@127.0.0.1:1/none")
    unknown = _move(data_dir, "mysql://127.0.0.1/none")
    unset = run_rookery("move-engine", "records", "--to", "${NOTHING}", data_dir=data_dir, environment=_environment())
    assert _move(data_dir, postgres_database).returncode == 0
    filled = [_move(data_dir, postgres_database, *options) for options in ((), ("--dry-run",))]
    missing = _move(tmp_path / "nowhere", postgres_database)

    assert [result.returncode for result in (same, unreachable, unknown, unset, *filled, missing)] == [1] * 7
    assert "in that store already" in same.stderr
    assert ("database engine is unavailable" in unreachable.stderr, "hush" in unreachable.stderr) == (True, False)
    assert "use pg_dump" in unknown.stderr
    assert "${NOTHING} is not set" in unset.stderr
    assert all("holds records already" in result.stderr for result in filled)
    assert "does not exist" in missing.stderr
