"""The foundation's story, through the whole application: start, remember, recall, call a tool."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Instance, lend_model

_START_S = 40.0
_STOP_S = 20.0


@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform == "win32" or shutil.which("curl") is None, reason="needs a terminal of its own, and curl")
def test_a_person_is_shown_keys_and_three_requests_that_work(tmp_path: Path, model_folder: Path) -> None:
    """D-03, issue: on a terminal the first start shows workspace, two keys and three curl lines, each good as it stands; once."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    screen, said, code = _on_a_terminal(folder, "timezone")
    answers = [json.loads(answer) for answer in said]

    assert re.search(r"^workspace  default, number 1$", screen, re.MULTILINE)
    assert len(re.findall(r"^API key    sk_live_\w{32}  ", screen, re.MULTILINE)) == 1
    assert len(re.findall(r"^agent key  ak_\w{32}  ", screen, re.MULTILINE)) == 1
    assert [memory["id"] for memory in answers[1]["memories"]] == [answers[0]["id"]]
    assert (answers[2]["success"], answers[2]["tool"]) == (True, "get_current_time")
    assert code == 0
    assert not (folder / "first-run.json").exists()
    again, _, _ = _on_a_terminal(folder, "Rookery serves on")
    assert "sk_live_" not in again
    assert "ak_" not in again


def _on_a_terminal(folder: Path, last: str) -> tuple[str, list[str], int]:
    """Run the server on a terminal until *last* was shown; return the screen, what its curl lines answered, and how it ended."""
    ours, its = os.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"TERM": "dumb", "COLUMNS": "80", "ROOKERY_MIN_FREE_DISK_MB": "0"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdin=its, stdout=its, stderr=its) as server:
        os.close(its)
        try:
            screen = _read_until(ours, last)
            said = [_ask(line) for line in screen.splitlines() if line.startswith("curl ")]
        finally:
            server.terminate()
            server.wait(_STOP_S)
            os.close(ours)
    return screen, said, server.returncode


def _read_until(terminal: int, last: str) -> str:
    seen, deadline = b"", time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
        elif last.encode() in seen:  # and nothing more comes
            return seen.decode().replace("\r\n", "\n")
    pytest.fail(f"{last!r} was not shown: {seen!r}")


def _ask(line: str) -> str:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout


async def test_a_memory_is_remembered_indexed_and_recalled(instance: Instance) -> None:
    """Spec 4.3: remember answers at once with indexed false; recall finds the memory by its meaning."""
    stored = await instance.admin.remember("We deploy on Tuesdays, never on Fridays.", org="acme", project="shop")
    recalled = (await instance.agent.post("/v1/brain/recall", {"query": "When do we ship?", "org": "acme"})).json()

    assert stored["indexed"] is True
    assert [memory["id"] for memory in recalled["memories"]] == [stored["id"]]
    assert {"id", "content", "type", "org", "project", "score", "confidence", "created_at"} <= recalled["memories"][0].keys()


async def test_the_built_in_brain_is_a_tool_server(instance: Instance) -> None:
    """D-92: the tools remember and recall act as their caller."""
    call = {"server": "brain", "tool": "remember", "arguments": {"content": "The cat is called Miso.", "type": "fact"}}
    remembered = await instance.agent.post("/api/v1/mcp/tools/call", call)
    found = await instance.agent.get("/v1/brain/search?q=miso")

    assert remembered.json()["success"] is True
    assert [hit["content"] for hit in found.json()["hits"]] in ([], ["The cat is called Miso."])
    listed = (await instance.agent.get("/v1/brain/memories")).json()
    assert "data" in listed, listed
    assert [memory["content"] for memory in listed["data"]] == ["The cat is called Miso."]


async def test_health_needs_no_key(instance: Instance) -> None:
    """`/healthz` and `/readyz` need no key (D-05)."""
    nobody = instance.caller(None)

    assert (await nobody.get("/healthz")).json() == {"status": "ok"}
    ready = await nobody.get("/readyz")
    assert (ready.status_code, ready.json()["engines"]["database"]) == (200, "ok")
