"""
A Chromium that a test drives, by its own protocol over two pipes (DevTools, `--remote-debugging-pipe`): no library and no port.

Every request of a page is intercepted; one to another host than the page's own server is blocked and recorded.
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
from typing import Literal, cast
from urllib.parse import urlsplit

import pytest

from tests.deadlines import HANG_S

Message = dict[str, object]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CHILD = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
"""Chromium reads commands from descriptor 3 and writes responses to 4."""

_FLAGS = [
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-extensions"),
    *("--no-sandbox", "--disable-dev-shm-usage"),  # in a container, as root, on local pages only
    # Switches off the browser's own requests; those of pages are intercepted.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--no-pings"),
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
]


def find_chromium() -> str:
    """Return the path of Chromium; without it skip the test, or fail on CI."""
    path = next((candidate for name in _NAMES if (candidate := shutil.which(name))), None)
    if path is None:
        missing = "there is no Chromium: make browser"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    return path


class BrowserError(Exception):
    """The browser rejected a command."""


@dataclass(slots=True)
class Page:
    """
    One tab.

    Attributes:
        requests: Requested addresses on its own server.
        outside: Blocked requests to other hosts.
        console_errors: Browser warnings and errors on its console, and uncaught exceptions.
        challenges: The number of login challenges.
        context: The browser context, which has cookies and permissions of its own.
        registrations: The ids of the registrations of service workers by scope, after `ServiceWorker.enable`.
        workers: The targets of running service workers by registration, after `ServiceWorker.enable`.
    """

    browser: Browser
    session: str
    origin: str
    key: str | None
    context: str
    requests: list[str] = field(default_factory=list[str])
    outside: list[str] = field(default_factory=list[str])
    console_errors: list[str] = field(default_factory=list[str])
    challenges: int = 0
    registrations: dict[str, str] = field(default_factory=dict[str, str])
    workers: dict[str, str] = field(default_factory=dict[str, str])

    async def go(self, path: str, *, user: str | None = None) -> None:
        """Open *path* of the server; *user* is written into the address, as in `http://user:@host/`."""
        origin = self.origin if user is None else self.origin.replace("://", f"://{user}:@")
        await self.browser.send_command("Page.navigate", {"url": origin + path}, self.session)

    async def evaluate(self, script: str, session: str | None = None) -> object:
        """Run *script* in the page, or in the worker of *session*; return its value, of a promise the resolved one."""
        parameters = {"expression": script, "returnByValue": True, "awaitPromise": True}
        result = await self.browser.send_command("Runtime.evaluate", parameters, session or self.session)
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"])[:500])
        return cast("Message", result["result"]).get("value")

    async def text(self) -> str:
        """Return the visible text of the page; nothing while it navigates to another one."""
        try:
            return str(await self.evaluate("document.body ? document.body.innerText : ''"))
        except BrowserError as error:
            if "navigated" not in str(error):
                raise
            return ""

    async def set_notification_permission(self, setting: Literal["granted", "denied"]) -> None:
        """Answer the question whether the page may show notifications. A headless browser would wait for it without end."""
        permission = {"permission": {"name": "notifications"}, "setting": setting, "origin": self.origin, "browserContextId": self.context}
        await self.browser.send_command("Browser.setPermission", permission)

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.browser.send_command("Emulation.setDeviceMetricsOverride", size, self.session)

    async def set_color_scheme(self, scheme: Literal["light", "dark"]) -> None:
        """Set the colours that the person prefers, as the settings of an operating system do."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.browser.send_command("Emulation.setEmulatedMedia", {"features": features}, self.session)

    async def disable_scripts(self) -> None:
        """Disable JavaScript."""
        await self.browser.send_command("Emulation.setScriptExecutionDisabled", {"value": True}, self.session)

    async def click(self, selector: str) -> None:
        """Click in the middle of the first element that matches, as a user does."""
        await self._send_mouse_events(selector, "mousePressed", "mouseReleased")

    async def hover(self, selector: str) -> None:
        """Move the pointer to the middle of the first element that matches."""
        await self._send_mouse_events(selector, "mouseMoved")

    async def _send_mouse_events(self, selector: str, *kinds: str) -> None:
        script = f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
        script += " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        x, y = cast("list[float]", await self.evaluate(script))
        for kind in kinds:
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            await self.browser.send_command("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **button}, self.session)

    async def hide_scrollbars(self) -> None:
        """Show no scrollbars, so that pages have the whole width."""
        await self.browser.send_command("Emulation.setScrollbarsHidden", {"hidden": True}, self.session)

    async def screenshot(self, path: Path) -> None:
        """Write a screenshot to *path*, as PNG."""
        result = await self.browser.send_command("Page.captureScreenshot", {"format": "png"}, self.session)
        path.write_bytes(base64.b64decode(str(result["data"])))

    async def handle_event(self, method: str, parameters: Message) -> None:
        """Handle an event of the browser about this tab."""
        if method == "Fetch.requestPaused":
            await self._handle_request(parameters)
        elif method == "Fetch.authRequired":
            self.challenges += 1
            response = {"response": "CancelAuth"}
            if self.key is not None and self.challenges == 1:
                response = {"response": "ProvideCredentials", "username": self.key, "password": ""}
            await self._answer_paused_request(
                "Fetch.continueWithAuth", {"requestId": parameters["requestId"], "authChallengeResponse": response}
            )
        elif method.startswith("ServiceWorker."):
            self._keep_workers(parameters)
        elif method == "Runtime.exceptionThrown":
            self.console_errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "assert"}:
            self.console_errors.append(json.dumps(parameters["args"])[:500])
        elif method == "Log.entryAdded":
            entry = cast("Message", parameters["entry"])
            if entry["level"] in {"error", "warning"}:
                self.console_errors.append(f"{entry['level']}: {entry['text']} ({entry.get('url')})")

    def _keep_workers(self, parameters: Message) -> None:
        for registration in cast("list[Message]", parameters.get("registrations", [])):
            self.registrations[str(registration["scopeURL"])] = str(registration["registrationId"])
        for version in cast("list[Message]", parameters.get("versions", [])):
            if "targetId" in version:
                self.workers[str(version["registrationId"])] = str(version["targetId"])

    async def _answer_paused_request(self, command: str, parameters: Message) -> None:
        """Send *command* for a paused request; the browser forgets such a request when the tab navigates meanwhile."""
        try:
            await self.browser.send_command(command, parameters, self.session)
        except BrowserError as error:
            if "Invalid InterceptionId" not in str(error):
                raise

    async def _handle_request(self, parameters: Message) -> None:
        request = cast("Message", parameters["request"])
        url = str(request["url"])
        identity = {"requestId": parameters["requestId"]}
        parts = urlsplit(url)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        if plain == self.origin or plain.startswith((f"{self.origin}/", "data:", f"blob:{self.origin}/")):
            self.requests.append(plain.removeprefix(self.origin))
            await self._answer_paused_request("Fetch.continueRequest", identity)
        else:
            self.outside.append(url)
            await self._answer_paused_request("Fetch.failRequest", {**identity, "errorReason": "BlockedByClient"})


