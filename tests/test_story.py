"""A story through the whole application: start, remember, recall, call a tool."""

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
from tests.deadlines import HANG_S


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("curl") is None, reason="needs a pseudo-terminal and curl")
def test_the_first_start_shows_keys_and_three_requests_that_work(tmp_path: Path, model_folder: Path) -> None:
    """On a terminal only the first start shows workspace, two keys and three curl commands that work unchanged."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    screen, outputs, code = _run_on_terminal(folder, "timezone")
    responses = [json.loads(output) for output in outputs]

    assert re.search(r"^workspace  default, number 1$", screen, re.MULTILINE)
    assert len(re.findall(r"^API key    sk_live_\w{32}  ", screen, re.MULTILINE)) == 1
    assert len(re.findall(r"^agent key  ak_\w{32}  ", screen, re.MULTILINE)) == 1
    assert [memory["id"] for memory in responses[1]["memories"]] == [responses[0]["id"]]
    assert (responses[2]["success"], responses[2]["tool"]) == (True, "get_current_time")
    assert code == 0
    assert not (folder / "first-run.json").exists()
    second_screen, _, _ = _run_on_terminal(folder, "Rookery serves on")
    assert "sk_live_" not in second_screen
    assert "ak_" not in second_screen


def _run_on_terminal(folder: Path, expected: str) -> tuple[str, list[str], int]:
    """Run the server on a terminal until it prints *expected*; return the screen, the outputs of its curl lines and the exit code."""
    master, slave = os.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"TERM": "dumb", "COLUMNS": "80", "ROOKERY_MIN_FREE_DISK_MB": "0"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave) as server:
        os.close(slave)
        try:
            screen = _read_until(master, expected)
            outputs = [_run_shell(line) for line in screen.splitlines() if line.startswith("curl ")]
        finally:
            server.terminate()
            server.wait(HANG_S)
            os.close(master)
    return screen, outputs, server.returncode


def _read_until(terminal: int, expected: str) -> str:
    output, deadline = b"", time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 65536)
        elif expected.encode() in output:  # and no more output is pending
            return output.decode().replace("\r\n", "\n")
    pytest.fail(f"{expected!r} was not printed: {output!r}")


def _run_shell(line: str) -> str:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, timeout=HANG_S).stdout


async def test_a_memory_is_remembered_indexed_and_recalled(instance: Instance) -> None:
    """Recall finds a remembered memory by its meaning."""
    stored = await instance.admin.remember("We deploy on Tuesdays, never on Fridays.", org="acme", project="shop")
    recalled = (await instance.agent.post("/v1/brain/recall", {"query": "When do we ship?", "org": "acme"})).json()

    assert stored["indexed"] is True
    assert [memory["id"] for memory in recalled["memories"]] == [stored["id"]]
    assert {"id", "content", "type", "org", "project", "score", "confidence", "created_at"} <= recalled["memories"][0].keys()


async def test_the_built_in_brain_is_a_tool_server(instance: Instance) -> None:
    """The tools remember and recall act as their caller."""
    call = {"server": "brain", "tool": "remember", "arguments": {"content": "The cat is called Miso.", "type": "fact"}}
    remembered = await instance.agent.post("/api/v1/mcp/tools/call", call)
    searched = await instance.agent.get("/v1/brain/search?q=miso")

    assert remembered.json()["success"] is True
    assert [hit["content"] for hit in searched.json()["hits"]] in ([], ["The cat is called Miso."])
    listed = (await instance.agent.get("/v1/brain/memories")).json()
    assert "data" in listed, listed
    assert [memory["content"] for memory in listed["data"]] == ["The cat is called Miso."]


async def test_health_needs_no_key(instance: Instance) -> None:
    """`/healthz` and `/readyz` need no key."""
    anonymous = instance.caller(None)

    assert (await anonymous.get("/healthz")).json() == {"status": "ok"}
    ready = await anonymous.get("/readyz")
    assert (ready.status_code, ready.json()["engines"]["database"]) == (200, "ok")
