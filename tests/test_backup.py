"""`rookery backup` and `rookery restore` beside a running server, and their failures."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import typer
from typer.testing import CliRunner

from rookery.backup.contents import list_content
from rookery.backup.creation import BackupRequest, create_backup
from rookery.cli import add_commands
from rookery.cli.platform import build_prepared
from rookery.doctor import DoctorFinding, examine
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError, WrongSettings
from rookery.kernel.secret import Secret
from rookery.wiring import build_platform
from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, run_server

_ROWS = "WITH RECURSIVE f(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM f WHERE x < {rows}) SELECT randomblob({size}) FROM f"

# The work of the commands without the rest of the platform, which takes seconds to load.
_IMPORTS = (
    "import sys; from pathlib import Path; "
    "from rookery.backup.creation import BackupRequest, create_backup; from rookery.backup.restoration import restore_backup; "
    "source, target = map(Path, sys.argv[1:]); "
)
_CREATE = _IMPORTS + "create_backup(BackupRequest(folder=source, out=target, with_secret_key=True), progress=id)"
_RESTORE = _IMPORTS + "restore_backup(source, target, progress=id)"


def _quiet(_: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Context:
    """The platform object that commands receive."""

    settings: Settings


def run_command(settings: Settings, *arguments: str) -> tuple[int, str]:
    """Run a command without a terminal; return its exit code, and its output or its error."""
    app = typer.Typer()
    add_commands(app, "backup", "restore")
    result = CliRunner().invoke(app, arguments, obj=Context(settings))
    if isinstance(result.exception, RookeryError):
        return 1, result.exception.message
    return result.exit_code, result.stdout + result.stderr


def test_a_backup_is_named_as_an_argument(data_dir: Path, tmp_path: Path) -> None:
    """A name without a known ending gets .tar.zst."""
    settings = Settings(data_dir=data_dir)
    build_prepared(settings)
    bare, other = tmp_path / "saved", tmp_path / "other.tar"

    assert run_command(settings, "backup", str(bare))[0] == 0
    assert run_command(settings, "backup", str(other))[0] == 0
    assert {file.name for file in tmp_path.iterdir() if file.is_file()} == {"saved.tar.zst", "other.tar"}
    assert run_command(settings, "restore", str(tmp_path / "nope.tar"))[0] == 2
    assert "The file" in run_command(settings, "restore", str(tmp_path / "nope.tar"))[1]


def _start_script(script: str, *paths: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, paths)])


def _remember(client: httpx2.Client, number: int, **fields: object) -> None:
    body = {"type": "observation", "content": f"The rook nests in elm {number}.", **fields}
    response = client.post("/v1/brain/remember", json=body)
    assert response.status_code in {200, 201}, response.text


def _recall(client: httpx2.Client) -> list[tuple[str, float, str]]:
    # By meaning: the scores of hybrid recall depend on the words of all memories, of which the busy clients stored more after the backup.
    body = {"query": "which bird nests where?", "top_k": 10, "mode": "semantic", "org": "nest"}
    response = client.post("/v1/brain/recall", json=body)
    assert response.status_code == 200, response.text
    return [(memory["id"], round(memory["score"], 4), memory["content"]) for memory in response.json()["memories"]]


def _back_up_under_load(server: Server, archive: Path) -> None:
    """Create a backup while two clients write."""
    is_over = threading.Event()

    def write(writer_number: int) -> int:
        number = 0
        while not is_over.wait(0.005) and number < 1_000:
            _remember(server.client, 10_000 * writer_number + number, org="busy")
            number += 1
        return number

    with ThreadPoolExecutor(2) as writers:
        results = [writers.submit(write, writer_number) for writer_number in range(2)]
        try:
            assert _start_script(_CREATE, server.folder, archive).wait(HANG_S) == 0
        finally:
            is_over.set()
        assert sum(result.result() for result in results) > 0


def test_a_backup_beside_a_busy_server_recalls_the_same_after_its_restore(tmp_path: Path, model_folder: Path) -> None:
    """A backup under writes is consistent; restored, it passes `doctor` and recalls the same."""
    old, new, archive = tmp_path / "old", tmp_path / "new", tmp_path / "saved.tar.zst"
    lend_model(model_folder, old)
    with run_server(old) as server:
        for number in range(8):
            _remember(server.client, number, org="nest", wait_ms=5000)
        _back_up_under_load(server, archive)
        before = _recall(server.client)
        keys = (old / "first-run.json").read_bytes()
        reasons = list_content(old).excluded
    settings = Settings(data_dir=new, bcrypt_cost=4, min_free_disk_mb=0)
    restored = run_command(settings, "restore", str(archive), "--json")
    assert restored[0] == 0, restored
    lend_model(model_folder, new)

    findings = asyncio.run(_examine(settings))
    (new / "first-run.json").write_bytes(keys)
    with run_server(new) as server:
        after = _recall(server.client)

    assert {finding.grade for finding in findings} <= {"ok", "warning"}
    assert (len(after), after) == (8, before)
    # Each file of the folder is saved, or excluded for a known reason.
    assert [name for name, reason in reasons.items() if reason.startswith("unknown")] == []


async def _examine(settings: Settings) -> Sequence[DoctorFinding]:
    async with build_platform(settings).open_for_command() as platform:
        return await examine(platform)


def test_a_backup_excludes_keys(data_dir: Path, tmp_path: Path) -> None:
    """The secret key needs an option, and the first keys are always excluded; only the owner may read the file."""
    (data_dir / "secret.key").write_text("0123456789" * 4 + "\n", encoding="utf-8")
    (data_dir / "first-run.json").write_text("{}", encoding="utf-8")
    (data_dir / "servers.json").write_text("{}", encoding="utf-8")
    (data_dir / "what.else").write_text("{}", encoding="utf-8")
    with closing(sqlite3.connect(data_dir / "records.db")) as connection:
        connection.execute("INSERT INTO sealing (name, key_id, since) VALUES ('records', '0123456789abcdef', 0)")
        connection.commit()
    settings, archive = Settings(data_dir=data_dir), tmp_path / "x.tar"

    code, output = run_command(settings, "backup", str(archive))
    manifest = json.loads(run_command(settings, "backup", str(tmp_path / "y.tar"), "--with-secret-key", "--json")[1].splitlines()[0])
    restored = run_command(settings, "restore", str(archive), "--data-dir", str(tmp_path / "new"), "--json")

    assert (code, "0123456789abcdef" in output, archive.stat().st_mode & 0o777) == (0, True, 0o600)
    assert [file["name"] for file in manifest["files"]] == ["records.db", "servers.json", "secret.key"]
    assert set(manifest["left_out"]) == {"first-run.json", "what.else"}
    assert json.loads(restored[1].splitlines()[0])["needs_secret_key"] == "0123456789abcdef"
    assert {entry.name for entry in (tmp_path / "new").iterdir()} == {"records.db", "servers.json"}


def test_a_backup_of_two_stores_keeps_the_order_of_writes(tmp_path: Path) -> None:
    """A writer of two files may be caught between the two writes, as by a kill, but never in reverse order."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("vectors.db", "records.db"):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.executescript(
                "PRAGMA journal_mode=WAL; CREATE TABLE alembic_version (version_num TEXT); CREATE TABLE n (n INTEGER);"
            )
            connection.executescript("INSERT INTO alembic_version VALUES ('0001'); INSERT INTO n VALUES (0)")
            connection.execute("CREATE TABLE filler AS " + _ROWS.format(rows=3_000, size=1_000))
            connection.commit()
    is_over = threading.Event()

    def write() -> None:
        with (
            closing(sqlite3.connect(folder / "vectors.db", timeout=HANG_S)) as vectors,
            closing(sqlite3.connect(folder / "records.db", timeout=HANG_S)) as records,
        ):
            while not is_over.is_set():
                for connection in (vectors, records):
                    connection.execute("UPDATE n SET n = n + 1")
                    connection.commit()

    counts = list[tuple[int, int]]()
    with ThreadPoolExecutor(1) as writer:
        result = writer.submit(write)
        try:
            for number in range(4):
                archive, new = tmp_path / f"{number}.tar", tmp_path / f"new{number}"
                create_backup(BackupRequest(folder=folder, out=archive), progress=_quiet)
                subprocess.run(["tar", "-xf", str(archive), f"--one-top-level={new}"], check=True)
                vectors, records = (_read_count(new / name) for name in ("vectors.db", "records.db"))
                counts.append((vectors, records))
        finally:
            is_over.set()
        result.result()

    assert all(vectors - records in {0, 1} for vectors, records in counts), counts
    assert counts[0] < counts[-1]


