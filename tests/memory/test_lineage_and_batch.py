"""The lineage of a memory, and the items of a batch, through the whole application."""

from __future__ import annotations

from rookery.access.models import KeyRestrictions
from rookery.kernel.ids import uuid7
from tests.conftest import Caller, Instance


async def _lineage(caller: Caller, memory_id: object) -> list[tuple[str, str | None, bool]]:
    answer = await caller.get(f"/v1/brain/memories/{memory_id}/history")
    assert answer.status_code == 200, answer.text
    return [(each["id"], each["superseded_by"], each["memory"] is not None) for each in answer.json()["data"]]


async def test_a_lineage_is_told_from_any_of_its_memories(instance: Instance) -> None:
    """D-41: a tombstone without content keeps the lineage of what was superseded."""
    first = await instance.admin.remember("We deploy on Fridays.")
    second = await instance.admin.remember("We deploy on Mondays.", supersedes_id=first["id"])
    third = await instance.admin.remember("We deploy on Tuesdays.", supersedes_id=second["id"])
    expected = [(first["id"], second["id"], False), (second["id"], third["id"], False), (third["id"], None, True)]

    for memory in (first, second, third):
        assert await _lineage(instance.admin, memory["id"]) == expected
    told = (await instance.admin.get(f"/v1/brain/memories/{first['id']}/history")).text
    assert "Fridays" not in told
    assert "Tuesdays" in told


async def test_a_memory_without_a_lineage_is_its_own(instance: Instance) -> None:
    """D-12: a page like any other list; an id that never was is a missing thing."""
    alone = await instance.admin.remember("Alone.")
    page = (await instance.admin.get(f"/v1/brain/memories/{alone['id']}/history?per_page=1")).json()

    assert (page["meta"]["total"], page["data"][0]["id"], page["data"][0]["ended_at"]) == (1, alone["id"], None)
    assert (await instance.admin.get(f"/v1/brain/memories/{uuid7()}/history")).status_code == 404


async def test_a_lineage_is_shown_to_whom_its_memory_is(instance: Instance) -> None:
    """D-23, D-43: allow-lists and agents' own memories hold for the lineage too, also once all of it is deleted."""
    first = await instance.admin.remember("Old.", org="acme")
    second = await instance.admin.remember("New.", org="acme", supersedes_id=first["id"])
    elsewhere = await instance.api_key(restrictions=_only_org("other"))
    assert (await elsewhere.get(f"/v1/brain/memories/{first['id']}/history")).status_code == 404

    await instance.admin.send("DELETE", f"/v1/brain/memories/{second['id']}")

    assert await _lineage(instance.admin, first["id"]) == [(first["id"], second["id"], False), (second["id"], None, False)]
    assert (await elsewhere.get(f"/v1/brain/memories/{first['id']}/history")).status_code == 404


def _only_org(name: str) -> KeyRestrictions:
    return KeyRestrictions(orgs=frozenset({name}))


async def test_a_misspelt_field_inside_a_batch_is_named_with_the_nearest(instance: Instance) -> None:
    """D-10, D-50: an item of a batch is told what a body would be."""
    memories = [{"type": "fact", "content": "Good."}, {"type": "fact", "contnt": "Bad."}]
    [good, bad] = (await instance.admin.post("/v1/brain/remember/batch", {"memories": memories})).json()["results"]

    assert (good["status"], bad["status"]) == (201, 422)
    assert bad["error"]["errors"] == {"content": ["is required"], "contnt": ["unknown field; did you mean 'content'?"]}
