"""The public pages in a real browser. Push services of vendors are not reachable, so a test service takes their place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.engines.push_service import PushService, run_push_service
from tests.processes import Server, run_server
from tests.reference.browser import Browser, Page, find_chromium, run_chromium
from tests.webhooks.receiver import run_receiver

_WIDTHS = {360: 740, 1440: 900}

_SUBSCRIBE_AT_TEST_SERVICE = """
PushManager.prototype.subscribe = async function (options) {
  window.usedKey = Array.from(options.applicationServerKey);
  return { toJSON: () => (SUBSCRIPTION), options };
};
PushManager.prototype.getSubscription = async () => null;
true
"""
_RECORD_SHOWN = """
self.shown = new Promise((resolve) => {
  const show = self.registration.showNotification.bind(self.registration);
  self.registration.showNotification = (...notification) => show(...notification).then(resolve);
});
true
"""
_LIST_SHOWN = """
self.shown
  .then(() => self.registration.getNotifications())
  .then((notifications) => notifications.map((each) => ({ title: each.title, body: each.body, url: each.data.navigate })))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process, which may connect to this host."""
    find_chromium()
    folder = tmp_path_factory.mktemp("pages")
    with run_server(folder, egress_allow="127.0.0.0/8", organization="Heronry", base_url="https://rookery.example") as server:
        yield server


@pytest.fixture
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A browser for one test."""
    async with run_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
async def push() -> AsyncIterator[PushService]:
    """A push service."""
    async with run_push_service() as service:
        yield service


def call(server: Server, method: str, path: str, body: object = None) -> dict[str, object]:
    """Send a request with the first key and return the body of its response."""
    response = server.client.request(method, f"/api/agent/notify{path}", json=body)
    assert response.status_code < 300, response.text
    return cast("dict[str, object]", response.json())


def create_link(server: Server, external_id: str) -> str:
    """Create a subscriber without channels and return the path of its link."""
    call(server, "POST", "/subscribers", {"external_id": external_id, "channels": []})
    return urlsplit(str(call(server, "POST", f"/subscribers/{external_id}/subscribe-link", {})["url"])).path


def send_campaign(server: Server, external_id: str) -> None:
    """Send a campaign to one subscriber."""
    campaign = {
        "name": "News",
        "title": "Herons are back",
        "body": "They nest on the roof.",
        "url": f"{server.url}/",
        "audience": {"subscribers": [external_id]},
    }
    identity = call(server, "POST", "/campaigns", campaign)["id"]
    call(server, "POST", f"/campaigns/{identity}/send")


async def show_at_each_width(page: Page, path: str, text: str, folder: Path) -> None:
    """Open *path* at each width until it shows *text*. Nothing may be cut off at the sides."""
    for width, height in _WIDTHS.items():
        await page.resize(width, height)
        await page.go(path)
        await eventually(partial(has_text, page, text))
        assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
        await page.screenshot(folder / f"{width}.png")


async def has_text(page: Page, text: str) -> bool:
    """Return whether the page shows *text*."""
    return text in await page.text()


async def test_a_browser_subscribes_and_shows_a_campaign(server: Server, browser: Browser, push: PushService, tmp_path: Path) -> None:
    """From the button to the notification that the service worker shows, with no inline code and no other host."""
    path = create_link(server, "kim")
    target = push.subscribe(str(call(server, "GET", "/vapid-public-key")["public_key"]))
    subscription = {"endpoint": target.address, "expirationTime": None, "keys": {"p256dh": target.p256dh, "auth": target.auth}}
    async with asyncio.timeout(HANG_S):
        page = await browser.open(server.url)
        await page.set_notification_permission("granted")
        await show_at_each_width(page, path, "notifications of Heronry", tmp_path)
        await page.evaluate(_SUBSCRIBE_AT_TEST_SERVICE.replace("SUBSCRIPTION", json.dumps(subscription)))

        await page.click("#subscribe")
        await eventually(partial(has_text, page, "Notifications are on."))
        await page.screenshot(tmp_path / "subscribed.png")
        send_campaign(server, "kim")
        await eventually(lambda: push.messages)
        notifications = await deliver(page, json.dumps(push.messages[0].content))

    assert (page.outside, page.console_errors) == ([], [])
    assert len(cast("list[int]", await page.evaluate("usedKey"))) == 65
    assert notifications == [{"title": "Herons are back", "body": "They nest on the roof.", "url": f"{server.url}/"}]


async def deliver(page: Page, content: str) -> object:
    """
    Give a decrypted message to the service worker, as the browser does after the push service of its vendor; return what is shown.

    The list is read once, after the worker has shown it: Chromium forgets a notification that is listed before it is displayed.
    """
    send = page.browser.send_command
    await send("ServiceWorker.enable", session=page.session)
    registration = await eventually(lambda: page.registrations.get(f"{page.origin}/notify/"))
    target = await eventually(lambda: page.workers.get(str(registration)))
    worker = str((await send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"])
    await page.evaluate(_RECORD_SHOWN, worker)
    parameters = {"origin": page.origin, "registrationId": registration, "data": content}
    await send("ServiceWorker.deliverPushMessage", parameters, page.session)
    return await page.evaluate(_LIST_SHOWN, worker)


async def test_a_browser_that_blocks_notifications_names_the_obstacle(server: Server, browser: Browser, tmp_path: Path) -> None:
    """The reader learns what to change; the button cannot be used."""
    path = create_link(server, "lee")
    async with asyncio.timeout(HANG_S):
        page = await browser.open(server.url)
        await page.set_notification_permission("denied")
        await show_at_each_width(page, path, "blocked in the settings of this browser", tmp_path)

        assert await page.evaluate("document.getElementById('subscribe').disabled")
    assert (page.outside, page.console_errors) == ([], [])


async def test_unsubscribing_takes_one_click_without_scripts(server: Server, browser: Browser, tmp_path: Path) -> None:
    """RFC 8058: one button, which works where JavaScript is off."""
    async with run_receiver() as receiver, asyncio.timeout(HANG_S):
        channels = [{"type": "webhook", "url": f"http://127.0.0.1:{receiver.port}/inbox"}]
        call(server, "POST", "/subscribers", {"external_id": "robin", "channels": channels})
        send_campaign(server, "robin")
        await eventually(lambda: receiver.received)
        path = urlsplit(str(json.loads(receiver.received[0].body)["unsubscribe_url"])).path
        page = await browser.open(server.url)
        await page.disable_scripts()
        await show_at_each_width(page, path, "Unsubscribe", tmp_path)
        assert await list_statuses(server, "robin") == ["active"]

        await page.click("button")
        await eventually(partial(has_text, page, "You receive no more notifications"))
        await page.screenshot(tmp_path / "unsubscribed.png")

    assert await list_statuses(server, "robin") == ["unsubscribed"]
    assert (page.outside, page.console_errors) == ([], [])


async def list_statuses(server: Server, external_id: str) -> list[str]:
    """Return the statuses of the channels of a subscriber."""
    channels = cast("list[dict[str, str]]", call(server, "GET", f"/subscribers/{external_id}")["channels"])
    return [channel["status"] for channel in channels]
