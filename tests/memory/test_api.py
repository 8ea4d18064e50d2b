from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import httpx2
import pytest
from dirty_equals import IsFloat, IsInt, IsStr

from rookery.kernel.ids import is_uuid
from tests.memory.makers import MemoryRig

NOW = "2026-11-21T09:30:00.000000Z"
AUTHOR = {"kind": "api", "key_id": "key", "name": "key", "agent_id": None, "session_id": None}
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"


def _as(name: str) -> dict[str, str]:
    return {"X-Test-Caller": name}


async def _remember(api: httpx2.AsyncClient, content: str = "We deploy on Tuesdays.", *, caller: str = "admin", **fields: object) -> str:
    body = {"content": content, "type": "decision", "org": "acme", "project": "web", **fields}
    response = await api.post("/remember", json=body, headers=_as(caller))
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def _errors(response: httpx2.Response) -> list[str]:
    body = cast("dict[str, object]", response.json())
    assert (response.status_code, body["error"]) == (422, "validation_error"), response.text
    return list(cast("dict[str, object]", body["errors"]))


async def test_remember_responds_before_indexing(api: httpx2.AsyncClient) -> None:
    """`remember` responds before the memory is indexed."""
    response = await api.post(
        "/remember", json={"content": "We deploy on Tuesdays.", "type": "decision", "org": "acme", "project": "web", "tags": ["Ops"]}
    )

    body = response.json()
    assert response.status_code == 201
    assert is_uuid(body["id"])
    assert body == {
        "id": body["id"],
        "workspace_id": 1,
        "type": "decision",
        "org": "acme",
        "project": "web",
        "agent_id": None,
        "session_id": None,
        "memory_scope": "project",
        "tags": ["ops"],
        "confidence": 0.8,
        "effective_confidence": 0.8,
        "source": "manual",
        "supersedes_id": None,
        "superseded_by": None,
        "expires_at": None,
        "archived_at": None,
        "archived_reason": None,
        "indexed": False,
        "indexed_at": None,
        "state": "pending_embed",
        "duplicate": False,
        "duplicates": [],
        "created_at": NOW,
        "updated_at": NOW,
        "created_by": AUTHOR,
        "updated_by": AUTHOR,
    }


async def test_a_duplicate_is_answered_with_200(api: httpx2.AsyncClient) -> None:
    """`dedupe` returns the existing memory with status 200."""
    first = await _remember(api)
    body = {"content": "We deploy on Tuesdays.", "type": "fact", "org": "acme", "project": "web", "dedupe": True}
    response = await api.post("/remember", json=body)

    assert (response.status_code, response.json()["id"], response.json()["duplicate"]) == (200, first, True)


