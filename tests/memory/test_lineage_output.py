"""The lineage of consolidated memories in responses, and the descriptions of the memory tools."""

from __future__ import annotations

import json
from typing import cast

import httpx2

from rookery.memory.maintenance.consolidation import ConsolidationRequest
from rookery.memory.tool_declarations import compact_output
from tests.conftest import Instance
from tests.memory.makers import MemoryRig

FIRST = "Herons leave the roof of the boat house when the first frost of the year comes in November over the lake"
SECOND = f"{FIRST}. They return in March."
_CONTENT = "The heron nests on the roof of the boat house. " * 5 + "It is grey"


async def test_merged_memories_have_a_reason_and_a_link_to_each_other(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """GET returns archived_reason, superseded_by and supersedes_id after a merge."""
    primary_id, merged_id = [
        (await api.post("/remember", json={"content": content, "confidence": confidence})).json()["id"]
        for content, confidence in ((FIRST, 0.9), (SECOND, 0.5))
    ]
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(ConsolidationRequest(workspace_id=1))
    await rig.run_jobs()

    archived_memory, primary = [(await api.get(f"/memories/{memory_id}")).json() for memory_id in (merged_id, primary_id)]
    assert (archived_memory["state"], archived_memory["archived_reason"], archived_memory["superseded_by"]) == (
        "archived",
        "merged",
        primary_id,
    )
    assert (primary["supersedes_id"], primary["superseded_by"], primary["archived_reason"]) == (merged_id, None, None)
    history = (await api.get(f"/memories/{primary_id}/history")).json()["data"]
    assert [(entry["id"], entry["state"]) for entry in history] == [(merged_id, "archived"), (primary_id, "indexed")]

    await api.post(f"/memories/{merged_id}/restore")
    assert (await api.get(f"/memories/{primary_id}")).json()["supersedes_id"] is None
    archived = (await api.post(f"/memories/{primary_id}/archive")).json()
    assert (archived["state"], archived["archived_reason"]) == ("archived", None)


async def test_the_text_for_models_is_compact(instance: Instance) -> None:
    """The text output has only the fields that a model needs; structuredContent has all."""
    for number in range(5):
        await instance.admin.remember(_CONTENT[:242] + f" {number}")
    call = {"server": "brain", "tool": "recall", "arguments": {"query": "Where does the heron nest?"}}
    result = cast("dict[str, object]", (await instance.admin.post("/api/v1/mcp/tools/call", call)).json()["result"])
    text = json.dumps(compact_output("recall", cast("dict[str, object]", result.get("structuredContent", result))))
    output = json.loads(text)

    assert [len(memory["content"]) for memory in output["memories"]] == [244] * 5
    assert {name for memory in output["memories"] for name in memory} == {
        "id",
        "content",
        "type",
        "score",
        "relevance",
        "confidence",
        "created_at",
    }
    assert all(
        memory["score"] == round(memory["score"], 2) and len(memory["created_at"]) == len("2026-11-22") for memory in output["memories"]
    )
    assert len(text) < 5 * 244 + 1_000
    assert "is_confident" not in output, "it is the usual case"


def test_the_text_for_models_says_that_an_answer_is_uncertain() -> None:
    """False is left out elsewhere; here it is what a model must know."""
    assert compact_output("recall", {"memories": [], "is_confident": False}) == {"is_confident": False}
