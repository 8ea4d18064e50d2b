"""`rookery export` and `rookery import` run like in a shell, with and without a running server."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import orjson
import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import open_database
from rookery.memory.capacity import StorageLimits
from rookery.memory.store import transfer
from rookery.memory.store.transfer import ExportSelection
from rookery.memory.transfer.items import copy_id
from rookery.migrations import migrate
from rookery.wiring import build_platform as build_rookery
from tests.conftest import OPERATOR, FakeClock, lend_model
from tests.deadlines import HANG_S
from tests.memory.command_line import Platform
from tests.memory.makers import make_memory
from tests.memory.transfers import parse_lines
from tests.processes import Server, get_environment, run_rookery, run_server

MEMORY_COUNT = 2_000


def _environment() -> dict[str, str]:
    return get_environment() | {"COLUMNS": "140", "ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}


@pytest.fixture
def platform(data_dir: Path) -> Platform:
    """Return a platform on an empty store."""
    migrate("embedded:", data_dir=data_dir)
    return Platform(data_dir, limits=StorageLimits(min_free_bytes=0))


def _export_lines(count: int) -> bytes:
    """Return an export of *count* memories of another store."""
    clock = FakeClock()
    rows = [make_memory(clock, content=f"say {index}", workspace_id=1) for index in range(count)]
    memories: list[dict[str, object]] = [
        {
            "kind": "memory", "id": row.id, "type": row.type, "tags": [], "org": row.org, "project": row.project, "memory_scope": "project",
            "confidence": 0.8, "base_confidence": 0.8, "source": "manual", "content": row.content, "created_at": row.created_at,
            "updated_at": row.updated_at, "content_at": row.content_at,
        }
        for row in rows
    ]  # fmt: skip
    header_and_end: list[dict[str, object]] = [{"kind": "rookery-memories", "version": 1}, {"kind": "end", "memory": count}]
    return b"\n".join(orjson.dumps(line) for line in (header_and_end[0], *memories, header_and_end[1])) + b"\n"


def _count_stored(folder: Path) -> int:
    async def count() -> int:
        db = open_database("embedded:", data_dir=folder)
        try:
            return await db.read(lambda tx: transfer.count_memories(tx, ExportSelection(workspace_id=1), at=utc_now()))
        finally:
            await db.close()

    return asyncio.run(count())


def _recall_contents(server: Server, query: str, mode: str) -> list[str]:
    response: httpx2.Response = server.client.post("/v1/brain/recall", json={"query": query, "mode": mode, "top_k": 1})
    return [memory["content"] for memory in response.json()["memories"]]


def test_export_and_import_work_beside_a_running_server(model_folder: Path, tmp_path: Path) -> None:
    """Full text finds imported memories immediately, and semantic recall after the server ran their jobs."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder) as server:
        body = {"type": "decision", "content": "We deploy on Tuesdays.", "org": "acme", "tags": ["Ship"]}
        first = server.client.post("/v1/brain/remember", json=body).json()["id"]
        body = {"type": "decision", "content": "We deploy on Mondays, never on Fridays.", "org": "acme", "supersedes_id": first}
        second = server.client.post("/v1/brain/remember", json=body).json()["id"]
        export = Platform(folder).run("export", "--org", "acme")
        server.client.delete(f"/v1/brain/memories/{second}").raise_for_status()
        import_run = run_rookery(
            "import", "-", "--new-ids", "--json", data_dir=folder, environment=_environment(), standard_input=export.stdout_bytes
        )
        by_words = _recall_contents(server, "Fridays", "keyword")
        deadline = time.monotonic() + HANG_S
        while not (by_meaning := _recall_contents(server, "When do we ship?", "semantic")) and time.monotonic() < deadline:
            time.sleep(0.05)
        history = server.client.get(f"/v1/brain/memories/{copy_id(1, second)}/history").json()

    assert export.stderr.endswith("exported 1 memory, 1 tombstone\n")
    assert (json.loads(import_run.stdout)["imported"], import_run.returncode) == (1, 0)
    assert by_words == by_meaning == ["We deploy on Mondays, never on Fridays."]
    assert [entry["id"] for entry in history["data"]] == [copy_id(1, first), copy_id(1, second)]


