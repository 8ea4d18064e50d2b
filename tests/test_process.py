"""The server as a process: first and second start, kill -9 at bad moments, a clean end."""

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
from tests.processes import Server, is_running, run_server

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc"),
    pytest.mark.timeout(240),  # each waits for servers, whose own bounds come first
]


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """A data folder that has nothing but the embedder's files."""
    path = tmp_path / "home"
    lend_model(model_folder, path)
    return path


def _servers(folder: Path, **servers: object) -> str:
    path = folder / "my-servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return str(path)


_TIME = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}


async def test_the_second_start_mints_nothing(folder: Path) -> None:
    """D-03: keys are made once; off a terminal they are in first-run.json, which only its owner may read."""
    with run_server(folder) as first:
        keys = first.keys
        made = stat.S_IMODE((folder / "first-run.json").stat().st_mode)
        assert (set(keys), made) == ({"url", "workspace_id", "api_key", "agent_key"}, 0o600)
        assert first.client.get("/v1/brain/tags").status_code == 200
    (folder / "first-run.json").write_text(json.dumps(keys), encoding="utf-8")
    with run_server(folder) as second:
        assert second.client.get("/v1/brain/tags").status_code == 200
        assert json.loads((folder / "first-run.json").read_text(encoding="utf-8")) == keys
        again = subprocess.run(
            [sys.executable, "-m", "rookery", "--data-dir", str(folder), "init", "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert json.loads(again.stdout) == {"workspace_id": keys["workspace_id"], "api_key": None, "agent_key": None}
        assert second.stop() == 0


async def test_the_first_run_ships_a_tool_server_to_call(folder: Path) -> None:
    """Issue: one command serves memory and tools, on real input."""
    with run_server(folder) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        answer = server.client.post("/api/v1/mcp/tools/call", json=call)

        assert answer.json()["success"] is True, answer.text


async def test_kill_9_loses_no_acknowledged_memory_and_indexing_goes_on(folder: Path) -> None:
    """Issue, done when: kill -9 at any moment of remember or indexing loses nothing acknowledged."""
    acknowledged = list[str]()
    with run_server(folder) as server:

        def write() -> None:
            with httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=10) as client:
                for number in range(10_000):
                    try:
                        answer = client.post(
                            "/v1/brain/remember", json={"type": "fact", "content": f"Fact {number} of {threading.get_ident()}"}
                        )
                    except httpx2.TransportError:
                        return
                    acknowledged.append(answer.json()["id"])

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        await eventually(lambda: len(acknowledged) > 150)
        server.kill()
        for writer in writers:
            writer.join()
    with run_server(folder) as server:

        def all_indexed() -> bool:
            answer = server.client.get("/v1/brain/memories?state=indexed&per_page=1")
            return answer.json()["meta"]["total"] >= len(acknowledged)

        await eventually(all_indexed, within_s=45)
        for memory_id in acknowledged[::10]:
            assert server.client.get(f"/v1/brain/memories/{memory_id}").json()["state"] == "indexed"


async def test_kill_9_during_a_tool_call_leaves_no_process_behind(folder: Path) -> None:
    """Issue, done when: kill -9 leaves no orphan; D-32: the whole process group goes."""
    with run_server(folder, servers=_servers(folder, time=_TIME)) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        assert server.client.post("/api/v1/mcp/tools/call", json=call).status_code == 200
        children = server.children()
        assert children
        server.kill()

        await eventually(lambda: not any(is_running(pid) for pid in children))


async def test_a_clean_stop_leaves_no_process_behind_and_answers_what_it_took(folder: Path) -> None:
    """D-32: closing Rookery closes its upstreams; spec 5.3 step 7: usage is flushed at the end."""
    with run_server(folder, servers=_servers(folder, time=_TIME)) as server:
        call = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        assert server.client.post("/api/v1/mcp/tools/call", json=call).status_code == 200
        children = server.children()
        assert server.stop() == 0

        await eventually(lambda: not any(is_running(pid) for pid in children), within_s=2)
    with run_server(folder) as server:
        listed = subprocess.run(
            [sys.executable, "-m", "rookery", "--data-dir", str(folder), "keys", "list", "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert [key["call_count"] for key in json.loads(listed.stdout)] == [1]


async def test_derived_indexes_may_be_deleted_and_made_again(folder: Path) -> None:
    """Issue, vectors: deleting the file and re-indexing restores everything; the command works while the server runs."""
    with run_server(folder) as server:
        body = {"type": "fact", "content": "The cat is called Miso.", "wait_ms": 5000}
        assert server.client.post("/v1/brain/remember", json=body).status_code == 201
    for name in ("vectors.db", "texts.db"):
        for path in folder.glob(f"{name}*"):
            path.unlink()
    with run_server(folder) as server:
        assert _found(server) == []
        done = subprocess.run(
            [sys.executable, "-m", "rookery", "--data-dir", str(folder), "brain:reindex", "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        report = json.loads(done.stdout)

        assert (report["total"], report["successes"], report["failures"]) == (1, 1, 0)
        assert _found(server) == ["The cat is called Miso."]


def _found(server: Server) -> list[str]:
    answer = server.client.post("/v1/brain/recall", json={"query": "What is the cat's name?", "mode": "hybrid"})
    return [memory["content"] for memory in answer.json()["memories"]]


async def test_no_key_is_ever_logged(folder: Path) -> None:
    """D-20, spec 5.2: the plaintext is shown once and nowhere else."""
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
    ("variable", "value", "named"),
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
def test_a_wrong_setting_refuses_to_start_in_one_line(tmp_path: Path, variable: str, value: str, named: str) -> None:
    """D-02: a wrong value refuses to start, in one clear line without secrets."""
    environment = {**os.environ, variable: value, "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "serve", "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=environment,
    )

    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert named in lines[0]
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--port", "70000"], "a port is a number from 0 to 65535"),
        (["serve", "--host", "192.0.2.1", "--port", "0"], "Cannot listen on 192.0.2.1:0"),
        (["--data-dir", "[/bold]/a/file/x", "init"], "[/bold]/a/file/x cannot be created"),
    ],
)
def test_a_start_that_cannot_be_is_refused_in_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    """D-02: in one clear line, as narrow as the terminal may be, and whatever a path looks like."""
    (tmp_path / "[").mkdir()
    (tmp_path / "[" / "bold]").write_text("a file, where a folder is asked for")
    done = subprocess.run(
        [sys.executable, "-m", "rookery", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "40", "ROOKERY_DATA_DIR": str(tmp_path / "home")},
    )

    assert done.returncode == 1, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.strip())
    assert said in line


def test_a_misspelt_setting_is_named(tmp_path: Path) -> None:
    """D-02: an unknown ROOKERY_ variable is a warning naming the nearest, and an error under ROOKERY_STRICT."""
    environment = {**os.environ, "ROOKERY_DATABSE_URL": "x", "ROOKERY_PORT": "tcp://10.0.0.1:8400"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "migrate"]
    lenient = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environment)
    strict = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env={**environment, "ROOKERY_STRICT": "true"})

    assert lenient.returncode == 0
    assert "ROOKERY_DATABASE_URL" in lenient.stderr
    assert "Kubernetes" in lenient.stderr
    assert strict.returncode == 1
