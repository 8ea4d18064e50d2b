"""A server that is killed by SIGKILL in the middle of a campaign: what is sent, what is sent again, what is unknown."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from rookery.kernel.egress.transport import get_tls_context
from rookery.notifications.outcomes import RETRY_DELAYS_S
from tests.conftest import Settings, eventually
from tests.deadlines import HANG_S
from tests.notifications.rig import Json, count_states
from tests.processes import Server
from tests.webhooks.receiver import Receiver, Reply, run_receiver

_AT_ONCE = 8
"""Messages to a host at the same time. As many more are claimed and wait."""


class _KilledServer:
    """A server process that is killed and started again, and its client."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self._settings: dict[str, Any] = {"egress_allow": "127.0.0.0/8", "notify_host_concurrency": str(_AT_ONCE)}
        if settings.secret_key is not None:
            self._settings |= {"database_url": settings.database_url.reveal(), "secret_key": settings.secret_key.reveal()}
        self.start()
        self.key = self.server.keys["api_key"]

    def start(self) -> None:
        """Start the server."""
        self.server = Server(self.folder, **self._settings)

    async def send_campaign(self, receiver: Receiver, count: int) -> str:
        """Create subscribers and send a campaign to them; return its path."""
        lines = "\n".join(f"s{number},http://127.0.0.1:{receiver.port}/s{number}" for number in range(count))
        await self.request("POST", "/api/agent/notify/subscribers/import", content=f"external_id,webhook\n{lines}")
        return await self.start_campaign()

    async def start_campaign(self) -> str:
        """Send a campaign to all subscribers; return its path."""
        fields = {"name": "a", "title": "a", "body": "a", "audience": {"all": True}}
        path = f"/api/agent/notify/campaigns/{(await self.request('POST', '/api/agent/notify/campaigns', fields))['id']}"
        await self.request("POST", f"{path}/send")
        return path

    async def wait_until_sent(self, path: str) -> Json:
        """Wait for the end of a campaign; return the numbers of its deliveries by state."""

        async def find() -> Json | None:
            view = await self.request("GET", path)
            return view if view["status"] == "sent" else None

        view = await eventually(find)
        assert view is not None
        return count_states(view)

    async def request(self, method: str, path: str, body: object = None, content: str | None = None) -> Json:
        """Send a request and return the body."""
        headers = {"Authorization": f"Bearer {self.key}"} | ({} if content is None else {"Content-Type": "text/csv"})
        async with httpx2.AsyncClient(verify=get_tls_context(), timeout=HANG_S) as client:
            response = await client.request(method, self.server.url + path, json=body, content=content, headers=headers)
        assert response.is_success, response.text
        return cast("Json", response.json())


@asynccontextmanager
async def _run(folder: Path, settings: Settings) -> AsyncGenerator[tuple[_KilledServer, Receiver]]:
    async with run_receiver(lambda _: Reply(status=204, body=b"")) as receiver:
        killed = await asyncio.to_thread(_KilledServer, folder, settings)
        try:
            yield killed, receiver
        finally:
            await asyncio.to_thread(killed.server.stop)


async def test_no_message_is_sent_twice_after_kill_9(tmp_path: Path, settings: Settings) -> None:
    """Killed three times in the middle, each message arrives at most once, and all rows are final: sent or unknown."""
    async with _run(tmp_path / "killed", settings) as (killed, receiver):
        path = await killed.send_campaign(receiver, 2_000)
        for number in (1, 2, 3):
            await eventually(lambda number=number: len(receiver.received) >= number * 300)
            killed.server.kill()
            await asyncio.to_thread(killed.start)
        states = await killed.wait_until_sent(path)
        arrivals = Counter(request.path for request in receiver.received)
        journals = tmp_path / "killed" / "sends"
        assert len(list(journals.iterdir())) == 1, "the journals of the killed processes are deleted"
        killed.server.kill()
        await asyncio.to_thread(killed.start)
        await eventually(lambda: len(list(journals.iterdir())) == 1)  # also that of a process that was killed when nothing was open

    assert max(arrivals.values()) == 1, "nothing is sent twice, not even what is unknown"
    assert set(states) <= {"sent", "unknown"}
    assert sum(cast("dict[str, int]", states).values()) == 2_000
    unknown = cast("int", states.get("unknown", 0))
    assert unknown <= 3 * _AT_ONCE, "only messages that were being sent are unknown"
    assert 2_000 - len(arrivals) <= unknown, "a message that did not arrive is reported as unknown"


