"""Links that subscribe a browser or unsubscribe a channel, without a key (RFC 8058)."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from rookery.kernel.config import Settings
from rookery.notifications.links import LinkInvalid
from rookery.notifications.models import SubscriberChannel
from tests.conftest import FakeClock, Instance, run_instance

NOTIFY = "/api/agent/notify"
ENDPOINT = "https://[2a00:ffff::1]/push/token"
KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}
SUBSCRIPTION = {"endpoint": ENDPOINT, "expirationTime": None, "keys": KEYS}


async def create_subscriber(instance: Instance, external_id: str = "kim") -> SubscriberChannel:
    """Create a subscriber with an e-mail address, and return its channel."""
    channels = [{"type": "email", "address": "kim@example.org"}]
    created = await instance.admin.post(f"{NOTIFY}/subscribers", {"external_id": external_id, "channels": channels})
    assert created.status_code == 201, created.text
    channel = await instance.rookery.notifications.subscribers.find_channel(created.json()["channels"][0]["id"])
    assert channel is not None
    return channel


async def list_channels(instance: Instance, external_id: str = "kim") -> list[tuple[str, str, str]]:
    """Return type, address and status of the channels of a subscriber."""
    channels = (await instance.admin.get(f"{NOTIFY}/subscribers/{external_id}")).json()["channels"]
    return [(channel["type"], channel.get("endpoint") or channel["address"], channel["status"]) for channel in channels]


async def create_link(instance: Instance, external_id: str = "kim", **body: object) -> str:
    """Return the path of a link with which a browser subscribes."""
    response = await instance.admin.post(f"{NOTIFY}/subscribers/{external_id}/subscribe-link", body)
    assert response.status_code == 200, response.text
    return urlsplit(str(response.json()["url"])).path


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The settings of a server with a public address."""
    return replace(settings, base_url="https://rookery.example")


async def test_a_browser_subscribes_with_a_link_and_no_key(instance: Instance) -> None:
    """The page adds the browser once, however often it is opened, and activates it again."""
    await create_subscriber(instance)
    path, public = await create_link(instance), instance.caller(None)
    page = await public.get(path)
    answers = [await public.post(path, SUBSCRIPTION) for _ in range(2)]

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"
    assert (await instance.admin.get(f"{NOTIFY}/vapid-public-key")).json()["public_key"] in page.text
    assert [(answer.status_code, answer.json()) for answer in answers] == 2 * [(200, {"subscribed": True})]
    assert await list_channels(instance) == [("email", "kim@example.org", "active"), ("webpush", ENDPOINT, "active")]


async def test_invalid_subscriptions_are_named(instance: Instance) -> None:
    """The page names each wrong field; the egress guard holds for browsers too."""
    await create_subscriber(instance)
    path, public = await create_link(instance), instance.caller(None)
    errors = list[list[str]]()
    for change in ({"keys": {"p256dh": "AAAA", "auth": "AAAA"}}, {"endpoint": "ftp://x"}, {"endpoint": "https://10.0.0.7/x"}, {"more": 1}):
        answer = await public.post(path, SUBSCRIPTION | change)
        assert answer.status_code == 422, change
        errors.append(sorted(answer.json()["errors"]))

    assert errors == [["auth", "p256dh"], ["endpoint"], ["endpoint"], ["more"]]

    assert await list_channels(instance) == [("email", "kim@example.org", "active")]


async def test_an_old_channel_whose_host_is_down_hinders_no_new_one(instance: Instance) -> None:
    """Only new addresses are checked. A webhook whose host no longer resolves prevented every change of the channels."""
    row = "external_id,webhook,ntfy\nkim,https://hooks.invalid/a,https://tk_secret@ntfy.invalid/topic\n"
    imported = await instance.admin.http.post(f"{NOTIFY}/subscribers/import", content=row, headers={"Content-Type": "text/csv"})
    assert imported.json()["created"] == 1, imported.text
    subscribed = await instance.caller(None).post(await create_link(instance), SUBSCRIPTION)
    channels = (await instance.admin.get(f"{NOTIFY}/subscribers/kim")).json()["channels"]
    listed = [{name: channel[name] for name in ("type", "url") if name in channel} for channel in channels[:2]]
    changed = await instance.admin.send(
        "PATCH", f"{NOTIFY}/subscribers/kim", {"channels": [*listed, {"type": "email", "address": "kim@example.org"}]}
    )
    refused = await instance.admin.send(
        "PATCH", f"{NOTIFY}/subscribers/kim", {"channels": [*listed, {"type": "webhook", "url": "https://other.invalid/"}]}
    )

    assert subscribed.status_code == changed.status_code == 200, (subscribed.text, changed.text)
    assert [channel["type"] for channel in changed.json()["channels"]] == ["webhook", "ntfy", "email"]
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["channels.2"])