def _read_count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT n FROM n").fetchone()[0])


@pytest.fixture
def large(data_dir: Path) -> Path:
    """A data folder whose vectors take a moment to copy."""
    with closing(sqlite3.connect(data_dir / "vectors.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE filler AS " + _ROWS.format(rows=96, size=1_000_000))
        connection.commit()
    return data_dir


async def test_a_killed_backup_leaves_no_file_and_the_next_one_cleans_up(large: Path, tmp_path: Path) -> None:
    """After a kill -9 there is no file by that name; the next backup deletes the unfinished one."""
    out = tmp_path / "out"
    out.mkdir()
    process = _start_script(_CREATE, large, out / "saved.tar.gz")
    await eventually(lambda: list(out.glob(".rookery-backup-*/vectors.db")) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    remaining = [entry.name for entry in out.iterdir()]
    assert (process.returncode, "saved.tar.gz" in remaining, len(remaining)) == (-signal.SIGKILL, False, 1)

    (out / ".rookery-backup-notes").write_text("another file", encoding="utf-8")

    create_backup(BackupRequest(folder=large, out=out / "saved.tar.zst"), progress=_quiet)

    assert sorted(entry.name for entry in out.iterdir()) == [".rookery-backup-notes", "saved.tar.zst"]


async def test_a_killed_restore_leaves_a_folder_that_cannot_be_used(large: Path, tmp_path: Path) -> None:
    """After a kill -9 every use of the folder fails with the reason; a second restore starts again and succeeds."""
    archive, new = tmp_path / "saved.tar", tmp_path / "new"
    create_backup(BackupRequest(folder=large, out=archive), progress=_quiet)
    process = _start_script(_RESTORE, archive, new)
    await eventually(lambda: (new / ".restoring" / "vectors.db").exists() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert process.returncode == -signal.SIGKILL
    (new / ".restoring" / "records.db").rename(new / "records.db")  # as if it had been killed a little later

    with pytest.raises(WrongSettings, match="is incomplete"):
        build_prepared(Settings(data_dir=new))
    assert run_command(Settings(data_dir=new), "backup", str(tmp_path))[0] == 1
    second = await asyncio.to_thread(run_command, Settings(data_dir=new), "restore", str(archive))

    assert second[0] == 0, second
    assert {entry.name for entry in new.iterdir()} == {"records.db", "vectors.db"}
    assert (new / "vectors.db").stat().st_size == (large / "vectors.db").stat().st_size
    build_prepared(Settings(data_dir=new))


def test_only_the_newest_backups_of_a_folder_are_kept(data_dir: Path, tmp_path: Path) -> None:
    """--keep deletes the oldest files with the name of a backup, and nothing else."""
    out = tmp_path / "out"
    out.mkdir()
    for name in ("rookery-20250101T000000Z.tar.zst", "rookery-20260101T000000Z.tar", "rookery-notes.tar", "other.tar"):
        (out / name).write_bytes(b"")

    code, output = run_command(Settings(data_dir=data_dir), "backup", str(out), "--keep", "2", "--json")

    report = json.loads(output.splitlines()[0])
    assert (code, [Path(path).name for path in report["dropped"]]) == (0, ["rookery-20250101T000000Z.tar.zst"])
    assert {entry.name for entry in out.iterdir()} == {
        "rookery-20260101T000000Z.tar",
        "rookery-notes.tar",
        "other.tar",
        Path(report["file"]).name,
    }


def test_a_failed_backup_is_reported_in_one_line(data_dir: Path, tmp_path: Path) -> None:
    """Wrong usage exits with 2, a failure with 1; no file is overwritten, and no partial file remains."""
    settings, existing = Settings(data_dir=data_dir), tmp_path / "there.tar"
    existing.write_bytes(b"mine")

    assert run_command(settings, "backup", str(existing)) == (1, f"{existing} exists already. A backup never overwrites a file.")
    assert existing.read_bytes() == b"mine"
    assert run_command(settings, "backup", str(tmp_path / "no" / "x.tar"))[0] == 2
    assert run_command(settings, "backup", str(tmp_path / "x.tar"), "--keep", "3")[0] == 2
    assert run_command(settings, "backup", str(tmp_path / "x.tar"), "--without-records")[0] == 2
    assert run_command(settings, "restore", str(existing), "--sha256", "7")[0] == 2
    assert run_command(Settings(data_dir=tmp_path / "nowhere"), "backup", str(tmp_path / "x.tar"))[0] == 1
    with closing(sqlite3.connect(data_dir / "texts.db")) as connection:
        connection.execute("CREATE TABLE n (n)")
    with (data_dir / "texts.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\x00\x01" * 1024)
    code, output = run_command(settings, "backup", str(tmp_path / "x.tar"))
    assert (code, "texts.db" in output) == (1, True)
    assert {entry.name for entry in tmp_path.iterdir()} == {"data", "there.tar"}


def test_a_backup_without_its_database_is_an_error_or_saves_the_rest(data_dir: Path, tmp_path: Path) -> None:
    """An unreachable PostgreSQL is an error; with --without-records the rest is saved, and the restore prints the next step."""
    settings = Settings(
        data_dir=data_dir, database_url=Secret("postgresql://somebody:hush@127.0.0.1:1/there"), secret_key=Secret("0123456789" * 4)
    )
    archive, new = tmp_path / "x.tar", tmp_path / "new"
    with closing(sqlite3.connect(data_dir / "texts.db")) as connection:
        connection.execute("CREATE TABLE n (n)")

    rejected = run_command(settings, "backup", str(archive))
    saved = run_command(settings, "backup", str(archive), "--without-records", "--json")
    restored = run_command(settings, "restore", str(archive), "--data-dir", str(new))

    assert (rejected[0], "database engine is unavailable" in rejected[1], "hush" in rejected[1]) == (1, True, False)
    assert [file["name"] for file in json.loads(saved[1].splitlines()[0])["files"]] == ["texts.db"]
    assert (restored[0], "brain:reindex" in restored[1]) == (0, True)


def test_a_full_disk_is_an_error_and_leaves_no_file(large: Path, tmp_path: Path) -> None:
    """Without room a backup or a restore fails, and nothing of it remains."""
    archive, out, new = tmp_path / "saved.tar", tmp_path / "out", tmp_path / "new"
    out.mkdir()
    create_backup(BackupRequest(folder=large, out=archive), progress=_quiet)
    # A limit of 8 MB per file stands in for a full disk.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000)); "

    processes = [_start_script(limit + _CREATE, large, out / "x.tar"), _start_script(limit + _RESTORE, archive, new)]

    assert [process.wait(HANG_S) for process in processes] == [1, 1]
    assert (list(out.iterdir()), list(new.iterdir())) == ([], [])


def test_the_name_of_a_backup_has_its_time(data_dir: Path, tmp_path: Path) -> None:
    """Into a folder, the file is named after the time in UTC; each ending has its compression."""
    connection = create_backup(
        BackupRequest(folder=data_dir, out=tmp_path), progress=_quiet, clock=lambda: utc_now().replace(2027, 1, 31, 4, 5, 6)
    )
    first_bytes = [
        create_backup(BackupRequest(folder=data_dir, out=tmp_path / f"x{ending}"), progress=_quiet).path.read_bytes()[:2]
        for ending in (".tar.zst", ".tar.gz", ".tar")
    ]

    assert connection.path.name == "rookery-20270131T040506Z.tar.zst"
    assert first_bytes == [b"\x28\xb5", b"\x1f\x8b", b"re"]
