"""The console behind a proxy that removes a path prefix, in a real browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rookery.console.visit import SECTIONS
from tests.console.browsing import BrowserUser
from tests.console.prefix_proxy import PrefixProxy, run_prefix_proxy
from tests.processes import Server
from tests.reference.browser import run_chromium

_LINKS = """
JSON.stringify([...document.querySelectorAll('a[href], form[action]')]
  .map((each) => new URL(each.href ?? each.getAttribute('action'), location).href))
"""


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[PrefixProxy]:
    """A proxy in front of the server."""
    async with run_prefix_proxy(urlsplit(server.url).port or 0) as proxy:
        yield proxy


@pytest.fixture
async def visitor(proxy: PrefixProxy, axe: str, tmp_path: Path) -> AsyncIterator[BrowserUser]:
    """A person with a browser that reaches nothing but the server behind the prefix."""
    async with run_chromium(tmp_path) as browser:
        yield BrowserUser(await browser.open(proxy.url), axe, prefix=proxy.prefix)


@pytest.fixture
async def person(visitor: BrowserUser, server: Server) -> BrowserUser:
    """A person with this browser who is signed in with the first API key."""
    await visitor.sign_in(server.keys["api_key"])
    return visitor


async def test_every_section_works_below_a_prefix(person: BrowserUser, proxy: PrefixProxy) -> None:
    """Every link, form, script and style stays below the prefix, and nothing is requested outside it."""
    for section in SECTIONS:
        await person.go(section.path)
        assert await person.find_faults() == [], section.title
        links = json.loads(str(await person.page.evaluate(_LINKS)))
        outside = [link for link in links if link.startswith("http://127.0.0.1") and not link.startswith(f"{proxy.url}/")]
        assert (len(links) > 10, outside) == (True, []), section.title
    cookies = await person.page.browser.send_command("Network.getCookies", {"urls": [f"{proxy.url}/console/"]}, person.page.session)
    assert f'"path": "{proxy.prefix}/console' in json.dumps(cookies["cookies"])
    assert proxy.refused == []


async def test_forms_filters_and_streams_work_below_a_prefix(person: BrowserUser, proxy: PrefixProxy, server: Server) -> None:
    """Redirects after forms, requests of htmx, pages two levels deep, live events, and the sign-out."""
    await person.go("memories/new")
    await person.type("#content", "The heron nests on the roof.")
    await person.click("main form button.primary")
    await person.wait_for_text("The heron nests on the roof.")
    assert await person.page.evaluate("location.pathname.startsWith(" + json.dumps(f"{proxy.prefix}/console/memories/") + ")")
    await person.go("memories")
    await person.type("input[type=search]", "otter")
    await person.wait_for("location.search.includes('q=otter')")
    await person.go("tools/brain/recall")
    await person.type('[name="f/query"]', "heron")
    await person.wait_for("document.querySelector('#arguments').value.includes('heron')")
    await person.click("button[value=run]")
    await person.wait_for_text("In the call log")
    started = server.client.post("/api/agent/sessions", json={"agent_type": "codex", "goal": "Watch me"})
    path = f"/api/agent/sessions/{started.json()['session']['id']}"
    await person.go(f"sessions/{path.rpartition('/')[2]}")
    server.client.post(f"{path}/events", json={"type": "decision", "message": "It happens now."})
    await person.wait_for_text("It happens now.")
    await person.go("settings")
    await person.wait_for("document.querySelectorAll('#doctor tbody tr').length > 3")
    assert await person.find_faults() == []
    await person.page.evaluate("document.querySelector('form[action$=\"sign-out\"]').requestSubmit()")
    await person.wait_for("location.pathname.endsWith('/console/sign-in')")
    await person.page.go("/console/keys")
    await person.wait_for("location.href.includes('sign-in?next=keys')")
    assert proxy.refused == []
