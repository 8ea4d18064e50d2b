"""Addresses of PostgreSQL: the same rule for every driver, and no error that has a part of one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import func, select

from rookery.engines import counters, embedders, texts, vectors
from rookery.kernel.db import open_database
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.postgres_address import describe_connection_error, parse_postgres_address
from rookery.kernel.postgresql import PostgresConnection, PostgresPool
from tests.deadlines import HANG_S
from tests.fault_proxy import FaultProxy

_SETTING = "ROOKERY_VECTORS"
_SECRET = "nest%zz"
_CURRENT_SCHEMA = select(func.current_schema().label("schema"))


@pytest.mark.embedded_store
@pytest.mark.parametrize(
    ("address", "parameters"),
    [
        ("postgresql://h", {"host": "h"}),
        ("postgres://u:p%40@h:5433/d", {"host": "h", "port": "5433", "user": "u", "password": "p@", "dbname": "d"}),
        ("postgresql://u:a/b#c?d@[::1]:1/d", {"host": "::1", "port": "1", "user": "u", "password": "a/b#c?d", "dbname": "d"}),
        ("postgresql://u:nest%zz@h/d", {"host": "h", "user": "u", "password": "nest%zz", "dbname": "d"}),
        ("postgresql://u@/d?host=/run/postgresql", {"host": "/run/postgresql", "user": "u", "dbname": "d"}),
        ("postgresql://%2Frun%2Fpostgresql/d", {"host": "/run/postgresql", "dbname": "d"}),
        (
            "postgresql://a:1,b,[::2]:3/d?target_session_attrs=read-write",
            {"host": "a,b,::2", "port": "1,,3", "dbname": "d", "target_session_attrs": "read-write"},
        ),
        ("postgresql://u@/d?host=a:1&host=b:2", {"host": "a,b", "port": "1,2", "user": "u", "dbname": "d"}),
        ("postgresql://h/d?options=-c%20search_path%3Dx+y", {"host": "h", "dbname": "d", "options": "-c search_path=x+y"}),
    ],
)
def test_an_address_becomes_the_parameters_of_libpq(address: str, parameters: dict[str, str]) -> None:
    """Passwords with special characters, sockets, several hosts, and parameters of libpq."""
    assert parse_postgres_address(address, setting=_SETTING) == parameters


@pytest.mark.embedded_store
@pytest.mark.parametrize(
    "address",
    [
        "postgresql:u:secret@h",
        "postgresql://u:se@cret@h:5432/d",
        "postgresql://u:x@h:secret/d",
        "postgresql://u:x@h:99999/d",
        "postgresql://u:x@h:0/d",
        "postgresql://u:secret@[::1/d",
        "postgresql://u:secret@h h/d",
        "postgresql://u:secret@h/d?nosuch=secret",
        "postgresql://u:pass@x?cret@h/d",
        "postgresql://u:pass@x?a=1&cret=2@h/d",
    ],
)
def test_the_error_for_an_invalid_address_has_no_part_of_it(address: str, tmp_path: Path) -> None:
    """A wrong value is one clear line. A part of the address may be a part of the password."""
    openers = {
        "ROOKERY_DATABASE_URL": lambda: open_database(address, data_dir=tmp_path),
        "ROOKERY_DATABASE_REPLICA": lambda: open_database("postgresql://h/d", data_dir=tmp_path, replica_url=address),
        "ROOKERY_VECTORS": lambda: vectors.open(address, data_dir=tmp_path, model="m", dimension=4),
        "ROOKERY_TEXTS": lambda: texts.open(address, data_dir=tmp_path),
    }
    for setting, open_engine in openers.items():
        with pytest.raises(WrongSettings) as error:
            open_engine()
        message = str(error.value)
        assert message.startswith(f"{setting}")
        assert "cret" not in message
        assert "\n" not in message


@pytest.mark.embedded_store
@pytest.mark.parametrize("address", ["nest-key-0123", "nest:key-0123", "NEST-KEY"])
def test_an_address_that_is_only_a_secret_is_not_shown(address: str, tmp_path: Path) -> None:
    """A key instead of an address, such as by the wrong file, is not printed."""
    openers = [
        lambda: open_database(address, data_dir=tmp_path),
        lambda: vectors.open(address, data_dir=tmp_path, model="m", dimension=4),
        lambda: texts.open(address, data_dir=tmp_path),
        lambda: counters.open(address, data_dir=tmp_path),
        lambda: embedders.open(address, data_dir=tmp_path),
    ]
    for open_engine in openers:
        with pytest.raises(WrongSettings, match="unknown") as error:
            open_engine()
        assert "nest" not in str(error.value).lower()


@pytest.mark.external_service
async def test_the_log_has_no_password_that_libpq_rejects(
    postgres_empty: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Libpq quotes a password with a bad percent sign in its error, which the pool logs. Rookery decodes the address itself."""
    parts = urlsplit(postgres_empty)
    address = parts._replace(netloc=f"nobody-here:{_SECRET}@{parts.hostname}:{parts.port}").geturl()
    error = await _fail_to_connect(address)

    assert str(error).endswith("no connection to PostgreSQL: it refused the login")
    assert _SECRET not in caplog.text
    assert _SECRET not in "".join(capfd.readouterr())


