"""Calls of the judge of scoring: their cost is charged to the budgets of content, and their texts are not stored."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import KEY, ChatService, answer
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.content.conftest import GENERATIONS

Json = dict[str, Any]

SCORE = "/v1/score/content"
_JUDGED = {"prompt": "Is my idea good?", "response": "What a brilliant idea!", "judge": True}
_OPINION = json.dumps({"rationale": "It praises without a reason.", "score": 0.9, "label": "strong"})


async def _read_budget(caller: Caller) -> Json:
    return cast("Json", (await caller.get("/api/agent/content/budgets")).json()["data"][0])


async def _read_usage(caller: Caller) -> list[Json]:
    return cast("list[Json]", (await caller.get("/api/agent/content/usage")).json()["data"])


async def _limit_to_one_call(caller: Caller) -> float:
    """Set the budget of the workspace to the highest cost of one judgement, and return it."""
    await caller.send("PUT", "/api/agent/content/budgets/workspace", {"daily": 0.000001})
    refused = await caller.post(SCORE, _JUDGED)
    assert (refused.status_code, refused.json()["error"]) == (429, "budget_exhausted")
    needed = float(refused.json()["needed"])
    await caller.send("PUT", "/api/agent/content/budgets/workspace", {"daily": needed})
    return needed


@pytest.fixture
async def holding(content_settings: Settings, provider: ChatService, noon_clock: Clock) -> AsyncIterator[Instance]:
    """A server whose language model answers when the test releases it."""
    held = replace(content_settings, generation=Secret(provider.url("hold", key=KEY)))
    async with run_instance(held, noon_clock) as running:
        yield running


async def test_a_judgement_is_charged_and_not_stored(content: Instance, provider: ChatService) -> None:
    """Its tokens and cost are in the usage and the budget of its key; no generation has its texts."""
    provider.queue.append(answer(_OPINION))
    key = await content.api_key()

    judged = await key.post(SCORE, _JUDGED)

    assert (judged.status_code, judged.json()["judge"]["label"]) == (200, "strong")
    usage, budget = await _read_usage(key), await _read_budget(key)
    assert [(row["key_id"], row["requests"], row["succeeded"]) for row in usage] == [(key.key_id, 1, 1)]
    assert (budget["reserved"], budget["spent"] > 0) == (0.0, True)
    assert budget["spent"] == pytest.approx(usage[0]["cost"])
    assert (await content.admin.get(GENERATIONS)).json()["meta"]["total"] == 0


async def test_judgements_at_once_on_a_budget_for_one(holding: Instance, provider: ChatService) -> None:
    """The reservation and its check are one statement, so exactly one passes; the others are 429 and send nothing."""
    needed = await _limit_to_one_call(holding.admin)
    calls = [asyncio.create_task(holding.admin.post(SCORE, _JUDGED)) for _ in range(20)]
    await eventually(lambda: sum(call.done() for call in calls) == 19)
    budget = await _read_budget(holding.admin)
    provider.queue.append(answer(_OPINION))
    provider.release()
    statuses = Counter([(await call).status_code for call in calls])

    assert budget["reserved"] == pytest.approx(needed)
    assert (statuses[429], sum(statuses.values())) == (19, 20)
    assert (await _read_budget(holding.admin))["reserved"] == 0.0


async def test_a_failed_judgement_releases_its_reservation(content: Instance, provider: ChatService) -> None:
    """The tokens used are charged, the rest is released, and the answer has the code of the provider's error."""
    provider.queue.append(answer("no JSON at all"))

    failed = await content.admin.post(SCORE, _JUDGED)

    assert failed.status_code == 502, failed.text
    usage, budget = await _read_usage(content.admin), await _read_budget(content.admin)
    assert [(row["requests"], row["failed"]) for row in usage] == [(1, 1)]
    assert (budget["reserved"], budget["spent"]) == (0.0, pytest.approx(usage[0]["cost"]))


async def test_the_reservation_of_an_abandoned_judgement_is_released(content_settings: Settings, provider: ChatService) -> None:
    """The sweep releases it after its lease; an answer that still arrives is charged once."""
    clock = FakeClock()
    held = replace(content_settings, generation=Secret(provider.url("hold", key=KEY)))
    async with run_instance(held, clock) as instance:
        await _release_while_it_runs(instance, clock, provider)


async def _release_while_it_runs(instance: Instance, clock: FakeClock, provider: ChatService) -> None:
    waiting = asyncio.create_task(instance.admin.post(SCORE, _JUDGED))
    await eventually(lambda: provider.active_count)
    assert (await _read_budget(instance.admin))["reserved"] > 0
    clock.advance(minutes=10)
    assert await instance.rookery.content.metered_calls.release_abandoned() == 1
    assert (await _read_budget(instance.admin))["reserved"] == 0.0

    provider.release()
    await waiting
    budget = await _read_budget(instance.admin)
    assert (budget["reserved"], budget["spent"]) == (0.0, pytest.approx(sum(row["cost"] for row in await _read_usage(instance.admin))))
    assert await instance.rookery.content.metered_calls.release_abandoned() == 0


async def test_a_client_that_leaves_pays_for_its_prompt(holding: Instance, provider: ChatService) -> None:
    """The call is cancelled at the provider, and its prompt is charged by estimate."""
    waiting = asyncio.create_task(holding.admin.post(SCORE, _JUDGED))
    await eventually(lambda: provider.active_count)
    waiting.cancel()
    await asyncio.wait({waiting})

    await eventually(lambda: not provider.active_count)
    usage = await _read_usage(holding.admin)
    assert [(row["cancelled"], row["input_tokens"] > 0, row["output_tokens"]) for row in usage] == [(1, True, 0)]
    assert (await _read_budget(holding.admin))["reserved"] == 0.0
