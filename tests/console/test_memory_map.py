"""The map of memories on a page."""

from __future__ import annotations

from tests.conftest import Instance, eventually
from tests.console.browsing import BrowserUser, ConsoleUser
from tests.processes import Server


async def test_clusters_are_listed(instance: Instance, user: ConsoleUser) -> None:
    """A text alternative; points come as numbers, the memory below the pointer as text; filters apply to both."""
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


async def test_points_are_read_and_opened(person: BrowserUser, server: Server) -> None:
    """The pointer on a point shows its memory, and a click opens its page. A single memory is in the middle of the map."""
    fields = {"content": "The crane lifts tons.", "type": "fact", "project": "harbor"}
    memory_id = server.client.post("/v1/brain/remember", json=fields).json()["id"]
    await eventually(lambda: server.client.get(f"/v1/brain/memories/{memory_id}").json()["state"] == "indexed")
    await person.go("memories/map?project=harbor")
    await person.wait_for("document.querySelector('[data-map]').dataset.ready === '1'")
    await person.hover("canvas")
    await person.wait_for_text("The crane lifts tons. (fact, harbor)")
    assert await person.find_faults() == []
    await person.click("canvas")
    await person.wait_for(f"location.pathname === '/console/memories/{memory_id}'")
    await person.wait_for_text("The crane lifts tons.")
