"""The output of a server that does not answer, shown while its start still runs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import Server, get_environment, run_rookery, run_server
from tests.tools.gateway.clients import open_client

_PROGRAM = "import sys, time; print('Waiting for the database at db:5432', file=sys.stderr, flush=True); time.sleep(600)"
_NOTE = "s and has not answered yet; it wrote: Waiting for the database at db:5432"


def _write_entry(folder: Path, **fields: object) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", "-c", _PROGRAM], **fields}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"silent": entry}}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running Rookery with a server that writes its reason, and may take minutes to start."""
    folder = tmp_path_factory.mktemp("slow")
    _write_entry(folder, start_timeout_s=300)
    with run_server(folder) as running:
        yield running


async def test_the_output_is_shown_everywhere_during_the_start(server: Server) -> None:
    """A start may take minutes, and the reason may be there from its first second."""
    operator = server.client

    def is_shown() -> bool:
        return bool(operator.get("/api/v1/mcp/servers/silent").json()["last_error"])

    await eventually(is_shown)
    shown = operator.get("/api/v1/mcp/servers/silent").json()
    (listed,) = [row for row in operator.get("/api/v1/mcp/servers").json()["servers"] if row["id"] == "silent"]
    async with open_client(server, key=operator.headers["authorization"].removeprefix("Bearer ")) as client:
        instructions = client.instructions or ""

    assert (shown["health"], shown["stderr"]) == ("unknown", ["Waiting for the database at db:5432"])
    assert shown["last_error"].startswith("It has been starting for ")
    for text in (shown["last_error"], listed["last_error"], instructions):
        assert _NOTE in text
    assert shown["standing"]["state"] == "opening"

    def says() -> str:
        (row,) = json.loads(run_rookery("servers", "list", "--json", data_dir=server.data).stdout)
        return str(row["says"])

    await eventually(lambda: _NOTE in says())


def test_a_check_prints_the_output_on_a_terminal_before_it_ends(tmp_path: Path) -> None:
    """It waits for the time-out of the start, which may be minutes."""
    _write_entry(tmp_path, start_timeout_s=300)
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "servers", "check"]
    with subprocess.Popen(command, env=get_environment(), stdout=subprocess.DEVNULL, stderr=end) as process:
        os.close(end)
        output = ""
        try:
            while "Waiting for the database" not in output:
                output += os.read(terminal, 4096).decode()
            is_running = process.poll() is None
        finally:
            process.terminate()
            process.wait(HANG_S)
            os.close(terminal)

    assert is_running
    assert "silent has not answered for 3 s. It wrote:" in output
    assert "silent | Waiting for the database at db:5432" in output