@pytest.mark.parametrize("has_journal", [True, False], ids=["with its journal", "without its journal"])
async def test_only_messages_that_were_being_sent_are_unknown(tmp_path: Path, settings: Settings, *, has_journal: bool) -> None:
    """Claims that were not begun are sent after the crash. If the journal is lost, nobody knows which these are: all are unknown."""
    async with _run(tmp_path / "killed", settings) as (killed, receiver):
        receiver.gate = asyncio.Event()
        path = await killed.send_campaign(receiver, 3 * _AT_ONCE)
        await eventually(lambda: len(receiver.received) == _AT_ONCE)
        killed.server.kill()
        receiver.gate.set()
        if not has_journal:
            shutil.rmtree(tmp_path / "killed" / "sends")
        await asyncio.to_thread(killed.start)
        states = await killed.wait_until_sent(path)

    unknown = _AT_ONCE if has_journal else 2 * _AT_ONCE
    assert states == {"sent": 3 * _AT_ONCE - unknown, "unknown": unknown}
    assert max(Counter(request.path for request in receiver.received).values()) == 1


@pytest.mark.embedded_store
async def test_results_that_were_not_stored_survive_the_crash(tmp_path: Path, settings: Settings) -> None:
    """A message that was sent is `sent` after the crash, and a refused one is `failed`, although the record store had no result."""
    folder = tmp_path / "killed"
    async with _run(folder, settings) as (killed, receiver):
        receiver.reply = lambda request: Reply(status=204 if request.path != "/s3" else 410, body=b"")
        receiver.gate = asyncio.Event()
        path = await killed.send_campaign(receiver, _AT_ONCE)
        await eventually(lambda: len(receiver.received) == _AT_ONCE)
        with closing(sqlite3.connect(folder / "records.db", timeout=HANG_S, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            receiver.gate.set()
            await eventually(lambda: _count_ended(folder) == _AT_ONCE)
            killed.server.kill()
        await asyncio.to_thread(killed.start)
        states = await killed.wait_until_sent(path)
        gone = await killed.request("GET", "/api/agent/notify/subscribers/s3")

    assert states == {"sent": _AT_ONCE - 1, "failed": 1}
    assert cast("list[Json]", gone["channels"])[0]["status"] == "invalid"
    assert max(Counter(request.path for request in receiver.received).values()) == 1


@pytest.mark.embedded_store
async def test_a_failure_to_connect_that_was_not_stored_survives_the_crash(tmp_path: Path, settings: Settings) -> None:
    """An attempt that ended before it could begin counts, so that the next one waits for its retry delay."""
    folder = tmp_path / "killed"
    async with _run(folder, settings) as (killed, receiver):
        url = f"https://127.0.0.1:{receiver.port}/"  # the receiver waits for the end of a header
        await killed.request("POST", "/api/agent/notify/subscribers", {"external_id": "a", "channels": [{"type": "webhook", "url": url}]})
        path = await killed.start_campaign()
        await eventually(lambda: receiver.connections == 1)
        with closing(sqlite3.connect(folder / "records.db", timeout=HANG_S, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            await receiver.close_connections()
            await eventually(lambda: _count_ended(folder) == 1)
            killed.server.kill()
        await asyncio.to_thread(killed.start)

        await eventually(lambda: receiver.connections == 2)
        tried_again_at = datetime.now(UTC)
        (delivery,) = cast("list[Json]", (await killed.request("GET", f"{path}/deliveries"))["data"])
        details = await killed.request("GET", f"{path}/deliveries/{delivery['id']}")

    first = cast("list[Json]", details["attempts"])[0]
    assert first["outcome"] == "retry"
    assert tried_again_at - datetime.fromisoformat(str(first["ended_at"])) >= timedelta(seconds=RETRY_DELAYS_S[0])


def _count_ended(folder: Path) -> int:
    return sum(journal.read_text(encoding="utf-8").count('"ended"') for journal in (folder / "sends").iterdir())
