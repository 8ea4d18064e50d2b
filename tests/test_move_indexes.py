"""`rookery move-engine vectors` and `texts` beside a running server."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2
import psycopg
import pytest

from rookery.engines import embedders, vectors
from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, get_environment, run_rookery, run_server
from tests.search_servers import SearchNode, make_data_folder, run_search_node
from tests.test_records_elsewhere import is_waiting

pytestmark = pytest.mark.external_service

_COPY_ROW = "CREATE TEMP TABLE row AS SELECT * FROM rookery_vectors_1 LIMIT 1; UPDATE row SET memory_id = '{memory_id}';"


@pytest.fixture
def vector_database(postgres_empty: str) -> str:
    """The address of a database with the extension pgvector."""
    with psycopg.connect(postgres_empty, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return postgres_empty


@pytest.fixture(scope="module")
def search_node() -> Generator[SearchNode]:
    """A node of OpenSearch."""
    with make_data_folder() as data, run_search_node("opensearch", data) as node:
        yield node


def _move(folder: Path, kind: str, to: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_rookery("move-engine", kind, "--to", "${TARGET}", *options, data_dir=folder, environment=_environment(to, **settings))


def _environment(to: str, **settings: str) -> dict[str, str]:
    own = {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
    return get_environment() | {"TARGET": to, "ROOKERY_MIN_FREE_DISK_MB": "0"} | own


def _remember(client: httpx2.Client, content: str, *, wait_ms: int = 0) -> str:
    response = client.post("/v1/brain/remember", json={"type": "observation", "content": content, "wait_ms": wait_ms})
    assert response.is_success, response.text
    return str(response.json()["id"])


class _Load:
    """Clients that remember and delete until they are stopped. *kept* has the contents of what must be found, by id."""

    def __init__(self, client: httpx2.Client) -> None:
        self.kept: dict[str, str] = {}
        self.deleted: set[str] = set()
        self._client = client
        self._is_over = threading.Event()

    def work(self, client_number: int) -> None:
        """Remember, and delete every third memory."""
        for number in range(100_000):
            if self._is_over.wait(0.02):
                return
            content = f"Client {client_number} saw heron {number} in nest {number * 7 % 1000}."
            memory_id = _remember(self._client, content)
            if number % 3:
                self.kept[memory_id] = content
            else:
                assert self._client.delete(f"/v1/brain/memories/{memory_id}").is_success
                self.deleted.add(memory_id)

    def stop(self) -> None:
        """Let the clients end."""
        self._is_over.set()


async def test_vectors_move_while_clients_remember_and_delete(tmp_path: Path, model_folder: Path, vector_database: str) -> None:
    """After the switch each memory is found in the new engine, and each deleted one is not; the first run reports no gap."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder) as server, ThreadPoolExecutor(2) as threads:
        early = {_remember(server.client, f"The rook nests in elm {number}."): f"The rook nests in elm {number}." for number in range(40)}
        doomed = _remember(server.client, "The crow left.", wait_ms=5000)
        load = _Load(server.client)
        clients = [threads.submit(load.work, number) for number in range(2)]
        try:
            await eventually(lambda: len(load.kept) > 5)
            copied = _move(folder, "vectors", vector_database, "--json")
            count = len(load.kept)
            assert server.client.delete(f"/v1/brain/memories/{doomed}").is_success
            await eventually(lambda: len(load.kept) > count + 20)  # in the gap between the first run and the restart
        finally:
            load.stop()
        for client in clients:
            client.result(HANG_S)
    with run_server(folder, vectors=vector_database) as server:
        finished = _move(folder, "vectors", vector_database, "--json", vectors=vector_database)
        expected = early | load.kept
        await eventually(lambda: _is_all_indexed(server, set(expected)))
        recalled = _recall(server, load.kept[max(load.kept)])
    found = await _fetch(vector_database, [*expected, *load.deleted, doomed])

    assert (copied.returncode, finished.returncode) == (0, 0), copied.stderr + finished.stderr
    reports = [json.loads(result.stdout) for result in (copied, finished)]
    assert [(report["missing"], report["is_complete"]) for report in reports] == [(0, False), (0, True)]
    assert reports[0]["copied"] >= 40
    assert reports[1]["dropped"] >= 1
    assert found == set(expected)
    assert load.deleted
    assert load.kept[max(load.kept)] in recalled
    assert not (folder / "move-vectors.db").exists()


