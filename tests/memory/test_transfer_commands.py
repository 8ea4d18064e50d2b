"""`rookery export` and `rookery import` as they are typed, beside a running server and without one (D-04)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import add_commands
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import open_database
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.store import transfer
from rookery.memory.store.transfer import ExportSelection
from rookery.memory.training import Training
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport, TransferServices
from rookery.memory.transfer.items import copy_id
from rookery.migrations import migrate
from rookery.wiring import build_platform as build_rookery
from tests.conftest import OPERATOR, FakeClock, lend_model
from tests.memory.makers import build_rig, make_memory
from tests.memory.transfers import parse_lines
from tests.processes import Server, run_server

MANY = 2_000
_WAIT_S = 40.0


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    return environment | {"COLUMNS": "140", "ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}


def _rookery(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, as operators do."""
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(command, env=_environment(), input=given, capture_output=True, check=False, timeout=50)


@dataclass
class _OpenPlatform:
    transfer: TransferServices
    training: Training
    known: Mapping[int, str]

    async def workspaces(self) -> Mapping[int, str]:
        """Return what the test wants known."""
        return self.known


@dataclass
class _Platform:
    """The platform object that commands receive, on a data folder."""

    folder: Path
    known: dict[int, str] = field(default_factory=lambda: {1: "main"})
    limits: StorageLimits = field(default_factory=lambda: StorageLimits(min_free_bytes=0))

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[_OpenPlatform]:
        """Return the platform as the commands see it."""
        clock = FakeClock()
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, clock)
        capacity = Capacity(db=db, jobs=rig.jobs, limits=self.limits, monotonic=time.monotonic)
        verb = MemoryImport(db=db, jobs=rig.jobs, indexer=rig.services.indexer, capacity=capacity, bus=rig.bus, clock=clock)
        try:
            yield _OpenPlatform(
                TransferServices(exporter=MemoryExport(db=db, clock=clock), importer=verb), rig.services.training, self.known
            )
        finally:
            await rig.close()
            await db.close()

    def run(self, *arguments: str, given: bytes = b"") -> Result:
        """Type a command."""
        app = typer.Typer()
        add_commands(app, "brain", "export", "import")

        @app.callback()
        def main(context: typer.Context) -> None:
            """Hand over what commands need."""
            context.obj = self

        return CliRunner().invoke(app, arguments, input=given)


@pytest.fixture
def opens(data_dir: Path) -> _Platform:
    """An empty store."""
    migrate("embedded:", data_dir=data_dir)
    return _Platform(data_dir)


def _lines(number: int) -> bytes:
    """Return an export of *count_memories* memories, as another store wrote it."""
    clock = FakeClock()
    rows = [make_memory(clock, content=f"say {each}", workspace_id=1) for each in range(number)]
    memories: list[dict[str, object]] = [
        {
            "kind": "memory", "id": row.id, "type": row.type, "tags": [], "org": row.org, "project": row.project, "memory_scope": "project",
            "confidence": 0.8, "base_confidence": 0.8, "source": "manual", "content": row.content, "created_at": row.created_at,
            "updated_at": row.updated_at, "content_at": row.content_at,
        }
        for row in rows
    ]  # fmt: skip
    ends: list[dict[str, object]] = [{"kind": "rookery-memories", "version": 1}, {"kind": "end", "memory": number}]
    return b"\n".join(orjson.dumps(each) for each in (ends[0], *memories, ends[1])) + b"\n"


def _count(folder: Path) -> int:
    async def count() -> int:
        db = open_database("embedded:", data_dir=folder)
        try:
            return await db.read(lambda tx: transfer.count_memories(tx, ExportSelection(workspace_id=1, at=utc_now())))
        finally:
            await db.close()

    return asyncio.run(count())


def _ask(server: Server, query: str, mode: str) -> list[str]:
    response: httpx2.Response = server.client.post("/v1/brain/recall", json={"query": query, "mode": mode, "top_k": 1})
    return [memory["content"] for memory in response.json()["memories"]]


