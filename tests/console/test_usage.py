"""The page of usage: the cost of a period with its days, groups, budgets and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.usage.models import UsageEntry, UsageKind, day_of
from tests.conftest import Instance, run_instance
from tests.console.browsing import ConsoleUser, get_text


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A server with EUR as its currency, and some usage of today."""
    async with run_instance(replace(settings, currency="EUR")) as running:
        await _add(running, model="large", cost_nanos=12_345_000_000, input_tokens=1_200_000)
        await _add(running, model="small", cost_nanos=210_000, unpriced_calls=1)
        await _add(running, kind=UsageKind.SESSION, agent_id="rook", model="opus", cost_nanos=2_000_000_000)
        await _add(running, kind=UsageKind.TOOL_CALL, tool="git/log", duration_us=5_000)
        yield running


async def _add(instance: Instance, **fields: object) -> None:
    entry = UsageEntry(workspace_id=instance.workspace_id, day=day_of(utc_now()), kind=UsageKind.GENERATION, calls=1)
    changed = replace(entry, **fields)
    await instance.rookery.db.write(lambda tx: instance.rookery.usage.ledger.add(tx, changed))


async def test_the_cost_of_a_month_is_on_one_page(user: ConsoleUser) -> None:
    """Spending and the part that agents report, by kind and model, as money with the currency."""
    page = (await user.get("usage")).text
    text = get_text(page)

    assert "Cost 14.35 EUR 2.00 EUR as agents report" in text
    assert "data-chart" in page
    assert "Generations large 1 0" in text
    assert "12.35 EUR" in text
    assert "0.00021 EUR" in text
    assert "1 call used a model without a price" in text
    assert "Cost this month 14.35 EUR" in await user.read("")


async def test_the_page_is_grouped_and_narrowed(user: ConsoleUser) -> None:
    """By agent and by tool; the name of a group is a link to it alone; an empty period says so."""
    assert "rook" in await user.read("usage?by=agent")
    assert "git/log 1 0 5.0 ms" in await user.read("usage?by=tool&kind=tool_call")
    assert "model=large" in (await user.get("usage")).text
    narrowed = await user.read("usage?by=key&model=large")
    assert ("12.35 EUR" in narrowed, "2.00 EUR" in narrowed) == (True, False)
    assert "Nothing was used in this period" in await user.read("usage?since=2020-01-01&until=2020-01-02")


async def test_the_page_shows_how_near_the_budgets_are(user: ConsoleUser) -> None:
    """Budgets of both periods are set in one form, and shown with their use."""
    assert (await user.post("content/budgets", {"key_id": "", "daily": "5", "monthly": "100"})).status_code == 303
    text = await user.read("usage")
    assert ("0.00 EUR of 5.00 EUR" in text, "0.00 EUR of 100.00 EUR" in text) == (True, True)
    assert "Workspace set here 5.00 EUR 0.00 EUR" in await user.read("content/budgets")

    assert (await user.post("content/budgets", {"key_id": "", "daily": "none", "monthly": ""})).status_code == 303
    text = await user.read("content/budgets")
    assert ("Workspace set here no limit 0.00 EUR" in text, "100.00 EUR 0.00 EUR" in text) == (True, True)


async def test_the_report_is_downloaded_as_csv(user: ConsoleUser) -> None:
    """The file has the groups of the page, with exact amounts."""
    response = await user.get("usage/export?by=model&period=30d")

    assert 'filename="usage.csv"' in response.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert {(row["kind"], row["model"], row["cost"], row["currency"]) for row in rows} == {
        ("generation", "large", "12.345", "EUR"),
        ("generation", "small", "0.00021", "EUR"),
        ("session", "opus", "2", "EUR"),
        ("tool_call", "", "0", "EUR"),
    }


async def test_a_key_without_the_scope_has_no_such_page(instance: Instance) -> None:
    """A section is shown to keys that may read it."""
    async with ConsoleUser(instance.rookery) as other:
        await other.sign_in((await instance.api_key("console:read", "content.read")).key or "")
        assert (await other.get("usage")).status_code == 403
        assert 'href="/console/usage"' not in (await other.get("content/usage")).text
