"""`rookery backup` and `rookery restore`, as operators use them: beside a server at work, and where things go wrong (D-04)."""

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
from tests.processes import Server, run_server

_LIFE_S = 60
_ROWS = "WITH RECURSIVE f(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM f WHERE x < {rows}) SELECT randomblob({size}) FROM f"

# What the command does, without the rest of the platform, which would take seconds to load.
_BOTH = (
    "import sys; from pathlib import Path; "
    "from rookery.backup.creation import BackupRequest, create_backup; from rookery.backup.restoration import restore_backup; "
    "first, then = map(Path, sys.argv[1:]); "
)
_MAKE = _BOTH + "create_backup(BackupRequest(folder=first, out=then, with_secret_key=True), progress=id)"
_RESTORE = _BOTH + "restore_backup(first, then, progress=id)"


def _quiet(_: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Context:
    """The platform object that commands receive."""

    settings: Settings


def rookery(settings: Settings, *arguments: str) -> tuple[int, str]:
    """Type a command, off a terminal; return its exit code, and what it printed or why it failed."""
    app = typer.Typer()
    add_commands(app, "backup", "restore")
    done = CliRunner().invoke(app, arguments, obj=Context(settings))
    if isinstance(done.exception, RookeryError):
        return 1, done.exception.message
    return done.exit_code, done.stdout + done.stderr


def test_a_backup_is_named_as_an_argument(data_dir: Path, tmp_path: Path) -> None:
    """Issue 14: `backup FILE`; D-04: a name without a known ending gets .tar.zst; --out stays, but names the file once."""
    settings = Settings(data_dir=data_dir)
    build_prepared(settings)
    bare, other = tmp_path / "saved", tmp_path / "other.tar"

    assert rookery(settings, "backup", str(bare))[0] == 0
    assert rookery(settings, "backup", "--out", str(other))[0] == 0
    assert {each.name for each in tmp_path.iterdir() if each.is_file()} == {"saved.tar.zst", "other.tar"}
    assert rookery(settings, "backup", str(bare), "--out", str(other))[0] == 2
    assert rookery(settings, "restore", str(tmp_path / "nope.tar"))[0] == 2
    assert "The file" in rookery(settings, "restore", str(tmp_path / "nope.tar"))[1]


def _started(script: str, *paths: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, paths)])


def _remember(client: httpx2.Client, number: int, **fields: object) -> None:
    body = {"type": "observation", "content": f"The rook nests in elm {number}.", **fields}
    answer = client.post("/v1/brain/remember", json=body)
    assert answer.status_code in {200, 201}, answer.text


def _recalled(client: httpx2.Client) -> list[tuple[str, float, str]]:
    body = {"query": "which bird nests where?", "top_k": 10, "mode": "hybrid", "org": "nest"}
    answer = client.post("/v1/brain/recall", json=body)
    assert answer.status_code == 200, answer.text
    return [(each["id"], round(each["score"], 4), each["content"]) for each in answer.json()["memories"]]


def _save_busy(server: Server, archive: Path) -> None:
    """Back up while two clients write."""
    over = threading.Event()

    def write(who: int) -> int:
        number = 0
        while not over.wait(0.005) and number < 1_000:
            _remember(server.client, 10_000 * who + number, org="busy")
            number += 1
        return number

    with ThreadPoolExecutor(2) as writers:
        busy = [writers.submit(write, who) for who in range(2)]
        try:
            assert _started(_MAKE, server.folder, archive).wait(_LIFE_S) == 0
        finally:
            over.set()
        assert sum(each.result() for each in busy) > 0


