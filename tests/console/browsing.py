"""People who use the console: one whose requests go through the whole application in this process, and one with a real browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from types import TracebackType
from typing import Literal, Self, cast

import httpx2

from rookery.app import create_app
from rookery.wiring import Rookery
from tests.deadlines import HANG_S
from tests.reference.browser import BrowserError, Page

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}
_POLL_S = 0.05
_KEY_CODES = {"Enter": 13, "Escape": 27, "Tab": 9}
_RECORD_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""
_RUN_AXE = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => JSON.stringify(found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => each.id + ": " + each.nodes.map((node) => node.target.join(" ")).join(", "))))
"""
_LIST_CUT_PLACEHOLDERS = """
(() => {
  const pen = document.createElement("canvas").getContext("2d");
  return [...document.querySelectorAll("input[placeholder]")].filter((field) => {
    const style = getComputedStyle(field);
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const width = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return field.checkVisibility() && pen.measureText(field.placeholder).width > width + 0.5;
  }).map((field) => `the placeholder of ${field.name} is cut: ${field.placeholder}`);
})()
"""


class ConsoleUser:
    """A client of the console's pages in this process, with the cookies of a browser."""

    def __init__(self, rookery: Rookery, headers: Mapping[str, str] = SAME_ORIGIN) -> None:
        transport = httpx2.ASGITransport(create_app(rookery))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://localhost/console/", headers=dict(headers), timeout=HANG_S)

    async def sign_in(self, key: str, next_page: str = "") -> httpx2.Response:
        """Submit the sign-in form."""
        return await self.post("sign-in", {"key": key, "next": next_page})

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """Open the page *path* below `/console/`."""
        return await self.http.get(path, headers=dict(headers or {}))

    async def post(self, path: str, fields: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> httpx2.Response:
        """Submit a form to *path*."""
        pairs = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
        content = str(httpx2.QueryParams(tuple(pairs)))
        return await self.http.post(path, content=content, headers={"Content-Type": "application/x-www-form-urlencoded"})

    async def read(self, path: str) -> str:
        """Return the visible text of a page, which must be found."""
        response = await self.get(path)
        assert response.status_code == 200, (response.status_code, get_text(response.text)[-1000:])
        return get_text(response.text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.http.aclose()


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words = list[str]()

    def handle_data(self, data: str) -> None:
        """Collect the words of a text."""
        self.words += data.split()


def get_text(html: str) -> str:
    """Return the text of a page with single spaces."""
    parser = _TextParser()
    parser.feed(html)
    return " ".join(parser.words)


class BrowserUser:
    """
    A person with a real browser, who notices every fault of a page.

    Args:
        prefix: The path prefix that a proxy in front of the server has, without a slash at its end.
    """

    def __init__(self, page: Page, axe: str, prefix: str = "") -> None:
        self.page = page
        self._axe = axe
        self._prefix = prefix

    async def sign_in(self, key: str) -> None:
        """Sign in on the page."""
        await self.page.browser.send_command("Page.addScriptToEvaluateOnNewDocument", {"source": _RECORD_VIOLATIONS}, self.page.session)
        await self.page.go("/console/sign-in")
        await self.wait_for("!!document.querySelector('#key')")
        await self.type("#key", key)
        await self.page.click("button.primary")
        await self.wait_for("!!document.querySelector('nav.side')")

    async def go(self, path: str) -> None:
        """Open the page *path* below `/console/` and wait until it is complete."""
        await self.page.go(f"/console/{path}")
        await self.wait_for(
            f"location.pathname + location.search === {json.dumps(f'{self._prefix}/console/{path}')} && document.readyState === 'complete'"
        )

    async def wait_for(self, script: str) -> object:
        """Wait until *script* is true in the page, and return its value."""
        async with asyncio.timeout(HANG_S):
            while True:
                try:
                    if value := await self.page.evaluate(script):
                        return value
                except BrowserError:  # the page is being replaced
                    pass
                await asyncio.sleep(_POLL_S)

    async def wait_for_text(self, text: str) -> None:
        """Wait until the page shows *text*."""
        await self.wait_for(f"!!document.body && document.body.innerText.includes({json.dumps(text)})")

    async def type(self, selector: str, text: str) -> None:
        """Type *text* into an empty field, as a keyboard does. A page that is being replaced loses what was typed, so it is typed again."""
        field = f"document.querySelector({json.dumps(selector)})"
        await self.wait_for(f"document.readyState === 'complete' && !!{field}")
        async with asyncio.timeout(HANG_S):
            while not await self.page.evaluate(f"{field}.value.endsWith({json.dumps(text)})"):
                await self.page.evaluate(f"{field}.value = '', {field}.focus()")
                await self.page.browser.send_command("Input.insertText", {"text": text}, self.page.session)

    async def press(self, key: Literal["Enter", "Escape", "Tab"]) -> None:
        """Press and release one key."""
        code = _KEY_CODES[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind, fields in (("keyDown", text), ("keyUp", {})):
            event = {"type": kind, "key": key, "windowsVirtualKeyCode": code, **fields}
            await self.page.browser.send_command("Input.dispatchKeyEvent", event, self.page.session)

    async def click(self, selector: str) -> None:
        """Scroll to an element and click on it."""
        await self._scroll_to(selector)
        await self.page.click(selector)

    async def hover(self, selector: str) -> None:
        """Scroll to an element and move the pointer to it."""
        await self._scroll_to(selector)
        await self.page.hover(selector)

    async def _scroll_to(self, selector: str) -> None:
        await self.wait_for(f"!!document.querySelector({json.dumps(selector)})")
        await self.page.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")

    async def find_faults(self) -> list[str]:
        """
        Return the faults of the page.

        They are violations of the content security policy, errors on the console of the browser, requests to other hosts, what axe-core
        calls serious or critical, a width beyond the window, and placeholders that are wider than their field.
        """
        violations = cast("list[str]", await self.page.evaluate("window.violations"))
        await self.page.evaluate(self._axe + "; true")
        faults = cast("list[str]", json.loads(cast("str", await self.page.evaluate(_RUN_AXE))))
        if await self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            faults.append("the page is wider than the window")
        faults += cast("list[str]", await self.page.evaluate(_LIST_CUT_PLACEHOLDERS))
        return [*violations, *self.page.console_errors, *self.page.outside, *faults]
