"""Migrations of the record store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from rookery import migrations
from rookery.kernel.db import metadata
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.postgres_address import parse_postgres_address
from rookery.migrations import FIRST_COMMIT, FIRST_REVISION, HEAD_REVISION, migrate
from rookery.migrations.upgrade import ENGINE_URL
from rookery.wiring import build_platform
from tests.conftest import SECRET_KEY
from tests.deadlines import HANG_S
from tests.processes import get_environment, run_rookery


def test_head_is_the_newest_revision() -> None:
    """The constant that is compared without loading alembic equals alembic's newest revision."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD_REVISION]


def test_migrations_create_the_tables_of_the_code(database_url: str, data_dir: Path) -> None:
    """Code and migrations have the same schema on both dialects."""
    assert build_platform  # imports every store, so that the metadata is complete
    engine = _open_engine(database_url, data_dir)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_no_two_indexes_cover_the_same_columns_of_the_same_rows(database_url: str, data_dir: Path) -> None:
    """A second index with the same columns and the same condition costs every write and serves no read."""
    engine = _open_engine(database_url, data_dir)
    catalogue = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    }
    names: dict[str, list[str]] = {}
    with engine.connect() as connection:
        for name, definition in connection.execute(text(catalogue[engine.dialect.name])):
            names.setdefault(definition.partition(" ON ")[2], []).append(name)
    engine.dispose()

    assert len(names) > 50
    assert [sorted(duplicates) for duplicates in names.values() if len(duplicates) > 1] == []


def test_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    """Any number of processes may start on an empty folder."""
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(migrate, "embedded:", data_dir=tmp_path) for _ in range(4)]

    assert sorted(future.result() for future in futures) == [False, False, False, True]


@pytest.mark.external_service
def test_an_empty_postgresql_is_migrated_once(postgres_empty: str, tmp_path: Path) -> None:
    """Several processes start on an empty PostgreSQL database."""
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(migrate, postgres_empty, data_dir=tmp_path) for _ in range(3)]

    assert sorted(future.result() for future in futures) == [False, False, True]


@pytest.fixture
def store_address(request: pytest.FixtureRequest, database_url: str) -> str:
    """The address of a record store without any table, of each dialect in turn. An embedded one is in `tmp_path`."""
    return database_url if database_url == "embedded:" else str(request.getfixturevalue("postgres_empty"))


def _open_engine(address: str, folder: Path) -> Engine:
    if address == "embedded:":
        return create_engine(f"sqlite:///{folder}/records.db", poolclass=NullPool)
    parameters = parse_postgres_address(address, setting="ROOKERY_DATABASE_URL")
    return create_engine(ENGINE_URL, poolclass=NullPool, connect_args=parameters)


def migrate_to(engine: Engine, revision: str) -> None:
    """Migrate a store as an older version did."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@pytest.mark.parametrize("old_revision", [None, FIRST_REVISION])
def test_four_processes_migrate_once(store_address: str, tmp_path: Path, old_revision: str | None) -> None:
    """One process migrates an empty or an older store, and the others wait and go on."""
    if old_revision is not None:
        migrate_to(_open_engine(store_address, tmp_path), old_revision)
    environment = get_environment() | {"ROOKERY_DATABASE_URL": store_address, "ROOKERY_SECRET_KEY": SECRET_KEY}
    command_line = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "migrate"]

    processes = [subprocess.Popen(command_line, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=HANG_S)[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(outputs) == ["migrated\n", *["up to date\n"] * 3]


def test_a_failed_migration_leaves_the_old_schema_and_reports_it(store_address: str, tmp_path: Path) -> None:
    """DDL is transactional in both dialects. Here the second revision fails: somebody has created its table."""
    engine = _open_engine(store_address, tmp_path)
    migrate_to(engine, FIRST_REVISION)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE tool_negotiated_protocols (id TEXT)"))
    environment = get_environment() | {"ROOKERY_DATABASE_URL": store_address, "ROOKERY_SECRET_KEY": SECRET_KEY}

    failed = run_rookery("migrate", data_dir=tmp_path, environment=environment)

    [line] = failed.stderr.splitlines()
    assert failed.returncode == 1
    assert "already exists" in line
    assert f"the schema is still of revision {FIRST_REVISION}" in line
    tables = set(inspect(engine).get_table_names())
    assert "tool_negotiated_protocols" in tables
    assert "tool_ended_client_sessions" not in tables, "a table of the revision before the one that failed"
    with engine.begin() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == FIRST_REVISION
        connection.execute(text("DROP TABLE tool_negotiated_protocols"))
    assert migrate(store_address, data_dir=tmp_path)
    assert not migrate(store_address, data_dir=tmp_path)


@pytest.mark.external_service
def test_the_wait_for_another_migration_is_bounded(postgres_empty: str, postgres_database: str, tmp_path: Path) -> None:
    """A process that hangs while it migrates does not keep the others for ever, and not at all if there is nothing to migrate."""
    for address in (postgres_empty, postgres_database):
        with psycopg.connect(address) as other:
            other.execute("SELECT pg_advisory_xact_lock(84000001)")
            if address == postgres_database:
                assert not migrate(address, data_dir=tmp_path)
                continue
            with pytest.raises(EngineUnavailable, match=r"longer than 0\.2 s"):
                migrate(address, data_dir=tmp_path, lock_timeout_s=0.2)
        assert migrate(address, data_dir=tmp_path)


@pytest.mark.parametrize(
    ("revision", "advice"), [("9999", "Use a newer version"), ("0032", f"Run `rookery migrate` of commit {FIRST_COMMIT}")]
)
def test_a_store_of_an_unsupported_revision_is_rejected_with_advice(database_url: str, data_dir: Path, revision: str, advice: str) -> None:
    """Migrations go forward only, and begin at the first revision. The store stays as it is."""
    if database_url == "embedded:":
        with closing(sqlite3.connect(data_dir / "records.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    else:
        engine = _open_engine(database_url, data_dir)
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    with pytest.raises(WrongSettings, match=f"revision {revision}.*{advice}"):
        migrate(database_url, data_dir=data_dir)


def test_the_error_for_an_invalid_database_names_the_file(tmp_path: Path) -> None:
    """A message has the problem and the value."""
    (tmp_path / "records.db").write_bytes(b"not a database, " * 100)

    with pytest.raises(EngineUnavailable, match=r"records\.db"):
        migrate("embedded:", data_dir=tmp_path)


def test_an_unreachable_database_is_an_error_without_the_password(tmp_path: Path) -> None:
    """Neither exceptions of engines nor passwords leak."""
    with pytest.raises(EngineUnavailable) as raised:
        migrate("postgresql://user:hunter2@127.0.0.1:1/none", data_dir=tmp_path)

    assert "hunter2" not in raised.value.message


_OLD_ROWS = """
INSERT INTO content_usage VALUES (1, '2026-11-20', 'key', 'small', 3, 2, 1, 0, 10, 20, 500);
INSERT INTO content_usage VALUES (1, '2026-11-20', 'key', 'unpriced', 4, 4, 0, 0, 10, 20, 0);
INSERT INTO content_budgets VALUES (1, '', 700, 1);
INSERT INTO content_spending VALUES (1, '', '2026-11-19', 0, 5), (1, '', '2026-11-20', 2, 6);
INSERT INTO tool_calls
    (id, workspace_id, server_id, tool, key_id, key_kind, success, code, duration_ms, arguments_bytes, result_bytes, request_id, called_at)