def test_a_backup_beside_a_busy_server_is_restored_to_what_recalls_the_same(tmp_path: Path, model_folder: Path) -> None:
    """D-04: a backup of a server that is written meanwhile shows one moment; restored, it passes `doctor` and recalls the same."""
    old, new, archive = tmp_path / "old", tmp_path / "new", tmp_path / "saved.tar.zst"
    lend_model(model_folder, old)
    with run_server(old) as server:
        for number in range(8):
            _remember(server.client, number, org="nest", wait_ms=5000)
        _save_busy(server, archive)
        before = _recalled(server.client)
        keys = (old / "first-run.json").read_bytes()
        reasons = list_content(old).excluded
    settings = Settings(data_dir=new, bcrypt_cost=4, min_free_disk_mb=0)
    restored = rookery(settings, "restore", str(archive), "--json")
    assert restored[0] == 0, restored
    lend_model(model_folder, new)

    well = asyncio.run(_examined(settings))
    (new / "first-run.json").write_bytes(keys)
    with run_server(new) as server:
        after = _recalled(server.client)

    assert {each.grade for each in well} <= {"ok", "warning"}
    assert (len(after), after) == (8, before)
    # Of a folder in use each file is saved, or left out for a reason that is known.
    assert [name for name, why in reasons.items() if why.startswith("unknown")] == []


async def _examined(settings: Settings) -> Sequence[DoctorFinding]:
    async with build_platform(settings).open_for_command() as opened:
        return await examine(opened)


def test_a_backup_leaves_out_what_opens_things(data_dir: Path, tmp_path: Path) -> None:
    """D-07: the secret key, unless it is asked for, and the first keys; the file is for its owner alone."""
    (data_dir / "secret.key").write_text("0123456789" * 4 + "\n", encoding="utf-8")
    (data_dir / "first-run.json").write_text("{}", encoding="utf-8")
    (data_dir / "servers.json").write_text("{}", encoding="utf-8")
    (data_dir / "what.else").write_text("{}", encoding="utf-8")
    with closing(sqlite3.connect(data_dir / "records.db")) as made:
        made.execute("INSERT INTO sealing (name, key_id, since) VALUES ('records', '0123456789abcdef', 0)")
        made.commit()
    settings, archive = Settings(data_dir=data_dir), tmp_path / "x.tar"

    code, says = rookery(settings, "backup", "--out", str(archive))
    more = json.loads(rookery(settings, "backup", "--out", str(tmp_path / "y.tar"), "--with-secret-key", "--json")[1].splitlines()[0])
    restored = rookery(settings, "restore", str(archive), "--data-dir", str(tmp_path / "new"), "--json")

    assert (code, "0123456789abcdef" in says, archive.stat().st_mode & 0o777) == (0, True, 0o600)
    assert [each["name"] for each in more["files"]] == ["records.db", "servers.json", "secret.key"]
    assert set(more["left_out"]) == {"first-run.json", "what.else"}
    assert json.loads(restored[1].splitlines()[0])["needs_secret_key"] == "0123456789abcdef"
    assert {entry.name for entry in (tmp_path / "new").iterdir()} == {"records.db", "servers.json"}