@pytest.mark.external_service
async def test_the_reason_for_no_connection_has_no_names(postgres_empty: str) -> None:
    """An operator reads in `/readyz` and `rookery doctor` why, and a caller reads no host, user or database."""
    port = urlsplit(postgres_empty).port or 5432
    with FaultProxy(port) as proxy:
        proxy.refuse()
        addresses = {
            f"postgresql://postgres@127.0.0.1:{proxy.port}/d": "it refuses connections",
            f"postgresql://postgres@127.0.0.1:{port}/nothing": "it has no such database",
            f"postgresql://somebody@127.0.0.1:{port}/postgres": "it refused the login",
            "postgresql://postgres@nowhere.invalid/d": "the name of its host is unknown",
            f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=require": "the connection by TLS failed",
        }
        for address, reason in addresses.items():
            error = await _fail_to_connect(address)
            assert str(error) == f"The texts engine is unavailable: no connection to PostgreSQL: {reason}"
            with pytest.raises(psycopg.OperationalError) as direct:
                await psycopg.AsyncConnection.connect(address)
            assert describe_connection_error(direct.value) == reason


@pytest.mark.external_service
async def test_a_record_store_takes_options_and_several_hosts_of_its_address(postgres_database: str, tmp_path: Path) -> None:
    """After a failover, the next connection goes to the host that accepts writes. Options are added to Rookery's own."""
    parts = urlsplit(postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA nests"))
    with FaultProxy(parts.port or 5432) as proxy:
        hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{parts.port}"
        address = f"postgresql://postgres@{hosts}{parts.path}?target_session_attrs=read-write&options=-csearch_path%3Dnests"
        store = open_database(address, data_dir=tmp_path)

        async def read_schema() -> str:
            row = await store.lookup(lambda tx: tx.fetch_one(_CURRENT_SCHEMA))
            assert row is not None
            return row.text("schema")

        before = await read_schema()
        proxy.refuse()
        proxy.reset()
        after = await read_schema()
        await store.close()

    assert (before, after) == ("nests", "nests")


async def _fail_to_connect(address: str, *, timeout_s: float = 1.0) -> EngineUnavailable:
    """Return the error for *address*. The pool tries again until its time is over, which on a slow machine must be longer."""
    pool = PostgresPool(address, engine="texts", options={}, on_missing_table=lambda: None, timeout_s=timeout_s)
    with pytest.raises(EngineUnavailable) as error:
        await pool.run(_ask)
    await pool.close()
    if "no connection became free" in str(error.value) and timeout_s < HANG_S / 10:
        return await _fail_to_connect(address, timeout_s=5 * timeout_s)
    return error.value


async def _ask(connection: PostgresConnection) -> None:
    await connection.execute("SELECT 1")
