"""Every section of the console in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

from typing import Literal

from rookery.console.visit import SECTIONS
from tests.console.browsing import BrowserUser
from tests.processes import Server

_WIDTHS = {360: 740, 1440: 900}
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def test_sections_have_no_faults(person: BrowserUser, server: Server) -> None:
    """No violation of the policy, error, outside request or serious fault of axe-core, wide and narrow, light and dark."""
    _store_something(server)
    for section in SECTIONS:
        await person.go(section.path)
        for width, height in _WIDTHS.items():
            await person.page.resize(width, height)
            for scheme in _SCHEMES:
                await person.page.set_color_scheme(scheme)
                assert await person.find_faults() == [], (section.title, width, scheme)


def _store_something(server: Server) -> None:
    """Store one of what the sections list."""
    subscriber = {"external_id": "ada", "tags": ["beta"], "channels": [{"type": "webhook", "url": server.url}]}
    for path, body in {
        "/v1/brain/remember": {"content": "The crane lifts tons.", "type": "fact", "tags": ["harbor"]},
        "/api/v1/mcp/tools/call": {"server": "brain", "tool": "recall", "arguments": {"query": "crane"}},
        "/v1/plans": {"title": "Unload the ship", "phases": [{"name": "Harbor", "tasks": ["Lift"]}]},
        "/api/agent/sessions": {"agent_type": "codex", "goal": "Unload the ship"},
        "/api/agent/notify/subscribers": subscriber,
        "/api/agent/notify/campaigns": {"name": "News", "title": "A ship", "body": "It is here.", "audience": {"all": True}},
        "/api/v1/webhooks": {"url": server.url, "events": ["memory.stored"]},
    }.items():
        response = server.client.post(path, json=body)
        assert response.status_code < 300, (path, response.text)


async def test_a_wrong_key_is_told(visitor: BrowserUser, server: Server) -> None:
    """A wrong key stays on the sign-in page with the reason; the right one goes on."""
    await visitor.page.go("/console/sign-in")
    await visitor.type("#key", "sk_live_" + "x" * 32)
    await visitor.click("button.primary")
    await visitor.wait_for_text("unknown")
    await visitor.sign_in(server.keys["api_key"])


async def test_the_menu_works_by_keyboard(person: BrowserUser) -> None:
    """On a narrow screen the navigation opens by its button, follows it in the order of Tab, and closes by Escape."""
    await person.page.resize(360, 740)
    await person.go("")
    await person.page.evaluate("document.querySelector('.menu-button').focus()")
    await person.press("Enter")
    await person.wait_for("!!document.querySelector('.side:popover-open')")
    await person.press("Tab")
    await person.wait_for("document.activeElement === document.querySelector('.side a')")
    await person.press("Escape")
    await person.wait_for("!document.querySelector('.side:popover-open') && document.activeElement.matches('.menu-button')")
