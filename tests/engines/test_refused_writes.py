"""An index on a server accepts only reads: what is found, what is said, and how it heals, over the public surface."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from rookery.doctor import DoctorFinding, examine, has_no_problem
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.conftest import Instance, eventually, lend_model, run_instance

pytestmark = pytest.mark.external_service

_REASON = "accepts only reads: PostgreSQL accepts only reads"
_NOTICES = {
    "texts": f"New memories are found by meaning only: the full-text index {_REASON}",
    "vectors": f"New memories are found by words only: the vector index {_REASON}",
}
_LACKING_MODES = {"texts": "keyword", "vectors": "semantic"}


@pytest.fixture
def settings(data_dir: Path, model_folder: Path) -> Settings:
    """Settings with embedded engines."""
    lend_model(model_folder, data_dir)
    return Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0)


@asynccontextmanager
async def _accept_only_reads(address: str) -> AsyncGenerator[None]:
    """Let PostgreSQL refuse writes until the block ends, in connections that are opened from now on. All others are closed."""
    parts = urlsplit(address)
    name = sql.Identifier(parts.path[1:])
    async with await psycopg.AsyncConnection.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:

        async def set_option(change: str) -> None:
            await connection.execute(sql.SQL("ALTER DATABASE {} " + change).format(name))  # pyright: ignore[reportArgumentType] - the texts below
            await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [parts.path[1:]])

        await set_option("SET default_transaction_read_only = on")
        try:
            yield
        finally:
            await set_option("RESET default_transaction_read_only")


async def _recall(instance: Instance, mode: str) -> tuple[list[str], str | None]:
    response = await instance.admin.post("/v1/brain/recall", {"query": "Where do the gulls nest?", "mode": mode})
    assert response.status_code == 200, response.text
    body = response.json()
    return [memory["content"] for memory in body["memories"]], body.get("notice")


async def _get_state(instance: Instance, engine: str) -> tuple[str, str]:
    body = (await instance.admin.get("/readyz")).json()
    return body["status"], body["engines"][engine]


async def _diagnose(instance: Instance, engine: str) -> DoctorFinding:
    findings = await examine(instance.rookery)
    (finding,) = (finding for finding in findings if finding.about == engine)
    assert has_no_problem(findings) == (finding.grade == "ok")
    return finding


@pytest.mark.parametrize("engine", ["texts", "vectors"])
async def test_new_memories_are_found_by_the_index_that_accepts_writes(engine: str, settings: Settings, postgres_empty: str) -> None:
    """All that a person looks at says that the index accepts only reads, until a write succeeds."""
    new = "The gulls nest behind the shed."
    settings = replace(settings, **{engine: Secret(postgres_empty)})
    async with run_instance(settings) as instance:
        old = await instance.admin.remember("The otters swim below the pier.")
        async with _accept_only_reads(postgres_empty):
            stored = await instance.admin.post("/v1/brain/remember", {"content": new})
            assert stored.status_code == 201

            async def is_found() -> bool:
                contents, notice = await _recall(instance, "hybrid")
                return new in contents and notice == _NOTICES[engine]

            assert await eventually(is_found)
            contents, notice = await _recall(instance, _LACKING_MODES[engine])
            assert (new in contents, notice) == (False, _NOTICES[engine])
            searched = (await instance.admin.get("/v1/brain/search?q=gulls")).json()
            assert searched.get("notice") == (_NOTICES[engine] if engine == "texts" else None)
            assert await _get_state(instance, engine) == ("degraded", _REASON)
            finding = await _diagnose(instance, engine)
            assert (finding.grade, finding.says) == ("problem", _REASON)
            metrics = (await instance.admin.get("/metrics")).text
            assert f'rookery_engine_up{{engine="{engine}"}} 0' in metrics
            deletion = await instance.admin.send("DELETE", f"/v1/brain/memories/{cast('str', old['id'])}")
            assert deletion.status_code == 204
            assert "The otters swim below the pier." not in (await _recall(instance, "hybrid"))[0]

        async def is_healed() -> bool:
            return await _get_state(instance, engine) == ("ok", "ok") and new in (await _recall(instance, _LACKING_MODES[engine]))[0]

        assert await eventually(is_healed)
        assert (await _recall(instance, "hybrid"))[1] is None
        assert (await _diagnose(instance, engine)).grade == "ok"


async def test_a_record_store_that_accepts_only_reads_is_degraded(settings: Settings, postgres_database: str) -> None:
    """It serves all that only reads, so the status is not 503."""
    settings = replace(settings, database_url=Secret(postgres_database), secret_key=Secret("hE5Yk1b1m1cX0b9q2nJc8Qw4TzR7uVfA3sLdKpGyMxI="))
    async with run_instance(settings) as instance:
        async with _accept_only_reads(postgres_database):
            refused = await eventually(lambda: _is_refused(instance))
            assert refused
            assert await _get_state(instance, "database") == ("degraded", _REASON)
            assert (await _diagnose(instance, "database")).says == _REASON
            assert (await instance.admin.get("/v1/brain/memories")).status_code == 200

        async def is_healed() -> bool:
            await instance.admin.post("/v1/brain/remember", {"content": "The gulls nest behind the shed."})
            return await _get_state(instance, "database") == ("ok", "ok")

        assert await eventually(is_healed)


async def _is_refused(instance: Instance) -> bool:
    response = await instance.admin.post("/v1/brain/remember", {"content": "The gulls nest behind the shed."})
    return response.status_code == 503 and "accepts only reads" in response.text
