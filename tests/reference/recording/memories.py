"""The part of the story about memory."""

from __future__ import annotations

from typing import cast

from tests.reference.recording.recorder import Json, Recorder

_WHERE = {"org": "acme", "project": "shop"}


async def play(recorder: Recorder) -> None:
    """Store, recall, give feedback, correct and archive memories."""
    kim = recorder.instance.admin
    rule = await recorder.send(
        kim,
        "POST /v1/brain/remember",
        {
            "type": "decision",
            "content": "We deploy on Tuesdays, never on Fridays: nobody is there at the weekend to fix what breaks.",
            **_WHERE,
            "tags": ["deployment"],
            "source": "retrospective",
            "wait_ms": 5000,
        },
    )
    batch: list[Json] = [
        {"type": "fact", "content": "The shop's database is PostgreSQL 17, in one region.", **_WHERE, "tags": ["database"]},
        {"type": "preference", "content": "Kim wants small pull requests, one topic each.", "agent_id": "kim", "memory_scope": "agent"},
    ]
    stored = await recorder.send(kim, "POST /v1/brain/remember/batch", {"memories": batch})
    await kim.remember("Payments are made by invoice only.", **_WHERE)
    await recorder.send(kim, "GET /v1/brain/memories/{memory_id}", memory_id=rule["id"])
    recalled = await recorder.send(kim, "POST /v1/brain/recall", {"query": "On which day do we ship?", **_WHERE, "top_k": 1})
    feedback = {"used": [rule["id"]]}
    await recorder.send(kim, "POST /v1/brain/recall/{recall_id}/feedback", feedback, recall_id=recalled["recall_id"])
    recall_id = recalled["recall_id"]
    await recorder.send(kim, "GET /v1/brain/recalls", query={"per_page": 1})
    await recorder.send(kim, "GET /v1/brain/recalls/{recall_id}", recall_id=recall_id)
    await recorder.send(kim, "GET /v1/brain/recalls/{recall_id}/explain", recall_id=recall_id)
    await recorder.send(kim, "GET /v1/brain/search", query={"q": "deploy Tuesdays", "org": "acme", "limit": 5})
    await recorder.send(kim, "GET /v1/brain/memories", query={"org": "acme", "tags": "deployment", "per_page": 20})
    await recorder.send(kim, "PATCH /v1/brain/memories/{memory_id}", {"tags": ["deployment", "calendar"]}, memory_id=rule["id"])
    await recorder.send(kim, "GET /v1/brain/memories/{memory_id}/history", memory_id=rule["id"])
    await recorder.send(kim, "GET /v1/brain/tags", query={"org": "acme"})
    await recorder.send(kim, "GET /v1/brain/scopes", query={"org": "acme", "project": "shop"})
    await recorder.send(kim, "GET /v1/brain/map", query={"org": "acme"})
    await recorder.send(kim, "GET /v1/brain/agent/{agent_id}/boot", query={**_WHERE, "max_memories": 10}, agent_id="kim")
    await recorder.send(kim, "GET /v1/brain/agent/{agent_id}/context", query=_WHERE, agent_id="kim")
    await recorder.send(kim, "POST /v1/brain/memories/{memory_id}/archive", memory_id=rule["id"])
    await recorder.send(kim, "POST /v1/brain/memories/{memory_id}/restore", memory_id=rule["id"])
    first = cast("Json", cast("list[Json]", stored["results"])[0]["memory"])
    await recorder.send(kim, "DELETE /v1/brain/memories/{memory_id}", memory_id=first["id"])