async def test_recall_returns_the_fields_of_the_specification(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """A recall response has the fields of the specification."""
    memory_id = await _remember(api)
    await rig.run_jobs()
    response = await api.post("/recall", json={"query": "deploy tuesdays", "org": "acme", "project": "web"})

    memory: dict[str, object] = {
        "id": memory_id,
        "content": "We deploy on Tuesdays.",
        "type": "decision",
        "org": "acme",
        "project": "web",
        "agent_id": None,
        "session_id": None,
        "memory_scope": "project",
        "tags": [],
        "metadata": {},
        "source": "manual",
        "score": IsFloat(),
        "relevance": IsFloat(ge=0, le=1),
        "similarity": IsFloat(),
        "confidence": 0.8,
        "effective_confidence": 0.8,
        "created_at": NOW,
        "updated_at": NOW,
    }
    assert response.json() == {"recall_id": IsStr(), "memories": [memory], "is_confident": True, "took_ms": IsInt(ge=0)}
    explained = (await api.post("/recall", json={"query": "deploy", "explain": True, "mode": "hybrid"})).json()["memories"][0]
    assert explained["explain"] == {
        "place": 1,
        "relevance": explained["relevance"],
        "ranks": {"semantic": 1, "keyword": 1},
        "similarity": explained["similarity"],
        "text_score": 1.0,
        "neighbour": None,
        "matched_keywords": [],
        "keyword_share": 0.0,
        "scope": "project",
        "decay": 1.0,
        "effective_confidence": 0.8,
        "parts": {"meaning": IsFloat(), "words": 0.55, "neighbours": 0.0, "keywords": 0.0},
        "highlight": "We <mark>deploy</mark> on Tuesdays.",
    }


async def test_recall_with_context_returns_the_neighbours(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """`context` adds the memories before and after each hit in its session; without it, the field is missing."""
    ids = [await _remember(api, content, session_id="s1") for content in ("Kim asks.", "Herons nest.", "Lee thanks.")]
    await rig.run_jobs()

    request = {"query": "herons", "top_k": 1}
    (memory,) = (await api.post("/recall", json=request)).json()["memories"]
    (with_context,) = (await api.post("/recall", json={**request, "context": 1})).json()["memories"]
    refused = await api.post("/recall", json={**request, "context": 3})

    assert "context" not in memory
    neighbours = [
        {"id": ids[position], "content": content, "type": "decision", "agent_id": None, "created_at": NOW}
        for position, content in ((0, "Kim asks."), (2, "Lee thanks."))
    ]
    assert with_context["context"] == {"before": neighbours[:1], "after": neighbours[1:]}
    assert refused.status_code == 422


async def test_search_tags_and_scopes_return_the_fields_of_the_specification(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Search, tags and scopes return the fields of the specification."""
    memory_id = await _remember(api, tags=["ops", "friday"])
    await _remember(api, "Other.", tags=["ops"])
    await rig.run_jobs()
    memory = (await api.get(f"/memories/{memory_id}")).json()

    search = (await api.get("/search", params={"q": "deploys", "org": "acme"})).json()
    assert search == {
        "hits": [{**memory, "score": IsFloat(gt=0), "highlight": "We <mark>deploy</mark> on Tuesdays."}],
        "total": 1,
        "took_ms": IsInt(ge=0),
        "next_cursor": None,
    }
    assert (await api.get("/tags", params={"org": "acme", "project": "web"})).json() == {
        "tags": [{"name": "ops", "count": 2}, {"name": "friday", "count": 1}]
    }
    assert (await api.get("/scopes")).json() == {"scopes": [{"org": "acme", "count": 2, "projects": [{"name": "web", "count": 2}]}]}


async def test_a_memory_is_read_changed_archived_restored_and_deleted(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """One memory passes through all routes of its life cycle."""
    path = f"/memories/{await _remember(api)}"
    await rig.run_jobs()

    original = (await api.get(path)).json()
    changed = (await api.patch(path, json={"content": "Never on Fridays.", "expires_in": 1, "project": None})).json()
    assert (original["state"], original["indexed"], original["indexed_at"]) == ("indexed", True, NOW)
    assert (changed["state"], changed["content"], changed["project"]) == ("stale", "Never on Fridays.", None)
    assert changed["expires_at"] == "2026-11-21T10:30:00.000000Z"
    assert (await api.patch(path, json={"expires_in": None, "confidence": 0})).json()["expires_at"] is None
    assert (await api.post(f"{path}/archive")).json()["state"] == "archived"
    assert (await api.post(f"{path}/restore")).json()["state"] == "pending_embed"
    deleted = await api.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await api.get(path)).json()["error"] == "resource_not_found"


async def test_memories_are_listed_page_by_page_newest_first(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """The list of memories is paged, newest first."""
    ids = list[str]()
    for number in range(5):
        ids.insert(0, await _remember(api, f"memory {number}", tags=["even" if number % 2 == 0 else "odd"]))
        rig.clock.advance(seconds=1)

    second = (await api.get("/memories", params={"page": 2, "per_page": 2, "org": "acme"})).json()
    assert [memory["id"] for memory in second["data"]] == ids[2:4]
    assert second["meta"] == {"current_page": 2, "per_page": 2, "total": 5, "next_cursor": IsStr()}
    assert second["links"]["next"] == "https://shown.example/v1/brain/memories?per_page=2&org=acme&page=3"
    assert (await api.get("/memories?tags=odd&state=pending_embed")).json()["meta"]["total"] == 2
    assert (await api.get("/memories?state=indexed")).json()["meta"]["total"] == 0


async def test_a_batch_returns_a_result_for_each_memory(api: httpx2.AsyncClient) -> None:
    """The response is 200 with a status for each memory; an invalid memory has its own error."""
    good = {"content": "a", "type": "fact"}
    items = [
        good,
        {"content": "", "type": "Fact", "more": 1},
        {**good, "dedupe": True},
        {**good, "memory_scope": "shared"},
        {"type": "fact"},
    ]
    response = await api.post("/remember/batch", json={"memories": items})

    results = response.json()["results"]
    assert (response.status_code, [result["status"] for result in results]) == (200, [201, 422, 200, 422, 422])
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert results[0]["memory"]["id"] == results[2]["memory"]["id"]
    assert sorted(results[1]["error"]["errors"]) == ["content", "more", "type"]
    assert (results[1]["memory"], results[0]["error"]) == (None, None)
    for memories in ([], [good] * 501, "x", [1]):
        _errors(await api.post("/remember/batch", json={"memories": memories}))


async def test_superseding_a_memory_twice_is_a_conflict_with_the_current_head(api: httpx2.AsyncClient) -> None:
    """A second supersede returns 409 with the id of the current head."""
    old = await _remember(api)
    new = await _remember(api, "Wednesdays.", supersedes_id=old.upper())
    response = await api.post("/remember", json={"content": "c", "type": "fact", "supersedes_id": old})

    assert (response.status_code, response.json()["error"], response.json()["head_id"]) == (409, "already_superseded", new)
    assert (await api.get(f"/memories/{old}")).status_code == 404


INVALID_FIELDS: list[tuple[str, object]] = [
    *[("content", value) for value in (None, "", "  \n", "\u200b\u2060 \ufeff", "x" * 50_001, 7, ["x"])],
    *[("type", value) for value in ("", "Decision", "1st", "a" * 65, "a b", "fact\n", 7)],
    *[("org", value) for value in ("", "x" * 101, 7)],
    *[("project", value) for value in ("", "x" * 256)],
    *[("agent_id", value) for value in ("", "x" * 101)],
    *[("session_id", value) for value in ("", "x" * 101)],
    *[("memory_scope", value) for value in ("", "workspace", 1)],
    *[("tags", value) for value in ("a", ["a"] * 101, {"a": 1})],
    *[("tags.0", value) for value in ([""], ["x" * 129], [7], [None])],
    *[("confidence", value) for value in (-0.1, 1.1, "0.5", True)],
    *[("source", value) for value in ("", "x" * 101)],
    *[("supersedes_id", value) for value in ("", "x", UNKNOWN_ID)],
    *[("expires_in", value) for value in (0, -1, 87_601, "1")],
    *[("dedupe", value) for value in ("true", 1)],
    *[("wait_ms", value) for value in (-1, 5001, 1.5, "1")],
    ("contnet", "x"),
]


@pytest.mark.parametrize(("field", "value"), INVALID_FIELDS)
async def test_remember_rejects_each_field_that_is_out_of_bounds(api: httpx2.AsyncClient, field: str, value: object) -> None:
    """The response is 422 with the name of the field; values are never clamped."""
    body: dict[str, object] = {"content": "c", "type": "fact", field.split(".", maxsplit=1)[0]: value}

    assert _errors(await api.post("/remember", json=body)) == [field]


async def test_remember_accepts_every_field_at_its_bounds(api: httpx2.AsyncClient) -> None:
    """The smallest and largest allowed values are accepted."""
    full: Mapping[str, object] = {
        "content": "é" * 50_000,
        "type": "a" + "-" * 63,
        "org": "o" * 100,
        "project": "p" * 255,
        "agent_id": "a" * 100,
        "session_id": "s" * 100,
        "memory_scope": "session",
        "tags": [f"{n:03}" + "t" * 125 for n in range(100)],
        "confidence": 1,
        "source": "s",
        "supersedes_id": None,
        "expires_in": 87_600,
        "dedupe": False,
        "wait_ms": 0,
    }

    assert (await api.post("/remember", json=full)).status_code == 201
    for confidence in (0, 0.0, 1.0, None):
        assert (await api.post("/remember", json={"content": "c", "type": "fact", "confidence": confidence})).status_code == 201


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        *(("tags=bird", 1), ("tags=bird&tags=tree", 0), ("source=wiki", 1), ("min_confidence=0.9", 1), ("memory_scope=shared", 1)),
        *(("since=2000-01-01", 2), ("until=2000-01-01", 0), ("type=decision", 2), ("type=bug", 0)),
    ],
)
async def test_search_has_the_filters_of_the_list(api: httpx2.AsyncClient, filters: str, count: int) -> None:
    """The filters of the list apply to the hits of a search and to its total."""
    await _remember(api, "The heron nests.", tags=["Bird"], confidence=0.95)
    await _remember(api, "The heron hunts.", source="wiki", memory_scope="shared")

    search = (await api.get(f"/search?q=heron&{filters}")).json()

    assert (len(search["hits"]), search["total"]) == (count, count)
    assert (await api.get(f"/memories?{filters}")).json()["meta"]["total"] == count


async def test_null_equals_an_omitted_field(api: httpx2.AsyncClient) -> None:
    """A client may send all fields, with null for those that it does not use."""
    null_fields = {"dedupe": None, "wait_ms": None, "tags": None, "expires_in": None, "supersedes_id": None}
    remember_response = await api.post("/remember", json={"content": "The heron nests.", "type": "fact", **null_fields})
    recall_body = {"query": "heron", "mode": "keyword", "explain": None, "top_k": None, "keywords": None, "max_tokens": None}
    recall_response = await api.post("/recall", json=recall_body)
    feedback_response = await api.post(
        f"/recall/{recall_response.json()['recall_id']}/feedback", json={"used": [remember_response.json()["id"]], "ignored": None}
    )

    assert [response.status_code for response in (remember_response, recall_response, feedback_response)] == [201, 200, 200]
    assert feedback_response.json()["memories"] == [{"id": remember_response.json()["id"], "confidence": 0.82}]


async def test_ids_are_case_insensitive(api: httpx2.AsyncClient) -> None:
    """A UUID in capitals is the same UUID, in paths and in bodies."""
    memory_id = await _remember(api)
    recall_id: str = (await api.post("/recall", json={"query": "heron", "mode": "keyword"})).json()["recall_id"]
    path = f"/memories/{memory_id.upper()}"

    responses = [
        await api.get(path),
        await api.get(f"{path}/history"),
        await api.patch(path, json={"tags": ["bird"]}),
        await api.post(f"{path}/archive"),
        await api.post(f"{path}/restore"),
        await api.post(f"/recall/{recall_id.upper()}/feedback", json={}),
        await api.delete(path),
    ]

    assert [response.status_code for response in responses] == [200, 200, 200, 200, 200, 200, 204]


INVALID_RECALL_FIELDS: list[tuple[str, object]] = [
    *[("query", value) for value in (None, "", " ", "x" * 2001, 7)],
    *[("top_k", value) for value in (0, 101, 2.5, "5", True)],
    *[("include_scopes", value) for value in ("agent", ["agent"] * 5)],
    ("include_scopes.0", ["mine"]),
    *[("min_confidence", value) for value in (-0.1, 1.1)],
    *[("boost_keywords", value) for value in (-0.1, 1.1, "1")],
    *[("keywords", value) for value in ("a", ["a"] * 33)],
    ("keywords.0", [""]),
    *[("since", value) for value in ("yesterday", 7)],
    ("until", "2026-13-01"),
    ("mode", "magic"),
    ("explain", "yes"),
    *[("max_tokens", value) for value in (0, 1_000_001)],
    ("limit", 5),
]


@pytest.mark.parametrize(("field", "value"), INVALID_RECALL_FIELDS)
async def test_recall_rejects_each_field_that_is_out_of_bounds(api: httpx2.AsyncClient, field: str, value: object) -> None:
    """Recall rejects values out of range and names the field."""
    assert _errors(await api.post("/recall", json={"query": "q", field.split(".", maxsplit=1)[0]: value})) == [field]


@pytest.mark.parametrize(
    "address",
    [
        *("/search", "/search?q=", "/search?q=a&limit=0", "/search?q=a&limit=101", "/search?q=a&offset=-1", "/search?q=a&top_k=1"),
        *("/tags?org=", "/scopes?limit=1", "/memories?per_page=101", "/memories?page=0", "/memories?state=gone", "/memories?since=now"),
    ],
)
async def test_query_parameters_out_of_bounds_are_rejected(api: httpx2.AsyncClient, address: str) -> None:
    """Query parameters out of range are rejected."""
    assert len(_errors(await api.get(address))) == 1


async def test_a_change_has_the_bounds_of_a_draft(api: httpx2.AsyncClient) -> None:
    """PATCH has the same limits as `remember`."""
    path = f"/memories/{await _remember(api)}"
    for field, value in (("content", ""), ("type", "X"), ("confidence", 2), ("tags", ["x" * 129]), ("expires_in", 0), ("agent_id", "kim")):
        assert len(_errors(await api.patch(path, json={field: value}))) == 1
    assert (await api.patch(path, json={})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", "/remember"), ("POST", "/remember/batch"), ("PATCH", f"/memories/{UNKNOWN_ID}"), ("DELETE", f"/memories/{UNKNOWN_ID}")),
        *(("POST", f"/memories/{UNKNOWN_ID}/archive"), ("POST", f"/memories/{UNKNOWN_ID}/restore")),
    ],
)
async def test_a_read_only_key_cannot_change_memories(api: httpx2.AsyncClient, method: str, path: str) -> None:
    """The scope brain:read does not include brain:write or brain:delete."""
    response = await api.request(method, path, json={}, headers=_as("reader"))

    assert (response.status_code, response.json()["error"]) == (403, "scope_missing")


async def test_no_route_returns_memories_of_another_workspace(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Workspaces are isolated on every route."""
    memory_id = await _remember(api, tags=["secret"])
    await rig.run_jobs()
    stranger = _as("stranger")

    recalled = [
        (await api.post("/recall", json={"query": "deploy", "mode": mode}, headers=stranger)).json()["memories"]
        for mode in ("semantic", "keyword", "hybrid")
    ]
    search = (await api.get("/search?q=deploy", headers=stranger)).json()
    lists = [(await api.get(path, headers=stranger)).json() for path in ("/tags", "/scopes")]
    page = (await api.get("/memories", headers=stranger)).json()
    by_id = [
        (await api.request(method, f"/memories/{memory_id}{end}", json=body, headers=stranger)).json()["error"]
        for method, end, body in (("GET", "", None), ("PATCH", "", {"content": "x"}), ("DELETE", "", None), ("POST", "/archive", None))
    ]
    supersede_response = await api.post("/remember", json={"content": "x", "type": "fact", "supersedes_id": memory_id}, headers=stranger)

    assert recalled == [[], [], []]
    assert (search["hits"], search["total"], lists, page["data"]) == ([], 0, [{"tags": []}, {"scopes": []}], [])
    assert by_id == ["resource_not_found"] * 4
    assert _errors(supersede_response) == ["supersedes_id"]
    assert (await api.get(f"/memories/{memory_id}")).status_code == 200


async def test_an_agent_may_not_use_the_id_of_another_agent(api: httpx2.AsyncClient) -> None:
    """Every route with `agent_id` responds 403 permission_denied and names brain:admin."""
    kim = _as("kim")
    responses = [
        await api.post("/remember", json={"content": "c", "type": "fact", "agent_id": "lee"}, headers=kim),
        await api.post("/recall", json={"query": "q", "agent_id": "lee"}, headers=kim),
        await api.get("/search?q=q&agent_id=lee", headers=kim),
        await api.get("/tags?agent_id=lee", headers=kim),
        await api.get("/scopes?agent_id=lee", headers=kim),
        await api.get("/memories?agent_id=lee", headers=kim),
    ]

    assert {(response.status_code, response.json()["error"], response.json()["required_permission"]) for response in responses} == {
        (403, "permission_denied", "brain:admin")
    }


async def test_a_key_of_one_org_has_access_to_that_org_only(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """A key restricted to one org reads and writes only there."""
    await _remember(api, org="zoo")
    mine = await _remember(api, caller="acme")
    await rig.run_jobs()
    response = await api.post("/remember", json={"content": "c", "type": "fact", "org": "zoo"}, headers=_as("acme"))

    assert (response.status_code, response.json()["error"]) == (403, "permission_denied")
    memories = (await api.post("/recall", json={"query": "deploy"}, headers=_as("acme"))).json()["memories"]
    assert [memory["id"] for memory in memories] == [mine]
    assert [scope["org"] for scope in (await api.get("/scopes", headers=_as("acme"))).json()["scopes"]] == ["acme"]


async def test_a_test_key_shows_its_parents_workspace(api: httpx2.AsyncClient) -> None:
    """Responses to a test key show the parent's workspace id."""
    body = {"content": "c", "type": "fact"}
    memory = (await api.post("/remember", json=body, headers=_as("twin"))).json()

    assert memory["workspace_id"] == 1
    assert (await api.get(f"/memories/{memory['id']}", headers=_as("twin"))).json()["workspace_id"] == 1
    assert (await api.get(f"/memories/{memory['id']}")).status_code == 404
