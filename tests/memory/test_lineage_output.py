"""The lineage of consolidated memories in responses, and the descriptions of the memory tools."""

from __future__ import annotations

import json
from typing import cast

import httpx2

from rookery.memory.maintenance.consolidation import ConsolidationRequest
from rookery.memory.mcp_tools import text_output
from tests.conftest import Instance
from tests.memory.makers import MemoryRig

FIRST = "Herons leave the roof of the boat house when the first frost of the year comes in November over the lake"
SECOND = f"{FIRST}. They return in March."
_CONTENT = "The heron nests on the roof of the boat house. " * 5 + "It is grey"


async def test_a_merged_memory_says_why_it_is_archived_and_the_kept_one_what_it_took_in(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: GET showed neither; spec 3.4: lineage tracked through supersedes_id; D-52."""
    kept, merged = [
        (await api.post("/remember", json={"content": content, "confidence": confidence})).json()["id"]
        for content, confidence in ((FIRST, 0.9), (SECOND, 0.5))
    ]
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(ConsolidationRequest(workspace_id=1))
    await rig.run_jobs()

    gone, whole = [(await api.get(f"/memories/{each}")).json() for each in (merged, kept)]
    assert (gone["state"], gone["archived_reason"], gone["superseded_by"]) == ("archived", "merged", kept)
    assert (whole["supersedes_id"], whole["superseded_by"], whole["archived_reason"]) == (merged, None, None)
    history = (await api.get(f"/memories/{kept}/history")).json()["data"]
    assert [(each["id"], each["state"]) for each in history] == [(merged, "archived"), (kept, "indexed")]

    await api.post(f"/memories/{merged}/restore")
    assert (await api.get(f"/memories/{kept}")).json()["supersedes_id"] is None
    archived = (await api.post(f"/memories/{kept}/archive")).json()
    assert (archived["state"], archived["archived_reason"]) == ("archived", None)


async def test_a_model_reads_no_packaging(instance: Instance) -> None:
    """Issue 14: five memories of 244 characters were 2,303 bytes of text; structuredContent stays whole."""
    for number in range(5):
        await instance.admin.remember(_CONTENT[:242] + f" {number}")
    call = {"server": "brain", "tool": "recall", "arguments": {"query": "Where does the heron nest?"}}
    whole = cast("dict[str, object]", (await instance.admin.post("/api/v1/mcp/tools/call", call)).json()["result"])
    text = text_output.render_text("recall", cast("dict[str, object]", whole.get("structuredContent", whole)))
    read = json.loads(text)

    assert [len(each["content"]) for each in read["memories"]] == [244] * 5
    assert {name for each in read["memories"] for name in each} == {"id", "content", "type", "score", "confidence", "created_at"}
    assert all(each["score"] == round(each["score"], 2) and len(each["created_at"]) == len("2026-11-22") for each in read["memories"])
    assert len(text) < 5 * 244 + 1_000
