"""`score: true` on generations: scores of the output beside it, in every mode."""

from __future__ import annotations

import json
from typing import Any, cast

import httpx2

from tests.chat_service import ChatService, answer
from tests.conftest import Instance, eventually
from tests.content.conftest import BATCHES, GENERATIONS

Json = dict[str, Any]

_PROMPT = "Is my idea good?"
_OUTPUT = "What a brilliant idea! You are a visionary."


async def _score_directly(content: Instance) -> Json:
    """Return the scores of the route of scoring."""
    return cast("Json", (await content.admin.post("/v1/score/content", {"text": _OUTPUT, "prompt": _PROMPT})).json())


async def test_an_answer_is_returned_with_its_scores(content: Instance, provider: ChatService) -> None:
    """The scores are those of POST /v1/score/content, and stay with the generation; without `score`, it has no scores."""
    provider.queue.extend([answer(_OUTPUT), answer(_OUTPUT)])

    scored = (await content.admin.post(GENERATIONS, {"prompt": _PROMPT, "score": True})).json()
    plain = (await content.admin.post(GENERATIONS, {"prompt": _PROMPT})).json()

    assert scored["score"] == await _score_directly(content)
    assert (await content.admin.get(f"{GENERATIONS}/{scored['id']}")).json() == scored
    assert "score" not in plain
    assert ["score" in entry for entry in (await content.admin.get(GENERATIONS)).json()["data"]] == [False, False]


async def test_a_stream_ends_with_the_scores(content: Instance, provider: ChatService) -> None:
    """The event `done` has them."""
    provider.queue.append(answer(_OUTPUT))

    response = await content.admin.post(GENERATIONS, {"prompt": _PROMPT, "score": True, "mode": "stream"})

    done = next(part for part in response.text.split("\n\n") if part.startswith("event: done") or "\nevent: done" in part)
    data = json.loads(next(line for line in done.splitlines() if line.startswith("data:"))[5:])
    assert data["score"] == await _score_directly(content)


async def test_queued_generations_and_batches_are_scored(content: Instance, provider: ChatService) -> None:
    """Each generation of a batch asks for itself; a repeated one is scored as its original."""
    provider.queue.extend([answer(_OUTPUT), answer(_OUTPUT), answer(_OUTPUT)])
    queued = (await content.admin.post(GENERATIONS, {"prompt": _PROMPT, "score": True, "mode": "queued"})).json()
    requests = [{"prompt": _PROMPT, "score": True}, {"prompt": _PROMPT}]
    batch = (await content.admin.post(BATCHES, {"requests": requests})).json()

    async def is_finished() -> bool:
        view = (await content.admin.get(f"{BATCHES}/{batch['id']}")).json()
        return view["status"] == "finished" and (await content.admin.get(f"{GENERATIONS}/{queued['id']}")).json()["status"] == "succeeded"

    await eventually(is_finished)
    items = (await content.admin.get(f"{BATCHES}/{batch['id']}/generations")).json()["data"]
    records = [
        (await content.admin.get(f"{GENERATIONS}/{identity}")).json() for identity in (queued["id"], *(item["id"] for item in items))
    ]

    expected = await _score_directly(content)
    assert [record.get("score") for record in records] == [expected, expected, None]


async def test_a_repeated_generation_is_scored(content: Instance, provider: ChatService) -> None:
    """A failed one has no scores, and its copy asks for them too."""
    failed = await content.admin.post(GENERATIONS, {"prompt": _PROMPT, "score": True, "model": "413"})
    provider.queue.append(answer(_OUTPUT))
    assert "score" not in (await content.admin.get(f"{GENERATIONS}/{failed.json()['generation_id']}")).json()
    copy = (await content.admin.post(f"{GENERATIONS}/{failed.json()['generation_id']}/retry")).json()

    async def find_score() -> object:
        return (await content.admin.get(f"{GENERATIONS}/{copy['id']}")).json().get("score")

    assert await eventually(find_score) == await _score_directly(content)


async def test_scores_need_their_scope(content: Instance, provider: ChatService) -> None:
    """Without score:read the request is refused before the provider is called, as over MCP."""
    key = await content.api_key("content.write")
    agent = await content.agent_key("mcp:read", "mcp:write", "content.write")
    call = {"server": "content", "tool": "content_generate", "arguments": {"prompt": _PROMPT, "score": True}}

    refused: list[httpx2.Response] = [
        await key.post(GENERATIONS, {"prompt": _PROMPT, "score": True}),
        await key.post(BATCHES, {"requests": [{"prompt": _PROMPT}, {"prompt": _PROMPT, "score": True}]}),
    ]
    assert [(response.status_code, response.json()["required_scope"]) for response in refused] == [(403, "score:read")] * 2
    assert not (await agent.post("/mcp/tools/call", call)).json().get("success")
    assert provider.requests == []
    assert (await content.admin.post(GENERATIONS, {"prompt": _PROMPT, "score": "yes"})).status_code == 422


async def test_a_tool_returns_the_scores(content: Instance, provider: ChatService) -> None:
    """`content_generate` has the argument `score`."""
    provider.queue.append(answer(_OUTPUT))
    agent = await content.agent_key("mcp:read", "mcp:write", "content.write", "score:read")
    call = {"server": "content", "tool": "content_generate", "arguments": {"prompt": _PROMPT, "score": True}}

    result = (await agent.post("/mcp/tools/call", call)).json()

    assert result["success"], result
    assert result["result"]["structuredContent"]["score"] == await _score_directly(content)
