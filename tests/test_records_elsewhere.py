"""Backups and restores with the records in PostgreSQL, and between the two record stores."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import typer
from psycopg import sql
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from typer.testing import CliRunner

from rookery.access.audit_log import PLATFORM_CHAIN
from rookery.backup.postgres_records import fill_postgres, open_record_snapshot
from rookery.cli import add_commands
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.secret import Secret
from rookery.migrations import FIRST_REVISION, migrate
from rookery.wiring import build_platform
from tests.conftest import SECRET_KEY, eventually
from tests.deadlines import HANG_S
from tests.test_migrations import migrate_to

pytestmark = pytest.mark.external_service

_TEXTS = ("heron", "", "Bläßhuhn 🐦", "tab\tline\nback\\slash \\N 'quote' \"double\"", "\u2028", "x" * 10_000)
_NUMBERS = (0, -1, 2**63 - 1, -(2**63), 1_794_000_000_000_000)
_FLOATS = (0.1 + 0.2, 1.0, -0.0, 1e-300, 1.7976931348623157e308)
_BLOBS = (b"", bytes(range(256)), b"\\x00")
_ROWS = 6


@dataclass(frozen=True)
class Context:
    """The platform object that commands receive."""

    settings: Settings


def _run(settings: Settings, *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    add_commands(app, "backup", "restore")
    result = CliRunner().invoke(app, arguments, obj=Context(settings))
    if isinstance(result.exception, RookeryError):
        return 1, result.exception.message
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout + result.stderr


def _settings(folder: Path, database: str = "embedded:") -> Settings:
    return Settings(data_dir=folder, database_url=Secret(database), secret_key=Secret(SECRET_KEY), min_free_disk_mb=0)


def fill(path: Path, *, rows: int = _ROWS) -> None:
    """Write rows with awkward values into every table of the record store."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
            )
            if name != "alembic_version"
        ]
        for table in tables:
            columns = connection.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)).fetchall()
            unique = {
                name
                for (name,) in connection.execute(
                    'SELECT i.name FROM pragma_index_list(?) AS l, pragma_index_info(l.name) AS i WHERE l."unique"', (table,)
                )
            }
            for number in range(rows):
                values = [
                    _make_value(kind, number, is_key=bool(key) or name in unique, may_be_null=not required)
                    for name, kind, required, key in columns
                ]
                marks = ", ".join("?" * len(columns))
                connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', values)  # noqa: S608 - a name of the schema
        connection.execute("UPDATE sqlite_sequence SET seq = 4711 WHERE name = 'workspaces'")
        connection.commit()


def _make_value(kind: str, number: int, *, is_key: bool, may_be_null: bool) -> object:
    if may_be_null and not is_key and number == 1:
        return None
    if kind == "TEXT":
        return f"{number} {_TEXTS[number % len(_TEXTS)]}" if is_key else _TEXTS[number % len(_TEXTS)]
    if kind == "BLOB":
        return _BLOBS[number % len(_BLOBS)]
    if kind in {"BIGINT", "INTEGER"}:
        return number + 1 if is_key else _NUMBERS[number % len(_NUMBERS)]
    assert "DOUBLE" in kind or kind in {"FLOAT", "REAL"}, kind
    return _FLOATS[number % len(_FLOATS)]


AUDIT_TABLES = {"access_audit", "access_audit_ends"}
"""Backups, restores and moves add an entry to the chain of the platform, which no other row of these tests is in."""


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables but the audit entries of commands, with the last numbers of the sequences."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: _read_all(connection, name) for name in names}


def _read_all(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608 - a name of the schema
    return sorted((row for row in rows if table not in AUDIT_TABLES or row[0] != PLATFORM_CHAIN), key=repr)


def count_rows(database: str) -> int:
    """Return the number of rows of all tables but the audit entries of commands."""
    with psycopg.connect(database) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        ).fetchall()
        counts = [
            connection.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE {}").format(
                    sql.Identifier(name),
                    sql.SQL("workspace_id <> {}").format(PLATFORM_CHAIN) if name in AUDIT_TABLES else sql.SQL("true"),
                )
            ).fetchone()
            for (name,) in names
        ]
    return sum(row[0] for row in counts if row)