@pytest.mark.timeout(120)
def test_a_running_server_gives_and_takes(model_folder: Path, tmp_path: Path) -> None:
    """Issue 6: beside a running server: words find it at once, meaning once the server has done the jobs that it found."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder) as server:
        body = {"type": "decision", "content": "We deploy on Tuesdays.", "org": "acme", "tags": ["Ship"]}
        first = server.client.post("/v1/brain/remember", json=body).json()["id"]
        body = {"type": "decision", "content": "We deploy on Mondays, never on Fridays.", "org": "acme", "supersedes_id": first}
        second = server.client.post("/v1/brain/remember", json=body).json()["id"]
        exported = _Platform(folder).run("export", "--org", "acme")
        server.client.delete(f"/v1/brain/memories/{second}").raise_for_status()
        imported = _rookery(folder, "import", "-", "--new-ids", "--json", given=exported.stdout_bytes)
        by_words = _ask(server, "Fridays", "keyword")
        deadline = time.monotonic() + _WAIT_S
        while not (found := _ask(server, "When do we ship?", "semantic")) and time.monotonic() < deadline:
            time.sleep(0.05)
        history = server.client.get(f"/v1/brain/memories/{copy_id(1, second)}/history").json()

    assert exported.stderr.endswith("exported 1 memories, 1 tombstones\n")
    assert (json.loads(imported.stdout)["imported"], imported.returncode) == (1, 0)
    assert by_words == found == ["We deploy on Mondays, never on Fridays."]
    assert [each["id"] for each in history["data"]] == [copy_id(1, first), copy_id(1, second)]


@pytest.mark.timeout(120)
def test_an_import_that_is_killed_is_run_again(opens: _Platform, tmp_path: Path) -> None:
    """Issue 6: killed in the middle and run again: nothing lost, nothing twice."""
    source = tmp_path / "all.jsonl"
    source.write_bytes(_lines(MANY))
    asyncio.run(_make_workspace(opens.folder))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(opens.folder), "import", str(source)]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + _WAIT_S
        while not _count(opens.folder) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    between = _count(opens.folder)
    report = json.loads(opens.run("import", str(source), "--json").output)

    assert 0 < between < MANY
    assert (report["imported"], report["unchanged"], report["failures"]) == (MANY - between, between, 0)
    assert _count(opens.folder) == MANY


def test_an_import_that_was_stopped_goes_on_from_there(opens: _Platform, tmp_path: Path) -> None:
    """D-17, issue 5: exit code 1, from which line on nothing was stored, and --resume; what it stored is announced by its own process."""
    source = tmp_path / "all.jsonl"
    source.write_bytes(_lines(5))
    opens.limits = StorageLimits(max_memories=3, min_free_bytes=0)
    stopped = opens.run("import", str(source))
    opens.limits = StorageLimits(min_free_bytes=0)

    dry = json.loads(opens.run("import", str(source), "--resume", "--dry-run", "--json").stdout)
    resumed = json.loads(opens.run("import", str(source), "--resume", "--json").stdout)
    again = json.loads(opens.run("import", str(source), "--resume", "--json").stdout)

    assert stopped.exit_code == 1
    assert "Nothing was stored from line 5 on; run the same command with --resume to continue from there." in stopped.stdout
    assert (dry["earlier"], dry["imported"]) == (resumed["earlier"], resumed["imported"]) == (3, 2)
    assert (again.get("earlier"), again["unchanged"]) == (None, 5)


def test_what_went_out_comes_in(opens: _Platform, tmp_path: Path) -> None:
    """D-04: --out makes a new file of mode 0600; .gz is compressed; a pipe gets the lines alone."""
    packed, notes = tmp_path / "out.jsonl.gz", tmp_path / "notes"
    assert opens.run("import", "-", given=_lines(2)).exit_code == 0

    told = [json.loads(opens.run("export", "--out", str(packed), "--json").stdout)["memories"]]
    told += [json.loads(opens.run("export", "--format", "markdown", "--out", str(notes), "--json").stdout)["memories"]]
    piped = opens.run("export")
    opens.known[2] = "side"
    copied = json.loads(opens.run("import", str(packed), "--workspace", "side", "--new-ids", "--json").stdout)
    taken = opens.run("import", str(notes), "--workspace", "side")

    assert told == [2, 2]
    assert packed.stat().st_mode & 0o777 == 0o600
    assert parse_lines(piped.stdout_bytes) == parse_lines(gzip.decompress(packed.read_bytes()))
    assert (copied["imported"], copied["items"]) == (2, [])
    assert (taken.exit_code, taken.stdout.count("\tconflict\t")) == (1, 2)


def test_what_was_not_stored_is_listed_with_its_line(opens: _Platform) -> None:
    """Issue 6: a line for each that was refused, exit code 1, and the others are stored."""
    result = opens.run("import", "-", given=b'{"memory": ""}\n{"memory": "good"}\n{"memory": 3}\n')

    assert [line.split("\t")[1:] for line in result.stdout.splitlines()[:2]] == [
        ["refuse", f"line {number}: memory: is missing; a memory needs one of memory, content, data or text"] for number in (1, 3)
    ]
    assert (result.exit_code, _count(opens.folder)) == (1, 1)


def test_what_cannot_be_meant_is_wrong_usage(opens: _Platform, tmp_path: Path) -> None:
    """D-04: exit code 2, and nothing is written over; D-52: the workspace is named once there are two."""
    there, notes = tmp_path / "there.jsonl", tmp_path / "notes"
    there.write_bytes(_lines(1))
    notes.mkdir()
    (notes / "mine.md").write_text("mine", encoding="utf-8")
    wrong = [
        ["export", "--out", str(there)], ["export", "--json"], ["export", "--format", "markdown"],
        ["export", "--format", "markdown", "--out", str(notes)], ["export", "--out", str(tmp_path / "none" / "out.jsonl")],
        ["import", str(tmp_path / "none")], ["import", str(there), "--type", "No Type"], ["import", "-", "--format", "markdown"],
        ["import", str(notes), "--format", "mem0"], ["import", str(there), "--scope", "all"], ["import"],
        ["import", "-", "--resume"], ["import", str(notes), "--resume"],
    ]  # fmt: skip

    assert [opens.run(*arguments).exit_code for arguments in wrong] == [2] * len(wrong)
    opens.known[2] = "side"
    assert [opens.run(*arguments).exit_code for arguments in (["export"], ["import", str(there)])] == [2, 2]
    left = sorted(path.name for path in tmp_path.iterdir() if path != opens.folder)
    assert (left, there.read_bytes()[:2], len(list(notes.iterdir()))) == (["notes", "there.jsonl"], b'{"', 1)


async def _make_workspace(folder: Path) -> None:
    """Make the first workspace, whose number is 1."""
    rookery = build_rookery(Settings(data_dir=folder, bcrypt_cost=4))
    async with rookery.open_for_command():
        await rookery.access.workspaces.create("main", by=OPERATOR)
