"""Metadata of memories: stored, returned, changed, filtered by, moved; and what else a stranger's first request needs."""

from __future__ import annotations

from typing import cast

import httpx2
import pytest

from rookery.memory.mcp_tools import BrainServer
from rookery.memory.metadata import MAX_BYTES, MAX_KEYS
from tests.conftest import Instance
from tests.memory.makers import MemoryRig, make_caller

Row = dict[str, object]


async def _store(api: httpx2.AsyncClient, content: str, **fields: object) -> Row:
    answer = await api.post("/remember", json={"content": content, **fields})
    assert answer.status_code == 201, answer.text
    return cast("Row", answer.json())


async def test_a_memory_needs_nothing_but_its_content(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: `type` was required; it is `observation` by default, in remember, in a batch and over MCP."""
    stored = await _store(api, "The heron nests.")
    batch = (await api.post("/remember/batch", json={"memories": [{"content": "It is grey."}]})).json()["results"][0]["memory"]
    brain = rig.services
    server = BrainServer(
        remember=brain.remember,
        records=brain.records,
        recall=brain.recall,
        search=brain.search,
        listing=brain.listing,
        feedback=brain.feedback,
        context=brain.context,
        serializer=brain.serializer,
    )
    tool = await server.call("remember", {"content": "It flies."}, make_caller())

    assert [each["type"] for each in (stored, batch, tool)] == ["observation"] * 3


async def test_the_answer_of_remember_is_the_memory_but_for_its_text(api: httpx2.AsyncClient) -> None:
    """Issue 14: the answer lacked updated_at and effective_confidence; its text the caller has, and no stored response may (D-41)."""
    stored = await _store(api, "The heron nests.", metadata={"user": "u1"})
    shown = (await api.get(f"/memories/{stored['id']}")).json()

    assert {**stored, "content": "The heron nests.", "metadata": {"user": "u1"}} == {**shown, "duplicate": False, "duplicates": []}


async def test_metadata_is_stored_returned_and_changed(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: a memory had no place for an integrator's own fields."""
    given = {"user_id": "u1", "n": 7, "deep": {"list": [1, None, "x"]}, "none": None, "yes": True}
    stored = await _store(api, "The heron nests.", metadata=given)
    path = f"/memories/{stored['id']}"
    await rig.run_jobs()

    recalled = (await api.post("/recall", json={"query": "heron"})).json()["memories"][0]
    found = (await api.get("/search?q=heron")).json()["hits"][0]
    assert recalled["metadata"] == found["metadata"] == (await api.get(path)).json()["metadata"] == given
    assert (await api.patch(path, json={"tags": ["bird"]})).json()["metadata"] == given
    assert (await api.patch(path, json={"metadata": {"user_id": "u2"}})).json()["metadata"] == {"user_id": "u2"}
    assert (await api.get("/memories?metadata.user_id=u1")).json()["meta"]["total"] == 0
    assert (await api.get("/memories?metadata.user_id=u2")).json()["meta"]["total"] == 1
    assert (await api.patch(path, json={"metadata": None})).json()["metadata"] == {}
    assert (await api.get("/memories?metadata.user_id=u2")).json()["meta"]["total"] == 0


async def test_every_way_to_look_filters_by_metadata(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: by equality, in recall of each mode, search, lists; values are compared as text, as a query string has no types."""
    wanted = await _store(api, "heron of one", metadata={"user": "u1", "n": 7, "ok": True})
    await _store(api, "heron of two", metadata={"user": "u2", "n": 8, "ok": False})
    await _store(api, "heron of none")
    await _store(api, "heron of a tag", tags=["u1", "user", "7"])
    await rig.run_jobs()

    for asked in ({"user": "u1"}, {"n": 7}, {"n": "7"}, {"n": 7.0}, {"ok": True}, {"user": "u1", "ok": "true"}):
        for mode in ("semantic", "keyword", "hybrid"):
            answer = await api.post("/recall", json={"query": "heron", "mode": mode, "metadata": asked})
            assert [each["id"] for each in answer.json()["memories"]] == [wanted["id"]], (asked, mode)
    for query in ("metadata.user=u1", "metadata[user]=u1", "metadata.n=7", "metadata.ok=true&metadata.user=u1"):
        assert [each["id"] for each in (await api.get(f"/memories?{query}")).json()["data"]] == [wanted["id"]]
        searched = (await api.get(f"/search?q=heron&{query}")).json()
        assert ([each["id"] for each in searched["hits"]], searched["total"]) == ([wanted["id"]], 1)
    assert (await api.post("/recall", json={"query": "heron", "metadata": {"user": "u1", "n": 8}})).json()["memories"] == []


async def test_a_filter_by_metadata_is_not_thinned(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: the indexes filter, so one memory among hundreds of nearer ones is found."""
    body = [{"content": "heron heron heron", "metadata": {"user": "many", "id": number}} for number in range(300)]
    await api.post("/remember/batch", json={"memories": body})
    wanted = await _store(api, "the roof has a heron", metadata={"user": "one"})
    for _ in range(20):
        await rig.run_jobs()

    for mode in ("semantic", "keyword", "hybrid"):
        answer = await api.post("/recall", json={"query": "heron", "mode": mode, "top_k": 1, "metadata": {"user": "one"}})
        assert [each["id"] for each in answer.json()["memories"]] == [wanted["id"]]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({f"k{number}": 1 for number in range(MAX_KEYS + 1)}, f"at most {MAX_KEYS} keys"),
        ({"k": "x" * MAX_BYTES}, "bytes as JSON"),
        ({"k" * 101: 1}, "1 to 100 characters"),
        ({"": 1}, "1 to 100 characters"),
        ([1], ""),
        ("x", ""),
    ],
)
async def test_metadata_is_bounded(api: httpx2.AsyncClient, metadata: object, says: str) -> None:
    """Issue 14; D-16: a JSON object of at most 16 KiB."""
    answer = await api.post("/remember", json={"content": "x", "metadata": metadata})

    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["metadata"]), answer.text
    assert says in answer.json()["errors"]["metadata"][0]


