"""Claims and results of tasks while connections to the record store break: what a client does, and what it can rely on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest

from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.agents.makers import events_of, make_plan, phase
from tests.conftest import SECRET_KEY, Caller, Instance, eventually, lend_model, run_instance
from tests.fault_proxy import FaultProxy

pytestmark = pytest.mark.external_service

_SELECT_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'plan_tasks'::regclass"

_TASKS = 20
_MAX_DELAY_S = 0.03
"""Longest time from the begin of a request to the fault, about as long as the request takes."""


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[FaultProxy]:
    """A proxy in front of the record store."""
    with FaultProxy(urlsplit(postgres_database).port or 5432) as proxy:
        yield proxy


class _Worker:
    """An agent whose requests are interrupted at random moments, and which repeats each with the same key until it succeeds."""

    def __init__(self, caller: Caller, proxy: FaultProxy) -> None:
        self._caller = caller
        self._proxy = proxy
        self._random = random.Random(20)
        self.statuses = Counter[int]()

    async def send(self, path: str, body: object, key: str) -> httpx2.Response:
        """Send a request until it has a result."""
        request = asyncio.create_task(self.post(path, body, key))
        await asyncio.sleep(self._random.uniform(0, _MAX_DELAY_S))
        self._proxy.reset()
        return await self.repeat(await request, path, body, key)

    async def repeat(self, response: httpx2.Response, path: str, body: object, key: str) -> httpx2.Response:
        """Send the request of *response* again until it has a result."""

        async def has_result() -> bool:
            nonlocal response
            if response.status_code == 503 or response.json().get("error") == "idempotency_in_progress":
                response = await self.post(path, body, key)
            return response.is_success

        await eventually(has_result)
        return response

    async def post(self, path: str, body: object, key: str) -> httpx2.Response:
        """Send a request once."""
        response = await self._caller.post(path, body, **{"Idempotency-Key": key})
        self.statuses[response.status_code] += 1
        return response


@pytest.fixture
async def instance(postgres_database: str, proxy: FaultProxy, data_dir: Path, model_folder: Path) -> AsyncIterator[Instance]:
    """A server whose record store is behind the proxy."""
    lend_model(model_folder, data_dir)
    parts = urlsplit(postgres_database)
    address = Secret(parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl())
    settings = Settings(data_dir=data_dir, database_url=address, secret_key=Secret(SECRET_KEY), bcrypt_cost=4, min_free_disk_mb=0)
    async with run_instance(settings) as instance:
        yield instance


async def test_a_worker_that_repeats_its_requests_claims_and_completes_each_task_once(instance: Instance, proxy: FaultProxy) -> None:
    """
    A 503 may hide a commit. The same `Idempotency-Key` returns what the commit did, or does it now.

    A worker that does not repeat the result of a task leaves it claimed until the lease ends. Then another worker does it again.
    """
    plan = await make_plan(instance.admin, phase("A", *(f"t{number}" for number in range(_TASKS))))
    worker = _Worker(instance.admin, proxy)
    for number in range(_TASKS):
        claimed = await worker.send("/api/agent/tasks/claim-next", {"plan": plan["slug"]}, f"claim-{number}")
        path, result = f"/api/agent/tasks/{claimed.json()['id']}/complete", {"claim_token": claimed.json()["claim_token"]}
        completed = await worker.send(path, result, f"complete-{number}")
        assert completed.json()["status"] == "completed"

    events = Counter(await events_of(instance.admin, plan["slug"]))
    assert (events["task.claimed"], events["task.completed"]) == (_TASKS, _TASKS)
    assert worker.statuses[503], "no request was interrupted"


async def test_a_claim_that_goes_on_after_its_503_is_made_once(instance: Instance, proxy: FaultProxy, postgres_database: str) -> None:
    """
    The network is lost while the claim waits in PostgreSQL. The request gets 503, and its transaction goes on when the network is back.

    The `Idempotency-Key` is released meanwhile. The repetition returns the task of that transaction, or claims it after a rollback.
    """
    plan = await make_plan(instance.admin, phase("A", "a", "b"))
    worker, request = _Worker(instance.admin, proxy), ("/api/agent/tasks/claim-next", {"plan": plan["slug"]}, "once")
    async with await psycopg.AsyncConnection.connect(postgres_database) as control:
        await control.execute("LOCK TABLE plan_tasks IN EXCLUSIVE MODE")

        async def is_waiting() -> bool:
            row = await (await control.execute(_SELECT_WAITING)).fetchone()
            return row is not None and bool(row[0])

        claiming = asyncio.create_task(worker.post(*request))
        await eventually(is_waiting)
        proxy.partition()
    response = await claiming
    proxy.heal()
    repeated = await worker.repeat(response, *request)

    assert response.status_code == 503
    assert repeated.json()["claim_token"]
    assert Counter(await events_of(instance.admin, plan["slug"]))["task.claimed"] == 1
