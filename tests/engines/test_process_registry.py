"""Processes of several hosts on one PostgreSQL: those with other engines do not start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database, open_database
from rookery.kernel.errors import WrongSettings
from rookery.kernel.ids import uuid7
from rookery.kernel.process_registry import EngineLocation, ProcessRegistry, describe_place, strip_address
from rookery.kernel.process_resources import ProcessShare
from tests.conftest import SECRET_KEY, eventually
from tests.processes import run_rookery, run_server

pytestmark = [pytest.mark.external_service]

_LEASE_S = 9.0
"""Rows are renewed every 3 s, so that none expires on a slow machine."""


@pytest.fixture
async def database(postgres_database: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A migrated, empty record store in PostgreSQL."""
    db = open_database(postgres_database, data_dir=tmp_path)
    yield db
    await db.close()


def _registry(db: Database, folder: Path, *, texts: str = "embedded:", lease_s: float = _LEASE_S) -> ProcessRegistry:
    folder.mkdir(exist_ok=True)
    engines = [
        EngineLocation(setting="ROOKERY_TEXTS", address=texts, is_shared_by_hosts=texts != "embedded:"),
        EngineLocation(setting="ROOKERY_COUNTERS", address="redis://counters:6379/0", is_shared_by_hosts=True),
    ]
    return ProcessRegistry(db, utc_now, uuid7, folder=folder, url="http://127.0.0.1:1", engines=engines, lease_s=lease_s)


@asynccontextmanager
async def _registered(registry: ProcessRegistry) -> AsyncGenerator[ProcessRegistry]:
    await registry.register("server")
    try:
        yield registry
    finally:
        await registry.close()


async def test_processes_of_one_folder_share_embedded_engines(database: Database, tmp_path: Path) -> None:
    """Processes of one data folder start together, and each is listed until it stops."""
    async with _registered(_registry(database, tmp_path / "a")) as first, _registered(_registry(database, tmp_path / "a")):
        assert len(await first.list_live()) == 2
    assert await _registry(database, tmp_path / "a").list_live() == []


async def test_servers_of_all_hosts_count_each_other(database: Database, tmp_path: Path) -> None:
    """Each has a number, by which they share limits while the counters are down. Workers answer no requests."""
    hosts = [_registry(database, tmp_path / name, texts="opensearch://texts:9200", lease_s=1.0) for name in "ab"]
    worker = _registry(database, tmp_path / "c", texts="opensearch://texts:9200")
    await worker.register("worker")
    try:
        async with _registered(hosts[0]), _registered(hosts[1]):

            async def has_counted() -> bool:
                return [host.server_share for host in hosts] == [ProcessShare(1, 2), ProcessShare(2, 2)]

            await eventually(has_counted)
            assert worker.server_share is None
    finally:
        await worker.close()


async def test_another_folder_with_an_embedded_engine_is_refused(database: Database, tmp_path: Path) -> None:
    """A second host whose index is a file of its own does not start; the reason names the process, the setting and a way out."""
    async with _registered(_registry(database, tmp_path / "a")) as first:
        with pytest.raises(WrongSettings) as refused:
            await _registry(database, tmp_path / "b").register("server")
        with pytest.raises(WrongSettings):
            await _registry(database, tmp_path / "b").check()
        assert len(await first.list_live()) == 1, "the refused process leaves no registration"
    for part in ("the server at http://127.0.0.1:1", str(tmp_path / "a"), "ROOKERY_TEXTS=embedded:", "set ROOKERY_TEXTS to a server"):
        assert part in refused.value.message


async def test_hosts_with_shared_engines_start_together(database: Database, tmp_path: Path) -> None:
    """Engines of servers may be used by several hosts, if all use the same ones."""
    shared = "opensearch://search:9200/rookery"
    async with _registered(_registry(database, tmp_path / "a", texts=shared)):
        async with _registered(_registry(database, tmp_path / "b", texts=shared)) as second:
            assert len(await second.list_live()) == 2
        with pytest.raises(
            WrongSettings, match="It has ROOKERY_TEXTS=opensearch://search:9200/rookery, and this process opensearch://other"
        ):
            await _registry(database, tmp_path / "c", texts="opensearch://other:9200/rookery").register("worker")


async def test_a_process_that_was_killed_delays_another_host_only_until_its_row_expires(database: Database, tmp_path: Path) -> None:
    """A server that is restarted in another container after a kill is not refused because of its own old registration."""
    killed = _registry(database, tmp_path / "a", lease_s=1.5)
    await killed.register("server")
    for task in asyncio.all_tasks():  # as kill -9 does: no renewal follows, and the row stays
        if task.get_name() == "process-registration":
            task.cancel()
    async with _registered(_registry(database, tmp_path / "b")) as restarted:
        assert len(await restarted.list_live()) == 1


def test_addresses_are_stored_without_secrets(tmp_path: Path) -> None:
    """The stored addresses have no user, password or parameter."""
    addresses = ("postgresql://user:secret@db:5432/rookery?sslmode=require", "redis://:secret@counters:6379/0", "embedded:")
    assert [strip_address(address) for address in addresses] == ["postgresql://db:5432/rookery", "redis://counters:6379/0", "embedded:"]
    assert describe_place(tmp_path) == describe_place(tmp_path / ".." / tmp_path.name) != describe_place(tmp_path.parent)


def test_a_second_host_does_not_start_and_doctor_lists_the_first(postgres_database: str, tmp_path: Path) -> None:
    """`serve` and `worker` with another data folder exit with the reason; `doctor` shows the running process."""
    environment = {"ROOKERY_DATABASE_URL": postgres_database, "ROOKERY_SECRET_KEY": SECRET_KEY}
    environment |= {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
    with run_server(tmp_path / "one", database_url=postgres_database, secret_key=SECRET_KEY) as server:
        second = run_rookery("serve", "--port", "0", data_dir=tmp_path / "two", environment=environment)
        doctor = run_rookery("doctor", "--json", data_dir=tmp_path / "one", environment=environment)
        assert f"server {server.process.pid} of " in doctor.stdout, doctor.stdout
    assert second.returncode == 1
    assert f"process {server.process.pid}" in second.stderr
    assert "ROOKERY_VECTORS=embedded:" in second.stderr
