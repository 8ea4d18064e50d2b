"""A server with its vectors in Qdrant: memory, diagnosis, outage, rebuild and backup."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py has no wheel for this platform")

from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.fault_proxy import FaultProxy
from tests.processes import get_environment, run_rookery, run_server
from tests.qdrant_stand_in import QdrantStandIn, run_qdrant_stand_in

pytestmark = pytest.mark.external_service

_KEY = "a-secret-key"


def _remember(client: httpx2.Client, content: str) -> str:
    response = client.post("/v1/brain/remember", json={"type": "observation", "content": content})
    assert response.status_code in {200, 201}, response.text
    return str(response.json()["id"])


def _recall(client: httpx2.Client, mode: str = "semantic") -> httpx2.Response:
    return client.post("/v1/brain/recall", json={"query": "which bird nests on the roof?", "top_k": 10, "mode": mode})


def _recall_ids(client: httpx2.Client) -> list[str]:
    response = _recall(client)
    return [memory["id"] for memory in response.json()["memories"]] if response.is_success else []


def _count_points(server: QdrantStandIn) -> int:
    return sum(collection.describe().points_count or 0 for collection in server.collections.values())


def _run(folder: Path, *arguments: str, address: str) -> subprocess.CompletedProcess[str]:
    environment = get_environment() | {"ROOKERY_VECTORS": address, "ROOKERY_MIN_FREE_DISK_MB": "0"}
    return run_rookery(*arguments, data_dir=folder, environment=environment)


def _find_finding(folder: Path, name: str, *arguments: str, address: str) -> dict[str, Any]:
    findings = json.loads(_run(folder, "doctor", *arguments, "--json", address=address).stdout)
    return next(finding for finding in findings if finding["about"] == name)


async def test_vectors_move_to_qdrant_and_back(tmp_path: Path, model_folder: Path) -> None:
    """Beside a running server, with kill -9 in the middle. `rookery move-engine vectors` does not embed them again."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_qdrant_stand_in() as qdrant, FaultProxy(qdrant.port) as proxy:
        address = qdrant.address(port=proxy.port)
        with run_server(folder) as server:
            ids = {_remember(server.client, f"The heron nests on roof {number}.") for number in range(8)}
            await eventually(lambda: set(_recall_ids(server.client)) == ids)
            preview = json.loads(_move(folder, address, "--dry-run", "--json").stdout)
            points_after_preview = _count_points(qdrant)
            proxy.latency_s = 0.5  # so that the move is killed before the answer to its batch arrives
            command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "move-engine", "vectors", "--to", address]
            process = subprocess.Popen(command, env=get_environment(), stderr=subprocess.DEVNULL)
            try:
                await eventually(lambda: _count_points(qdrant) == 8 or process.poll() is not None)
            finally:
                process.kill()
            assert process.wait(HANG_S) == -signal.SIGKILL
            proxy.heal()
            moved = _move(folder, address, "--json")
        with run_server(folder, vectors=address) as server:
            finished = json.loads(_move(folder, address, "--json", present=address).stdout)
            found = set(_recall_ids(server.client))
            for path in folder.glob("vectors.db*"):
                path.unlink()
            back = _move(folder, "embedded:", "--json", present=address)
    with run_server(folder) as server:
        returned = json.loads(_move(folder, "embedded:", "--json").stdout)
        found_at_last = set(_recall_ids(server.client))

    assert (preview["to_copy"], points_after_preview) == (8, 0)
    assert (moved.returncode, json.loads(moved.stdout)["missing"], finished["is_complete"], found) == (0, 0, True, ids), moved.stderr
    assert (back.returncode, json.loads(back.stdout)["copied"], returned["is_complete"], found_at_last) == (0, 8, True, ids), back.stderr


def _move(folder: Path, to: str, *options: str, present: str = "embedded:") -> subprocess.CompletedProcess[str]:
    return _run(folder, "move-engine", "vectors", "--to", to, *options, address=present)


async def test_a_server_keeps_its_vectors_in_qdrant(tmp_path: Path, model_folder: Path) -> None:
    """Recall, `/readyz`, `doctor`, deletion, an outage, `brain:reindex` and the backup, as a user sees them."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_qdrant_stand_in(api_key=_KEY) as qdrant, FaultProxy(qdrant.port) as proxy:
        address = f"qdrant://:{_KEY}@127.0.0.1:{proxy.port}"
        with run_server(folder, vectors=address) as server:
            client = server.client
            heron = _remember(client, "The heron nests on the roof.")
            otter = _remember(client, "The otter swims in the river.")

            def recalls(*expected: str) -> Callable[[], bool]:
                return lambda: sorted(_recall_ids(client)) == sorted(expected)

            await eventually(recalls(heron, otter))
            assert _recall_ids(client)[0] == heron
            assert client.get("/readyz").json()["engines"]["vectors"] == "ok"
            assert _find_finding(folder, "vectors", address=address)["grade"] == "ok"
            assert not (folder / "vectors.db").exists()

            assert client.delete(f"/v1/brain/memories/{otter}").is_success
            await eventually(recalls(heron))
            await eventually(lambda: _count_points(qdrant) == 1)

            proxy.refuse()
            proxy.reset()
            failed = _recall(client)
            swallow = _remember(client, "The swallow nests under the roof.")
            by_words = _recall(client, "keyword")
            ready = client.get("/readyz").json()["engines"]["vectors"]
            finding = _find_finding(folder, "vectors", address=address)
            proxy.heal()
            await eventually(recalls(heron, swallow))

            for name in list(qdrant.collections):
                qdrant.delete(name)
            gap = _find_finding(folder, "indexes", "--deep", address=address)
            assert _run(folder, "brain:reindex", address=address).returncode == 0
            await eventually(recalls(heron, swallow))
            healthy = _find_finding(folder, "indexes", "--deep", address=address)
            log = server.log()
        archive = tmp_path / "saved.tar"
        backup = _run(folder, "backup", str(archive), "--json", address=address)
        _run(tmp_path / "new", "restore", str(archive), address=address)
        lend_model(model_folder, tmp_path / "new")
        for name in list(qdrant.collections):
            qdrant.delete(name)
        rebuilt = _run(tmp_path / "new", "brain:reindex", address=address)

        assert (rebuilt.returncode, _count_points(qdrant)) == (0, 2), rebuilt.stderr
    assert (failed.status_code, failed.json()["error"]) == (503, "engine_unavailable")
    assert {memory["id"] for memory in by_words.json()["memories"]} == {heron, swallow}
    for text in (failed.text, str(ready), finding["says"]):
        assert "Qdrant" in text
        assert str(proxy.port) not in text, "the address of an engine is for operators"
    assert finding["grade"] == "problem"
    assert (gap["grade"], healthy["grade"]) == ("problem", "ok")
    assert "vectors.db" not in [file["name"] for file in json.loads(backup.stdout.splitlines()[0])["files"]]
    assert _KEY not in log + failed.text + str(ready) + str(finding)
