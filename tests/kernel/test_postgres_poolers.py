"""PostgreSQL behind a pooler in transaction mode: a real PgBouncer, and the errors that a pooler causes."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import literal, select, text

from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.kernel.db import describe_pooler
from rookery.kernel.db.postgresql import PostgresDatabase
from rookery.kernel.postgresql import PostgresConnection, PostgresPool
from rookery.kernel.secret import Secret
from tests.conftest import Instance, eventually, lend_model, run_instance
from tests.deadlines import HANG_S
from tests.postgres import free_port

pytestmark = pytest.mark.external_service

_LOSSES = (
    "a pooler in transaction mode is in front of PostgreSQL: statements are not prepared, and have no time limit unless the role has one"
)
_SETTINGS = {"database_url": "database", "vectors": "vectors", "texts": "texts"}
_CLIENTS, _ROUNDS = 8, 4
_PREPARED_AFTER = 5
_PREPARE_TEXT = "PREPARE _pg3_0 AS SELECT 1"
"""A statement of another client in the session. The driver gives its own first one the same name."""
_PREPARE_ANOTHER = text(_PREPARE_TEXT)


@pytest.fixture
def settings(data_dir: Path, model_folder: Path) -> Settings:
    """Settings with embedded engines."""
    lend_model(model_folder, data_dir)
    return Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0, secret_key=Secret("hE5Yk1b1m1cX0b9q2nJc8Qw4TzR7uVfA3sLdKpGyMxI="))


@pytest.fixture
def pooled(postgres_database: str) -> Generator[str]:
    """The address of a PgBouncer in transaction mode before a migrated database. Its four sessions serve all connections."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("the Debian package pgbouncer is not installed")
    target, port = urlsplit(postgres_database), free_port()
    name = target.path[1:]
    config = (
        f"[databases]\n{name} = host={target.hostname} port={target.port} dbname={name} user={target.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        "unix_socket_dir =\nignore_startup_parameters = options,extra_float_digits\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # PgBouncer refuses to run as root, and the other user must find it
        Path(folder).chmod(0o755)
        path = Path(folder) / "pgbouncer.ini"
        path.write_text(config)
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        with subprocess.Popen([program, "-q", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user) as process:
            try:
                _wait_for_port(port)
                yield target._replace(netloc=f"{target.username}@127.0.0.1:{port}").geturl()
            finally:
                process.kill()


def _wait_for_port(port: int) -> None:
    deadline_s = time.monotonic() + HANG_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), HANG_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


@pytest.mark.parametrize("setting", sorted(_SETTINGS))
async def test_all_engines_work_behind_a_pooler(setting: str, settings: Settings, pooled: str) -> None:
    """Statements of many connections are mixed in few sessions. No request fails, all is indexed, and the doctor says what is lost."""
    settings = replace(settings, **{setting: Secret(pooled)})
    async with run_instance(settings) as instance:
        await asyncio.gather(*(_work(instance, number) for number in range(_CLIENTS)))

        async def is_all_indexed() -> bool:
            memories = (await instance.admin.get("/v1/brain/memories?per_page=100")).json()["data"]
            return len(memories) == _CLIENTS * _ROUNDS and all(memory["indexed"] for memory in memories)

        assert await eventually(is_all_indexed)
        findings = [finding for finding in await examine(instance.rookery) if finding.about == "pooler"]
        assert [finding.grade for finding in findings] == ["warning"]
        assert findings[0].says.startswith(f"{_SETTINGS[setting]}: {_LOSSES}")


async def _work(instance: Instance, number: int) -> None:
    for turn in range(_ROUNDS):
        stored = await instance.admin.post("/v1/brain/remember", {"content": f"Crane {number}-{turn} lifts {turn} tons."})
        recalled = await instance.admin.post("/v1/brain/recall", {"query": f"What does crane {number}-{turn} lift?"})
        planned = await instance.admin.post("/v1/plans", {"title": f"Plan {number}-{turn}", "phases": [{"name": "A", "tasks": ["x"]}]})
        assert (stored.status_code, recalled.status_code, planned.status_code) == (201, 200, 201)
        assert recalled.json().get("notice") is None


async def test_no_pooler_is_found_before_a_server_that_is_reached_itself(postgres_empty: str) -> None:
    """Each connection has a session of its own."""
    assert await describe_pooler(postgres_empty, setting="ROOKERY_VECTORS") is None


async def test_the_record_store_survives_a_pooler_that_appears_later(postgres_empty: str) -> None:
    """Another client's statement has the name of the driver's next one. The work is repeated without prepared statements."""
    database = PostgresDatabase(postgres_empty)
    statement = select(literal(1).label("one"))
    try:
        await database.write(lambda tx: tx.execute(_PREPARE_ANOTHER))
        for _ in range(2 * _PREPARED_AFTER):
            assert await database.lookup(lambda tx: [row.integer("one") for row in tx.fetch_all(statement)]) == [1]
    finally:
        await database.close()


async def test_an_engine_survives_a_pooler_that_appears_later(postgres_empty: str) -> None:
    """The same for the pool of the engines in PostgreSQL."""
    pool = PostgresPool(postgres_empty, engine="vectors", options={}, on_missing_table=lambda: None)

    async def prepare(connection: PostgresConnection) -> None:
        await connection.execute(_PREPARE_TEXT)

    async def select_one(connection: PostgresConnection) -> object:
        return await (await connection.execute("SELECT %s::int", [1])).fetchone()

    try:
        await pool.run(prepare)
        assert not pool.has_pooler
        for _ in range(2 * _PREPARED_AFTER):
            assert await pool.run(select_one) == (1,)
        assert pool.has_pooler
    finally:
        await pool.close()