async def test_a_filter_that_cannot_match_is_refused(api: httpx2.AsyncClient) -> None:
    """Issue 14: objects and lists are stored and cannot be filtered by."""
    answer = await api.post("/recall", json={"query": "x", "metadata": {"deep": {"a": 1}}})

    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["metadata"])


@pytest.mark.parametrize(
    ("path", "body", "field", "meant"),
    [
        ("/remember", {"content": "x", "text": "x"}, "text", "content"),
        ("/remember", {"content": "x", "user_id": "kim"}, "user_id", "agent_id"),
        ("/remember", {"content": "x", "run_id": "r"}, "run_id", "session_id"),
        ("/recall", {"query": "x", "limit": 3}, "limit", "top_k"),
        ("/recall", {"query": "x", "threshold": 0.3}, "threshold", "min_relevance"),
        ("/recall", {"query": "x", "filters": {}}, "filters", "metadata"),
    ],
)
async def test_names_of_other_products_lead_to_ours(api: httpx2.AsyncClient, path: str, body: Row, field: str, meant: str) -> None:
    """Issue 14: `user_id` was answered with "did you mean 'supersedes_id'"."""
    answer = await api.post(path, json=body)

    assert (answer.status_code, answer.json()["errors"]) == (422, {field: [f"unknown field; did you mean {meant!r}?"]})


async def test_recall_leaves_out_what_is_below_the_least_relevance(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: nonsense still returned five memories; `min_relevance` is compared with the `score` that is shown, in every mode."""
    for content in ("the heron nests on the roof", "the heron", "a ladder leans on the wall", "swallows fly south"):
        await _store(api, content)
    await rig.run_jobs()

    for mode in ("semantic", "keyword", "hybrid"):
        body = {"query": "heron on the roof", "mode": mode, "top_k": 10}
        every = (await api.post("/recall", json=body)).json()["memories"]
        scores = [each["score"] for each in every]
        for least in {0, *scores, 1}:
            kept = (await api.post("/recall", json={**body, "min_relevance": max(0, least)})).json()["memories"]
            assert [each["id"] for each in kept] == [each["id"] for each in every if each["score"] >= max(0, least)], (mode, least)
    assert (await api.post("/recall", json={"query": "x", "min_relevance": 1.1})).status_code == 422


async def test_scores_and_confidences_have_four_decimals(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: 16 digits were shown of a number that orders by two."""
    await _store(api, "the heron nests on the roof", confidence=0.7)
    await rig.run_jobs()
    rig.clock.advance(days=17)

    memory = (await api.post("/recall", json={"query": "heron", "mode": "hybrid"})).json()["memories"][0]
    for name in ("score", "similarity", "effective_confidence"):
        assert memory[name] == round(memory[name], 4)


@pytest.mark.parametrize("field", ["content", "type", "confidence", "source"])
async def test_null_is_refused_for_what_every_memory_has(api: httpx2.AsyncClient, field: str) -> None:
    """Issue 14: PATCH with null answered 200 and changed nothing."""
    stored = await _store(api, "x")
    answer = await api.patch(f"/memories/{stored['id']}", json={field: None})

    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])


