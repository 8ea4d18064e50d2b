"""The reasoning of models, and the tokens of reasoning and of caches, in records, streams, budgets and usage."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from rookery.kernel.config import Settings, load_settings
from tests.chat_service import (
    ANSWER,
    JSON_ANSWER,
    ChatService,
    Script,
    build_chunk,
    build_completion,
    build_event,
    build_events,
    respond,
    stream_parts,
)
from tests.conftest import Instance, eventually, run_instance
from tests.content.conftest import BATCHES, GENERATIONS
from tests.engines.text_generator_contract import SCHEMA

Json = dict[str, Any]

REASONING = "The user greets me."
USAGE = {
    "prompt_tokens": 1100,
    "completion_tokens": 198,
    "total_tokens": 1703,
    "prompt_tokens_details": {"cached_tokens": 1000},
    "completion_tokens_details": {"reasoning_tokens": 405},
}
TOKENS = {"input_tokens": 1100, "output_tokens": 603, "reasoning_tokens": 405, "cached_tokens": 1000, "is_estimated": False}


def answer_with_reasoning(text: str = ANSWER, usage: Json = USAGE) -> Script:
    """Return a script that answers with reasoning in a field of its own."""
    message = {"role": "assistant", "content": text, "reasoning_content": REASONING}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return respond(200, build_completion(choices=[choice], usage=usage))


def stream_with_reasoning() -> Script:
    """Return a script that streams a block of reasoning, and the answer."""
    event = build_event({"id": "1", "choices": [], "usage": USAGE})
    first = build_event(build_chunk(f"<think>{REASONING}</think>{ANSWER[:4]}"))
    return stream_parts([first, *build_events(ANSWER[4:], usage=False, done=False), event])


def parse_events(body: str) -> list[tuple[str, Json]]:
    """Return the events of a stream."""
    lines = [line.partition(": ") for line in body.splitlines() if line]
    names = [value for name, _, value in lines if name == "event"]
    return list(zip(names, [json.loads(value) for name, _, value in lines if name == "data"], strict=True))


async def test_the_reasoning_is_beside_the_answer(content: Instance, provider: ChatService) -> None:
    """In the response and in the record; its tokens are a part of the output and charged once."""
    provider.queue.append(answer_with_reasoning())
    record = (await content.admin.post(GENERATIONS, {"prompt": "Hello"})).json()

    assert record["output"] == {"text": ANSWER, "json": None, "reasoning": REASONING}
    assert record["usage"] == TOKENS
    assert record["cost"] == pytest.approx((1100 * 1 + 603 * 2) / 1e6)
    assert (await content.admin.get(f"{GENERATIONS}/{record['id']}")).json() == record
    (usage,) = (await content.admin.get("/api/agent/content/usage")).json()["data"]
    assert {name: usage[name] for name in TOKENS if name != "is_estimated"} == {
        name: TOKENS[name] for name in TOKENS if name != "is_estimated"
    }
    assert usage["cost"] == pytest.approx(record["cost"])


async def test_a_generation_without_reasoning_has_no_such_fields(content: Instance) -> None:
    """Fields that most models never have are in no response."""
    record = (await content.admin.post(GENERATIONS, {"prompt": "Hello"})).json()

    assert set(record["output"]) == {"text", "json"}
    assert set(record["usage"]) == {"input_tokens", "output_tokens", "is_estimated"}


async def test_reasoning_is_streamed_under_its_own_name(content: Instance, provider: ChatService) -> None:
    """The pieces of the answer are the answer alone."""
    provider.queue.append(stream_with_reasoning())
    events = parse_events((await content.admin.post(GENERATIONS, {"prompt": "Hello", "mode": "stream"})).text)
    done = events[-1][1]

    assert {name: "".join(data["text"] for event, data in events if event == name) for name in ("delta", "reasoning")} == {
        "delta": ANSWER,
        "reasoning": REASONING,
    }
    assert (done["output"], done["usage"]) == ({"text": ANSWER, "json": None, "reasoning": REASONING}, TOKENS)


async def test_the_operator_can_forgo_the_reasoning(content_settings: Settings, provider: ChatService) -> None:
    """It may repeat what was asked; then it is stored and shown nowhere, and its tokens are charged all the same."""
    async with run_instance(replace(content_settings, generation_reasoning=False)) as content:
        provider.queue += [answer_with_reasoning(), stream_with_reasoning()]
        record = (await content.admin.post(GENERATIONS, {"prompt": "Hello"})).json()
        streamed = (await content.admin.post(GENERATIONS, {"prompt": "Hello", "mode": "stream"})).text
        listed = (await content.admin.get(f"{GENERATIONS}/{record['id']}")).text

    assert record["output"] == {"text": ANSWER, "json": None}
    assert record["usage"] == TOKENS
    assert REASONING not in record["output"].values()
    assert not any(REASONING in text for text in (streamed, listed))


async def test_a_batch_sums_the_tokens_of_its_reasoning(content: Instance, provider: ChatService) -> None:
    """The sums of a batch are those of its generations."""
    provider.queue += [answer_with_reasoning(JSON_ANSWER)] * 2
    requests = [{"prompt": "Hello", "schema": SCHEMA}] * 2
    batch = (await content.admin.post(BATCHES, {"requests": requests})).json()

    async def is_finished() -> bool:
        return (await content.admin.get(f"{BATCHES}/{batch['id']}")).json()["status"] == "finished"

    await eventually(is_finished)
    usage = (await content.admin.get(f"{BATCHES}/{batch['id']}")).json()["usage"]
    assert usage == {name: value if isinstance(value, bool) else 2 * value for name, value in TOKENS.items()}
    assert len(provider.requests) == 2


async def test_cached_input_has_a_price_of_its_own(content_settings: Settings, provider: ChatService) -> None:
    """The operator sets it; the budget is charged with it."""
    prices = (("ok", 1_000, 2_000, 100), ("plain", 1_000, 2_000))
    async with run_instance(replace(content_settings, generation_prices=prices)) as content:
        provider.queue += [answer_with_reasoning()] * 2
        costs = [
            cast("float", (await content.admin.post(GENERATIONS, {"prompt": "a", "model": model})).json()["cost"])
            for model in ("ok", "plain")
        ]
        spent = (await content.admin.get("/api/agent/content/budgets")).json()["data"][0]["spent"]

    assert costs == pytest.approx([(100 * 1 + 1000 * 0.1 + 603 * 2) / 1e6, (1100 * 1 + 603 * 2) / 1e6])
    assert spent == pytest.approx(sum(costs))


@pytest.mark.parametrize(
    ("text", "prices"),
    [
        ("gpt-5-mini=0.25/2,*=1/3", (("gpt-5-mini", 250, 2_000), ("*", 1_000, 3_000))),
        ("gpt-5-mini=0.25/2/0.025", (("gpt-5-mini", 250, 2_000, 25),)),
        ("a/b:free=0/0/0", (("a/b:free", 0, 0, 0),)),
    ],
)
def test_prices_are_set_with_or_without_one_of_cached_input(text: str, prices: object) -> None:
    """The setting of earlier versions stays valid."""
    assert load_settings({"ROOKERY_GENERATION_PRICES": text}).settings.generation_prices == prices
