"""Daily budgets: reservation before the call, settlement after it, over connections and processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from tests.chat_service import ChatService
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.content.conftest import BATCHES, GENERATIONS

Json = dict[str, Any]
WORKSPACE_BUDGET = "/api/agent/content/budgets/workspace"
_ONE_CALL = {"prompt": "a", "max_tokens": 100}
_ONE_CALL_COST = (5 * 1 + 100 * 2) / 1e6
"""5 tokens for the prompt and its role, and 100 of the answer, at the prices of the tests."""


async def _read_budget(caller: Caller, position: int = 0) -> Json:
    return cast("Json", (await caller.get("/api/agent/content/budgets")).json()["data"][position])


async def test_fifty_calls_at_once_on_a_budget_for_one(content: Instance, provider: ChatService) -> None:
    """Exactly one passes; the others get 429 with what is left and when it starts again."""
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": _ONE_CALL_COST})
    calls = [asyncio.create_task(content.admin.post(GENERATIONS, {**_ONE_CALL, "model": "hold"})) for _ in range(50)]
    await eventually(lambda: sum(call.done() for call in calls) == 49)
    budget = await _read_budget(content.admin)
    provider.release()
    responses = [await call for call in calls]

    assert Counter(response.status_code for response in responses) == {200: 1, 429: 49}
    assert budget["reserved"] == pytest.approx(_ONE_CALL_COST)
    refused = next(response for response in responses if response.status_code == 429)
    body = refused.json()
    assert (body["error"], body["budget"], body["left"], body["daily"]) == ("budget_exhausted", "workspace", 0.0, _ONE_CALL_COST)
    assert body["resets_at"].endswith("T00:00:00.000000Z")
    assert int(refused.headers["retry-after"]) <= 24 * 3600 + 1
    assert len(provider.requests) == 1
    settled = await _read_budget(content.admin)
    assert (settled["reserved"], settled["spent"]) == (0.0, pytest.approx(45e-6))
    assert (await content.admin.get(GENERATIONS)).json()["meta"]["total"] == 1


async def test_two_servers_share_a_budget(content: Instance, content_settings: Settings, noon_clock: Clock, provider: ChatService) -> None:
    """The reservation is in the record store, so that several processes cannot pass a budget together."""
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": _ONE_CALL_COST})
    async with run_instance(content_settings, noon_clock) as second:
        callers = [content.admin, second.caller(content.admin.key)]
        calls = [asyncio.create_task(caller.post(GENERATIONS, {**_ONE_CALL, "model": "hold"})) for caller in callers * 5]
        await eventually(lambda: sum(call.done() for call in calls) == 9)
        provider.release()
        assert Counter([(await call).status_code for call in calls]) == {200: 1, 429: 9}


async def test_a_provider_that_bills_more_than_the_prompt_passes_no_budget_after_its_first_call(
    content: Instance, content_settings: Settings, noon_clock: Clock, provider: ChatService
) -> None:
    """Calls at the same time, also of another process, reserve what such a call costs. Before, each reserved its estimate."""
    billed_more = {**_ONE_CALL, "model": "hidden-prompt"}
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 0.011})
    async with run_instance(content_settings, noon_clock) as second:
        assert (await content.admin.post(GENERATIONS, billed_more)).status_code == 200
        callers = [content.admin, second.caller(content.admin.key)]
        calls = [asyncio.create_task(caller.post(GENERATIONS, {**billed_more, "prompt": "wait"})) for caller in callers * 15]
        await eventually(lambda: sum(call.done() for call in calls) >= 26)
        reserved = (await _read_budget(content.admin))["reserved"]
        provider.release()
        statuses = Counter([(await call).status_code for call in calls])
        budget = await _read_budget(content.admin)

    assert statuses == {200: 4, 429: 26}
    assert reserved == pytest.approx(4 * (1_995 + 206) / 1e6)
    assert (budget["spent"], budget["reserved"]) == (pytest.approx(5 * 2_034 / 1e6, rel=0.001), 0.0)


async def test_what_a_provider_billed_for_a_short_prompt_blocks_no_long_one(content_settings: Settings, provider: ChatService) -> None:
    """A text that the provider adds to each prompt is reserved once. A week later, the estimate is reserved again."""
    clock = FakeClock(datetime(2026, 11, 23, 12, tzinfo=UTC))
    long_prompt = {"prompt": "wait" * 7_500, "max_tokens": 100, "model": "hidden-prompt"}
    reserved = list[float]()
    async with run_instance(content_settings, clock) as content:
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 0.02})
        assert (await content.admin.post(GENERATIONS, {**_ONE_CALL, "model": "hidden-prompt"})).status_code == 200
        for days in (0, 8):
            clock.advance(days=days)
            provider.is_released.clear()
            call = asyncio.create_task(content.admin.post(GENERATIONS, long_prompt))
            reserved.append(await eventually(lambda: _read_reserved(content.admin)))
            provider.release()
            assert (await call).status_code == 200

    estimate = (30_000 // 3 + 5 + 200) / 1e6
    assert reserved == [pytest.approx(estimate + 1_995 / 1e6), pytest.approx(estimate)]


async def _read_reserved(caller: Caller) -> float:
    return float((await _read_budget(caller))["reserved"])


async def test_the_budget_of_a_key_is_its_own(content: Instance) -> None:
    """A key with a spent budget is refused, others of the workspace are not."""
    poor = await content.api_key("content.write", "content.read")
    response = await content.admin.send("PUT", f"/api/agent/content/budgets/keys/{poor.key_id}", {"daily": 0.0001})
    assert (response.status_code, response.json()["left"]) == (200, 0.0001)

    refused = await poor.post(GENERATIONS, _ONE_CALL)
    assert (refused.status_code, refused.json()["budget"]) == (429, "key")
    assert "Lower max_tokens" in refused.json()["message"]
    assert (await poor.post(GENERATIONS, {**_ONE_CALL, "max_tokens": 20})).status_code == 200
    assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
    assert (await poor.send("PUT", f"/api/agent/content/budgets/keys/{poor.key_id}", {"daily": None})).status_code == 403


async def test_a_reset_budget_is_that_of_the_settings(content_settings: Settings, noon_clock: Clock) -> None:
    """Settings give the defaults, an override replaces them, null is no limit."""
    budgets = replace(content_settings, generation_daily_budget=0, generation_key_daily_budget=10**9)
    async with run_instance(budgets, noon_clock) as content:
        admin = content.admin
        assert (await admin.post(GENERATIONS, _ONE_CALL)).status_code == 429
        assert (await admin.send("PUT", WORKSPACE_BUDGET, {"daily": None})).json()["daily"] is None
        assert (await admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
        assert ((await _read_budget(admin, 1))["daily"], (await _read_budget(admin))["source"]) == (1.0, "override")
        reset = await admin.send("DELETE", WORKSPACE_BUDGET)
        assert (reset.status_code, reset.json()["source"], reset.json()["daily"]) == (200, "setting", 0.0)
        assert (await admin.post(GENERATIONS, _ONE_CALL)).status_code == 429


async def test_a_budget_needs_a_price(content_settings: Settings) -> None:
    """With a budget, a model without a price is a 422; without one it costs nothing."""
    async with run_instance(replace(content_settings, generation_prices=())) as content:
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).json()["cost"] is None
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 5})
        response = await content.admin.post(GENERATIONS, _ONE_CALL)
        assert (response.status_code, response.json()["error"]) == (422, "model_not_priced")


@pytest.mark.parametrize(("path", "body", "status"), [
    (WORKSPACE_BUDGET, {"daily": -1}, 422),
    (WORKSPACE_BUDGET, {}, 422),
    (WORKSPACE_BUDGET, {"daily": "much"}, 422),
    ("/api/agent/content/budgets/keys/missing", {"daily": 1}, 404),
])  # fmt: skip
async def test_an_invalid_budget_is_refused(content: Instance, path: str, body: Json, status: int) -> None:
    """Bad input is a clear error."""
    assert (await content.admin.send("PUT", path, body)).status_code == status


async def test_the_key_of_another_workspace_has_no_budget_here(content: Instance) -> None:
    """Walls: a budget can be set only for keys of the own workspace."""
    stranger = await content.api_key(workspace_id=await content.workspace("Other"))
    response = await content.admin.send("PUT", f"/api/agent/content/budgets/keys/{stranger.key_id}", {"daily": 1})
    assert response.status_code == 404


async def test_a_changed_budget_is_audited_and_has_versions(content: Instance) -> None:
    """The audit log has the change; If-Match with an old version is a 412."""
    first = await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 1})
    assert (await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 2}, **{"If-Match": first.headers["etag"]})).status_code == 200
    assert (await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 3}, **{"If-Match": first.headers["etag"]})).status_code == 412
    entries = (await content.admin.get("/api/v1/audit?action=content_budget.changed")).json()["data"]
    assert [entry["after"] for entry in entries] == [{"daily": 2.0}, {"daily": 1.0, "source": "override"}]


async def test_a_budget_starts_again_at_midnight_in_utc(content_settings: Settings) -> None:
    """The spending of a day does not count on the next one, and usage is kept by day."""
    clock = FakeClock(datetime(2026, 11, 23, 23, 59, tzinfo=UTC))
    async with run_instance(content_settings, clock) as content:
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": _ONE_CALL_COST})
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
        refused = await content.admin.post(GENERATIONS, _ONE_CALL)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "61")
        clock.advance(minutes=2)
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
        usage = (await content.admin.get("/api/agent/content/usage?since=2026-11-23")).json()["data"]
        assert [(row["day"], row["requests"], row["output_tokens"]) for row in usage] == [("2026-11-24", 1, 17), ("2026-11-23", 1, 17)]
        assert {row["key_name"] for row in usage} == {"first key"}


async def test_the_reservation_of_an_abandoned_call_is_released(content_settings: Settings, provider: ChatService) -> None:
    """The sweep fails a running call whose lease is over, and releases what it reserved."""
    clock = FakeClock()
    async with run_instance(content_settings, clock) as content:
        await _fail_an_abandoned_call(content, clock, provider)


async def _fail_an_abandoned_call(content: Instance, clock: FakeClock, provider: ChatService) -> None:
    waiting = asyncio.create_task(content.admin.post(GENERATIONS, {**_ONE_CALL, "model": "hang"}))
    await eventually(lambda: provider.active_count)
    clock.advance(minutes=10)
    assert await content.rookery.content.generations.fail_abandoned() == 1

    record = (await content.admin.get(GENERATIONS)).json()["data"][0]
    assert (record["status"], record["error"]["code"]) == ("failed", "interrupted")
    assert (await _read_budget(content.admin))["reserved"] == 0.0
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_a_batch_fails_only_for_the_part_that_the_budget_does_not_cover(content: Instance) -> None:
    """Partial failure is per row; nothing at all is left → 429 and nothing is stored."""
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": _ONE_CALL_COST + 100e-6})
    batch = (await content.admin.post(BATCHES, {"requests": [_ONE_CALL] * 5})).json()
    finished = await eventually(lambda: _is_finished(content.admin, batch["id"]))

    counts = cast("dict[str, int]", finished["counts"])
    assert (counts["queued"], counts["running"], counts["succeeded"] + counts["failed"]) == (0, 0, 5)
    assert counts["succeeded"] >= 1
    assert counts["failed"] >= 1
    failed = (await content.admin.get(f"{GENERATIONS}?status=failed")).json()["data"][0]
    assert failed["error"]["code"] == "budget_exhausted"
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 0})
    refused = await content.admin.post(BATCHES, {"requests": [_ONE_CALL] * 5})
    assert (refused.status_code, (await content.admin.get(BATCHES)).json()["meta"]["total"]) == (429, 1)


async def _is_finished(caller: Caller, batch_id: object) -> Json:
    batch = cast("Json", (await caller.get(f"{BATCHES}/{batch_id}")).json())
    return batch if batch["status"] == "finished" else {}