def ignore_progress(_: int) -> None:
    """Show nothing."""


def test_a_backup_is_restored_into_postgresql_and_back_unchanged(data_dir: Path, tmp_path: Path, postgres_empty: str) -> None:
    """Backup and restore across the sets, in both directions, with rows in every table; nothing differs."""
    assert build_platform
    fill(data_dir / "records.db")
    first, second = tmp_path / "first.tar.zst", tmp_path / "second.tar.zst"
    middle, end = tmp_path / "middle", tmp_path / "end"

    assert _run(_settings(data_dir), "backup", str(first))[0] == 0
    code, output = _run(_settings(middle, postgres_empty), "restore", str(first), "--json")
    report = json.loads(output.splitlines()[0])
    assert (code, report["records_in"], "records.db" in {entry.name for entry in middle.iterdir()}) == (0, "postgresql", False)
    code, output = _run(_settings(middle, postgres_empty), "backup", str(second), "--json")
    assert code == 0, output
    assert [file["name"] for file in json.loads(output.splitlines()[0])["files"]] == ["records.db"]
    code, output = _run(_settings(end), "restore", str(second), "--json")

    assert (code, json.loads(output.splitlines()[0])["records_in"]) == (0, "data_dir")
    before, after = dump(data_dir / "records.db"), dump(end / "records.db")
    assert len(before) > 50
    assert {name for name in before if before[name] != after[name]} == set()
    with psycopg.connect(postgres_empty) as connection:
        row = connection.execute("INSERT INTO workspaces (name, created_at) VALUES ('new', 0) RETURNING id").fetchone()
    assert row is not None
    assert row[0] == 4712  # the number of a deleted workspace is never given again


def test_records_are_restored_into_an_empty_database_only(data_dir: Path, tmp_path: Path, postgres_database: str) -> None:
    """A database with records is refused before anything is written; a migrated one without records is accepted."""
    fill(data_dir / "records.db", rows=2)
    archive = tmp_path / "x.tar"
    assert _run(_settings(data_dir), "backup", str(archive))[0] == 0

    assert _run(_settings(tmp_path / "one", postgres_database), "restore", str(archive))[0] == 0
    code, message = _run(_settings(tmp_path / "two", postgres_database), "restore", str(archive))

    assert (code, "holds records already" in message) == (1, True)
    assert list((tmp_path / "two").iterdir()) == []


def test_a_value_that_postgresql_rejects_is_named_and_nothing_is_kept(data_dir: Path, tmp_path: Path, postgres_empty: str) -> None:
    """PostgreSQL has no texts with NUL. The error names the table, and neither the database nor the folder has anything."""
    with closing(sqlite3.connect(data_dir / "records.db")) as connection:
        connection.execute("INSERT INTO workspaces (name, created_at) VALUES (?, 0)", ("a\0b",))
        connection.commit()
    archive = tmp_path / "x.tar"
    assert _run(_settings(data_dir), "backup", str(archive))[0] == 0

    code, message = _run(_settings(tmp_path / "new", postgres_empty), "restore", str(archive))

    assert (code, "workspaces" in message, "NUL" in message) == (1, True, True)
    assert list((tmp_path / "new").iterdir()) == []
    with psycopg.connect(postgres_empty) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


_RESTORE = (
    "import sys; from pathlib import Path; from rookery.kernel.secret import Secret; "
    "from rookery.backup.restoration import restore_backup; "
    "restore_backup(Path(sys.argv[1]), Path(sys.argv[2]), progress=id, database=Secret(sys.argv[3]))"
)


