"""The map of memories on a page (issue 21)."""

from __future__ import annotations

from tests.conftest import Instance
from tests.console.browsing import ConsoleUser


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
