"""Every section of the console in a real browser, wide and narrow, light and dark (issue 21)."""

from __future__ import annotations

import pytest

from rookery.console.sections import SECTIONS
from tests.console.browsing import BrowserUser
from tests.processes import Server

_WIDTHS = {360: 740, 1440: 900}


async def test_sections_have_no_faults(person: BrowserUser) -> None:
    """Issue 21: no violation of the policy, no console error, no outside request, nothing serious of axe-core, at both widths."""
    for section in SECTIONS:
        for width, height in _WIDTHS.items():
            await person.page.resize(width, height)
            await person.go(section.path)
            assert await person.find_faults() == [], (section.title, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_colors_have_contrast(person: BrowserUser, scheme: str) -> None:
    """Issue 21: light and dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    await person.page.browser.send_command("Emulation.setEmulatedMedia", {"features": features}, person.page.session)
    for path in ("", "settings"):
        await person.go(path)
        assert await person.find_faults() == [], path


async def test_a_wrong_key_is_told(visitor: BrowserUser, server: Server) -> None:
    """A wrong key stays on the sign-in page with the reason; the right one goes on."""
    await visitor.page.go("/console/sign-in")
    await visitor.type("#key", "sk_live_" + "x" * 32)
    await visitor.click("button.primary")
    await visitor.wait_for_text("unknown")
    await visitor.sign_in(server.keys["api_key"])


async def test_the_menu_works_by_keyboard(person: BrowserUser) -> None:
    """Issue 21: on a narrow screen the navigation opens by its button and closes by Escape, and the focus returns."""
    await person.page.resize(360, 740)
    await person.go("")
    await person.click("[data-toggle=navigation]")
    await person.wait_for("document.querySelector('.side.open a') === document.activeElement")
    for kind in ("keyDown", "keyUp"):
        await person.page.browser.send_command("Input.dispatchKeyEvent", {"type": kind, "key": "Escape"}, person.page.session)
    await person.wait_for("!document.querySelector('.side.open') && document.activeElement.dataset.toggle === 'navigation'")
