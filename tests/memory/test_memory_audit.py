"""Removals, bulk changes and exports of memories leave an audit entry, without any text of a memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from rookery.access.operator import get_operator
from tests.agents.session_makers import SESSIONS, start_session_id
from tests.conftest import Instance, lend_model
from tests.processes import get_environment, run_rookery

Json = dict[str, object]
SECRET_TEXT = "The herons of pier 7 wear blue hats"


async def _list_entries(instance: Instance, action: str) -> list[Json]:
    response = await instance.admin.get(f"/api/v1/audit?action={action}")
    return list(response.json()["data"])


async def test_archiving_restoring_and_deleting_a_memory_leave_an_entry_each(instance: Instance) -> None:
    """The entry names the key, the memory and its place, and has no text of it."""
    memory = await instance.admin.remember(SECRET_TEXT, project="web")
    one = f"/v1/brain/memories/{memory['id']}"
    agent = await instance.agent_key("brain:delete", "brain:read", agent_id="kim")
    for _ in range(2):  # the second time changes nothing
        await agent.post(f"{one}/archive")
    await agent.post(f"{one}/restore")
    await agent.send("DELETE", one)

    (archived,), (restored,), (deleted,) = [await _list_entries(instance, f"memory.{verb}") for verb in ("archived", "restored", "deleted")]
    assert {entry["subject"]["id"] for entry in (archived, restored, deleted)} == {memory["id"]}  # pyright: ignore[reportIndexIssue] - JSON
    assert {cast("Json", entry["actor"])["id"] for entry in (archived, restored, deleted)} == {agent.key_id}
    assert (archived["before"], archived["after"]) == ({"archived": False}, {"archived": True})
    assert (restored["before"], restored["after"]) == ({"archived": True}, {"archived": False})
    assert deleted["after"] is None
    assert cast("Json", deleted["before"])["project"] == "web"
    assert "heron" not in json.dumps([archived, restored, deleted])


async def test_a_request_that_deletes_several_memories_leaves_an_entry_for_each(instance: Instance) -> None:
    """The tool `forget` takes several ids."""
    memories = [await instance.admin.remember(f"{SECRET_TEXT} {number}") for number in range(3)]
    ids = [str(memory["id"]) for memory in memories]
    call = {"server": "brain", "tool": "forget", "arguments": {"ids": ids}}
    response = await instance.admin.post("/api/v1/mcp/tools/call", call)
    entries = await _list_entries(instance, "memory.deleted")

    assert response.status_code == 200, response.text
    assert sorted(str(cast("Json", entry["subject"])["id"]) for entry in entries) == sorted(ids)
    assert (await instance.rookery.access.audit.verify(instance.workspace_id)).broken_at is None


async def test_a_refused_removal_leaves_no_entry(instance: Instance) -> None:
    """An entry and its change are one transaction."""
    memory = await instance.admin.remember(agent_id="lee", memory_scope="agent")
    agent = await instance.agent_key("brain:delete", "brain:read", agent_id="kim")
    response = await agent.send("DELETE", f"/v1/brain/memories/{memory['id']}")

    assert response.status_code == 404
    assert await _list_entries(instance, "memory.deleted") == []


async def test_promoting_the_memories_of_a_session_leaves_an_entry(instance: Instance) -> None:
    """It changes many memories by one request."""
    session = await start_session_id(instance.agent)
    for number in range(2):
        await instance.agent.remember(f"{SECRET_TEXT} {number}", session_id=session, memory_scope="session")
    await instance.agent.post(f"{SESSIONS}/{session}/end", {"status": "completed", "promote": True})
    (entry,) = await _list_entries(instance, "memories.promoted")

    assert (cast("Json", entry["subject"])["id"], cast("Json", entry["after"])["promoted"]) == (session, 2)


def _run(folder: Path, *arguments: str) -> str:
    result = run_rookery(*arguments, data_dir=folder, environment=get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0"})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _list_audit(folder: Path, *options: str) -> list[Json]:
    return list(json.loads(_run(folder, "audit", "list", "--json", *options)))


def test_each_command_on_many_memories_leaves_entries_of_its_start_and_its_end(model_folder: Path, tmp_path: Path) -> None:
    """The first one names the options, the second one also the numbers. Dry runs leave none."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    _run(folder, "init")
    note = tmp_path / "note.md"
    note.write_text(f"{SECRET_TEXT}. Write to kim@example.org.\n", encoding="utf-8")
    _run(folder, "import", str(note), "--project", "web", "--dry-run")
    _run(folder, "import", str(note), "--project", "web")
    _run(folder, "export", "--out", str(tmp_path / "out.jsonl"))
    _run(folder, "brain", "clean", "--strip-pii", "--yes")
    _run(folder, "brain", "consolidate")
    _run(folder, "brain", "backfill-org")
    _run(folder, "brain", "prune", "--min-confidence", "0.1")
    _run(folder, "brain", "forget", "--project", "web", "--dry-run")
    _run(folder, "brain", "forget", "--project", "web", "--yes")
    _run(folder, "brain", "training", "--on")
    _run(folder, "brain", "export-training")
    _run(folder, "brain", "training", "--off", "--forget", "--yes")
    entries = [entry for entry in reversed(_list_audit(folder, "--limit", "100")) if str(entry["action"]).startswith(("memor", "train"))]
    shown = [(entry["action"], cast("Json", entry["after"]).get("state")) for entry in entries]

    runs = ("imported", "exported", "cleaned", "consolidated", "backfilled", "pruned", "forgotten")
    assert shown == [
        *((f"memories.{name}", state) for name in runs for state in ("started", "completed")),
        *((f"training.{name}", None) for name in ("enabled", "exported", "disabled", "deleted")),
    ]
    assert {(cast("Json", entry["actor"])["kind"], cast("Json", entry["actor"])["name"]) for entry in entries} == {
        ("operator", get_operator().name)
    }
    imported, forgotten = cast("Json", entries[1]["after"]), cast("Json", entries[13]["after"])
    assert imported == {
        "state": "completed", "source": "note.md", "format": "auto", "project": "web", "total": 1, "counts": {"imported": 1},
    }  # fmt: skip
    assert forgotten == {"state": "completed", "project": "web", "total": 1, "counts": {"deleted": 1}}
    assert "heron" not in json.dumps(entries)
    assert "kim@example.org" not in json.dumps(entries)
