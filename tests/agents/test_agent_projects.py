"""The project in which an agent works: by its repository, and for tools that name none."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import cast

from tests.agents.session_makers import SESSIONS, Json, get_list, make_plan, parse_body
from tests.agents.test_agent_hooks import end, list_sessions, prompt, start, stop, text_of
from tests.conftest import Caller, FakeClock, Instance

QUESTION = "On which port does the database of Wieland answer?"
ANSWER = "The database of Wieland answers on port 6543."


def id_of(name: str) -> str:
    """Return an id as `rookery hook` computes it."""
    return sha256(name.encode()).hexdigest()[:32]


def query_of(full_name: str, *, org: str = "", folder: str = "", upstream: str = "") -> str:
    """Return the query of `rookery hook` in a clone of *full_name*, such as acme/api."""
    remotes = ",".join(id_of(name) for name in (upstream, full_name) if name)
    project = full_name.rpartition("/")[2]
    place = f"&folder={id_of(folder or 'clone of ' + full_name)}"
    return f"project={project}&repository={remotes}&full_name={upstream or full_name}{place}" + (f"&org={org}" if org else "")


def folder_query(folder: str) -> str:
    """Return the query of `rookery hook` in a repository without remotes."""
    return f"project={folder.rpartition('/')[2]}&folder={id_of(folder)}"


async def find_project(caller: Caller, session: str, query: str) -> object:
    """Start a session and return the project that it is in."""
    await start(caller, session, query=query)
    return (await list_sessions(caller))[0]["project"]


async def call_tool(caller: Caller, server: str, tool: str, **arguments: object) -> Json:
    """Call a built-in tool over the HTTP API of tools, and return its output."""
    body = {"server": server, "tool": tool, "arguments": arguments}
    result = cast("Json", parse_body(await caller.post("/api/v1/mcp/tools/call", body))["result"])
    return cast("Json", result["structuredContent"])


async def call_over_mcp(caller: Caller, tool: str, arguments: Json, meta: Json | None = None) -> Json:
    """Call a tool as a stateless MCP client, and return its output."""
    params = {
        "name": tool,
        "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            **(meta or {}),
        },
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    response = await caller.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, **headers)
    return cast("Json", cast("Json", parse_body(response)["result"])["structuredContent"])


async def test_nothing_of_a_repository_reaches_another_of_its_name(instance: Instance) -> None:
    """Last messages, hand-offs, memories and tasks of acme/api are in no text for globex/api; a clone and a fork get them."""
    kim = instance.agent
    await kim.remember(ANSWER, project="api")
    await make_plan(instance, "Move the database of Wieland", project="api")
    assert await find_project(kim, "a1", query_of("acme/api")) == "api"
    await stop(kim, "a1", "The invoices of Wieland are wrong since May.")
    await end(kim, "a1")

    for number, query in enumerate((query_of("globex/api"), folder_query("/a/api"), folder_query("/b/api"), query_of("lab/x/api"))):
        text = text_of(await start(kim, f"other-{number}", query=query))
        text += text_of(await prompt(kim, f"other-{number}", QUESTION))
        assert "Wieland" not in text
        assert "Another repository has the project api." in text
    assert len({session["project"] for session in await list_sessions(kim)}) == 5

    for number, query in enumerate((query_of("acme/api", folder="/elsewhere"), query_of("kim/api", upstream="acme/api"))):
        text = text_of(await start(kim, f"same-{number}", query=query))
        assert "Wieland are wrong" in text
        assert "Move the database of Wieland" in text
        assert "6543" in text
        assert "Another repository" not in text


async def test_memories_of_another_org_reach_no_repository_without_one(instance: Instance) -> None:
    """An org in one of two repositories of a name, and a memory that is shared in an org."""
    kim = instance.agent
    assert await find_project(kim, "a1", query_of("acme/api", org="acme")) == "api"
    await kim.remember(ANSWER, project="api", org="acme")
    await kim.remember("All databases of acme answer on port 6544.", org="acme", memory_scope="shared")
    text = text_of(await start(kim, "g1", query=query_of("globex/api"))) + text_of(await prompt(kim, "g1", QUESTION))
    assert "654" not in text
    assert "654" in text_of(await prompt(kim, "a1", QUESTION))


async def test_a_repository_keeps_its_project_when_its_remotes_change(instance: Instance) -> None:
    """The first remote, and an upstream; another repository in the same folder later is another one."""
    kim = instance.agent
    assert await find_project(kim, "c1", folder_query("/w/api")) == "api"
    assert await find_project(kim, "c2", query_of("kim/api", folder="/w/api")) == "api"
    assert await find_project(kim, "c3", query_of("kim/api", folder="/w/api", upstream="acme/api")) == "api"
    assert await find_project(kim, "c4", query_of("acme/api", folder="/other")) == "api"
    assert await find_project(kim, "c5", query_of("kim/api", folder="/third")) == "api"
    assert await find_project(kim, "c6", query_of("globex/api", folder="/w/api")) == "globex/api"
    again = await find_project(kim, "c7", folder_query("/w/api"))
    assert str(again).startswith("api-")


async def test_the_file_of_a_repository_wins(instance: Instance) -> None:
    """A name in `.rookery.toml` stays as it is, joins a project of that name, and is left alone by repositories without a file."""
    kim = instance.agent
    assert await find_project(kim, "c1", query_of("acme/x").replace("project=x", "project=api") + "&is_named=true") == "api"
    assert await find_project(kim, "c2", query_of("globex/api")) == "globex/api"
    assert await find_project(kim, "c3", query_of("globex/api") + "&is_named=true") == "api"
    assert await find_project(kim, "c4", query_of("acme/x")) == "x"


async def test_what_is_stored_under_the_plain_name_stays_found(instance: Instance) -> None:
    """Memories and sessions from before belong to the one repository of the name; clients that send no id see them as before."""
    kim = instance.agent
    await start(kim, "old", query="project=api")
    await stop(kim, "old", "The port is written down.")
    await kim.remember(ANSWER, project="api")
    text = text_of(await start(kim, "new", query=query_of("acme/api")))
    assert "The port is written down." in text
    assert "6543" in text
    assert "The port is written down." not in text_of(await start(kim, "other", query=query_of("globex/api")))


async def test_two_repositories_that_start_at_once_get_two_names(instance: Instance) -> None:
    """The name is claimed in one statement."""
    kim = instance.agent
    queries = [query_of(f"owner{number}/api") for number in range(6)]
    await asyncio.gather(*(start(kim, f"c{number}", query=query) for number, query in enumerate(queries)))
    names = [session["project"] for session in await list_sessions(kim)]
    assert len(set(names)) == len(queries)
    assert names.count("api") == 1


async def test_a_memory_that_an_agent_stores_reaches_its_hooks(instance: Instance) -> None:
    """Real agents 1: `remember` without a project stores in that of the session; the next session in the repository gets it."""
    kim = instance.agent
    await start(kim, "c1", query=query_of("acme/shop", org="acme"))
    made = await call_over_mcp(kim, "brain__remember", {"content": ANSWER, "type": "convention"})
    assert (made["org"], made["project"]) == ("acme", "shop")
    await end(kim, "c1")
    await start(kim, "c2", query=query_of("acme/shop", org="acme"))
    assert "6543" in text_of(await prompt(kim, "c2", QUESTION))


async def test_explicit_names_win_and_reads_search_everything(instance: Instance) -> None:
    """Real agents 1: each named value stays; own and shared memories keep their reach; recall without a project hides nothing."""
    kim = instance.agent
    await kim.remember(ANSWER)
    await start(kim, "c1", query=query_of("acme/shop", org="acme"))
    other = await call_tool(kim, "brain", "remember", content="One.", type="fact", project="other")
    same = await call_tool(kim, "brain", "remember", content="Two.", type="fact", project="shop")
    own = await call_tool(kim, "brain", "remember", content="Three.", type="fact", memory_scope="agent")
    shared = await call_tool(kim, "brain", "remember", content="Four.", type="fact", memory_scope="shared")
    session = await call_tool(kim, "brain", "remember", content="Five.", type="fact", memory_scope="session")
    found = await call_tool(kim, "brain", "recall", query=QUESTION)
    (opened,) = await list_sessions(kim)
    assert [(memory.get("org"), memory.get("project")) for memory in (other, same, own, shared)] == [
        (None, "other"),
        ("acme", "shop"),
        (None, None),
        ("acme", None),
    ]
    assert (session["project"], session["session_id"]) == ("shop", opened["id"])
    assert "6543" in str(found["memories"])

    plan = await call_tool(kim, "agents", "plan_create", title="Ship the cart", status="active", tasks=["Draw it"])
    assert (plan["org"], plan["project"]) == ("acme", "shop")
    started = await call_tool(kim, "agents", "session_start", agent_type="codex")
    assert cast("Json", started["session"])["project"] == "shop"


async def test_a_request_over_http_that_names_a_session_stores_in_its_project(instance: Instance) -> None:
    """Real agents 1: the rule for HTTP, MCP and hooks is one. A request that names no session, or none that is known, stores as it says."""
    kim = instance.agent
    await start(kim, "c1", query=query_of("acme/shop", org="acme"))
    (opened,) = await list_sessions(kim)
    body = {"content": "Six.", "type": "fact"}
    in_body = parse_body(await kim.post("/v1/brain/remember", {**body, "session_id": opened["id"]}), 201)
    of_session = parse_body(await kim.post("/v1/brain/remember", {**body, "session_id": opened["id"], "memory_scope": "session"}), 201)
    in_header = parse_body(await kim.post("/v1/brain/remember", body, **{"X-Session-ID": str(opened["id"])}), 201)
    named = parse_body(await kim.post("/v1/brain/remember", {**body, "session_id": opened["id"], "project": "other"}), 201)
    unknown = parse_body(await kim.post("/v1/brain/remember", {**body, "session_id": "c9"}), 201)
    without = parse_body(await kim.post("/v1/brain/remember", body), 201)
    plan = parse_body(await kim.post("/v1/plans", {"title": "Ship the cart"}, **{"X-Session-ID": str(opened["id"])}), 201)

    assert {(memory["org"], memory["project"]) for memory in (in_body, of_session, in_header, plan)} == {("acme", "shop")}
    assert (named["org"], named["project"]) == (None, "other")
    assert [(memory["org"], memory["project"]) for memory in (unknown, without)] == [(None, None)] * 2
    stranger = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    foreign = parse_body(await stranger.post("/v1/brain/remember", {**body, "session_id": opened["id"]}), 201)
    assert foreign["project"] is None


async def test_a_prompt_of_any_length_is_answered_over_http(instance: Instance) -> None:
    """Clients that send events over HTTP themselves do not shorten them."""
    kim = instance.agent
    await start(kim, "c1", query=query_of("acme/shop"))
    await call_tool(kim, "brain", "remember", content=ANSWER, type="convention")
    log = "ERROR the worker of the queue has ended with status 17\n" * 45_000

    assert len(log) > 2 * 1024 * 1024
    assert "6543" in text_of(await prompt(kim, "c1", f"{log}\n\n{QUESTION}"))


async def test_the_session_is_the_one_that_works(clocked_instance: Instance, clock: FakeClock) -> None:
    """
    Real agents 1: of several open sessions of a key, the one with the newest prompt that has no answer yet, else the newest event.

    A session that the client or the call names comes first.
    """
    kim = clocked_instance.agent

    async def store(meta: Json | None = None, **arguments: object) -> object:
        return (await call_over_mcp(kim, "brain__remember", {"content": f"At {clock()}.", "type": "fact", **arguments}, meta)).get(
            "project"
        )

    for name in ("a", "b"):
        await start(kim, f"{name}-1", query=query_of(f"acme/{name}"))
        clock.advance(seconds=10)
    first = (await list_sessions(kim))[1]["id"]
    assert await store() == "b"
    await prompt(kim, "a-1", "Do it.")
    clock.advance(seconds=10)
    assert await store() == "a"
    await prompt(kim, "b-1", "Do it too.")
    clock.advance(seconds=10)
    await stop(kim, "b-1", "Done.")
    assert await store() == "a"  # b has ended its turn
    await stop(kim, "a-1", "Done.")
    await prompt(kim, "b-1", "More.")
    assert await store() == "b"
    assert await store({"threadId": "a-1"}) == "a"
    assert await store({"x-codex-turn-metadata": {"session_id": "a-1"}}) == "a"
    assert await store({"threadId": "unknown"}) == "b"
    assert await store(session_id=first) == "a"
    await end(kim, "b-1")
    assert await store() == "a"
    await end(kim, "a-1")
    assert await store() is None


async def test_sessions_of_other_keys_and_tenants_name_no_project(instance: Instance) -> None:
    """Real agents 1: an agent stores in the project of its own sessions; a key without an agent in those of the key."""
    await start(instance.agent, "c1", query=query_of("acme/shop"))
    made = await call_tool(instance.admin, "brain", "remember", content=ANSWER, type="fact")
    assert made["project"] is None
    await start(instance.admin, "c2", query=query_of("acme/web"))
    assert (await call_tool(instance.admin, "brain", "remember", content=ANSWER, type="fact"))["project"] == "web"
    assert (await call_tool(instance.agent, "brain", "remember", content=ANSWER, type="fact"))["project"] == "shop"
    assert [session["project"] for session in get_list(parse_body(await instance.admin.get(f"{SESSIONS}?per_page=9")))] == ["web", "shop"]
