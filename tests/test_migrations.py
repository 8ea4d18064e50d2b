"""Migrations of the record store."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from rookery import migrations
from rookery.kernel.db import metadata
from rookery.kernel.db.postgresql import sqlalchemy_url
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.migrations import HEAD_REVISION, migrate
from rookery.wiring import build_platform


def test_head_is_the_newest_revision() -> None:
    """Issue, second start: the constant that is compared without loading alembic equals alembic's newest revision."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD_REVISION]


def test_migrations_create_the_tables_of_the_code(database_url: str, data_dir: Path) -> None:
    """House 5.2: code and migrations have the same schema on both dialects."""
    assert build_platform  # imports every store, so that the metadata is complete
    url = f"sqlite:///{data_dir}/records.db" if database_url == "embedded:" else sqlalchemy_url(database_url)
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_no_two_indexes_cover_the_same_columns_of_the_same_rows(database_url: str, data_dir: Path) -> None:
    """A second index with the same columns and the same condition costs every write and serves no read."""
    url = f"sqlite:///{data_dir}/records.db" if database_url == "embedded:" else sqlalchemy_url(database_url)
    engine = create_engine(url, poolclass=NullPool)
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
    """D-01, D-03: any number of processes may start on an empty folder."""
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(migrate, "embedded:", data_dir=tmp_path) for _ in range(4)]

    assert sorted(future.result() for future in futures) == [False, False, False, True]


@pytest.mark.external_service
def test_an_empty_postgresql_is_migrated_once(postgres_empty: str, tmp_path: Path) -> None:
    """D-02: several processes start on an empty PostgreSQL database."""
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(migrate, postgres_empty, data_dir=tmp_path) for _ in range(3)]

    assert sorted(future.result() for future in futures) == [False, False, True]


def test_a_store_of_a_newer_version_is_rejected(database_url: str, data_dir: Path) -> None:
    """D-08: migrations go forward only."""
    if database_url == "embedded:":
        with closing(sqlite3.connect(data_dir / "records.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
    else:
        engine = create_engine(sqlalchemy_url(database_url), poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(WrongSettings, match="9999"):
        migrate(database_url, data_dir=data_dir)


def test_the_error_for_an_invalid_database_names_the_file(tmp_path: Path) -> None:
    """D-10: a message has the problem and the value."""
    (tmp_path / "records.db").write_bytes(b"not a database, " * 100)

    with pytest.raises(EngineUnavailable, match=r"records\.db"):
        migrate("embedded:", data_dir=tmp_path)


def test_an_unreachable_database_is_an_error_without_the_password(tmp_path: Path) -> None:
    """D-10: neither exceptions of engines nor passwords leak."""
    with pytest.raises(EngineUnavailable) as raised:
        migrate("postgresql://user:hunter2@127.0.0.1:1/none", data_dir=tmp_path)

    assert "hunter2" not in raised.value.message
