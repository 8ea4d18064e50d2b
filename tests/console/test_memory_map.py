"""The map of memories on a page (issue 21)."""

from __future__ import annotations

from typing import cast

from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser


async def test_clusters_are_listed(instance: Instance, user: ConsoleUser) -> None:
    """Issue 21: a text alternative; points come as numbers, the memory below the pointer as text; filters apply to both."""
    assert "No memories to place" in await user.read("memories/map")
    memory = await instance.admin.remember("The crane lifts <b>tons</b>.", project="harbor")
    await instance.admin.remember("Soup needs salt.", project="kitchen", type="fact")
    page = await user.read("memories/map?by=type")
    assert "2 of 2 memories" in page
    assert "crane" in page
    points = (await user.get("memories/map/points?project=harbor")).json()
    assert (points["ids"], len(points["coordinates"])) == ([memory["id"]], 2)
    assert (await user.get(f"memories/{memory['id']}/peek")).json() == {"text": "The crane lifts <b>tons</b>. (decision, harbor)"}
    assert "no-store" in (await user.get("memories/map/points")).headers["cache-control"]
    assert "by" in await user.read("memories/map?by=nonsense")


async def test_a_person_reads_the_map(person: BrowserUser) -> None:
    """Issue 21: pointing at a point shows its memory, and a click opens it."""
    await person.go("memories/new")
    await person.type("#content", "The heron nests on the old crane.")
    await person.click("form.form button.primary")
    await person.wait_for_text("indexed")
    await person.go("memories/map")
    await person.page.evaluate("scrollTo(0, 0)")
    await person.wait_for("!!document.querySelector('[data-ready]')")
    assert await person.find_faults() == []
    canvas = "document.querySelector('canvas').getBoundingClientRect()"
    x, y = cast("list[float]", await person.page.evaluate(f"[{canvas}.x + {canvas}.width / 2, {canvas}.y + {canvas}.height / 2]"))
    for kind, text in (("mouseMoved", "The heron nests"), ("mousePressed", "The heron"), ("mouseReleased", "History")):
        event = {"type": kind, "x": x, "y": y, "button": "none" if kind == "mouseMoved" else "left", "clickCount": 1}
        await person.page.browser.send_command("Input.dispatchMouseEvent", event, person.page.session)
        await person.wait_for_text(text)
