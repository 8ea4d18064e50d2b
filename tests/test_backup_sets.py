"""Backups of a running server on one set of engines, restored onto another set: embedded, or PostgreSQL with pgvector."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.conftest import SECRET_KEY, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, get_environment, run_rookery, run_server

pytestmark = pytest.mark.external_service

_CONTENTS = [f"The rook nests in elm {number}." for number in range(12)]


@pytest.fixture
def database(postgres_empty: str) -> str:
    """The address of a database with the extension pgvector, for the records and the vectors."""
    with psycopg.connect(postgres_empty, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return postgres_empty


def _run(folder: Path, *arguments: str, **settings: str) -> tuple[str, str]:
    own = {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
    environment = get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_SECRET_KEY": SECRET_KEY} | own
    result = run_rookery(*arguments, data_dir=folder, environment=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


def _use(server: Server) -> dict[str, str]:
    """Create something in several domains; return the headers of the key."""
    for content in _CONTENTS:
        body = {"type": "observation", "content": content, "wait_ms": 5000}
        assert server.client.post("/v1/brain/remember", json=body).is_success
    plan = {"title": "Roof", "phases": [{"name": "One", "tasks": ["Look"]}]}
    assert server.client.post("/api/agent/plans", json=plan).is_success
    hook = {"url": "https://93.184.216.34/hook", "events": ["plan.archived"]}
    assert server.client.post("/api/v1/webhooks", json=hook).is_success
    return dict(server.client.headers)


def _read(server: Server, headers: dict[str, str]) -> tuple[list[tuple[str, str, float]], list[str], list[str]]:
    """Return what a client sees, by its key from before the backup."""
    with httpx2.Client(base_url=server.url, headers=headers, timeout=HANG_S) as client:
        query = {"query": "where does the bird live?", "mode": "semantic", "top_k": 50}
        recalled = client.post("/v1/brain/recall", json=query).raise_for_status().json()["memories"]
        plans = client.get("/api/agent/plans").raise_for_status().json()["data"]
        hooks = client.get("/api/v1/webhooks").raise_for_status().json()["data"]
    return (
        sorted((memory["id"], memory["content"], round(memory["score"], 3)) for memory in recalled),
        [f"{plan['slug']} {plan['progress']}" for plan in plans],
        [f"{hook['id']} {hook['url']}" for hook in hooks],
    )


def test_a_server_on_postgresql_is_restored_onto_the_embedded_set(tmp_path: Path, model_folder: Path, database: str) -> None:
    """Records from PostgreSQL become records.db, the vectors are rebuilt, and the same key reads the same things."""
    old, new, archive = tmp_path / "old", tmp_path / "new", tmp_path / "saved.tar.zst"
    lend_model(model_folder, old)
    with run_server(old, database_url=database, vectors=database, secret_key=SECRET_KEY) as server:
        headers = _use(server)
        before = _read(server, headers)
        saved = json.loads(_run(old, "backup", str(archive), "--json", database_url=database, vectors=database)[0])
        keys = (old / "first-run.json").read_bytes()
    notices = _run(new, "restore", str(archive))[1]
    lend_model(model_folder, new)
    _run(new, "brain:reindex")
    (new / "first-run.json").write_bytes(keys)
    with run_server(new, secret_key=SECRET_KEY) as server:
        after = _read(server, headers)

    assert [file["name"] for file in saved["files"]] == ["records.db", "texts.db", "servers.json"]
    assert "no index for ROOKERY_VECTORS" in notices
    assert [len(part) for part in before] == [len(_CONTENTS), 1, 1]
    assert after == before


def test_an_embedded_server_is_restored_onto_postgresql(tmp_path: Path, model_folder: Path, database: str) -> None:
    """records.db goes into PostgreSQL, the vectors are copied to pgvector, and the same key reads the same things."""
    old, new, archive = tmp_path / "old", tmp_path / "new", tmp_path / "saved.tar.zst"
    lend_model(model_folder, old)
    with run_server(old, secret_key=SECRET_KEY) as server:
        headers = _use(server)
        before = _read(server, headers)
        _run(old, "backup", str(archive))
        keys = (old / "first-run.json").read_bytes()
    notices = _run(new, "restore", str(archive), database_url=database, vectors=database)[1]
    lend_model(model_folder, new)
    moved = _run(new, "move-engine", "vectors", "--to", database, "--json", database_url=database)[0]
    (new / "first-run.json").write_bytes(keys)
    (new / "vectors.db").unlink()
    with run_server(new, database_url=database, vectors=database, secret_key=SECRET_KEY) as server:
        after = _read(server, headers)

    assert "move-engine vectors --to ADDRESS" in notices
    assert (json.loads(moved)["copied"], json.loads(moved)["missing"]) == (len(_CONTENTS), 0)
    assert not (new / "records.db").exists()
    assert after == before