async def test_null_empties_what_a_memory_may_be_without(api: httpx2.AsyncClient) -> None:
    """Issue 14: what may be empty is cleared."""
    stored = await _store(api, "x", org="acme", project="web", tags=["a"], metadata={"a": 1}, expires_in=5)
    body = dict.fromkeys(("org", "project", "tags", "metadata", "expires_in"))
    changed = (await api.patch(f"/memories/{stored['id']}", json=body)).json()

    assert [changed[name] for name in ("org", "project", "tags", "metadata", "expires_at")] == [None, None, [], {}, None]


async def test_a_batch_can_be_waited_for(instance: Instance) -> None:
    """Issue 14: `wait_ms` was an unknown field of a batch."""
    body = {"memories": [{"content": f"heron {number}"} for number in range(3)], "wait_ms": 5000}
    await instance.admin.remember("the model is loaded by now")
    results = (await instance.admin.post("/v1/brain/remember/batch", body)).json()["results"]

    assert [each["memory"]["state"] for each in results] == ["indexed"] * 3


async def test_agents_with_a_slash_in_their_id_have_a_context_and_a_boot(api: httpx2.AsyncClient) -> None:
    """An agent id with a slash no longer returns 404 (issue 14; spec 4.3: GET /agent/{agent_id}/context)."""
    await _store(api, "mine", agent_id="team/ann", memory_scope="agent")

    for path in ("/agent/team%2Fann/context", "/agent/team/ann/context"):
        assert (await api.get(path)).json()["meta"]["total"] == 1
    assert [each["content"] for each in (await api.get("/agent/team%2Fann/boot")).json()["agent"]] == ["mine"]
    assert (await api.get("/agent/ann/context")).json()["meta"]["total"] == 0


async def test_all_agents_memories_are_listed_for_an_administrator(api: httpx2.AsyncClient) -> None:
    """Issue 14: no one could list them; `agent_id=*` needs brain:admin."""
    for agent in ("kim", "lee"):
        await _store(api, f"of {agent}", agent_id=agent, memory_scope="agent", tags=[agent])

    assert (await api.get("/memories?memory_scope=agent&agent_id=*")).json()["meta"]["total"] == 2
    assert len((await api.get("/tags?agent_id=*")).json()["tags"]) == 2
    assert (await api.get("/memories?agent_id=*", headers={"X-Test-Caller": "reader"})).status_code == 403
    assert (await api.get("/search?q=of&agent_id=*")).status_code == 422
    assert (await api.post("/remember", json={"content": "x", "agent_id": "*"})).status_code == 422


async def test_an_agents_key_lists_its_own_memories_without_naming_itself(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Issue 14: a plain recall, search or list left them out silently; D-43."""
    await _store(api, "kim knows", agent_id="kim", memory_scope="agent")
    await rig.run_jobs()
    kim, lee = {"X-Test-Caller": "kim"}, {"X-Test-Caller": "lee"}

    for headers, count in ((kim, 1), (lee, 0)):
        assert len((await api.post("/recall", json={"query": "knows"}, headers=headers)).json()["memories"]) == count
        assert (await api.get("/search?q=knows", headers=headers)).json()["total"] == count
        assert (await api.get("/memories", headers=headers)).json()["meta"]["total"] == count


async def test_a_question_that_nothing_can_answer_is_refused(api: httpx2.AsyncClient) -> None:
    """Issue 14: the scope agent without an agent was an empty list, and no scopes meant all."""
    nobody = await api.post("/recall", json={"query": "x", "include_scopes": ["agent"]})
    none = await api.post("/recall", json={"query": "x", "include_scopes": []})

    assert (nobody.status_code, list(nobody.json()["errors"])) == (422, ["agent_id"])
    assert (none.status_code, list(none.json()["errors"])) == (422, ["include_scopes"])
    assert (await api.get("/memories?memory_scope=session")).json()["errors"].keys() == {"session_id"}
    assert (await api.post("/recall", json={"query": "x", "include_scopes": ["agent", "shared"]})).status_code == 200


async def test_every_state_of_the_specification_may_be_asked_for(api: httpx2.AsyncClient) -> None:
    """Spec 3.4, D-50: `created` and `deleted` were refused; a deleted memory is in its history alone."""
    old = await _store(api, "old")
    new = await _store(api, "new", supersedes_id=old["id"])

    assert [each["id"] for each in (await api.get("/memories?state=created")).json()["data"]] == [new["id"]]
    assert (await api.get("/memories?state=deleted")).json()["data"] == []
    history = (await api.get(f"/memories/{old['id']}/history")).json()["data"]
    assert [(each["id"], each["state"]) for each in history] == [(old["id"], "deleted"), (new["id"], "pending_embed")]