def test_what_two_stores_say_of_each_other_is_true_in_a_backup(tmp_path: Path) -> None:
    """D-04: who writes the one file and then the other is caught between the two at most, as by a kill; never the other way round."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("vectors.db", "records.db"):
        with closing(sqlite3.connect(folder / name)) as made:
            made.executescript("PRAGMA journal_mode=WAL; CREATE TABLE alembic_version (version_num TEXT); CREATE TABLE n (n INTEGER);")
            made.executescript("INSERT INTO alembic_version VALUES ('0001'); INSERT INTO n VALUES (0)")
            made.execute("CREATE TABLE filler AS " + _ROWS.format(rows=3_000, size=1_000))
            made.commit()
    over = threading.Event()

    def write() -> None:
        with (
            closing(sqlite3.connect(folder / "vectors.db", timeout=30)) as first,
            closing(sqlite3.connect(folder / "records.db", timeout=30)) as then,
        ):
            while not over.is_set():
                for connection in (first, then):
                    connection.execute("UPDATE n SET n = n + 1")
                    connection.commit()

    found = list[tuple[int, int]]()
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(write)
        try:
            for number in range(4):
                archive, new = tmp_path / f"{number}.tar", tmp_path / f"new{number}"
                create_backup(BackupRequest(folder=folder, out=archive), progress=_quiet)
                subprocess.run(["tar", "-xf", str(archive), f"--one-top-level={new}"], check=True)
                vectors, records = (_counted(new / name) for name in ("vectors.db", "records.db"))
                found.append((vectors, records))
        finally:
            over.set()
        writing.result()

    assert all(vectors - records in {0, 1} for vectors, records in found), found
    assert found[0] < found[-1]


def _counted(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT n FROM n").fetchone()[0])


@pytest.fixture
def large(data_dir: Path) -> Path:
    """A data folder whose vectors take a moment to copy."""
    with closing(sqlite3.connect(data_dir / "vectors.db")) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE filler AS " + _ROWS.format(rows=96, size=1_000_000))
        made.commit()
    return data_dir


async def test_a_backup_that_is_killed_leaves_no_file_and_the_next_one_clears_up(large: Path, tmp_path: Path) -> None:
    """D-04: after a kill -9 there is no file by that name; what was begun is gone after the next backup."""
    out = tmp_path / "out"
    out.mkdir()
    process = _started(_MAKE, large, out / "saved.tar.gz")
    await eventually(lambda: list(out.glob(".rookery-backup-*/vectors.db")) or process.poll() is not None, within_s=30)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    left = [entry.name for entry in out.iterdir()]
    assert (process.returncode, "saved.tar.gz" in left, len(left)) == (-signal.SIGKILL, False, 1)

    (out / ".rookery-backup-notes").write_text("of somebody else", encoding="utf-8")

    create_backup(BackupRequest(folder=large, out=out / "saved.tar.zst"), progress=_quiet)

    assert sorted(entry.name for entry in out.iterdir()) == [".rookery-backup-notes", "saved.tar.zst"]


async def test_a_restore_that_is_killed_is_never_taken_for_whole(large: Path, tmp_path: Path) -> None:
    """D-04: after a kill -9 nothing uses the folder, in words; run again, the restore begins from the beginning and ends well."""
    archive, new = tmp_path / "saved.tar", tmp_path / "new"
    create_backup(BackupRequest(folder=large, out=archive), progress=_quiet)
    process = _started(_RESTORE, archive, new)
    await eventually(lambda: (new / ".restoring" / "vectors.db").exists() or process.poll() is not None, within_s=30)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert process.returncode == -signal.SIGKILL
    (new / ".restoring" / "records.db").rename(new / "records.db")  # as if it had been killed a little later

    with pytest.raises(WrongSettings, match="is incomplete"):
        build_prepared(Settings(data_dir=new))
    assert rookery(Settings(data_dir=new), "backup", "--out", str(tmp_path))[0] == 1
    again = rookery(Settings(data_dir=new), "restore", str(archive))

    assert again[0] == 0, again
    assert {entry.name for entry in new.iterdir()} == {"records.db", "vectors.db"}
    assert (new / "vectors.db").stat().st_size == (large / "vectors.db").stat().st_size
    build_prepared(Settings(data_dir=new))


def test_only_the_newest_backups_of_a_folder_are_kept(data_dir: Path, tmp_path: Path) -> None:
    """D-04: --keep deletes the oldest of those that are named as ours, and nothing else."""
    out = tmp_path / "out"
    out.mkdir()
    for name in ("rookery-20250101T000000Z.tar.zst", "rookery-20260101T000000Z.tar", "rookery-notes.tar", "other.tar"):
        (out / name).write_bytes(b"")

    code, says = rookery(Settings(data_dir=data_dir), "backup", "--out", str(out), "--keep", "2", "--json")

    told = json.loads(says.splitlines()[0])
    assert (code, [Path(each).name for each in told["dropped"]]) == (0, ["rookery-20250101T000000Z.tar.zst"])
    assert {entry.name for entry in out.iterdir()} == {
        "rookery-20260101T000000Z.tar",
        "rookery-notes.tar",
        "other.tar",
        Path(told["file"]).name,
    }


def test_what_cannot_be_saved_is_said_in_one_line(data_dir: Path, tmp_path: Path) -> None:
    """D-04: wrong usage ends with 2, what fails with 1; no file is written over, and none is left behind half."""
    here, there = Settings(data_dir=data_dir), tmp_path / "there.tar"
    there.write_bytes(b"mine")

    assert rookery(here, "backup", "--out", str(there)) == (1, f"{there} exists already. A backup never overwrites a file.")
    assert there.read_bytes() == b"mine"
    assert rookery(here, "backup", "--out", str(tmp_path / "no" / "x.tar"))[0] == 2
    assert rookery(here, "backup", "--out", str(tmp_path / "x.tar"), "--keep", "3")[0] == 2
    assert rookery(here, "backup", "--out", str(tmp_path / "x.tar"), "--without-records")[0] == 2
    assert rookery(here, "restore", str(there), "--sha256", "7")[0] == 2
    assert rookery(Settings(data_dir=tmp_path / "nowhere"), "backup", "--out", str(tmp_path / "x.tar"))[0] == 1
    with closing(sqlite3.connect(data_dir / "texts.db")) as made:
        made.execute("CREATE TABLE n (n)")
    with (data_dir / "texts.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\x00\x01" * 1024)
    code, says = rookery(here, "backup", "--out", str(tmp_path / "x.tar"))
    assert (code, "texts.db" in says) == (1, True)
    assert {entry.name for entry in tmp_path.iterdir()} == {"data", "there.tar"}


def test_records_on_a_postgresql_are_saved_by_its_own_means(data_dir: Path, tmp_path: Path) -> None:
    """D-04: the command says how and ends with 2; told that they are, it saves the rest, and the restore says what to do."""
    elsewhere = Settings(
        data_dir=data_dir, database_url=Secret("postgresql://somebody:hush@nowhere/there"), secret_key=Secret("0123456789" * 4)
    )
    archive, new = tmp_path / "x.tar", tmp_path / "new"
    with closing(sqlite3.connect(data_dir / "texts.db")) as made:
        made.execute("CREATE TABLE n (n)")

    refused = rookery(elsewhere, "backup", "--out", str(archive))
    saved = rookery(elsewhere, "backup", "--out", str(archive), "--without-records", "--json")
    restored = rookery(elsewhere, "restore", str(archive), "--data-dir", str(new))

    assert (refused[0], "pg_dump" in refused[1], "hush" in refused[1]) == (2, True, False)
    assert [each["name"] for each in json.loads(saved[1].splitlines()[0])["files"]] == ["texts.db"]
    assert (restored[0], "brain:reindex" in restored[1]) == (0, True)


def test_a_full_disk_is_said_and_leaves_nothing(large: Path, tmp_path: Path) -> None:
    """D-17: no room for a backup, or for what is in it, is our error in words; nothing of it stays."""
    archive, out, new = tmp_path / "saved.tar", tmp_path / "out", tmp_path / "new"
    out.mkdir()
    create_backup(BackupRequest(folder=large, out=archive), progress=_quiet)
    # A file may not grow past 8 MB: the nearest thing to a full disk that a test may make.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000)); "

    ended = [_started(limit + _MAKE, large, out / "x.tar"), _started(limit + _RESTORE, archive, new)]

    assert [process.wait(_LIFE_S) for process in ended] == [1, 1]
    assert (list(out.iterdir()), list(new.iterdir())) == ([], [])


def test_the_name_of_a_backup_tells_its_moment(data_dir: Path, tmp_path: Path) -> None:
    """D-13: into a folder, the file is named after the time in UTC; each ending has its compression."""
    made = create_backup(
        BackupRequest(folder=data_dir, out=tmp_path), progress=_quiet, clock=lambda: utc_now().replace(2027, 1, 31, 4, 5, 6)
    )
    first = [
        create_backup(BackupRequest(folder=data_dir, out=tmp_path / f"x{ending}"), progress=_quiet).path.read_bytes()[:2]
        for ending in (".tar.zst", ".tar.gz", ".tar")
    ]

    assert made.path.name == "rookery-20270131T040506Z.tar.zst"
    assert first == [b"\x28\xb5", b"\x1f\x8b", b"re"]
