"""Metadata of memories, and further fields that new integrators need first."""

from __future__ import annotations

from typing import cast

import httpx2
import pytest

from rookery.memory.metadata import MAX_BYTES, MAX_KEYS, build_facet_label, build_label, build_labels
from tests.conftest import Instance
from tests.memory.makers import MemoryRig, make_caller, make_memory_api

Row = dict[str, object]


async def _store(api: httpx2.AsyncClient, content: str, **fields: object) -> Row:
    response = await api.post("/remember", json={"content": content, **fields})
    assert response.status_code == 201, response.text
    return cast("Row", response.json())


async def test_a_memory_needs_nothing_but_its_content(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """`type` is `observation` by default, in remember, in a batch and over MCP."""
    by_rest = await _store(api, "The heron nests.")
    by_batch = (await api.post("/remember/batch", json={"memories": [{"content": "It is grey."}]})).json()["results"][0]["memory"]
    by_tool = await make_memory_api(rig).server().call("remember", {"content": "It flies."}, make_caller())

    assert [memory["type"] for memory in (by_rest, by_batch, by_tool)] == ["observation"] * 3


async def test_remember_returns_the_memory_without_its_text(api: httpx2.AsyncClient) -> None:
    """All other fields are returned; stored responses must not contain the text."""
    stored = await _store(api, "The heron nests.", metadata={"user": "u1"})
    memory = (await api.get(f"/memories/{stored['id']}")).json()

    assert {**stored, "content": "The heron nests.", "metadata": {"user": "u1"}} == {**memory, "duplicate": False, "duplicates": []}


async def test_metadata_is_stored_returned_and_changed(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Metadata holds an integrator's own fields."""
    metadata = {"user_id": "u1", "n": 7, "deep": {"list": [1, None, "x"]}, "none": None, "yes": True}
    stored = await _store(api, "The heron nests.", metadata=metadata)
    path = f"/memories/{stored['id']}"
    await rig.run_jobs()

    recalled = (await api.post("/recall", json={"query": "heron"})).json()["memories"][0]
    hit = (await api.get("/search?q=heron")).json()["hits"][0]
    assert recalled["metadata"] == hit["metadata"] == (await api.get(path)).json()["metadata"] == metadata
    assert (await api.patch(path, json={"tags": ["bird"]})).json()["metadata"] == metadata
    assert (await api.patch(path, json={"metadata": {"user_id": "u2"}})).json()["metadata"] == {"user_id": "u2"}
    assert (await api.get("/memories?metadata.user_id=u1")).json()["meta"]["total"] == 0
    assert (await api.get("/memories?metadata.user_id=u2")).json()["meta"]["total"] == 1
    assert (await api.patch(path, json={"metadata": None})).json()["metadata"] == {}
    assert (await api.get("/memories?metadata.user_id=u2")).json()["meta"]["total"] == 0


async def test_recall_search_and_lists_filter_by_metadata(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Values are compared as text, because a query string has no types."""
    match = await _store(api, "heron of one", metadata={"user": "u1", "n": 7, "ok": True})
    await _store(api, "heron of two", metadata={"user": "u2", "n": 8, "ok": False})
    await _store(api, "heron of nobody")
    await _store(api, "heron of a tag", tags=["u1", "user", "7"])
    await rig.run_jobs()

    for metadata_filter in ({"user": "u1"}, {"n": 7}, {"n": "7"}, {"n": 7.0}, {"ok": True}, {"user": "u1", "ok": "true"}):
        for mode in ("semantic", "keyword", "hybrid"):
            response = await api.post("/recall", json={"query": "heron", "mode": mode, "metadata": metadata_filter})
            assert [memory["id"] for memory in response.json()["memories"]] == [match["id"]], (metadata_filter, mode)
    for query in ("metadata.user=u1", "metadata[user]=u1", "metadata.n=7", "metadata.ok=true&metadata.user=u1"):
        assert [memory["id"] for memory in (await api.get(f"/memories?{query}")).json()["data"]] == [match["id"]]
        search = (await api.get(f"/search?q=heron&{query}")).json()
        assert ([hit["id"] for hit in search["hits"]], search["total"]) == ([match["id"]], 1)
    assert (await api.post("/recall", json={"query": "heron", "metadata": {"user": "u1", "n": 8}})).json()["memories"] == []


async def test_a_metadata_filter_finds_one_memory_among_hundreds(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """The indexes apply the filter, so nearer memories do not displace the match."""
    body = [{"content": "heron heron heron", "metadata": {"user": "many", "id": number}} for number in range(300)]
    await api.post("/remember/batch", json={"memories": body})
    match = await _store(api, "the roof has a heron", metadata={"user": "one"})
    for _ in range(20):
        await rig.run_jobs()

    for mode in ("semantic", "keyword", "hybrid"):
        response = await api.post("/recall", json={"query": "heron", "mode": mode, "top_k": 1, "metadata": {"user": "one"}})
        assert [memory["id"] for memory in response.json()["memories"]] == [match["id"]]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({f"k{number}": 1 for number in range(MAX_KEYS + 1)}, f"at most {MAX_KEYS} keys"),
        ({"k": "x" * MAX_BYTES}, "bytes as JSON"),
        ({"k" * 101: 1}, "1 to 100 characters"),
        ({"": 1}, "1 to 100 characters"),
        ([1], ""),
        ("x", ""),
    ],
)
async def test_metadata_is_bounded(api: httpx2.AsyncClient, metadata: object, message: str) -> None:
    """Metadata is a JSON object of at most 16 KiB."""
    response = await api.post("/remember", json={"content": "x", "metadata": metadata})

    assert (response.status_code, list(response.json()["errors"])) == (422, ["metadata"]), response.text
    assert message in response.json()["errors"]["metadata"][0]


async def test_a_metadata_filter_that_cannot_match_is_rejected(api: httpx2.AsyncClient) -> None:
    """Objects and lists are stored, but cannot be filter values."""
    response = await api.post("/recall", json={"query": "x", "metadata": {"deep": {"a": 1}}})

    assert (response.status_code, list(response.json()["errors"])) == (422, ["metadata"])


@pytest.mark.parametrize(
    ("path", "body", "field", "suggestion"),
    [
        ("/remember", {"content": "x", "text": "x"}, "text", "content"),
        ("/remember", {"content": "x", "user_id": "kim"}, "user_id", "agent_id"),
        ("/remember", {"content": "x", "run_id": "r"}, "run_id", "session_id"),
        ("/recall", {"query": "x", "limit": 3}, "limit", "top_k"),
        ("/recall", {"query": "x", "threshold": 0.3}, "threshold", "min_relevance"),
        ("/recall", {"query": "x", "filters": {}}, "filters", "metadata"),
    ],
)
async def test_field_names_of_other_products_get_a_suggestion(
    api: httpx2.AsyncClient, path: str, body: Row, field: str, suggestion: str
) -> None:
    """The suggestion for `user_id` was 'supersedes_id'."""
    response = await api.post(path, json=body)

    assert (response.status_code, response.json()["errors"]) == (422, {field: [f"unknown field; did you mean {suggestion!r}?"]})


async def test_recall_leaves_out_memories_below_min_relevance(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """`min_relevance` is compared with the returned `relevance`, in every mode."""
    for content in ("the heron nests on the roof", "the heron", "a ladder leans on the wall", "swallows fly south"):
        await _store(api, content)
    await rig.run_jobs()

    for mode in ("semantic", "keyword", "hybrid"):
        body = {"query": "heron on the roof", "mode": mode, "top_k": 10}
        all_memories = (await api.post("/recall", json=body)).json()["memories"]
        relevances = [memory["relevance"] for memory in all_memories]
        for threshold in {0, *relevances, 1}:
            filtered = (await api.post("/recall", json={**body, "min_relevance": threshold})).json()["memories"]
            assert [memory["id"] for memory in filtered] == [memory["id"] for memory in all_memories if memory["relevance"] >= threshold], (
                mode,
                threshold,
            )
    assert (await api.post("/recall", json={"query": "x", "min_relevance": 1.1})).status_code == 422


async def test_scores_and_confidences_have_four_decimals(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """They had 16 digits, although only two are significant."""
    await _store(api, "the heron nests on the roof", confidence=0.7)
    await rig.run_jobs()
    rig.clock.advance(days=17)

    memory = (await api.post("/recall", json={"query": "heron", "mode": "hybrid"})).json()["memories"][0]
    for name in ("score", "similarity", "effective_confidence"):
        assert memory[name] == round(memory[name], 4)


@pytest.mark.parametrize("field", ["content", "type", "confidence", "source"])
async def test_null_is_rejected_for_required_fields(api: httpx2.AsyncClient, field: str) -> None:
    """PATCH with null returned 200 and changed nothing."""
    stored = await _store(api, "x")
    response = await api.patch(f"/memories/{stored['id']}", json={field: None})

    assert (response.status_code, list(response.json()["errors"])) == (422, [field])


async def test_null_clears_optional_fields(api: httpx2.AsyncClient) -> None:
    """PATCH with null clears a field that may be empty."""
    stored = await _store(api, "x", org="acme", project="web", tags=["a"], metadata={"a": 1}, expires_in=5)
    body = dict.fromkeys(("org", "project", "tags", "metadata", "expires_in"))
    memory = (await api.patch(f"/memories/{stored['id']}", json=body)).json()

    assert [memory[name] for name in ("org", "project", "tags", "metadata", "expires_at")] == [None, None, [], {}, None]


async def test_wait_ms_waits_for_the_indexing_of_a_batch(instance: Instance) -> None:
    """`wait_ms` is a field of a batch too."""
    body = {"memories": [{"content": f"heron {number}"} for number in range(3)], "wait_ms": 5000}
    await instance.admin.remember("the model is loaded by now")
    results = (await instance.admin.post("/v1/brain/remember/batch", body)).json()["results"]

    assert [result["memory"]["state"] for result in results] == ["indexed"] * 3


async def test_agents_with_a_slash_in_their_id_have_a_context_and_a_boot(api: httpx2.AsyncClient) -> None:
    """`GET /agent/{agent_id}/context` takes an agent id with a slash."""
    await _store(api, "mine", agent_id="team/ann", memory_scope="agent")

    for path in ("/agent/team%2Fann/context", "/agent/team/ann/context"):
        assert (await api.get(path)).json()["meta"]["total"] == 1
    assert [memory["content"] for memory in (await api.get("/agent/team%2Fann/boot")).json()["agent"]] == ["mine"]
    assert (await api.get("/agent/ann/context")).json()["meta"]["total"] == 0


async def test_all_agents_memories_are_listed_for_an_administrator(api: httpx2.AsyncClient) -> None:
    """`agent_id=*` lists them and needs brain:admin."""
    for agent in ("kim", "lee"):
        await _store(api, f"of {agent}", agent_id=agent, memory_scope="agent", tags=[agent])

    assert (await api.get("/memories?memory_scope=agent&agent_id=*")).json()["meta"]["total"] == 2
    assert len((await api.get("/tags?agent_id=*")).json()["tags"]) == 2
    assert (await api.get("/memories?agent_id=*", headers={"X-Test-Caller": "reader"})).status_code == 403
    assert (await api.get("/search?q=of&agent_id=*")).status_code == 422
    assert (await api.post("/remember", json={"content": "x", "agent_id": "*"})).status_code == 422


async def test_an_agents_key_lists_its_own_memories_without_naming_itself(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """A recall, search or list without agent_id includes the agent's own memories."""
    await _store(api, "kim knows", agent_id="kim", memory_scope="agent")
    await rig.run_jobs()
    kim, lee = {"X-Test-Caller": "kim"}, {"X-Test-Caller": "lee"}

    for headers, count in ((kim, 1), (lee, 0)):
        assert len((await api.post("/recall", json={"query": "knows"}, headers=headers)).json()["memories"]) == count
        assert (await api.get("/search?q=knows", headers=headers)).json()["total"] == count
        assert (await api.get("/memories", headers=headers)).json()["meta"]["total"] == count


async def test_a_recall_that_can_match_nothing_is_rejected(api: httpx2.AsyncClient) -> None:
    """Scope agent without an agent, or an empty list of scopes, is an error."""
    without_agent = await api.post("/recall", json={"query": "x", "include_scopes": ["agent"]})
    without_scopes = await api.post("/recall", json={"query": "x", "include_scopes": []})

    assert (without_agent.status_code, list(without_agent.json()["errors"])) == (422, ["agent_id"])
    assert (without_scopes.status_code, list(without_scopes.json()["errors"])) == (422, ["include_scopes"])
    assert (await api.get("/memories?memory_scope=session")).json()["errors"].keys() == {"session_id"}
    assert (await api.post("/recall", json={"query": "x", "include_scopes": ["agent", "shared"]})).status_code == 200


async def test_lists_accept_every_state_of_the_specification(api: httpx2.AsyncClient) -> None:
    """`created` and `deleted` are accepted too; a deleted memory is only in its history."""
    superseded = await _store(api, "old")
    current = await _store(api, "new", supersedes_id=superseded["id"])

    assert [memory["id"] for memory in (await api.get("/memories?state=created")).json()["data"]] == [current["id"]]
    assert (await api.get("/memories?state=deleted")).json()["data"] == []
    history = (await api.get(f"/memories/{superseded['id']}/history")).json()["data"]
    assert [(entry["id"], entry["state"]) for entry in history] == [(superseded["id"], "deleted"), (current["id"], "pending_embed")]


def test_the_label_of_a_field_differs_from_that_of_a_metadata_key() -> None:
    """A field that is filtered by label cannot be matched by metadata of the same name."""
    labels = build_labels({"topic": "birds"}, {"topic": "birds", "mood": None})

    assert labels == {build_label("topic", "birds"), build_facet_label("topic", "birds")}
    assert len(labels) == 2