async def test_a_killed_restore_into_postgresql_leaves_nothing_and_is_repeated(
    data_dir: Path, tmp_path: Path, postgres_database: str
) -> None:
    """Kill -9 in the middle leaves an empty database and a folder that cannot be used; the same command then succeeds."""
    fill(data_dir / "records.db")
    archive, new = tmp_path / "x.tar", tmp_path / "new"
    assert _run(_settings(data_dir), "backup", str(archive))[0] == 0
    with psycopg.connect(postgres_database) as blocker:
        # The restore waits for this lock in the middle of its transaction.
        blocker.execute("LOCK TABLE workspaces IN ACCESS SHARE MODE")
        blocker.execute("LOCK TABLE webhook_events IN ROW EXCLUSIVE MODE")
        process = subprocess.Popen([sys.executable, "-c", _RESTORE, str(archive), str(new), postgres_database])
        await eventually(lambda: is_waiting(postgres_database) or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        process.wait(HANG_S)
        assert process.returncode == -signal.SIGKILL
    assert ((new / ".restoring").exists(), count_rows(postgres_database)) == (True, 0)

    code, output = _run(_settings(new, postgres_database), "restore", str(archive))

    assert (code, list(new.iterdir())) == (0, []), output
    assert count_rows(postgres_database) > 300


def is_waiting(database: str) -> bool:
    """Return whether a session of *database* waits for a lock. Other tests use the same server."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(database) as connection:
        return connection.execute(waiting).fetchone() is not None


async def test_a_restore_killed_after_its_commit_is_completed(data_dir: Path, tmp_path: Path, postgres_empty: str) -> None:
    """If only the files were not yet in place, the second run finds the records of this backup and completes the folder."""
    fill(data_dir / "records.db", rows=2)
    (data_dir / "servers.json").write_text("{}", encoding="utf-8")
    archive, new = tmp_path / "x.tar", tmp_path / "new"
    assert _run(_settings(data_dir), "backup", str(archive))[0] == 0
    assert _run(_settings(new, postgres_empty), "restore", str(archive))[0] == 0
    (new / ".restoring").mkdir()  # as if it had been killed before its last step

    code, output = _run(_settings(new, postgres_empty), "restore", str(archive))

    assert (code, [entry.name for entry in new.iterdir()]) == (0, ["servers.json"]), output


def test_a_backup_of_postgresql_is_of_one_moment(tmp_path: Path, data_dir: Path, postgres_empty: str) -> None:
    """Rows that are committed after the backup began are not in it."""
    fill(data_dir / "records.db", rows=2)
    with closing(sqlite3.connect(data_dir / "records.db", isolation_level=None)) as raw:
        fill_postgres(postgres_empty, raw, progress=ignore_progress)
    target = tmp_path / "copy.db"

    with open_record_snapshot(postgres_empty) as snapshot:
        snapshot.begin()
        with psycopg.connect(postgres_empty) as connection:
            connection.execute("DELETE FROM workspaces")
            connection.execute("DELETE FROM memories")
        snapshot.export(target, progress=ignore_progress)

    copied = dump(target)
    assert (len(copied["workspaces"]), len(copied["memories"])) == (2, 2)


def test_a_database_without_records_is_an_error(tmp_path: Path, postgres_empty: str) -> None:
    """A database of another program is not saved as if it were Rookery's."""
    code, message = _run(_settings(tmp_path, postgres_empty), "backup", str(tmp_path / "x.tar"))

    assert (code, "not a record store of Rookery" in message) == (1, True)
    assert not (tmp_path / "x.tar").exists()


def test_an_old_backup_is_migrated_before_it_is_copied(tmp_path: Path, postgres_empty: str, data_dir: Path) -> None:
    """PostgreSQL gets the newest schema, also from a backup of an older revision."""
    (data_dir / "records.db").unlink()
    migrate_to(create_engine(f"sqlite:///{data_dir}/records.db", poolclass=NullPool), FIRST_REVISION)
    with closing(sqlite3.connect(data_dir / "records.db")) as connection:
        connection.execute("INSERT INTO workspaces (name, created_at) VALUES ('old', 0)")
        connection.commit()
    archive = tmp_path / "x.tar"
    assert _run(_settings(data_dir), "backup", str(archive))[0] == 0

    code, output = _run(_settings(tmp_path / "new", postgres_empty), "restore", str(archive))

    assert code == 0, output
    assert not migrate(postgres_empty, data_dir=tmp_path)
    assert count_rows(postgres_empty) == 1