VALUES
    ('1', 1, 'git', 'log', 'key', 'api', 1, NULL, 1.5, 0, 0, '', 1795132800000000),
    ('2', 1, 'git', 'log', 'key', 'api', 0, 'input_required', 1.5, 0, 0, '', 1795132800000000),
    ('3', 1, 'git', 'log', 'key', 'api', 0, 'tool_timeout', 1.5, 0, 0, '', 1795132800000000);
INSERT INTO agent_sessions
    (id, workspace_id, agent_id, agent_type, key_id, status, context, started_at, last_activity_at, last_seq, size, tokens_in, tokens_out,
     version)
VALUES ('s', 1, 'rook', 'coder', 'key', 'active', '{}', 1, 1, 2, 1, 8, 2, 1);
INSERT INTO agent_session_events (session_id, seq, workspace_id, type, message, data, tokens_in, tokens_out, created_at)
VALUES ('s', 1, 1, 'note', '', '{}', 8, 2, 1795132800000000), ('s', 2, 1, 'note', '', '{}', 0, 0, 1795132800000000)
"""
_SELECT_LEDGER = """
SELECT
    day, kind, key_id, agent_id, model, tool, calls, failed, input_tokens, output_tokens, unpriced_calls, cost_nanos, duration_us
FROM usage_days ORDER BY kind, model
"""


def test_the_ledger_takes_over_the_usage_so_far(store_address: str, tmp_path: Path) -> None:
    """Old sums of content, stored tool calls, reported tokens, budgets and spending are there after the upgrade."""
    engine = _open_engine(store_address, tmp_path)
    migrate_to(engine, "0040")
    with engine.begin() as connection:
        for statement in _OLD_ROWS.split(";"):
            connection.exec_driver_sql(statement)
    migrate_to(engine, "0042")

    with engine.begin() as connection:
        ledger = [tuple(row) for row in connection.exec_driver_sql(_SELECT_LEDGER)]
        limits = [tuple(row) for row in connection.exec_driver_sql("SELECT holder, period, limit_nanos FROM budget_limits")]
        spending = [
            tuple(row) for row in connection.exec_driver_sql("SELECT span, reserved_nanos, spent_nanos FROM budget_spending ORDER BY span")
        ]
    assert ledger == [
        ("2026-11-20", "generation", "key", "", "small", "", 3, 1, 10, 20, 0, 500, 0),
        ("2026-11-20", "generation", "key", "", "unpriced", "", 4, 0, 10, 20, 4, 0, 0),
        ("2026-11-20", "session", "key", "rook", "", "", 1, 0, 8, 2, 1, 0, 0),
        ("2026-11-20", "tool_call", "key", "", "", "git/log", 3, 1, 0, 0, 0, 0, 4500),
    ]
    assert limits == [("", "day", 700)]
    assert spending == [("2026-11", 2, 11), ("2026-11-19", 0, 5), ("2026-11-20", 2, 6)]