def _is_all_indexed(server: Server, ids: set[str]) -> bool:
    pending = {
        memory_id
        for memory_id in ids
        if server.client.get(f"/v1/brain/memories/{memory_id}").raise_for_status().json()["state"] != "indexed"
    }
    return not pending


def _recall(server: Server, query: str) -> list[str]:
    answer = server.client.post("/v1/brain/recall", json={"query": query, "mode": "semantic", "top_k": 5}).raise_for_status().json()
    return [memory["content"] for memory in answer["memories"]]


async def _fetch(database: str, ids: list[str]) -> set[str]:
    embedder = embedders.open("embedded:", data_dir=Path("unused"))
    engine = vectors.open(database, data_dir=Path("unused"), model=embedder.model, dimension=embedder.dimension)
    try:
        return set(await engine.fetch(1, ids))
    finally:
        await engine.close()
        await embedder.close()


def _import(folder: Path, start: int, count: int, **settings: str) -> None:
    """Store and embed memories without a server."""
    path = folder.parent / "lines.jsonl"
    lines = [{"type": "observation", "content": f"Heron {number} sleeps on one leg."} for number in range(start, start + count)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    for command in (["import", str(path), "--workspace", "default"], ["brain", "reindex", "--stale"]):
        result = run_rookery(*command, data_dir=folder, environment=_environment("", **settings))
        assert result.returncode == 0, result.stderr


async def test_a_killed_move_of_vectors_continues(tmp_path: Path, model_folder: Path, vector_database: str) -> None:
    """Kill -9 in the middle; the next run copies only the rest, in the other direction the same command moves back."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    assert run_rookery("init", data_dir=folder, environment=_environment("")).returncode == 0
    _import(folder, 0, 1)
    assert _move(folder, "vectors", vector_database).returncode == 0
    _import(folder, 1, 280)
    ids = sorted(json.loads(line)["id"] for line in _export(folder) if "content" in line)
    with psycopg.connect(vector_database) as blocker:
        # The move waits for this row of the last memory, in its second batch.
        blocker.execute(_COPY_ROW.format(memory_id=ids[-1]).encode())
        blocker.execute("INSERT INTO rookery_vectors_1 SELECT * FROM row")
        command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "move-engine", "vectors", "--to", vector_database]
        process = subprocess.Popen(command, env=_environment(""), stderr=subprocess.DEVNULL)
        try:
            await eventually(lambda: is_waiting(vector_database) or process.poll() is not None)
        finally:
            process.kill()
        assert process.wait(HANG_S) == -signal.SIGKILL
        blocker.rollback()

    preview = json.loads(_move(folder, "vectors", vector_database, "--dry-run", "--json").stdout)
    report = json.loads(_move(folder, "vectors", vector_database, "--json").stdout)
    refused = _move(folder, "vectors", "embedded:", vectors=vector_database)
    for path in folder.glob("vectors.db*"):
        path.unlink()
    back = _move(folder, "vectors", "embedded:", "--json", vectors=vector_database)

    assert preview["to_copy"] == report["copied"] == 281 - 256
    assert (report["total"], report["missing"], await _fetch(vector_database, ids)) == (281, 0, set(ids))
    assert (refused.returncode, "Empty it first" in refused.stderr) == (1, True)
    assert (back.returncode, json.loads(back.stdout)["copied"]) == (0, 281)


async def test_a_killed_move_of_texts_to_postgresql_continues_and_they_move_back(
    tmp_path: Path, model_folder: Path, postgres_empty: str
) -> None:
    """Beside a running server, kill -9 in the middle; the next run copies only the rest. Words are found in each engine."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder):
        _import(folder, 0, 1)
        assert _move(folder, "texts", postgres_empty).returncode == 0
    _import(folder, 1, 280)
    ids = sorted(json.loads(line)["id"] for line in _export(folder) if "content" in line)
    with run_server(folder) as server:
        with psycopg.connect(postgres_empty) as blocker:
            # The move waits for this row of the last memory, in its second batch.
            blocker.execute(_COPY_ROW.format(memory_id=ids[-1]).replace("rookery_vectors_1", "rookery_texts").encode())
            blocker.execute("INSERT INTO rookery_texts SELECT * FROM row")
            command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "move-engine", "texts", "--to", postgres_empty]
            process = subprocess.Popen(command, env=_environment(""), stderr=subprocess.DEVNULL)
            try:
                await eventually(lambda: is_waiting(postgres_empty) or process.poll() is not None)
            finally:
                process.kill()
            assert process.wait(HANG_S) == -signal.SIGKILL
            blocker.rollback()
        preview = json.loads(_move(folder, "texts", postgres_empty, "--dry-run", "--json").stdout)
        report = json.loads(_move(folder, "texts", postgres_empty, "--json").stdout)
        late = _remember(server.client, "The bittern booms.")
    with run_server(folder, texts=postgres_empty) as server:
        finished = json.loads(_move(folder, "texts", postgres_empty, "--json", texts=postgres_empty).stdout)
        found = [await _search(server, query) for query in ("bittern", "280")]
        for path in folder.glob("texts.db*"):
            path.unlink()
        back = _move(folder, "texts", "embedded:", "--json", texts=postgres_empty)
        assert server.client.delete(f"/v1/brain/memories/{late}").is_success
    with run_server(folder) as server:
        returned = json.loads(_move(folder, "texts", "embedded:", "--json").stdout)
        found_at_last = [await _search(server, query) for query in ("bittern", "280")]

    assert preview["to_copy"] == report["copied"] == 281 - 256
    assert (report["total"], report["missing"], finished["is_complete"]) == (281, 0, True)
    assert (found[0], len(found[1])) == ({late}, 1)
    assert (back.returncode, json.loads(back.stdout)["copied"], returned["is_complete"]) == (0, 282, True)
    assert found_at_last == [set(), found[1]]


