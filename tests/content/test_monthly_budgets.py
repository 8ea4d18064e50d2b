"""Monthly budgets beside daily ones: calendar months in UTC, enforced in the same way."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from rookery.kernel.config import Settings
from tests.chat_service import ChatService
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.content.conftest import GENERATIONS

Json = dict[str, Any]

WORKSPACE_BUDGET = "/api/agent/content/budgets/workspace"
_ONE_CALL = {"prompt": "a", "max_tokens": 100}
_ONE_CALL_COST = (5 * 1 + 100 * 2) / 1e6
_SETTLED_COST = 45e-6


async def _read_budget(caller: Caller) -> Json:
    return cast("Json", (await caller.get("/api/agent/content/budgets")).json()["data"][0])


async def test_a_month_is_limited_over_its_days(content_settings: Settings) -> None:
    """Spending of all days of a month counts; the refusal names the budget, its amount and its end; the next month is free."""
    clock = FakeClock(datetime(2026, 11, 29, 23, 0, tzinfo=UTC))
    async with run_instance(content_settings, clock) as content:
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"monthly": _ONE_CALL_COST + _SETTLED_COST})
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
        clock.advance(hours=2)  # the next day
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200
        refused = await content.admin.post(GENERATIONS, _ONE_CALL)

        body = refused.json()
        assert (refused.status_code, body["error"], body["budget"], body["period"]) == (429, "budget_exhausted", "workspace", "month")
        assert (body["monthly"], body["currency"], body["resets_at"]) == (
            pytest.approx(_ONE_CALL_COST + _SETTLED_COST), "USD", "2026-12-01T00:00:00.000000Z"
        )  # fmt: skip
        assert "0.00021 USD" in body["message"]
        assert "the monthly budget of 0.00025 USD of this workspace" in body["message"]
        assert int(refused.headers["retry-after"]) == 23 * 3600 + 1
        budget = await _read_budget(content.admin)
        assert (budget["spent"], budget["month"]["spent"]) == (pytest.approx(_SETTLED_COST), pytest.approx(2 * _SETTLED_COST))
        clock.advance(hours=23)
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).status_code == 200


async def test_the_budget_that_ends_last_is_named(content_settings: Settings, clock_of_november: FakeClock) -> None:
    """If two budgets are exhausted, the answer names the one to wait for. On the last day of a month both end at the same time."""
    async with run_instance(content_settings, clock_of_november) as content:
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"daily": 0, "monthly": 0})
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).json()["period"] == "month"
        await content.admin.send("PUT", WORKSPACE_BUDGET, {"monthly": None})
        assert (await content.admin.post(GENERATIONS, _ONE_CALL)).json()["period"] == "day"


async def test_fifty_calls_at_once_on_a_month_for_one(content: Instance, provider: ChatService) -> None:
    """A monthly budget is reserved as atomically as a daily one."""
    await content.admin.send("PUT", WORKSPACE_BUDGET, {"monthly": _ONE_CALL_COST})
    calls = [asyncio.create_task(content.admin.post(GENERATIONS, {**_ONE_CALL, "model": "hold"})) for _ in range(50)]
    await eventually(lambda: sum(call.done() for call in calls) == 49)
    reserved = (await _read_budget(content.admin))["month"]["reserved"]
    provider.release()

    assert Counter([(await call).status_code for call in calls]) == {200: 1, 429: 49}
    assert reserved == pytest.approx(_ONE_CALL_COST)
    month = (await _read_budget(content.admin))["month"]
    assert (month["reserved"], month["spent"]) == (0.0, pytest.approx(_SETTLED_COST))


async def test_periods_are_set_and_removed_apart(content: Instance) -> None:
    """A period that a request does not name stays; DELETE removes one period or both; the audit log has each change."""
    key = await content.api_key("content.write", "content.read")
    path = f"/api/agent/content/budgets/keys/{key.key_id}"
    both = (await content.admin.send("PUT", path, {"daily": 1, "monthly": 10})).json()
    assert (both["daily"], both["monthly"], both["left"], both["month"]["left"], both["currency"]) == (1.0, 10.0, 1.0, 10.0, "USD")
    changed = (await content.admin.send("PUT", path, {"monthly": 20})).json()
    assert (changed["daily"], changed["monthly"]) == (1.0, 20.0)
    day_only = (await content.admin.send("DELETE", f"{path}?period=month")).json()
    assert (day_only["daily"], day_only["monthly"], day_only["source"], day_only["month"]["source"]) == (1.0, None, "override", "setting")
    none = (await content.admin.send("DELETE", path)).json()
    assert (none["daily"], none["source"]) == (None, "setting")

    entries = (await content.admin.get("/api/v1/audit?action=content_budget.changed")).json()["data"]
    assert [entry["after"] for entry in entries][1:3] == [{"monthly": None, "monthly_source": "setting"}, {"monthly": 20.0}]
    for body in ({}, {"monthly": -1}, {"monthly": "much"}, {"weekly": 1}):
        assert (await content.admin.send("PUT", path, body)).status_code == 422
    assert (await content.admin.send("DELETE", f"{path}?period=week")).status_code == 422


async def test_settings_give_monthly_defaults(content_settings: Settings, clock_of_november: FakeClock) -> None:
    """ROOKERY_GENERATION_MONTHLY_BUDGET and ROOKERY_GENERATION_KEY_MONTHLY_BUDGET hold where nothing else is set."""
    settings = replace(content_settings, generation_monthly_budget=10**9, generation_key_monthly_budget=0)
    async with run_instance(settings, clock_of_november) as content:
        refused = await content.admin.post(GENERATIONS, _ONE_CALL)
        assert (refused.status_code, refused.json()["budget"], refused.json()["period"]) == (429, "key", "month")
        assert (await _read_budget(content.admin))["monthly"] == 1.0


async def test_old_spending_is_deleted_and_that_of_this_month_stays(content_settings: Settings) -> None:
    """Rows of earlier days and months are deleted; the sum of the present month is needed."""
    clock = FakeClock(datetime(2026, 11, 5, 12, tzinfo=UTC))
    async with run_instance(content_settings, clock) as content:
        await content.admin.post(GENERATIONS, _ONE_CALL)
        clock.advance(days=20)
        await content.rookery.content.generations.delete_old(before=clock() - timedelta(days=1))

        budget = await _read_budget(content.admin)
        assert (budget["spent"], budget["month"]["spent"]) == (0.0, pytest.approx(_SETTLED_COST))


@pytest.fixture
def clock_of_november() -> FakeClock:
    """A clock in the middle of a month."""
    return FakeClock(datetime(2026, 11, 15, 12, tzinfo=UTC))