async def test_a_link_for_browsers_expires(settings: Settings) -> None:
    """The page says what to do."""
    clock = FakeClock()
    async with run_instance(settings, clock) as instance:
        await create_subscriber(instance)
        path, public = await create_link(instance, expires_in_hours=2), instance.caller(None)
        clock.advance(hours=2)
        page, answer = await public.get(path), await public.post(path, SUBSCRIPTION)

    assert (page.status_code, answer.status_code, answer.json()["error"]) == (410, 410, "link_expired")
    assert "has expired" in page.text


async def test_a_link_of_a_deleted_subscriber_is_invalid(instance: Instance) -> None:
    """The subscriber is not created again."""
    await create_subscriber(instance)
    path = await create_link(instance)
    await instance.admin.send("DELETE", f"{NOTIFY}/subscribers/kim")

    assert (await instance.caller(None).post(path, SUBSCRIPTION)).status_code == 410


async def test_links_need_the_scope_and_stay_in_their_workspace(instance: Instance) -> None:
    """A key of another workspace finds no subscriber."""
    await create_subscriber(instance)
    path = f"{NOTIFY}/subscribers/kim/subscribe-link"
    other = await instance.api_key(workspace_id=await instance.workspace("other"))

    assert (await instance.caller(None).post(path, {})).status_code == 401
    assert (await (await instance.api_key("notify:read")).post(path, {})).status_code == 403
    assert (await other.post(path, {})).status_code == 404


