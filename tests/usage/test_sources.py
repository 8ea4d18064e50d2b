"""The sources of the report of usage: generations, judge calls, embeddings, sessions of agents, and tool calls."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rookery.kernel.config import Settings
from tests.chat_service import ChatService, answer
from tests.conftest import FakeClock, Instance, eventually, run_instance
from tests.embedding_service import EmbeddingService
from tests.usage.conftest import Json, read_groups, read_report

SESSIONS = "/api/agent/sessions"
_OPINION = json.dumps({"rationale": "It praises without a reason.", "score": 0.9, "label": "strong"})
_GENERATION_COST = 11e-6 + 17 * 2e-6


async def _start_session(server: Instance) -> str:
    started = await server.agent.post(SESSIONS, {"agent_type": "coder", "goal": "Build the nest."})
    assert started.status_code == 201, started.text
    return str(started.json()["session"]["id"])


async def _report_tokens(server: Instance, session_id: str, tokens: Json) -> Json:
    response = await server.agent.post(f"{SESSIONS}/{session_id}/events", {"message": "A step.", "tokens": tokens})
    assert response.status_code == 201, response.text
    return dict(response.json())


async def test_generations_and_judge_calls_are_counted_with_their_key(server: Instance, provider: ChatService) -> None:
    """One report adds up generations and judge calls, by key and model, with the currency of the setting."""
    key = await server.api_key()
    generated = (await key.post("/api/agent/content/generations", {"prompt": "a"})).json()
    await key.post("/api/agent/content/generations", {"prompt": "a", "model": "413"})
    provider.queue.append(answer(_OPINION))
    await key.post("/v1/score/content", {"prompt": "Is my idea good?", "response": "What a brilliant idea!", "judge": True})

    assert (generated["cost"], generated["currency"]) == (pytest.approx(_GENERATION_COST), "EUR")
    groups = await read_groups(key, "?by=kind,key,model", "kind", "key_id", "key_name", "model", "calls", "failed", "currency")
    assert sorted(groups, key=str) == [
        ("generation", key.key_id, "test", "413", 1, 1, "EUR"),
        ("generation", key.key_id, "test", "ok", 1, 0, "EUR"),
        ("judge", key.key_id, "test", "ok", 1, 0, "EUR"),
    ]
    report = await read_report(key, "?by=kind&kind=generation&model=ok")
    assert report["data"][0] == {
        "kind": "generation",
        "calls": 1,
        "failed": 0,
        "cancelled": 0,
        "input_tokens": 11,
        "cached_input_tokens": 0,
        "output_tokens": 17,
        "reasoning_tokens": 0,
        "cost": pytest.approx(_GENERATION_COST),
        "currency": "EUR",
        "reported_cost": 0.0,
        "is_estimated": False,
        "unpriced_calls": 0,
        "mean_ms": None,
    }
    assert (report["since"], report["until"]) == ("2026-10-25", "2026-11-23")


async def test_embeddings_are_charged_to_the_author_of_each_memory(server: Instance, embedding_service: EmbeddingService) -> None:
    """The tokens of a remote embedder are counted as the service reports them, for the key whose text it was."""
    keys = [await server.api_key(), await server.api_key(workspace_id=await server.workspace("Other"))]
    for key in keys:
        for text in ("one two three", "one two three four five"):
            assert (await key.post("/v1/brain/remember", {"type": "fact", "content": text})).is_success
    await eventually(lambda: len(embedding_service.texts) >= 4)
    for key, query in zip(keys, ("one two", "three four"), strict=True):
        assert (await key.post("/v1/brain/recall", {"query": query})).is_success
        assert (await key.post("/v1/brain/recall", {"query": query})).is_success  # from the cache of queries, which costs nothing

    reports = [await read_report(key, "?kind=embedding&by=key,model") for key in keys]
    tokens = [report["totals"][0]["input_tokens"] for report in reports]
    assert (sum(tokens), max(tokens) <= 11) == (20, True)  # a request with texts of both is split by their lengths
    for key, report, count in zip(keys, reports, tokens, strict=True):
        (group,) = report["data"]
        assert (group["key_id"], group["model"], group["is_estimated"], group["unpriced_calls"]) == (key.key_id, "words", False, 0)
        assert group["cost"] == pytest.approx(count * 0.5e-6)


@pytest.mark.parametrize(("protocol", "is_estimated"), [("openai_url", True), ("ollama_url", False), ("tei_url", True)])
async def test_tokens_that_a_service_does_not_report_are_estimated(
    usage_settings: Settings, clock: FakeClock, embedding_service: EmbeddingService, protocol: str, is_estimated: bool
) -> None:
    """Without a number from the service, a quarter of the characters counts, and the sum is marked."""
    embedding_service.reports_tokens = protocol == "ollama_url"
    url = getattr(embedding_service, protocol)()
    async with run_instance(replace(usage_settings, embedder=type(usage_settings.embedder)(url)), clock) as server:
        assert (await server.admin.post("/v1/brain/recall", {"query": "eight letters"})).is_success
        group = (await read_report(server.admin, "?kind=embedding&by=model"))["data"][0]

    assert (group["is_estimated"], group["input_tokens"]) == (is_estimated, 2 if protocol == "ollama_url" else 4)


async def test_texts_of_a_model_without_a_price_are_marked(usage_settings: Settings, clock: FakeClock) -> None:
    """A sum that lacks a price says so, instead of looking cheap."""
    async with run_instance(replace(usage_settings, embedding_prices=(), generation_prices=()), clock) as server:
        await server.admin.post("/api/agent/content/generations", {"prompt": "a"})
        await server.admin.post("/v1/brain/recall", {"query": "one two"})
        total = (await read_report(server.admin))["totals"][0]

    assert (total["cost"], total["unpriced_calls"]) == (0.0, 2)


async def test_agents_report_tokens_with_model_and_cost(server: Instance) -> None:
    """The tokens of sessions are counted by agent and model, at the reported cost or at the price of the model."""
    session_id = await _start_session(server)
    event = await _report_tokens(
        server, session_id, {"input": 1000, "cached_input": 800, "output": 50, "model": "opus", "cost": 0.25, "currency": "EUR"}
    )
    await _report_tokens(server, session_id, {"input": 1000, "output": 100, "model": "ok"})
    await _report_tokens(server, session_id, {"input": 7, "output": 1})

    assert event["tokens"] == {"input": 1000, "output": 50, "cached_input": 800, "model": "opus", "cost": 0.25, "currency": "EUR"}
    fields = ("agent_id", "model", "calls", "input_tokens", "cached_input_tokens", "output_tokens", "cost", "unpriced_calls")
    assert await read_groups(server.admin, "?kind=session&by=agent,model", *fields) == [
        ("agent", "opus", 1, 1000, 800, 50, 0.25, 0),
        ("agent", "ok", 1, 1000, 0, 100, 0.0012, 0),
        ("agent", None, 1, 7, 0, 1, 0.0, 1),
    ]
    total = (await read_report(server.admin, "?kind=session"))["totals"][0]
    assert (total["cost"], total["reported_cost"]) == (0.2512, 0.2512)
    session = (await server.agent.get(f"{SESSIONS}/{session_id}")).json()
    assert (session["stats"]["tokens_in"], session["stats"]["tokens_out"]) == (2007, 151)


@pytest.mark.parametrize(
    ("tokens", "field"),
    [
        ({"input": 1, "cost": 1, "currency": "USD"}, "tokens.currency"),
        ({"input": 1, "cached_input": 2}, "tokens"),
        ({"input": 1, "currency": "EUR"}, "tokens"),
        ({"input": -1}, "tokens.input"),
        ({"input": 1, "cost": -1}, "tokens.cost"),
    ],
)
async def test_a_contradictory_report_is_refused(server: Instance, tokens: Json, field: str) -> None:
    """Amounts of another currency are not added up, and what is wrong is named."""
    session_id = await _start_session(server)
    response = await server.agent.post(f"{SESSIONS}/{session_id}/events", {"message": "A step.", "tokens": tokens})

    assert (response.status_code, [name for name in response.json()["errors"] if name.startswith(field)] != []) == (422, True)
    assert (await read_report(server.admin, "?kind=session"))["data"] == []


async def test_a_repeated_report_counts_once(server: Instance) -> None:
    """With an Idempotency-Key, the tokens of a repeated request are not added again."""
    session_id = await _start_session(server)
    for _ in range(2):
        body = {"message": "A step.", "tokens": {"input": 5, "output": 5}}
        response = await server.agent.post(f"{SESSIONS}/{session_id}/events", body, **{"Idempotency-Key": "step 1"})
        assert response.status_code == 201

    assert await read_groups(server.admin, "?kind=session&by=agent", "calls", "input_tokens") == [(1, 5)]


async def test_tool_calls_are_counted_with_their_time(server: Instance) -> None:
    """Calls of tools are in the report with their number, failures and time, without a price."""
    agent = await server.agent_key("mcp:read", "mcp:write", "brain:read", agent_id="rook")
    for arguments in ({"query": "a"}, {"query": "b"}, {}):
        await agent.post("/mcp/tools/call", {"server": "brain", "tool": "recall", "arguments": arguments})

    (group,) = (await read_report(server.admin, "?kind=tool_call&by=tool,agent,key"))["data"]
    assert (group["tool"], group["agent_id"], group["key_id"], group["calls"]) == ("brain/recall", "rook", agent.key_id, 3)
    assert (group["failed"], group["mean_ms"] > 0, group["cost"], group["unpriced_calls"]) == (1, True, 0.0, 0)


async def test_agents_report_tokens_over_mcp(server: Instance) -> None:
    """The tool `session_log` takes the tokens too, for agents that only speak MCP."""
    agent = await server.agent_key("mcp:read", "mcp:write", "sessions.read", "sessions.write", agent_id="rook")
    session_id = (await agent.post(SESSIONS, {"agent_type": "coder", "goal": "Build."})).json()["session"]["id"]
    arguments = {"session_id": session_id, "message": "A step.", "tokens": {"input": 9, "output": 1, "model": "ok"}}
    called = (await agent.post("/mcp/tools/call", {"server": "agents", "tool": "session_log", "arguments": arguments})).json()

    assert called["success"], called
    assert await read_groups(server.admin, "?kind=session&by=agent,model", "agent_id", "model", "input_tokens") == [("rook", "ok", 9)]