def test_a_killed_import_can_be_repeated(platform: Platform, tmp_path: Path) -> None:
    """The second run stores the remaining memories, each once."""
    source = tmp_path / "all.jsonl"
    source.write_bytes(_export_lines(MEMORY_COUNT))
    asyncio.run(_make_workspace(platform.folder))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(platform.folder), "import", str(source)]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + HANG_S
        while not _count_stored(platform.folder) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    stored_before = _count_stored(platform.folder)
    report = json.loads(platform.run("import", str(source), "--json").output)

    assert 0 < stored_before < MEMORY_COUNT
    assert (report["imported"], report["unchanged"], report["failures"]) == (MEMORY_COUNT - stored_before, stored_before, 0)
    assert _count_stored(platform.folder) == MEMORY_COUNT


def test_a_stopped_import_can_be_resumed(platform: Platform, tmp_path: Path) -> None:
    """The exit code is 1, and the report names the first line that was not stored, for --resume."""
    source = tmp_path / "all.jsonl"
    source.write_bytes(_export_lines(5))
    platform.limits = StorageLimits(max_memories=3, min_free_bytes=0)
    stopped_run = platform.run("import", str(source))
    platform.limits = StorageLimits(min_free_bytes=0)

    dry_run = json.loads(platform.run("import", str(source), "--resume", "--dry-run", "--json").stdout)
    resumed_run = json.loads(platform.run("import", str(source), "--resume", "--json").stdout)
    last_run = json.loads(platform.run("import", str(source), "--resume", "--json").stdout)

    assert stopped_run.exit_code == 1
    assert "Nothing was stored from line 5 on; run the same command with --resume to continue from there." in stopped_run.stdout
    assert (dry_run["earlier"], dry_run["imported"]) == (resumed_run["earlier"], resumed_run["imported"]) == (3, 2)
    assert (last_run.get("earlier"), last_run["unchanged"]) == (None, 5)


def test_an_export_can_be_imported(platform: Platform, tmp_path: Path) -> None:
    """--out creates a file with mode 0600; .gz is compressed; a pipe gets only the lines."""
    export_file, notes_folder = tmp_path / "out.jsonl.gz", tmp_path / "notes"
    assert platform.run("import", "-", standard_input=_export_lines(2)).exit_code == 0

    exported_counts = [json.loads(platform.run("export", "--out", str(export_file), "--json").stdout)["memories"]]
    exported_counts += [json.loads(platform.run("export", "--format", "markdown", "--out", str(notes_folder), "--json").stdout)["memories"]]
    piped_export = platform.run("export")
    platform.workspace_names[2] = "side"
    copy_report = json.loads(platform.run("import", str(export_file), "--workspace", "side", "--new-ids", "--json").stdout)
    notes_import = platform.run("import", str(notes_folder), "--workspace", "side")

    assert exported_counts == [2, 2]
    assert export_file.stat().st_mode & 0o777 == 0o600
    assert parse_lines(piped_export.stdout_bytes) == parse_lines(gzip.decompress(export_file.read_bytes()))
    assert (copy_report["imported"], copy_report["items"]) == (2, [])
    assert (notes_import.exit_code, notes_import.stdout.count("\tconflict\t")) == (1, 2)


def test_rejected_lines_are_listed_with_their_number(platform: Platform) -> None:
    """The exit code is 1, and the other lines are stored."""
    result = platform.run("import", "-", standard_input=b'{"memory": ""}\n{"memory": "good"}\n{"memory": 3}\n')

    assert [line.split("\t")[1:] for line in result.stdout.splitlines()[:2]] == [
        ["refuse", f"line {number}: memory: is missing; a memory needs one of memory, content, data or text"] for number in (1, 3)
    ]
    assert (result.exit_code, _count_stored(platform.folder)) == (1, 1)


