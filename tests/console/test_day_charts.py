"""Charts by day, for eyes and for screen readers."""

from __future__ import annotations

import json
import re
from datetime import date

from rookery.console.day_charts import build_day_chart
from tests.conftest import eventually
from tests.console.browsing import BrowserUser
from tests.processes import Server


def test_days_without_calls_are_in_a_chart() -> None:
    """Each day has its place, the sum stands for all, and numbers of things have whole steps."""
    chart = build_day_chart(date(2026, 11, 29), 3, [("calls", "accent", {"2026-11-29": 4, "2026-12-01": 2})])
    assert (chart.days, chart.series[0].values, chart.series[0].whole) == (("29 Nov", "30 Nov", "1 Dec"), (4, 0, 2), 6)
    assert chart.to_plot()["steps"] is not None
    costs = build_day_chart(date(2026, 11, 29), 1, [("cost", "accent", {"2026-11-29": 0.25})])
    assert costs.to_plot()["steps"] is None


async def test_a_chart_is_also_a_table(server: Server, person: BrowserUser) -> None:
    """The day below the pointer has its numbers, all days have them in a table, and without scripts the table is shown."""
    for _ in range(3):
        server.client.post("/api/v1/mcp/tools/call", json={"server": "brain", "tool": "recall", "arguments": {"query": "crane"}})
    await eventually(lambda: server.client.get("/api/agent/tools/analytics").json()["calls"] >= 3)
    await person.page.resize(1440, 900)
    await person.go("")
    await person.wait_for("!!document.querySelector('.plot canvas')")
    table = json.loads(
        str(await person.page.evaluate("JSON.stringify([...document.querySelectorAll('.chart table')].map(it => it.innerText))"))
    )
    assert re.search(r"\d+ [A-Z][a-z]{2}\s+3\s+0", table[0]), table
    sums = await person.page.evaluate("document.querySelector('figcaption').innerText")
    box = "document.querySelector('.plot').getBoundingClientRect()"
    right, middle = await person.page.evaluate(f"{box}.right"), await person.page.evaluate(f"{box}.y + {box}.height / 2")
    for x in (float(str(right)) - 60, float(str(right)) - 40):
        event = {"type": "mouseMoved", "x": x, "y": middle}
        await person.page.browser.send_command("Input.dispatchMouseEvent", event, person.page.session)
    await person.wait_for(f"document.querySelector('figcaption').innerText !== {json.dumps(sums)}")
    await person.page.disable_scripts()
    await person.go("")
    shown = "getComputedStyle(document.querySelector('.chart > .visually-hidden')).position"
    await eventually(lambda: person.page.evaluate(f"{shown} === 'static'"))
