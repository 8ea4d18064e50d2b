"""Memory."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tests.contract.statements import Api, assert_error, statement, statement_per_value, statements_about_fields
from tests.deadlines import HANG_S

BRAIN = "/v1/brain"


def get_memory(api: Api) -> dict[str, Any]:
    """Return a memory from its GET route."""
    memory = api.remember("A memory with every field.", org="acme", project="shop", agent_id="ann", tags=["one"])
    return api.get(f"{BRAIN}/memories/{memory['id']}").json()


statements_about_fields(
    "A memory",
    {
        "id": "string",
        "workspace_id": "integer",
        "org": "string or null",
        "project": "string or null",
        "agent_id": "string or null",
        "memory_scope": "string",
        "type": "string",
        "tags": "array",
        "confidence": "number",
        "source": "string",
        "content": "string",
        "supersedes_id": "string or null",
        "indexed_at": "time or null",
        "created_at": "time",
        "updated_at": "time",
    },
    get_memory,
)


@statement("id is a UUID.")
def _(api: Api) -> None:
    assert uuid.UUID(api.remember()["id"])


statement_per_value(
    "The type {} is accepted.",
    ["observation", "context", "decision", "convention", "architecture", "procedure"],
    lambda api, kind: _equals(api.remember(type=kind)["type"], kind),
)


def _equals(actual: object, expected: object) -> None:
    assert actual == expected, actual


def accepts_scope(api: Api, scope: str) -> None:
    """Assert that a memory is stored in a scope."""
    owner = {"agent": {"agent_id": "ann"}, "session": {"session_id": "s1"}, "shared": {"org": "acme"}}.get(scope, {})
    assert api.remember(memory_scope=scope, **owner)["memory_scope"] == scope


statement_per_value("memory_scope may be {}.", ["project", "agent", "session", "shared"], accepts_scope)


def has_max_length(api: Api, case: tuple[str, int]) -> None:
    """Assert that a field is accepted at its maximum length and rejected beyond it."""
    name, length = case
    assert api.remember(**{name: "x" * length})[name] == "x" * length
    assert_error(api.post(f"{BRAIN}/remember", {"content": "x", "type": "fact", name: "x" * (length + 1)}), 422, "validation_error")


statement_per_value(
    "A field beyond its maximum length is rejected: {}.",
    [("org", 100), ("project", 255), ("agent_id", 100)],
    has_max_length,
)


@statement("source is manual when absent.")
def _(api: Api) -> None:
    body = api.get(f"{BRAIN}/memories/{api.remember()['id']}").json()
    assert body["source"] == "manual"


def finds_memory(api: Api, mode: str) -> None:
    """Assert that recall finds a memory in a mode."""
    org = api.name("org")
    api.remember("The capybara bathes.", org=org)
    assert contents(api.recall("capybara", org=org, mode=mode)) == {"The capybara bathes."}


statement_per_value(
    "A confidence of {} is rejected.",
    [-0.1, 1.1],
    lambda api, value: assert_error(api.post(f"{BRAIN}/remember", {"content": "x", "type": "fact", "confidence": value}), 422),
)


# 2.7, 2.8


def contents(response: dict[str, Any]) -> set[str]:
    """Return the contents of the recalled memories."""
    return {memory["content"] for memory in response["memories"]}


def store_in_scopes(api: Api) -> tuple[str, dict[str, str]]:
    """Store a memory in each of several scopes of a new org; return the org, and the contents by scope."""
    org = api.name("org")
    marker = api.name("marker")
    stored = {
        "one": {"org": org, "project": "one"},
        "two": {"org": org, "project": "two"},
        "org": {"org": org},
        "shared": {"org": org, "memory_scope": "shared"},
        "agent": {"org": org, "memory_scope": "agent", "agent_id": f"{org}-ann"},
        "session": {"org": org, "memory_scope": "session", "session_id": f"{org}-s"},
        "other": {"org": f"{org}-other", "project": "one"},
    }
    contents_by_scope = {name: f"The {marker} lies in {name}." for name in stored}
    for name, space in stored.items():
        api.remember(contents_by_scope[name], **space)
    return org, contents_by_scope


def check_recall(api: Api, included: set[str], excluded: set[str], **scope: str) -> None:
    """Assert which scopes a recall covers."""
    org, contents_by_scope = store_in_scopes(api)
    values = {name: value.format(org=org) for name, value in scope.items()}
    recalled = contents(api.recall(f"Where is the {org} marker?", top_k=100, **values))
    assert {contents_by_scope[name] for name in included} <= recalled
    assert recalled.isdisjoint({contents_by_scope[name] for name in excluded})


@statement("A memory of a project is shared by all agents that recall in the project.")
def _(api: Api) -> None:
    check_recall(api, {"one"}, set(), org="{org}", project="one")


@statement("A memory of an agent is recalled only for that agent.")
def _(api: Api) -> None:
    check_recall(api, {"agent"}, set(), org="{org}", agent_id="{org}-ann")
    check_recall(api, set(), {"agent"}, org="{org}")


@statement("A memory of a session is recalled only in that session.")
def _(api: Api) -> None:
    check_recall(api, {"session"}, set(), org="{org}", session_id="{org}-s")
    check_recall(api, set(), {"session"}, org="{org}")


@statement("A shared memory is found across the projects of its org.")
def _(api: Api) -> None:
    check_recall(api, {"shared"}, set(), org="{org}", project="two")


@statement("Recall with org and project filters to that project.")
def _(api: Api) -> None:
    check_recall(api, {"one"}, {"two", "other"}, org="{org}", project="one")


@statement("Recall with org alone covers all projects of the org.")
def _(api: Api) -> None:
    check_recall(api, {"one", "two", "org"}, {"other"}, org="{org}")


@statement("Recall with neither covers the whole workspace.")
def _(api: Api) -> None:
    check_recall(api, {"one", "two", "other"}, set())


@statement("An org filter never returns memories of another org, in search, lists, tags and scopes too.")
def _(api: Api) -> None:
    org, contents_by_scope = store_in_scopes(api)
    for path in (f"search?q=marker&org={org}&limit=100", f"memories?org={org}&per_page=100"):
        assert contents_by_scope["other"] not in api.get(f"{BRAIN}/{path}").text
    assert {scope["org"] for scope in api.get(f"{BRAIN}/scopes?org={org}").json()["scopes"]} == {org}


@statement("workspace_id is a hard boundary: another workspace neither finds nor changes a memory.")
def _(api: Api) -> None:
    memory = api.remember(f"Of the first workspace {api.name()}.")
    workspace = api.post("/api/v1/workspaces", {"name": api.name("other")})
    assert workspace.status_code == 201, workspace.text
    number = workspace.json()["workspace_id"]
    key = api.post(f"/api/v1/workspaces/{number}/api-keys", {"name": "first", "scopes": ["*"]}).json()["plaintext_key"]
    assert_error(api.get(f"{BRAIN}/memories/{memory['id']}", key=key), 404)
    assert api.recall("Of the first workspace", key=key)["memories"] == []
    assert api.get(f"{BRAIN}/search?q=workspace", key=key).json()["total"] == 0
    assert_error(api.send("DELETE", f"{BRAIN}/memories/{memory['id']}", key=key), 404)


# 3.4


@statement("remember stores immediately; the response has indexed false.")
def _(api: Api) -> None:
    response = api.post(f"{BRAIN}/remember", {"content": f"Not indexed yet {api.name()}.", "type": "fact"})
    assert response.status_code == 201
    assert response.json()["indexed"] is False
    assert api.get(f"{BRAIN}/memories/{response.json()['id']}").status_code == 200


@statement("The indexing job sets indexed_at; the memory is indexed.")
def _(api: Api) -> None:
    memory = api.remember()
    body = api.get(f"{BRAIN}/memories/{memory['id']}").json()
    assert body["indexed_at"] is not None
    assert body["state"] == "indexed"


@statement("Changed content is indexed again.")
def _(api: Api) -> None:
    memory = api.remember("The cat sleeps.")
    word = api.name("zebra").replace("-", "")
    changed = api.send("PATCH", f"{BRAIN}/memories/{memory['id']}", {"content": f"The {word} sleeps."}).json()
    assert changed["state"] in {"stale", "indexed"}
    deadline = time.monotonic() + HANG_S
    while api.get(f"{BRAIN}/memories/{memory['id']}").json()["state"] != "indexed":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert api.get(f"{BRAIN}/search?q={word}").json()["total"] == 1


@statement("A superseded memory is deleted and leaves the indexes.")
def _(api: Api) -> None:
    word = api.name("walrus").replace("-", "")
    old = api.remember(f"The {word} is grey.")
    new = api.remember("It is brown.", supersedes_id=old["id"])
    assert_error(api.get(f"{BRAIN}/memories/{old['id']}"), 404)
    assert api.get(f"{BRAIN}/search?q={word}").json()["total"] == 0
    assert api.get(f"{BRAIN}/memories/{new['id']}").json()["supersedes_id"] == old["id"]


@statement("An archived memory is kept, but removed from active recall.")
def _(api: Api) -> None:
    word = api.name("lynx").replace("-", "")
    memory = api.remember(f"The {word} is shy.")
    archived = api.post(f"{BRAIN}/memories/{memory['id']}/archive")
    assert archived.json()["state"] == "archived"
    assert f"The {word} is shy." not in contents(api.recall(f"{word} shy", top_k=100, mode="hybrid"))
    assert api.get(f"{BRAIN}/search?q={word}").json()["total"] == 0
    assert api.get(f"{BRAIN}/memories/{memory['id']}").status_code == 200
    assert api.post(f"{BRAIN}/memories/{memory['id']}/restore").json()["state"] != "archived"


@statement("A deleted memory is removed from all stores.")
def _(api: Api) -> None:
    word = api.name("otter").replace("-", "")
    memory = api.remember(f"The {word} swims.")
    assert api.send("DELETE", f"{BRAIN}/memories/{memory['id']}").status_code == 204
    assert_error(api.get(f"{BRAIN}/memories/{memory['id']}"), 404)
    assert api.get(f"{BRAIN}/search?q={word}").json()["total"] == 0
    assert f"The {word} swims." not in contents(api.recall(f"{word} swims", top_k=100))


# 4.3: remember

statements_about_fields(
    "The response of remember",
    {"id": "string", "type": "string", "org": "string or null", "project": "string or null", "indexed": "boolean", "created_at": "time"},
    lambda api: api.remember(org="acme", project="shop"),
)


def accepts_field(api: Api, case: tuple[str, object]) -> None:
    """Assert that remember accepts a field and stores it."""
    name, value = case
    extra = {"session_id": "s"} if value == "session" else {}
    memory = api.remember(**{name: value}, **extra)
    assert api.get(f"{BRAIN}/memories/{memory['id']}").json()[name] == value


statement_per_value(
    "remember accepts the field {}.",
    [
        ("type", "decision"),
        ("org", "acme"),
        ("project", "shop"),
        ("agent_id", "ann"),
        ("tags", ["one", "two"]),
        ("confidence", 0.4),
        ("source", "meeting"),
        ("memory_scope", "project"),
    ],
    accepts_field,
)


@statement("remember returns 201.")
def _(api: Api) -> None:
    assert api.post(f"{BRAIN}/remember", {"content": "x", "type": "fact"}).status_code == 201


# 4.3: recall

statements_about_fields("The response of recall", {"memories": "array"}, lambda api: api.remember() and api.recall("Tuesdays"))
statements_about_fields(
    "A recalled memory",
    {
        "id": "string",
        "content": "string",
        "type": "string",
        "org": "string or null",
        "project": "string or null",
        "score": "number",
        "confidence": "number",
        "created_at": "time",
    },
    lambda api: api.remember() and api.recall("Tuesdays")["memories"][0],
)


@statement("top_k bounds the number of memories.")
def _(api: Api) -> None:
    for _ in range(3):
        api.remember(org="top")
    assert len(api.recall("deploy", org="top", top_k=2)["memories"]) == 2


@statement("min_confidence excludes memories below it.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember("Sure.", org=org, confidence=0.9)
    api.remember("Unsure.", org=org, confidence=0.2)
    assert contents(api.recall("sure", org=org, min_confidence=0.5)) == {"Sure."}


@statement("agent_id adds the agent's own memories.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember("Ann's own.", org=org, memory_scope="agent", agent_id=f"{org}-ann")
    assert contents(api.recall("own", org=org, agent_id=f"{org}-ann")) == {"Ann's own."}


@statement("include_scopes selects the scopes.")
def _(api: Api) -> None:
    org, contents_by_scope = store_in_scopes(api)
    recalled = contents(api.recall("marker", org=org, agent_id=f"{org}-ann", include_scopes=["agent", "shared"], top_k=100))
    assert recalled == {contents_by_scope["agent"], contents_by_scope["shared"]}


@statement("keywords raise the score of memories that contain them, by boost_keywords.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember("The harbour opens at nine.", org=org)
    api.remember("The harbour closes at six, says the almanac.", org=org)
    assert (
        "almanac"
        in api.recall("When does the harbour open?", org=org, mode="semantic", keywords=["almanac"], boost_keywords=1)["memories"][0][
            "content"
        ]
    )


@statement("Agent memories outrank project memories at equal relevance, then shared, then session.")
def _(api: Api) -> None:
    org = api.name("org")
    for scope in ("session", "shared", "project", "agent"):
        api.remember("The same text.", org=org, memory_scope=scope, agent_id=f"{org}-a", session_id=f"{org}-s")
    memories = api.recall("The same text.", org=org, agent_id=f"{org}-a", session_id=f"{org}-s", mode="semantic")["memories"]
    assert [recalled["memory_scope"] for recalled in memories] == ["agent", "project", "shared", "session"]


@statement("At equal relevance and scope the higher confidence is first, then the newer memory.")
def _(api: Api) -> None:
    org = api.name("org")
    ids = [api.remember("The same text.", org=org, confidence=value)["id"] for value in (0.5, 0.9, 0.5)]
    recalled_ids = [memory["id"] for memory in api.recall("The same text.", org=org, mode="semantic")["memories"]]
    assert recalled_ids == [ids[1], ids[2], ids[0]]


# 4.3: search, tags, scopes, feedback, context

statements_about_fields(
    "The response of search",
    {"hits": "array", "total": "integer", "took_ms": "integer"},
    lambda api: api.remember() and api.get(f"{BRAIN}/search?q=Tuesdays").json(),
)


@statement("search matches words, not meaning.")
def _(api: Api) -> None:
    word = api.name("quagga").replace("-", "")
    api.remember(f"The {word} is extinct.")
    assert api.get(f"{BRAIN}/search?q={word}").json()["total"] == 1
    assert api.get(f"{BRAIN}/search?q=no+longer+alive+{word}x").json()["hits"] == []


@statement("content is analysed as English: another form of a word finds it.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember("She was painting the doors.", org=org)
    assert api.get(f"{BRAIN}/search?q=paint+door&org={org}").json()["total"] == 1


@statement("search accepts org.")
def _(api: Api) -> None:
    org, _ = store_in_scopes(api)
    assert {hit["org"] for hit in api.get(f"{BRAIN}/search?q=marker&org={org}").json()["hits"]} == {org}


@statement("tags are objects with name and count, the most frequent first; org and project filter them.")
def _(api: Api) -> None:
    org = api.name("org")
    for tags in (["often", "seldom"], ["often"]):
        api.remember(org=org, project="p", tags=tags)
    expected = [{"name": "often", "count": 2}, {"name": "seldom", "count": 1}]
    assert api.get(f"{BRAIN}/tags?org={org}&project=p").json()["tags"] == expected


@statement("scopes are orgs with count and projects, each with name and count.")
def _(api: Api) -> None:
    org = api.name("org")
    for project in ("a", "a", "b"):
        api.remember(org=org, project=project)
    (body,) = [scope for scope in api.get(f"{BRAIN}/scopes").json()["scopes"] if scope["org"] == org]
    assert body["count"] == 3
    assert {project["name"]: project["count"] for project in body["projects"]} == {"a": 2, "b": 1}


def give_feedback(api: Api, **ids: str) -> tuple[float, float]:
    """Store a memory, recall it, give feedback and return its confidence before and after."""
    org = api.name("org")
    memory = api.remember("Feedback.", org=org, confidence=0.5)
    recall_id = api.recall("Feedback", org=org)["recall_id"]
    (kind,) = ids
    response = api.post(f"{BRAIN}/recall/{recall_id}/feedback", {kind: [memory["id"]]})
    assert response.status_code == 200, response.text
    return 0.5, api.get(f"{BRAIN}/memories/{memory['id']}").json()["confidence"]


@statement("Used memories gain confidence.")
def _(api: Api) -> None:
    before, after = give_feedback(api, used="")
    assert after > before


@statement("Ignored memories lose confidence.")
def _(api: Api) -> None:
    before, after = give_feedback(api, ignored="")
    assert after < before


@statement("The context of an agent has its own memories, the highest confidence first, in pages.")
def _(api: Api) -> None:
    agent = api.name("ann")
    for confidence in (0.3, 0.9, 0.6):
        api.remember(f"Confidence {confidence}.", memory_scope="agent", agent_id=agent, confidence=confidence)
    page = api.get(f"{BRAIN}/agent/{agent}/context?per_page=2").json()
    assert [item["confidence"] for item in page["data"]] == [0.9, 0.6]
    assert page["meta"]["total"] == 3


@statement("An agent whose id has a slash has a context and a boot.")
def _(api: Api) -> None:
    agent = api.name("team/ann")
    api.remember("Own.", memory_scope="agent", agent_id=agent)
    path = agent.replace("/", "%2F")
    assert api.get(f"{BRAIN}/agent/{path}/context").json()["meta"]["total"] == 1
    assert api.get(f"{BRAIN}/agent/{path}/boot").status_code == 200


@statement("The boot of an agent combines its own, shared, project and session memories.")
def _(api: Api) -> None:
    org, contents_by_scope = store_in_scopes(api)
    body = api.get(f"{BRAIN}/agent/{org}-ann/boot?org={org}&project=one&session_id={org}-s&max_memories=10").json()
    assert {name: [listed["content"] for listed in body[name]] for name in ("agent", "shared", "session")} == {
        "agent": [contents_by_scope["agent"]],
        "shared": [contents_by_scope["shared"]],
        "session": [contents_by_scope["session"]],
    }
    assert contents_by_scope["one"] in str(body["project"])


# Decisions


statement_per_value(
    "remember rejects {}.",
    [
        {"type": "fact"},
        {"content": "", "type": "fact"},
        {"content": "x" * 50_001, "type": "fact"},
        {"content": "x", "type": "No Type"},
        {"content": "x", "type": "fact", "memory_scope": "session"},
        {"content": "x", "type": "fact", "memory_scope": "shared"},
        {"content": "x", "type": "fact", "memory_scope": "agent"},
        {"content": "x", "type": "fact", "tags": ["t"] * 101},
        {"content": "x", "type": "fact", "unknown": 1},
    ],
    lambda api, body: assert_error(api.post(f"{BRAIN}/remember", body), 422, "validation_error"),
)


@statement("The default confidence is 0.8.")
def _(api: Api) -> None:
    assert api.remember()["confidence"] == 0.8


@statement("type is observation by default.")
def _(api: Api) -> None:
    response = api.post(f"{BRAIN}/remember", {"content": "No type."})
    assert (response.status_code, response.json()["type"]) == (201, "observation")


@statement("Tags are lower-cased, and duplicates are removed.")
def _(api: Api) -> None:
    assert api.remember(tags=["One", "one", "TWO"])["tags"] == ["one", "two"]


@statement("expires_in, in hours, sets expires_at.")
def _(api: Api) -> None:
    assert api.remember(expires_in=1)["expires_at"] is not None


@statement("dedupe returns the existing memory with 200.")
def _(api: Api) -> None:
    memory = api.remember(f"Twice {api.name()}.")
    content = api.get(f"{BRAIN}/memories/{memory['id']}").json()["content"]
    repeated = api.post(f"{BRAIN}/remember", {"content": content, "type": "fact", "dedupe": True})
    assert (repeated.status_code, repeated.json()["id"], repeated.json()["duplicate"]) == (200, memory["id"], True)


@statement("An unknown supersedes_id is 422.")
def _(api: Api) -> None:
    assert_error(api.post(f"{BRAIN}/remember", {"content": "x", "type": "fact", "supersedes_id": str(uuid.uuid4())}), 422)


@statement("Superseding twice is 409 already_superseded with the id of the newest.")
def _(api: Api) -> None:
    old = api.remember("Old.")
    new = api.remember("New.", supersedes_id=old["id"])
    body = assert_error(
        api.post(f"{BRAIN}/remember", {"content": "x", "type": "fact", "supersedes_id": old["id"]}), 409, "already_superseded"
    )
    assert new["id"] in str(body)


@statement("The history shows the lineage.")
def _(api: Api) -> None:
    old = api.remember("Old.")
    new = api.remember("New.", supersedes_id=old["id"])
    assert old["id"] in api.get(f"{BRAIN}/memories/{new['id']}/history").text


@statement("top_k is 5 by default.")
def _(api: Api) -> None:
    org = api.name("org")
    for number in range(6):
        api.remember(f"Number {number}.", org=org)
    assert len(api.recall("number", org=org)["memories"]) == 5


statement_per_value(
    "recall rejects {}.",
    [{"query": ""}, {"query": "x" * 2001}, {"query": "x", "top_k": 0}, {"query": "x", "top_k": 101}, {"query": "x", "boost_keywords": 2}],
    lambda api, body: assert_error(api.post(f"{BRAIN}/recall", body), 422),
)


@statement("The response has recall_id and took_ms; explain shows how each memory was ranked.")
def _(api: Api) -> None:
    api.remember()
    body = api.recall("Tuesdays", explain=True)
    assert isinstance(body["took_ms"], int)
    assert body["recall_id"]
    assert body["memories"][0]["explain"]


statement_per_value(
    "recall has the mode {}.",
    ["semantic", "keyword", "hybrid"],
    finds_memory,
)


@statement("An agent key cannot name another agent.")
def _(api: Api) -> None:
    key = api.agent_key("brain:read")
    response = api.post(f"{BRAIN}/recall", {"query": "x", "agent_id": "somebody-else"}, key=key["key"])
    assert_error(response, 403, "permission_denied")


@statement("effective_confidence is the confidence of a memory after its decay by age.")
def _(api: Api) -> None:
    body = api.get(f"{BRAIN}/memories/{api.remember()['id']}").json()
    assert 0 < body["effective_confidence"] <= body["confidence"]


@statement("Feedback on a memory that the recall did not return is 422.")
def _(api: Api) -> None:
    api.remember()
    recall_id = api.recall("x")["recall_id"]
    assert_error(api.post(f"{BRAIN}/recall/{recall_id}/feedback", {"used": [str(uuid.uuid4())]}), 422)


@statement("Feedback on an unknown recall is 404.")
def _(api: Api) -> None:
    assert_error(api.post(f"{BRAIN}/recall/{uuid.uuid4()}/feedback", {"used": []}), 404)


@statement("A quoted phrase and a leading minus restrict a search; hits have a highlight.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember("red green blue", org=org)
    api.remember("green red blue", org=org)
    phrase = api.get(f'{BRAIN}/search?q="red green"&org={org}').json()
    assert phrase["total"] == 1
    assert "<mark>" in phrase["hits"][0]["highlight"]
    assert api.get(f"{BRAIN}/search?q=blue -red&org={org}").json()["total"] == 0


@statement("A batch of memories is stored, each with its status.")
def _(api: Api) -> None:
    response = api.post(f"{BRAIN}/remember/batch", {"memories": [{"content": "One.", "type": "fact"}, {"content": "", "type": "fact"}]})
    assert [result["status"] for result in response.json()["results"]] == [201, 422]


@statement("PATCH changes a memory.")
def _(api: Api) -> None:
    memory = api.remember()
    assert api.send("PATCH", f"{BRAIN}/memories/{memory['id']}", {"tags": ["new"]}).json()["tags"] == ["new"]


@statement("Memories are listed in pages, with filters.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember(org=org, tags=["a"])
    api.remember(org=org, tags=["b"])
    assert api.get(f"{BRAIN}/memories?org={org}&tags=a").json()["meta"]["total"] == 1
