"""Every memory names who stored it and who changed it last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from rookery.access.operator import get_operator
from rookery.memory.capacity import StorageLimits
from rookery.migrations import migrate
from tests.agents.session_makers import SESSIONS, start_session_id
from tests.conftest import Caller, Instance
from tests.memory.command_line import Platform

Json = dict[str, object]

OPERATOR_AUTHOR = {"kind": "operator", "key_id": None, "name": get_operator().name, "agent_id": None, "session_id": None}


async def _get(caller: Caller, memory: Json) -> Json:
    return dict((await caller.get(f"/v1/brain/memories/{memory['id']}")).json())


def _agent_author(caller: Caller, name: object, agent_id: str, session_id: str | None = None) -> Json:
    return {"kind": "agent", "key_id": caller.key_id, "name": name, "agent_id": agent_id, "session_id": session_id}


async def test_a_memory_names_its_author_and_the_author_of_its_last_change(instance: Instance) -> None:
    """The key, its agent and the session of the request are in every answer about the memory."""
    writer = await instance.agent_key(agent_id="kim")
    editor = await instance.api_key()
    memory = await writer.remember(session_id="s-1")
    name = cast("Json", memory["created_by"])["name"]
    stored = await _get(instance.admin, memory)
    await editor.send("PATCH", f"/v1/brain/memories/{memory['id']}", {"content": "We deploy on Mondays."})
    changed = await _get(instance.admin, memory)

    author = _agent_author(writer, name, "kim", "s-1")
    assert (memory["created_by"], memory["updated_by"]) == (author, author)
    assert (stored["created_by"], stored["updated_by"]) == (author, author)
    assert changed["created_by"] == author
    assert changed["updated_by"] == {"kind": "api", "key_id": editor.key_id, "name": "test", "agent_id": None, "session_id": None}
    listed = (await instance.admin.get("/v1/brain/memories")).json()["data"]
    found = (await instance.admin.get("/v1/brain/search?q=Mondays")).json()["hits"]
    versions = (await instance.admin.get(f"/v1/brain/memories/{memory['id']}/history")).json()["data"]
    for shown in (listed[0], found[0], versions[0]["memory"]):
        assert (shown["created_by"], shown["updated_by"]) == (changed["created_by"], changed["updated_by"])


async def test_a_key_without_an_agent_writes_for_the_agent_that_the_request_names(instance: Instance) -> None:
    """The agent of a key takes precedence over that of the request."""
    by_admin = await instance.admin.remember(agent_id="lee")
    by_agent = await (await instance.agent_key(agent_id="kim")).remember(agent_id="kim")

    assert [cast("Json", memory["created_by"])["agent_id"] for memory in (by_admin, by_agent)] == ["lee", "kim"]


async def test_archiving_recall_and_feedback_leave_the_author_of_the_last_change(instance: Instance) -> None:
    """The author changes with `updated_at`."""
    memory = await instance.admin.remember()
    other = await instance.api_key()
    recalled = (await other.post("/v1/brain/recall", {"query": "When do we deploy?"})).json()
    await other.post(f"/v1/brain/recall/{recalled['recall_id']}/feedback", {"used": [memory["id"]]})
    await other.post(f"/v1/brain/memories/{memory['id']}/archive")
    await other.post(f"/v1/brain/memories/{memory['id']}/restore")
    shown = await _get(other, memory)

    assert (shown["updated_at"], shown["updated_by"]) == (memory["updated_at"], memory["created_by"])


async def test_a_promoted_session_memory_names_the_key_that_ended_the_session(instance: Instance) -> None:
    """Promotion is a change of the memory."""
    worker = await instance.agent_key(agent_id="kim")
    session = await start_session_id(worker)
    memory = await worker.remember(session_id=session, memory_scope="session")
    ended = await instance.admin.post(f"{SESSIONS}/{session}/end", {"status": "completed", "promote": True})
    shown = await _get(instance.admin, memory)

    assert ended.status_code == 200, ended.text
    assert shown["memory_scope"] == "project"
    assert cast("Json", shown["created_by"])["key_id"] == worker.key_id
    assert (cast("Json", shown["updated_by"])["kind"], cast("Json", shown["updated_by"])["session_id"]) == ("api", session)


@pytest.fixture
def platform(data_dir: Path) -> Platform:
    """A platform on an empty store."""
    migrate("embedded:", data_dir=data_dir)
    return Platform(data_dir, limits=StorageLimits(min_free_bytes=0))


def _export(platform: Platform) -> list[Json]:
    lines = platform.run("export").stdout_bytes.splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "memory"]


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_an_export_keeps_authors_and_an_import_restores_them(platform: Platform, tmp_path: Path, form: str) -> None:
    """A copy of a memory of Rookery keeps who wrote it, and the next import of the same file changes nothing."""
    author: Json = {"kind": "agent", "key_id": "k-1", "name": "Kim's key", "agent_id": "kim", "session_id": None}
    line: Json = {
        "kind": "memory", "id": "01a22513-68d2-7f84-8bfb-7e5577eb2da3", "type": "fact", "tags": [], "org": None, "project": "web",
        "memory_scope": "project", "confidence": 0.8, "base_confidence": 0.8, "source": "manual", "content": "We deploy on Mondays.",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "content_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    old: Json = {**line, "id": "01a22513-68d2-7f84-8bfb-7e5577eb2da4", "content": "Written before authors were recorded."}
    rows: list[Json] = [
        {"kind": "rookery-memories", "version": 1},
        {**line, "created_by": author, "updated_by": {**author, "kind": "operator", "key_id": None, "agent_id": None}},
        old,
        {"kind": "end", "memory": 2},
    ]
    source, copy = tmp_path / "source.jsonl", tmp_path / "copy"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    platform.run("import", str(source))
    exported = platform.run("export", "--format", form, "--out", str(copy))
    imported = platform.run("import", str(copy), "--new-ids", "--json")
    again = json.loads(platform.run("import", str(copy), "--new-ids", "--json").output)
    memories = sorted(_export(platform), key=lambda memory: str(memory["content"]))

    assert (exported.exit_code, imported.exit_code) == (0, 0), exported.output + imported.output
    assert [memory["created_by"] for memory in memories] == [author, author, None, None]
    assert [cast("Json", memory["updated_by"])["kind"] for memory in memories[:2]] == ["operator", "operator"]
    assert (again["imported"], again["unchanged"]) == (0, 2)


def test_a_memory_of_another_tool_names_the_user_who_imported_it(platform: Platform, tmp_path: Path) -> None:
    """Such a file does not name a key of Rookery."""
    (tmp_path / "note.md").write_text("Herons nest on pier 7.\n", encoding="utf-8")
    platform.run("import", str(tmp_path / "note.md"))
    (memory,) = _export(platform)

    assert (memory["created_by"], memory["updated_by"]) == (OPERATOR_AUTHOR, OPERATOR_AUTHOR)


def test_an_invalid_author_is_refused_with_the_field(platform: Platform) -> None:
    """One bad line does not stop the others."""
    line: Json = {
        "kind": "memory", "id": "01a22513-68d2-7f84-8bfb-7e5577eb2da3", "content": "x", "type": "fact", "tags": [], "confidence": 1,
        "base_confidence": 1, "memory_scope": "project", "source": "manual", "created_by": {"kind": "robot"},
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "content_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    rows: list[Json] = [{"kind": "rookery-memories", "version": 1}, line, {"kind": "end", "memory": 1}]
    result = platform.run("import", "-", standard_input="\n".join(map(json.dumps, rows)).encode())

    assert "created_by: kind must be one of api, agent, operator, system, not 'robot'" in " ".join(result.output.split())


def test_a_cleaned_memory_names_the_user_of_the_command(platform: Platform, tmp_path: Path) -> None:
    """The commands of maintenance are authors of what they change."""
    row: Json = {
        "kind": "memory", "id": "01a22513-68d2-7f84-8bfb-7e5577eb2da3", "content": "Write to kim@example.org.", "type": "fact", "tags": [],
        "confidence": 1, "base_confidence": 1, "memory_scope": "project", "source": "manual",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "content_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    rows: list[Json] = [{"kind": "rookery-memories", "version": 1}, row, {"kind": "end", "memory": 1}]
    source = tmp_path / "source.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    platform.run("import", str(source))
    cleaned = platform.run("brain", "clean", "--strip-pii", "--yes")
    (memory,) = _export(platform)

    assert cleaned.exit_code == 0, cleaned.output
    assert (memory["content"], memory["created_by"], memory["updated_by"]) == ("Write to [email].", None, OPERATOR_AUTHOR)