async def test_unsubscribing_takes_a_post_and_no_question(instance: Instance) -> None:
    """RFC 8058: scanners open links, so GET changes nothing; POST acts at once and may be repeated."""
    channel = await create_subscriber(instance)
    url = await instance.rookery.notifications.links.build_unsubscribe_url(channel)
    assert url is not None
    assert url.startswith("https://rookery.example/notify/unsubscribe/")
    path, public = urlsplit(url).path, instance.caller(None)

    pages = [await public.get(path), await public.get(f"{path}?utm_source=scanner")]
    assert [page.status_code for page in pages] == [200, 200]
    assert pages[0].text.count("<button") == 1
    assert await list_channels(instance) == [("email", "kim@example.org", "active")]

    answers = [await public.http.post(path, data={"List-Unsubscribe": "One-Click"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == 3 * [200]
    assert "Unsubscribed" in answers[0].text
    assert await list_channels(instance) == [("email", "kim@example.org", "unsubscribed")]


async def list_changes(instance: Instance, subject_id: str) -> list[tuple[str, str, str, object, object]]:
    """Return action, kind and name of the actor, and the fields before and after, of the audited changes of a subject, oldest first."""
    entries = (await instance.admin.get(f"/api/v1/audit?per_page=100&subject_id={subject_id}")).json()["data"]
    return [
        (entry["action"], entry["actor"]["kind"], entry["actor"]["name"], entry["before"], entry["after"])
        for entry in reversed(entries)
        if entry["before"] is not None
    ]


async def test_changes_by_links_are_audited(instance: Instance) -> None:
    """The entry names the link as the actor, without a key. A link that changes nothing adds no entry."""
    channel = await create_subscriber(instance)
    url = await instance.rookery.notifications.links.build_unsubscribe_url(channel)
    assert url is not None
    public = instance.caller(None)
    await public.post(await create_link(instance), SUBSCRIPTION)
    answers = [await public.send("POST", urlsplit(url).path) for _ in range(3)]

    both = ["email active", "webpush active"]
    assert [answer.status_code for answer in answers] == 3 * [200]
    assert await list_changes(instance, channel.subscriber_id) == [
        ("subscriber.changed", "system", "subscriber's link", {"channels": ["email active"]}, {"channels": both}),
        (
            "subscriber.unsubscribed",
            "system",
            "subscriber's link",
            {"channels": both},
            {"channels": ["email unsubscribed", "webpush active"]},
        ),
    ]
    verification = await instance.rookery.access.audit.verify(instance.workspace_id)
    assert verification.broken_at is None, verification.reason


async def test_unsubscribing_in_a_sandbox_is_audited_there(instance: Instance) -> None:
    """The entry is in the chain of the workspace, as a change of its sandbox."""
    tester = await instance.api_key("*", environment="test")
    created = await tester.post(f"{NOTIFY}/subscribers", {"external_id": "kim", "channels": [{"type": "email", "address": "k@e.org"}]})
    channel = await instance.rookery.notifications.subscribers.find_channel(created.json()["channels"][0]["id"])
    assert channel is not None
    url = await instance.rookery.notifications.links.build_unsubscribe_url(channel)
    assert url is not None
    await instance.caller(None).send("POST", urlsplit(url).path)
    entries = (await tester.get("/api/v1/audit?action=subscriber.unsubscribed")).json()["data"]

    assert [(entry["subject"]["name"], entry["subject"]["environment"]) for entry in entries] == [("kim", "test")]


async def test_unsubscribing_works_after_the_subscriber_was_deleted(instance: Instance) -> None:
    """The reader of an old mail gets what he asked for."""
    channel = await create_subscriber(instance)
    url = await instance.rookery.notifications.links.build_unsubscribe_url(channel)
    assert url is not None
    await instance.admin.send("DELETE", f"{NOTIFY}/subscribers/kim")

    assert (await instance.caller(None).send("POST", urlsplit(url).path)).status_code == 200


async def test_changed_links_are_rejected(instance: Instance) -> None:
    """A link is a right to one thing: each changed character, and each link of the other kind, is refused with a page."""
    channel = await create_subscriber(instance)
    url = await instance.rookery.notifications.links.build_unsubscribe_url(channel)
    assert url is not None
    token, subscribe_token = url.rpartition("/")[2], (await create_link(instance)).rpartition("/")[2]
    middle = len(token) // 2
    changed = token[:middle] + ("_" if token[middle] == "-" else "-") + token[middle + 1 :]
    wrong = ["x", "x.y", token[:-1], token + "A", changed, "é" + token, subscribe_token, "A" * 5000]
    public = instance.caller(None)
    for text in wrong:
        for method in ("GET", "POST"):
            answer = await public.send(method, f"/notify/unsubscribe/{text}")
            assert answer.status_code in {404, 414}, text
            assert not [name for name in answer.headers if "ratelimit" in name], "no key is limited here"
    assert (await public.get(f"/notify/subscribe/{token}")).status_code == 404
    with_key = await instance.admin.get("/notify/unsubscribe/x.y")
    assert (with_key.status_code, "x-ratelimit-limit" in with_key.headers, "<h1>Link invalid</h1>" in with_key.text) == (404, False, True)

    assert await list_channels(instance) == [("email", "kim@example.org", "active")]


async def test_without_a_public_address_messages_have_no_unsubscribe_link(settings: Settings) -> None:
    """A link to 127.0.0.1 would lead the reader to his own machine. Links for browsers are for tests on this host too."""
    async with run_instance(replace(settings, base_url=None)) as instance:
        channel = await create_subscriber(instance)

        assert await instance.rookery.notifications.links.build_unsubscribe_url(channel) is None
        assert (await create_link(instance)).startswith("/notify/subscribe/")


async def test_a_token_with_another_key_is_invalid(instance: Instance) -> None:
    """Each installation makes its own key at first use."""
    with pytest.raises(LinkInvalid):
        await instance.rookery.notifications.links.read_unsubscribe_token("WyJ1IiwieCJd." + "A" * 43)


@pytest.mark.parametrize("name", ["page.css", "subscribe.js", "service-worker.js"])
async def test_the_files_of_the_pages_need_no_key(name: str, instance: Instance) -> None:
    """The service worker of /notify/ may control the page, since it is in the same folder."""
    answer = await instance.caller(None).get(f"/notify/{name}")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/css" if name.endswith("css") else "text/javascript")