def _export(folder: Path, **settings: str) -> list[str]:
    result = run_rookery("export", "--workspace", "default", data_dir=folder, environment=_environment("", **settings))
    return [line for line in result.stdout.splitlines() if line]


def test_wrong_targets_of_indexes_are_refused(tmp_path: Path, model_folder: Path, postgres_empty: str) -> None:
    """An unreachable target, one without pgvector's tables, an unknown one and the present one are clear errors."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    assert run_rookery("init", data_dir=folder, environment=_environment("")).returncode == 0

    unreachable = _move(folder, "vectors", "postgresql://somebody:hush@127.0.0.1:1/none")
    unknown = _move(folder, "texts", "mysql://127.0.0.1/none")
    present = _move(folder, "vectors", "embedded:")

    assert [result.returncode for result in (unreachable, unknown, present)] == [1, 1, 1]
    assert ("vectors engine is unavailable" in unreachable.stderr, "hush" in unreachable.stderr) == (True, False)
    assert "unknown full-text engine" in unknown.stderr
    assert "brain:reindex" in present.stderr
    assert postgres_empty


_ENDLESS_INSERT = """
CREATE TRIGGER endless BEFORE INSERT ON document WHEN new.memory_id = '{memory_id}'
BEGIN SELECT count(*) FROM document a, document b, document c, document d, document e, document f; END
"""
"""Keeps the writer of one memory busy within its transaction: the join has more than 10**14 rows."""


async def test_a_killed_move_of_texts_from_opensearch_back_continues(tmp_path: Path, model_folder: Path, search_node: SearchNode) -> None:
    """
    Beside a running server, kill -9 within a transaction of texts.db; the next run copies only the rest.

    After the switch every memory is found by its words, what was stored in the gap too, and what was deleted there is not.
    """
    folder, source = tmp_path / "data", f"opensearch://127.0.0.1:{search_node.port}/back"
    lend_model(model_folder, folder)
    with run_server(folder, texts=source):
        _import(folder, 0, 1, texts=source)
        assert _move(folder, "texts", "embedded:", texts=source).returncode == 0
    _import(folder, 1, 280, texts=source)
    ids = sorted(json.loads(line)["id"] for line in _export(folder, texts=source) if "content" in line)
    with run_server(folder, texts=source) as server:
        with closing(sqlite3.connect(folder / "texts.db", isolation_level=None, timeout=0)) as target:
            target.execute(_ENDLESS_INSERT.format(memory_id=ids[-1]))
            command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "move-engine", "texts", "--to", "embedded:"]
            process = subprocess.Popen(command, env=_environment("", texts=source), stderr=subprocess.DEVNULL)
            try:
                await eventually(lambda: _count_documents(target) >= 256 and (_is_locked(target) or process.poll() is not None))
            finally:
                process.kill()
            assert process.wait(HANG_S) == -signal.SIGKILL
            target.execute("DROP TRIGGER endless")
            copied_count = _count_documents(target)
        preview = json.loads(_move(folder, "texts", "embedded:", "--dry-run", "--json", texts=source).stdout)
        report = json.loads(_move(folder, "texts", "embedded:", "--json", texts=source).stdout)
        late = _remember(server.client, "The bittern booms.")
        assert server.client.delete(f"/v1/brain/memories/{ids[0]}").is_success
        found_before = [await _search(server, query) for query in ("bittern", "280")]
    with run_server(folder) as server:
        finished = json.loads(_move(folder, "texts", "embedded:", "--json").stdout)
        found = [await _search(server, query) for query in ("bittern", "280")]
        total = server.client.get("/v1/brain/search", params={"q": "heron"}).raise_for_status().json()["total"]

    assert copied_count == 256
    assert preview["to_copy"] == report["copied"] == 281 - 256
    assert (report["total"], report["missing"], report["is_complete"]) == (281, 0, False)
    assert (finished["copied"], finished["dropped"], finished["missing"], finished["is_complete"]) == (1, 1, 0, True)
    assert found == found_before
    assert (found[0], len(found[1]), total) == ({late}, 1, 280)


def _count_documents(target: sqlite3.Connection) -> int:
    return int(target.execute("SELECT count(*) FROM document").fetchone()[0])


def _is_locked(target: sqlite3.Connection) -> bool:
    """Return whether another process writes to the file."""
    try:
        target.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    target.execute("ROLLBACK")
    return False


async def test_texts_move_to_opensearch(tmp_path: Path, model_folder: Path, search_node: SearchNode) -> None:
    """Words are found after the switch, changes in the gap included, and deleted memories are not."""
    folder, target = tmp_path / "data", f"opensearch://127.0.0.1:{search_node.port}/moved"
    lend_model(model_folder, folder)
    with run_server(folder) as server:
        ids = [_remember(server.client, f"The rook {number} nests in elm {number}.") for number in range(20)]
        copied = _move(folder, "texts", target, "--json")
        late = _remember(server.client, "The bittern booms.")
        assert server.client.delete(f"/v1/brain/memories/{ids[0]}").is_success
    with run_server(folder, texts=target) as server:
        finished = _move(folder, "texts", target, "--json", texts=target)
        found = [await _search(server, query) for query in ("bittern", "rook", "rook 0")]

    reports = [json.loads(result.stdout) for result in (copied, finished)]
    assert [(report["missing"], report["is_complete"]) for report in reports] == [(0, False), (0, True)]
    assert (reports[0]["copied"], reports[1]["dropped"] <= 1) == (20, True)
    assert found[0] == {late}
    assert found[1] == set(ids[1:])
    assert ids[0] not in found[2]


async def _search(server: Server, query: str) -> set[str]:
    """Search as a client does that tries again when an engine is late: on a busy machine, a node may miss its deadline."""

    def search() -> httpx2.Response | None:
        response = server.client.get("/v1/brain/search", params={"q": query, "limit": 100})
        return None if response.status_code == 503 else response

    response = await eventually(search)
    assert response is not None
    return {item["id"] for item in response.raise_for_status().json()["hits"]}
