"""The receiver of examples/, a process of its own, told by a server over real connections (issue 7)."""

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
from tests.documentation import ROOT

Json = dict[str, object]

EXAMPLE = ROOT / "examples" / "webhook_receiver.py"
_WAIT_S = 30.0


class Example:
    """The running receiver; what it printed is in a file."""

    def __init__(self, folder: Path, secret: str, port: int) -> None:
        self._said = folder / "said"
        self._inbox = folder / "inbox.sqlite"
        self._out = self._said.open("ab")
        self._begins = len(self.lines())
        command = [sys.executable, str(EXAMPLE), "--port", str(port), "--inbox", str(self._inbox)]
        environment = {**os.environ, "WEBHOOK_SECRET": secret}
        self._process = subprocess.Popen(command, env=environment, stdout=self._out, stderr=subprocess.STDOUT, cwd=folder)

    def lines(self) -> list[str]:
        """Return what was printed so far, by all that ran in the folder."""
        return self._said.read_text(encoding="utf-8").splitlines()

    async def url(self) -> str:
        """Return where it listens, once it does."""
        return (await self._waits_for("listening on ")).rpartition(" ")[2]

    async def handles(self, start: str) -> None:
        """Wait for a line that begins so, and until the inbox says that all is done: killed before that, it would do the last one again."""
        await self._waits_for(start)
        await eventually(self._has_done_all, within_s=_WAIT_S)

    async def _waits_for(self, start: str) -> str:
        def look() -> str:
            assert self._process.poll() is None, "\n".join(self.lines())
            return next((line for line in self.lines()[self._begins :] if line.startswith(start)), "")

        return await eventually(look, within_s=_WAIT_S)

    def _has_done_all(self) -> bool:
        with closing(sqlite3.connect(self._inbox)) as file:
            return file.execute("SELECT count(*) FROM inbox WHERE NOT done").fetchone() == (0,)

    def end(self) -> None:
        """End it, by force."""
        self._process.kill()
        self._process.wait(10)
        self._out.close()


@asynccontextmanager
async def example(folder: Path, secret: str, port: int = 0) -> AsyncGenerator[tuple[Example, str]]:
    """Run the receiver until the block ends."""
    running = Example(folder, secret, port)
    try:
        yield running, await running.url()
    finally:
        running.end()


async def test_the_receiver_handles_each_event_once_through_a_rotation_and_refuses_others(settings: Settings, tmp_path: Path) -> None:
    """Spec 6.2, D-81: what comes again is not done twice, what is not signed is 401, in grace both secrets count."""
    folder, secret = tmp_path / "receiver", f"given-{random_text(24)}"
    folder.mkdir()
    key_leaks.DETECTOR.add_secret(secret)
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance:
        async with example(folder, secret) as (receiver, url):
            new = {"url": url, "events": ["memory.stored"], "secret": secret}
            at = f"/api/v1/webhooks/{(await instance.admin.post('/api/v1/webhooks', new)).json()['id']}"
            ids = [(await instance.admin.remember("The kettle whistles."))["id"]]
            await receiver.handles(f"memory.stored {ids[0]}")
            (delivered,) = await _delivered(instance.admin, at, 1)
            again = await instance.admin.post(f"{at}/deliveries/{delivered['id']}/resend")
            assert again.status_code == 202, again.text
            await _delivered(instance.admin, at, 2)
            await _must_refuse_strangers(url)

        port = int(url.rstrip("/").rpartition(":")[2])
        rotated = await _rotated(instance, at)
        for content, secrets in (("It is descaled.", f"{secret} {rotated}"), ("There is tea.", rotated)):
            async with example(folder, secrets, port) as (receiver, _):
                ids.append((await instance.admin.remember(content))["id"])
                await receiver.handles(f"memory.stored {ids[-1]}")

    lines = receiver.lines()
    assert [line for line in lines if line.startswith("memory.stored")] == [f"memory.stored {each}" for each in ids]
    assert sum(line.startswith("rejected: ") for line in lines) == 2
    assert "Traceback" not in "\n".join(lines)


async def _must_refuse_strangers(url: str) -> None:
    async with httpx2.AsyncClient(timeout=30) as stranger:
        for headers in (
            {"X-Webhook-Signature": "sha256=" + "0" * 64},
            {"webhook-id": "evt_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"},
        ):
            assert (await stranger.post(url, content=b'{"id": "evt_1"}', headers=headers)).status_code == 401


async def _rotated(instance: Instance, at: str) -> str:
    rotated = str((await instance.admin.post(f"{at}/rotate-secret")).json()["secret"])
    key_leaks.DETECTOR.add_secret(rotated)
    return rotated


async def _delivered(caller: Caller, at: str, count: int) -> list[Json]:
    """Wait until *count* are delivered and none is left, and return them."""

    async def look() -> list[Json]:
        rows = cast("list[Json]", (await caller.get(f"{at}/deliveries")).json()["data"])
        return rows if len(rows) == count and {each["state"] for each in rows} == {"delivered"} else []

    return await eventually(look, within_s=_WAIT_S)
