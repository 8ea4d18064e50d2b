"""Idempotency keys of requests whose outcome is unknown, because the record store failed or the client left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import func, literal_column, select

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.idempotency_store import (
    LEASE,
    IdempotencyClaim,
    IdempotencyStore,
    StoredResponse,
    fingerprint_request,
    stored_responses,
)
from rookery.kernel.ids import uuid7
from rookery.kernel.sealing import KeySource, Sealer
from rookery.kernel.secret import Secret
from tests.agents.makers import make_plan, phase
from tests.conftest import SECRET_KEY, FakeClock, Instance, eventually
from tests.kernel.test_idempotency import run_toy_server
from tests.stopwatch import Stopwatch

_SELECT_OWNED = select(stored_responses.c.id).where(stored_responses.c.owner.is_not(None))
_LOCK_ID = 2014
_WAIT_FOR_LOCK = select(func.pg_advisory_xact_lock_shared(literal_column(str(_LOCK_ID))))
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def test_a_key_can_be_used_again_when_its_client_has_left(instance: Instance) -> None:
    """A client that waits for a task disconnects, and repeats its request. It gets a result at once, and not 409 for a minute."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    body = {"plan": plan["slug"], "wait_s": 30}
    assert (await instance.agent.post("/v1/tasks/claim-next", body)).status_code == 200
    waiting = asyncio.create_task(instance.agent.post("/v1/tasks/claim-next", body, **{"Idempotency-Key": "once"}))

    async def is_in_progress() -> bool:
        return bool(await instance.rookery.db.read(lambda tx: tx.fetch_all(_SELECT_OWNED)))

    await eventually(is_in_progress)
    with Stopwatch() as watch:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await instance.agent.post(f"/v1/plans/{plan['slug']}/phases/1/tasks", {"name": "b"})).status_code == 201

        async def has_task() -> bool:
            return (await instance.agent.post("/v1/tasks/claim-next", body, **{"Idempotency-Key": "once"})).status_code == 200

        await eventually(has_task)

    assert watch.reference_s < LEASE.total_seconds() / 2


async def test_a_transaction_that_outlives_its_request_stores_the_response(data_dir: Path, clock: FakeClock) -> None:
    """The client leaves while the writer's thread runs the transaction, which then commits. The repetition does not run it again."""
    db = open_database("embedded:", data_dir=data_dir)
    async with run_toy_server(db, data_dir, clock) as server:
        toy = server.toy
        leaving = asyncio.create_task(server.post("/written"))
        await eventually(toy.is_writing.is_set)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        toy.write_gate.set()
        repeated = await server.post("/written")
        await server.store.close()

        assert (repeated.status_code, repeated.headers.get("idempotent-replay"), toy.done) == (200, "true", 1)
    await db.close()


@pytest.mark.external_service
async def test_a_claim_is_not_released_if_its_transaction_is_committed_later(postgres_database: str, tmp_path: Path) -> None:
    """
    The transaction of a request goes on after the request got its 503. The release of its claim waits for it.

    The repetition gets the response of the transaction, and does not run the request again.
    """
    settings = Settings(data_dir=tmp_path, database_url=Secret(postgres_database), secret_key=Secret(SECRET_KEY))
    db = open_database(postgres_database, data_dir=tmp_path)
    sealer = Sealer(db, KeySource(tmp_path, configured=settings.secret_key), [], utc_now)
    await sealer.start()
    store = IdempotencyStore(db, sealer, utc_now, uuid7)
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    claim = await store.claim(request)
    assert isinstance(claim, IdempotencyClaim)

    def work(tx: Tx) -> None:
        store.store_in_transaction(tx, claim, StoredResponse(status=201, body=b"done"))
        tx.fetch_one(_WAIT_FOR_LOCK)

    async with await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as control:

        async def count_waiting() -> int:
            row = await (await control.execute(_WAITING)).fetchone()
            return 0 if row is None else int(row[0])

        async def both_wait() -> bool:
            return await count_waiting() == 2

        async def one_waits() -> bool:
            return await count_waiting() == 1

        await control.execute("SELECT pg_advisory_lock(%s)", [_LOCK_ID])
        transaction = asyncio.create_task(db.write(work))
        await eventually(one_waits)
        store.release_later(claim)
        await eventually(both_wait)
        await control.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_ID])
        await transaction
    repeated = await store.claim(request)
    await store.close()
    await db.close()

    assert repeated == StoredResponse(status=201, body=b"done")
