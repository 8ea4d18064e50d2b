"""The lineage of a memory, and the items of a batch, through the whole application."""

from __future__ import annotations

from rookery.access.models import KeyRestrictions
from rookery.kernel.ids import uuid7
from tests.conftest import Caller, Instance


async def _lineage(caller: Caller, memory_id: object) -> list[tuple[str, str | None, bool]]:
    response = await caller.get(f"/v1/brain/memories/{memory_id}/history")
    assert response.status_code == 200, response.text
    return [(entry["id"], entry["superseded_by"], entry["memory"] is not None) for entry in response.json()["data"]]


async def test_the_history_is_the_same_for_every_memory_of_a_lineage(instance: Instance) -> None:
    """A tombstone without content stands for each superseded memory."""
    first = await instance.admin.remember("We deploy on Fridays.")
    second = await instance.admin.remember("We deploy on Mondays.", supersedes_id=first["id"])
    third = await instance.admin.remember("We deploy on Tuesdays.", supersedes_id=second["id"])
    expected = [(first["id"], second["id"], False), (second["id"], third["id"], False), (third["id"], None, True)]

    for memory in (first, second, third):
        assert await _lineage(instance.admin, memory["id"]) == expected
    history = (await instance.admin.get(f"/v1/brain/memories/{first['id']}/history")).text
    assert "Fridays" not in history
    assert "Tuesdays" in history


async def test_a_memory_without_versions_is_alone_in_its_history(instance: Instance) -> None:
    """The history is paged like other lists; an unknown id gives 404."""
    memory = await instance.admin.remember("Alone.")
    page = (await instance.admin.get(f"/v1/brain/memories/{memory['id']}/history?per_page=1")).json()

    assert (page["meta"]["total"], page["data"][0]["id"], page["data"][0]["ended_at"]) == (1, memory["id"], None)
    assert (await instance.admin.get(f"/v1/brain/memories/{uuid7()}/history")).status_code == 404


async def test_a_lineage_is_readable_only_with_access_to_its_memories(instance: Instance) -> None:
    """Allow-lists apply to the lineage too, also after all its memories are deleted."""
    first = await instance.admin.remember("Old.", org="acme")
    second = await instance.admin.remember("New.", org="acme", supersedes_id=first["id"])
    other_org_key = await instance.api_key(restrictions=_only_org("other"))
    assert (await other_org_key.get(f"/v1/brain/memories/{first['id']}/history")).status_code == 404

    await instance.admin.send("DELETE", f"/v1/brain/memories/{second['id']}")

    assert await _lineage(instance.admin, first["id"]) == [(first["id"], second["id"], False), (second["id"], None, False)]
    assert (await other_org_key.get(f"/v1/brain/memories/{first['id']}/history")).status_code == 404


def _only_org(name: str) -> KeyRestrictions:
    return KeyRestrictions(orgs=frozenset({name}))


async def test_a_misspelt_field_of_a_batch_item_gets_a_suggestion(instance: Instance) -> None:
    """An item of a batch has the same errors as a single request."""
    memories = [{"type": "fact", "content": "Good."}, {"type": "fact", "contnt": "Bad."}]
    [valid, invalid] = (await instance.admin.post("/v1/brain/remember/batch", {"memories": memories})).json()["results"]

    assert (valid["status"], invalid["status"]) == (201, 422)
    assert invalid["error"]["errors"] == {"content": ["is required"], "contnt": ["unknown field; did you mean 'content'?"]}
