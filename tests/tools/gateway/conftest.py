"""A real server in a process of its own, with a misbehaving tool server and, in either era, one with every feature."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Server, run_server
from tests.tools.makers import make_odd_entry

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server with these tool servers."""
    folder = tmp_path_factory.mktemp("gateway")
    command = {"command": sys.executable, "args": ["-m", "tests.conformance.everything"], "cwd": str(ROOT)}
    older = {**command, "args": [*command["args"], "--older-era"]}
    servers = {"odd": make_odd_entry(), "later": command, "older": older}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(folder) as server:
        yield server
