"""The receiver of examples/ as its own process, with deliveries of a server over real connections."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx2

from rookery.kernel.config import Settings
from rookery.kernel.ids import random_text
from tests import key_leaks
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.deadlines import HANG_S
from tests.documentation import ROOT
from tests.postgres import free_port

Json = dict[str, object]

EXAMPLE = ROOT / "examples" / "webhook_receiver.py"


class Example:
    """The running receiver; its output is in a file."""

    def __init__(self, folder: Path, secret: str, port: int) -> None:
        self._output_path = folder / "said"
        self._inbox = folder / "inbox.sqlite"
        self._output = self._output_path.open("ab")
        self._first_line = len(self.read_lines())
        command = [sys.executable, str(EXAMPLE), "--port", str(port), "--inbox", str(self._inbox)]
        environment = {**os.environ, "WEBHOOK_SECRET": secret}
        self._process = subprocess.Popen(command, env=environment, stdout=self._output, stderr=subprocess.STDOUT, cwd=folder)

    def read_lines(self) -> list[str]:
        """Return the lines printed so far by all receivers in the folder."""
        return self._output_path.read_text(encoding="utf-8").splitlines()

    async def url(self) -> str:
        """Return its URL, once it listens."""
        return (await self._wait_for_line("listening on ")).rpartition(" ")[2]

    async def wait_handled(self, start: str) -> None:
        """Wait for a line that begins with *start*, and until the inbox has no open event, which a kill would repeat."""
        await self._wait_for_line(start)
        await eventually(self._is_inbox_done)

    async def _wait_for_line(self, start: str) -> str:
        def find_line() -> str:
            assert self._process.poll() is None, "\n".join(self.read_lines())
            return next((line for line in self.read_lines()[self._first_line :] if line.startswith(start)), "")

        return await eventually(find_line)

    def _is_inbox_done(self) -> bool:
        with closing(sqlite3.connect(self._inbox)) as file:
            return file.execute("SELECT count(*) FROM inbox WHERE NOT done").fetchone() == (0,)

    def kill(self) -> None:
        """Kill the receiver."""
        self._process.kill()
        self._process.wait(10)
        self._output.close()


@asynccontextmanager
async def run_example(folder: Path, secret: str, port: int) -> AsyncGenerator[tuple[Example, str]]:
    """Run the receiver until the block ends."""
    receiver = Example(folder, secret, port)
    try:
        yield receiver, await receiver.url()
    finally:
        receiver.kill()


async def test_the_receiver_handles_each_event_once_through_a_rotation_and_rejects_forgeries(settings: Settings, tmp_path: Path) -> None:
    """Resent events are not handled twice, unsigned ones are 401, and during the grace period both secrets are valid."""
    folder, secret = tmp_path / "receiver", f"given-{random_text(24)}"
    folder.mkdir()
    key_leaks.DETECTOR.add_secret(secret)
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance:
        port = free_port()
        async with run_example(folder, secret, port) as (receiver, url):
            new = {"url": url, "events": ["memory.stored"], "secret": secret}
            path = f"/api/v1/webhooks/{(await instance.admin.post('/api/v1/webhooks', new)).json()['id']}"
            ids = [(await instance.admin.remember("The kettle whistles."))["id"]]
            await receiver.wait_handled(f"memory.stored {ids[0]}")
            (delivered,) = await _wait_delivered(instance.admin, path, 1)
            resent = await instance.admin.post(f"{path}/deliveries/{delivered['id']}/resend")
            assert resent.status_code == 202, resent.text
            await _wait_delivered(instance.admin, path, 2)
            await _must_reject_forgeries(url)

        rotated = await _rotate_secret(instance, path)
        for content, secrets in (("It is descaled.", f"{secret} {rotated}"), ("There is tea.", rotated)):
            async with run_example(folder, secrets, port) as (receiver, _):
                ids.append((await instance.admin.remember(content))["id"])
                await receiver.wait_handled(f"memory.stored {ids[-1]}")

    output = receiver.read_lines()
    assert [line for line in output if line.startswith("memory.stored")] == [f"memory.stored {memory_id}" for memory_id in ids]
    assert sum(line.startswith("rejected: ") for line in output) == 2
    assert "Traceback" not in "\n".join(output)


async def test_the_receiver_takes_the_notifications_of_campaigns(settings: Settings, tmp_path: Path) -> None:
    """The docs send subscribers' receivers to the same function, with the secret of notifications."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance:
        rotated = (await instance.admin.post("/api/agent/notify/webhook-secret/rotate", {"grace_period_hours": 0})).json()
        key_leaks.DETECTOR.add_secret(rotated["secret"])
        async with run_example(tmp_path, rotated["secret"], free_port()) as (receiver, url):
            channel = {"type": "webhook", "url": url}
            await instance.admin.post("/api/agent/notify/subscribers", {"external_id": "anna", "channels": [channel]})
            body = {"name": "news", "title": "The beta is open", "body": "Text", "audience": {"all": True}}
            campaign = (await instance.admin.post("/api/agent/notify/campaigns", body)).json()["id"]
            await instance.admin.post(f"/api/agent/notify/campaigns/{campaign}/send")
            await receiver.wait_handled("notification The beta is open")

    assert not [line for line in receiver.read_lines() if line.startswith("rejected: ")]


async def _must_reject_forgeries(url: str) -> None:
    async with httpx2.AsyncClient(timeout=HANG_S) as client:
        for headers in (
            {"X-Webhook-Signature": "sha256=" + "0" * 64},
            {"webhook-id": "evt_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"},
        ):
            assert (await client.post(url, content=b'{"id": "evt_1"}', headers=headers)).status_code == 401


async def _rotate_secret(instance: Instance, path: str) -> str:
    secret = str((await instance.admin.post(f"{path}/rotate-secret")).json()["secret"])
    key_leaks.DETECTOR.add_secret(secret)
    return secret


async def _wait_delivered(caller: Caller, path: str, count: int) -> list[Json]:
    """Wait until exactly *count* deliveries exist and are delivered, and return them."""

    async def load() -> list[Json]:
        rows = cast("list[Json]", (await caller.get(f"{path}/deliveries")).json()["data"])
        return rows if len(rows) == count and {row["state"] for row in rows} == {"delivered"} else []

    return await eventually(load)
