"""The foundation's story, through the whole application: remember, recall, call a tool."""

from __future__ import annotations

from tests.conftest import House


async def test_a_memory_is_remembered_indexed_and_recalled(house: House) -> None:
    """Spec 4.3: remember answers at once with indexed false; recall finds the memory by its meaning."""
    stored = await house.admin.remember("We deploy on Tuesdays, never on Fridays.", org="acme", project="shop")
    recalled = (await house.agent.post("/v1/brain/recall", {"query": "When do we ship?", "org": "acme"})).json()

    assert stored["indexed"] is True
    assert [memory["id"] for memory in recalled["memories"]] == [stored["id"]]
    assert {"id", "content", "type", "org", "project", "score", "confidence", "created_at"} <= recalled["memories"][0].keys()


async def test_the_built_in_brain_is_a_tool_server(house: House) -> None:
    """D-92: the tools remember and recall act as their caller."""
    call = {"server": "brain", "tool": "remember", "arguments": {"content": "The cat is called Miso.", "type": "fact"}}
    remembered = await house.agent.post("/api/v1/mcp/tools/call", call)
    found = await house.agent.get("/v1/brain/search?q=miso")

    assert remembered.json()["success"] is True
    assert [hit["content"] for hit in found.json()["hits"]] in ([], ["The cat is called Miso."])
    listed = (await house.agent.get("/v1/brain/memories")).json()
    assert "data" in listed, listed
    assert [memory["content"] for memory in listed["data"]] == ["The cat is called Miso."]


async def test_health_needs_no_key(house: House) -> None:
    """D-05: healthz and readyz."""
    nobody = house.caller(None)

    assert (await nobody.get("/healthz")).json() == {"status": "ok"}
    ready = await nobody.get("/readyz")
    assert (ready.status_code, ready.json()["engines"]["database"]) == (200, "ok")
