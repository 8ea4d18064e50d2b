"""
A Chromium that a test drives, by its own protocol over two pipes (DevTools, `--remote-debugging-pipe`): no library and no port.

Every request of a page is stopped and looked at before it may go; one that would leave the machine's own address is refused and kept.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest

Message = dict[str, object]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ANSWER_S = 120.0
_STOP_S = 10.0
_CHILD = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
"""Chromium reads its orders from 3 and answers on 4."""

_FLAGS = [
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-extensions"),
    *("--no-sandbox", "--disable-dev-shm-usage"),  # in a container, as root, on pages of our own
    # What the browser itself would ask of the network: the pages' requests are looked at one by one.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--no-pings"),
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
]


def program() -> str:
    """The path of Chromium; without it the test is skipped with a message, and fails on CI."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        missing = "there is no Chromium: make browser"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Failed(Exception):
    """The browser refused an order."""


@dataclass(slots=True)
class Page:
    """
    One tab.

    Attributes:
        requests: Requested addresses on its own server.
        outside: Blocked requests to other hosts.
        complaints: Browser warnings and errors on its console, and uncaught exceptions.
        challenges: The number of login challenges.
    """

    browser: Browser
    session: str
    origin: str
    key: str | None
    requests: list[str] = field(default_factory=list[str])
    outside: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])
    challenges: int = 0

    async def go(self, path: str, *, user: str | None = None) -> None:
        """Open *path* of the server; *user* is written into the address, as in `http://user:@host/`."""
        origin = self.origin if user is None else self.origin.replace("://", f"://{user}:@")
        await self.browser.order("Page.navigate", {"url": origin + path}, self.session)

    async def tell(self, script: str) -> object:
        """Run *script* in the page, as its developer tools would; return its value, of a promise the one it comes to."""
        answer = await self.browser.order(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True}, self.session
        )
        if "exceptionDetails" in answer:
            raise Failed(json.dumps(answer["exceptionDetails"])[:500])
        return cast("Message", answer["result"]).get("value")

    async def text(self) -> str:
        """Return the visible text of the page; nothing while it navigates to another one."""
        try:
            return str(await self.tell("document.body ? document.body.innerText : ''"))
        except Failed as error:
            if "navigated" not in str(error):
                raise
            return ""

    async def resize(self, width: int, height: int) -> None:
        """Give it a window of this size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.browser.order("Emulation.setDeviceMetricsOverride", size, self.session)

    async def without_scripts(self) -> None:
        """Switch JavaScript off, as a reader may."""
        await self.browser.order("Emulation.setScriptExecutionDisabled", {"value": True}, self.session)

    async def screenshot(self, path: Path) -> None:
        """Write what is seen to *path*, a PNG."""
        answer = await self.browser.order("Page.captureScreenshot", {"format": "png"}, self.session)
        path.write_bytes(base64.b64decode(str(answer["data"])))

    async def heard(self, method: str, about: Message) -> None:
        """Take what the browser tells about this tab."""
        if method == "Fetch.requestPaused":
            await self._paused(about)
        elif method == "Fetch.authRequired":
            self.challenges += 1
            given = {"response": "CancelAuth"}
            if self.key is not None and self.challenges == 1:
                given = {"response": "ProvideCredentials", "username": self.key, "password": ""}
            await self.browser.order(
                "Fetch.continueWithAuth", {"requestId": about["requestId"], "authChallengeResponse": given}, self.session
            )
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and about["type"] in {"error", "assert"}:
            self.complaints.append(json.dumps(about["args"])[:500])
        elif method == "Log.entryAdded":
            entry = cast("Message", about["entry"])
            if entry["level"] in {"error", "warning"}:
                self.complaints.append(f"{entry['level']}: {entry['text']} ({entry.get('url')})")

    async def _paused(self, about: Message) -> None:
        request = cast("Message", about["request"])
        url = str(request["url"])
        identity = {"requestId": about["requestId"]}
        parts = urlsplit(url)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        if plain == self.origin or plain.startswith((f"{self.origin}/", "data:", f"blob:{self.origin}/")):
            self.requests.append(plain.removeprefix(self.origin))
            await self.browser.order("Fetch.continueRequest", identity, self.session)
        else:
            self.outside.append(url)
            await self.browser.order("Fetch.failRequest", {**identity, "errorReason": "BlockedByClient"}, self.session)


class Browser:
    """A running Chromium."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0
        self._waiting = dict[int, asyncio.Future[Message]]()
        self._pages = dict[str, Page]()
        self._tasks = set[asyncio.Task[None]]()

    async def order(self, method: str, parameters: Mapping[str, object] | None = None, session: str | None = None) -> Message:
        """Return the answer to one order."""
        self._asked += 1
        message: Message = {"id": self._asked, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        waiting = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(_ANSWER_S):
            return await waiting

    async def open(self, origin: str, *, key: str | None = None) -> Page:
        """
        Return a new tab, with cookies and credentials of its own.

        Args:
            origin: The one server that it may ask.
            key: What it says when it is asked to log in; None: it gives up.
        """
        context = (await self.order("Target.createBrowserContext"))["browserContextId"]
        target = (await self.order("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
        session = str((await self.order("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"])
        page = self._pages[session] = Page(self, session, origin, key)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.order(f"{domain}.enable", session=session)
        await self.order("Fetch.enable", {"patterns": [{"urlPattern": "*"}], "handleAuthRequests": True}, session)
        return page

    async def listen(self) -> None:
        """Read what the browser says until it ends."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                message = cast("Message", json.loads((await self._reader.readuntil(b"\0"))[:-1]))
                if "id" in message:
                    self._answer(message)
                elif page := self._pages.get(str(message.get("sessionId"))):
                    task = asyncio.create_task(page.heard(str(message["method"]), cast("Message", message["params"])))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _answer(self, message: Message) -> None:
        waiting = self._waiting.pop(cast("int", message["id"]))
        if waiting.done():
            return
        if "error" in message:
            waiting.set_exception(Failed(json.dumps(message["error"])))
        else:
            waiting.set_result(cast("Message", message["result"]))


@asynccontextmanager
async def chromium(folder: Path) -> AsyncGenerator[Browser]:
    """Run Chromium with its profile in *folder* until the block ends; it is ended by its own id."""
    orders, answers = os.pipe(), os.pipe()
    inherited = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (orders[0], answers[1])]  # clear of 3 and 4
    for end in (orders[0], answers[1]):
        os.close(end)
    command = [sys.executable, "-c", _CHILD, *map(str, inherited), program(), *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    for end in inherited:
        os.close(end)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=256 * 1024 * 1024)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers[0], "rb"))
    writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(orders[1], "wb"))
    browser = Browser(reader, asyncio.StreamWriter(writing, protocol, None, loop))
    listening = asyncio.create_task(browser.listen())
    try:
        yield browser
    finally:
        with suppress(Failed, TimeoutError):
            await browser.order("Browser.close")
        listening.cancel()
        writing.close()
        reading.close()
        await asyncio.to_thread(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)