def test_an_import_names_the_program_and_lists_its_warnings(platform: Platform, tmp_path: Path) -> None:
    """Warnings are no failures: the exit code is 0, in text and as JSON; a refused product is named."""
    source = tmp_path / "mem.jsonl"
    source.write_bytes(b'{"memory": "The crane lifts 9 t.", "user_id": "kim", "created_at": "soon"}\n')
    dry_run = platform.run("import", str(source), "--dry-run")
    run = platform.run("import", str(source), "--map", "user:*=agent:*", "--on-conflict", "newer", "--json")
    report = json.loads(run.stdout)
    exported = parse_lines(platform.run("export").stdout_bytes)[0]
    (tmp_path / "chat.json").write_text('[{"mapping": {}, "current_node": "a"}]', encoding="utf-8")
    refused = platform.run("import", str(tmp_path / "chat.json"))

    warning = "mem.jsonl, line 1: created_at: 'soon' is not a time in ISO 8601, nor a number of seconds; it was left out"
    assert (dry_run.exit_code, run.exit_code, report["warnings"], report["imported"]) == (0, 0, [warning], 1)
    assert report["recognised"] == "memories of mem0, as JSON lines"
    assert f"warning: {warning}\nrecognised: memories of mem0, as JSON lines\n" in dry_run.stdout
    assert "The crane lifts 9 t." in dry_run.stdout
    assert (exported["agent_id"], exported["memory_scope"], exported["tags"]) == ("kim", "agent", [])
    assert (refused.exit_code, "this is conversations of ChatGPT: it has whole conversations" in refused.stdout) == (1, True)


def test_impossible_options_are_wrong_usage(platform: Platform, tmp_path: Path) -> None:
    """The exit code is 2, and no file is overwritten; with two workspaces, --workspace is required."""
    existing_file, notes_folder = tmp_path / "there.jsonl", tmp_path / "notes"
    existing_file.write_bytes(_export_lines(1))
    notes_folder.mkdir()
    (notes_folder / "mine.md").write_text("mine", encoding="utf-8")
    invalid_commands = [
        ["export", "--out", str(existing_file)], ["export", "--json"], ["export", "--format", "markdown"],
        ["export", "--format", "markdown", "--out", str(notes_folder)], ["export", "--out", str(tmp_path / "none" / "out.jsonl")],
        ["import", str(tmp_path / "none")], ["import", str(existing_file), "--type", "No Type"], ["import", "-", "--from", "markdown"],
        ["import", str(notes_folder), "--from", "mem0"], ["import", str(existing_file), "--scope", "all"], ["import"],
        ["import", "-", "--resume"], ["import", str(notes_folder), "--resume"], ["import", str(existing_file), "--timezone", "Mars/Base"],
        ["import", str(existing_file), "--map", "user"], ["import", str(existing_file), "--on-conflict", "older"],
        ["import", str(notes_folder), "--from", "mempalace"], ["import", str(notes_folder), "--with", str(existing_file)],
    ]  # fmt: skip

    assert [platform.run(*arguments).exit_code for arguments in invalid_commands] == [2] * len(invalid_commands)
    platform.workspace_names[2] = "side"
    assert [platform.run(*arguments).exit_code for arguments in (["export"], ["import", str(existing_file)])] == [2, 2]
    remaining = sorted(path.name for path in tmp_path.iterdir() if path != platform.folder)
    assert (remaining, existing_file.read_bytes()[:2], len(list(notes_folder.iterdir()))) == (["notes", "there.jsonl"], b'{"', 1)


async def _make_workspace(folder: Path) -> None:
    """Create the first workspace, which has the id 1."""
    platform = build_rookery(Settings(data_dir=folder, bcrypt_cost=4))
    async with platform.open_for_command():
        await platform.access.workspaces.create("main", by=OPERATOR)


def test_a_dry_run_counts_only_what_the_import_would_store(platform: Platform, tmp_path: Path) -> None:
    """Memories that are stored already, that are refused or that conflict are no change. A blank owner is wrong usage."""
    source = tmp_path / "mem.jsonl"
    source.write_bytes(b'{"memory": "The crane lifts 9 t."}\n{"memory": ""}\n')
    first = json.loads(platform.run("import", str(source), "--dry-run", "--json").stdout)
    platform.run("import", str(source))
    second = json.loads(platform.run("import", str(source), "--dry-run", "--json").stdout)
    blank = [platform.run("import", str(source), option, " ").exit_code for option in ("--org", "--project", "--agent", "--tag")]

    assert (first["would_be_done"], second["would_be_done"], second["unchanged"], second["refused"]) == (1, 0, 1, 1)
    assert blank == [2] * 4