class Browser:
    """A running Chromium."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._last_id = 0
        self._waiting = dict[int, asyncio.Future[Message]]()
        self._pages = dict[str, Page]()
        self._tasks = set[asyncio.Task[None]]()

    async def send_command(self, method: str, parameters: Mapping[str, object] | None = None, session: str | None = None) -> Message:
        """Send one command and return its result."""
        self._last_id += 1
        message: Message = {"id": self._last_id, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        future = self._waiting[self._last_id] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(HANG_S):
            return await future

    async def open(self, origin: str, *, key: str | None = None) -> Page:
        """
        Return a new tab, with cookies and credentials of its own.

        Args:
            origin: The only server that it may reach.
            key: User name for a login challenge; None cancels it.
        """
        context = str((await self.send_command("Target.createBrowserContext"))["browserContextId"])
        target = (await self.send_command("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
        session = str((await self.send_command("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"])
        page = self._pages[session] = Page(self, session, origin, key, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send_command(f"{domain}.enable", session=session)
        await self.send_command("Fetch.enable", {"patterns": [{"urlPattern": "*"}], "handleAuthRequests": True}, session)
        return page

    async def listen(self) -> None:
        """Read messages of the browser until it ends."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                message = cast("Message", json.loads((await self._reader.readuntil(b"\0"))[:-1]))
                if "id" in message:
                    self._resolve(message)
                elif page := self._pages.get(str(message.get("sessionId"))):
                    task = asyncio.create_task(page.handle_event(str(message["method"]), cast("Message", message["params"])))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _resolve(self, message: Message) -> None:
        future = self._waiting.pop(cast("int", message["id"]))
        if future.done():
            return
        if "error" in message:
            future.set_exception(BrowserError(json.dumps(message["error"])))
        else:
            future.set_result(cast("Message", message["result"]))


@asynccontextmanager
async def run_chromium(folder: Path) -> AsyncGenerator[Browser]:
    """Run Chromium with its profile in *folder* until the block ends; then stop it by its process id."""
    commands, responses = os.pipe(), os.pipe()
    inherited = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands[0], responses[1])]  # not 3 or 4
    for end in (commands[0], responses[1]):
        os.close(end)
    command = [sys.executable, "-c", _CHILD, *map(str, inherited), find_chromium(), *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    for end in inherited:
        os.close(end)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=256 * 1024 * 1024)
    read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(responses[0], "rb"))
    write_transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(commands[1], "wb"))
    browser = Browser(reader, asyncio.StreamWriter(write_transport, protocol, None, loop))
    listener = asyncio.create_task(browser.listen())
    try:
        yield browser
    finally:
        with suppress(BrowserError, TimeoutError):
            await browser.send_command("Browser.close")
        listener.cancel()
        write_transport.close()
        read_transport.close()
        await asyncio.to_thread(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(HANG_S)
