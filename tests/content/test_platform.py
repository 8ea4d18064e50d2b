"""The MCP tools, the metrics and the retention of content generation."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from rookery.access.models import Caller as AccessCaller
from rookery.content.api.generations import GenerationApi
from rookery.content.models import GenerationMode
from rookery.content.schemas import NewGenerationBody
from rookery.kernel.config import Settings
from rookery.kernel.http import EventStream
from tests.chat_service import ANSWER, ChatService
from tests.conftest import FakeClock, Instance, eventually, run_instance
from tests.content.conftest import BATCHES, GENERATIONS

Json = dict[str, Any]


async def test_a_tool_generates_and_another_one_shows_it(content: Instance, provider: ChatService) -> None:
    """`content_generate` waits for the answer, `content_get` shows it; errors of the provider have the id."""
    agent = await content.agent_key("mcp:read", "mcp:write", "content.read", "content.write")

    async def call(tool: str, arguments: Json) -> Json:
        return (await agent.post("/mcp/tools/call", {"server": "content", "tool": tool, "arguments": arguments})).json()

    generated = await call("content_generate", {"prompt": "Hello", "max_tokens": 50})
    assert generated["success"], generated
    assert generated["result"]["content"][0]["text"] == ANSWER
    record = generated["result"]["structuredContent"]
    assert (record["status"], record["mode"], provider.requests[0].json["max_tokens"]) == ("succeeded", "sync", 50)
    shown = await call("content_get", {"generation_id": record["id"]})
    assert shown["result"]["structuredContent"] == record
    failed = await call("content_generate", {"prompt": "Hello", "model": "413"})
    assert (failed["success"], "rejected the request" in str(failed)) == (False, True)


async def test_a_key_without_the_scope_cannot_generate_over_mcp(content: Instance, provider: ChatService) -> None:
    """A tool needs the scope of its route."""
    agent = await content.agent_key("mcp:read", "mcp:write", "content.read")
    body = {"server": "content", "tool": "content_generate", "arguments": {"prompt": "Hello"}}

    response = await agent.post("/mcp/tools/call", body)
    assert response.status_code in {403, 404}, response.text
    assert provider.requests == []


async def test_metrics_count_generations_and_tokens(content: Instance) -> None:
    """Generations by status, the duration of calls, tokens by direction."""
    await content.admin.post(GENERATIONS, {"prompt": "a"})
    await content.admin.post(GENERATIONS, {"prompt": "a", "model": "413"})
    text = (await (await content.api_key("*", "platform:metrics")).get("/metrics")).text

    def value(name: str) -> float:
        match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert match is not None, name
        return float(match[1])

    assert value('rookery_generations_total{mode="sync",status="succeeded"}') == 1
    assert value('rookery_generations_total{mode="sync",status="failed"}') == 1
    assert value('rookery_generation_tokens_total{direction="output"}') == 17
    assert value("rookery_generation_provider_duration_seconds_count") == 2


async def test_old_generations_are_deleted_and_their_usage_stays(content_settings: Settings) -> None:
    """Rows with texts are deleted after `ROOKERY_GENERATION_DAYS`; the sums of usage are kept."""
    clock = FakeClock()
    async with run_instance(replace(content_settings, generation_days=10), clock) as content:
        record = (await content.admin.post(GENERATIONS, {"prompt": "a"})).json()
        batch = (await content.admin.post(BATCHES, {"requests": [{"prompt": "a"}]})).json()

        async def is_finished() -> bool:
            return (await content.admin.get(f"{BATCHES}/{batch['id']}")).json()["status"] == "finished"

        await eventually(is_finished)
        clock.advance(days=9)
        generations = content.rookery.content.generations
        assert await generations.delete_old(before=clock() - timedelta(days=10)) == 0
        clock.advance(days=2)
        assert await generations.delete_old(before=clock() - timedelta(days=10)) == 2
        assert (await content.admin.get(f"{GENERATIONS}/{record['id']}")).status_code == 404
        assert (await content.admin.get(f"{BATCHES}/{batch['id']}")).status_code == 404
        assert (await content.admin.get("/api/agent/content/usage")).json()["data"][0]["requests"] == 2


async def test_a_client_that_leaves_before_the_first_event_cancels_the_generation(content: Instance, provider: ChatService) -> None:
    """A stream that nobody reads calls no provider, is stored as cancelled, and reserves nothing."""
    caller = AccessCaller.without_limits("test", content.workspace_id)
    api = GenerationApi(generations=content.rookery.content.generations, scorer=content.rookery.content.output_scorer)
    scope: Json = {"type": "http", "method": "POST", "path": GENERATIONS, "headers": [], "query_string": b""}

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionResetError

    response = await api.post_generation(caller, NewGenerationBody(prompt="a", mode=GenerationMode.STREAM), Request(scope, receive))
    assert isinstance(response, EventStream)
    with pytest.raises(ConnectionResetError):
        await response(scope, receive, send)

    record = (await content.admin.get(GENERATIONS)).json()["data"][0]
    assert (record["status"], record["error"]["code"], record["usage"]) == ("cancelled", "client_disconnected", None)
    assert (await content.admin.get("/api/agent/content/budgets")).json()["data"][0]["reserved"] == 0.0
    assert provider.requests == []
