"""Webhooks and the audit log in the console."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rookery.kernel.config import Settings
from tests.conftest import Instance, eventually, run_instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.processes import Server
from tests.webhooks.receiver import run_receiver

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

FORM = [("url", "http://127.0.0.1:9/hook"), ("events", "memory.*"), ("events", "plan.created"), ("description", "Chat")]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings that let endpoints be on this host."""
    return replace(settings, egress_allow=("127.0.0.0/8",))


async def _create(user: ConsoleUser) -> str:
    """Create an endpoint and return the path of its page."""
    response = await user.post("webhooks/new", FORM)
    assert "whsec_" in response.text, get_text(response.text)
    return _find_path(response.text)


def _find_path(html: str) -> str:
    path = re.search(r'href="\.\./(webhooks/[^"?]+)"', html)
    assert path is not None, get_text(html)
    return path.group(1)


async def test_an_endpoint_is_created_changed_and_deleted(user: ConsoleUser) -> None:
    """The secret is shown once; the form keeps its values; a deleted endpoint is gone."""
    refused = await user.post("webhooks/new", [*FORM, ("events", "nonsense")])
    assert (refused.status_code, "nonsense" in refused.text, "127.0.0.1:9" in refused.text) == (422, True, True)
    path = await _create(user)
    assert "whsec_" not in (await user.get(path)).text
    assert "memory.*, plan.created" in await user.read("webhooks")
    await user.post(f"{path}/edit", [("url", "http://127.0.0.1:9/other"), ("events", "plan.*"), ("description", "Other")])
    assert "plan.*" in await user.read(path)
    await user.post(f"{path}/state", {"enabled": ""})
    assert "disabled" in await user.read(path)
    assert "whsec_" in (await user.post(f"{path}/rotate", {"grace_period_hours": "1"})).text
    assert "Old secret ends" in await user.read(path)
    await user.post(f"{path}/delete")
    assert (await user.get(path)).status_code == 404


async def test_deliveries_show_their_attempts(settings: Settings) -> None:
    """Deliveries, attempts, next attempt, resend."""
    async with run_receiver() as receiver, run_instance(settings) as instance, ConsoleUser(instance.rookery) as user:
        await user.sign_in(instance.admin.key or "")
        response = await user.post("webhooks/new", [("url", receiver.url), ("events", "plan.*")])
        path = _find_path(response.text)
        response = await user.post(f"{path}/test")
        delivery = response.headers["location"].partition("?")[0].removeprefix("../../")
        assert "Payload" in await user.read(delivery)
        await eventually(lambda: _is_shown(user, f"{path}?state=delivered", "webhook.test"))
        again = await user.post(f"{delivery}/resend")
        assert again.headers["location"].partition("?")[0].removeprefix("../../../../") != delivery
        assert "resend" in await user.read(path)
        assert "No delivery matches" in await user.read(f"{path}?state=held")


async def _is_shown(user: ConsoleUser, path: str, text: str) -> bool:
    return text in await user.read(path)


async def test_endpoints_of_other_workspaces_do_not_exist(instance: Instance, user: ConsoleUser) -> None:
    """Two tenants: neither the page nor an action finds another workspace's endpoint."""
    path = await _create(user)
    other = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(other.key or "")
        for action in ("", "/edit"):
            assert (await stranger.get(path + action)).status_code == 404
        for action in ("/test", "/delete", "/rotate", "/resend", "/state"):
            assert (await stranger.post(path + action)).status_code == 404, action


async def test_the_audit_log_is_filtered_by_the_server(instance: Instance, user: ConsoleUser) -> None:
    """The audit log names actors and changes; the chain of the platform only with `platform:audit`."""
    await _create(user)
    assert "webhook.created" in await user.read("audit")
    assert "webhook.created" not in await user.read("audit?action=console.signed_in")
    assert "No entries" in await user.read("audit?action=nothing.happened")
    assert "workspace.created" in await user.read("audit?chain=platform")
    key = await instance.api_key("console:read", "audit:read")
    async with ConsoleUser(instance.rookery) as reader:
        await reader.sign_in(key.key or "")
        assert "Platform" not in await reader.read("audit?chain=platform")


async def test_a_wrong_filter_is_told(user: ConsoleUser) -> None:
    """A text in place of a date gets the message of the API on a page."""
    response = await user.get("audit?since=yesterday")
    assert (response.status_code, "since" in response.text) == (422, True)


async def test_a_delivery_is_resent_in_a_browser(person: BrowserUser, server: Server) -> None:
    """Resend a delivery."""
    async with run_receiver() as receiver:
        body = {"url": receiver.url, "events": ["webhook.test"], "description": "Receiver"}
        created = server.client.post("/api/v1/webhooks", json=body)
        webhook = created.json()["id"]
        await person.go(f"webhooks/{webhook}")
        await person.click("form[action$=test] button")
        await person.wait_for_text("Attempts")
        assert await person.find_faults() == []
        deliveries = f"/api/v1/webhooks/{webhook}/deliveries?status=delivered"
        await eventually(lambda: server.client.get(deliveries).json()["meta"]["total"] == 1)
        await person.go(f"webhooks/{webhook}")
        await person.click("tbody a")
        await person.click("main button.primary")
        await person.wait_for("location.search === '?done=queued'")
        await eventually(lambda: server.client.get(deliveries).json()["meta"]["total"] == 2)
        await person.go(f"webhooks/{webhook}")
        assert await person.find_faults() == []
        assert len(receiver.received) == 2


async def test_endpoints_are_found_by_their_description_or_url(user: ConsoleUser, instance: Instance) -> None:
    """Every list is searched by the server. Wildcards of SQL are texts, and case does not matter."""
    for path, description in (("hook_1", "Chat"), ("hook-2", "100% Billing"), ("other", "")):
        await user.post("webhooks/new", [("url", f"http://127.0.0.1:9/{path}"), ("events", "plan.*"), ("description", description)])
    found = {
        text: (await instance.admin.get(f"/api/v1/webhooks?q={text}")).json() for text in ("CHAT", "0%25", "k_", "127.0.0.1", "%25%25")
    }
    assert {text: [entry["url"].rpartition("/")[2] for entry in page["data"]] for text, page in found.items()} == {
        "CHAT": ["hook_1"],
        "0%25": ["hook-2"],
        "k_": ["hook_1"],
        "127.0.0.1": ["other", "hook-2", "hook_1"],
        "%25%25": [],
    }
    assert found["127.0.0.1"]["meta"]["total"] == 3
    text = await user.read("webhooks?q=bill")
    assert ("100% Billing" in text, "Chat" in text) == (True, False)
    assert "No endpoint matches" in await user.read("webhooks?q=nothing-like-this")


async def test_a_disabled_endpoint_offers_nothing_that_would_fail(user: ConsoleUser, instance: Instance) -> None:
    """An endpoint that is disabled can neither be tested nor get a delivery again, and its pages say what to do first."""
    path = await _create(user)
    await user.post(f"{path}/state", {"enabled": ""})
    await instance.admin.post("/v1/plans", {"title": "Unload the ship"})
    await eventually(lambda: _is_shown(user, path, "held"))
    page = (await user.get(path)).text
    assert ("/test" in page, "Resend failed" in page, ">Enable<" in page) == (False, False, True)
    delivery = re.search(rf'href="[./]*({path}/deliveries/[^"]+)"', page)
    assert delivery is not None
    text = await user.read(delivery.group(1))
    assert "The endpoint is disabled. Enable it to send the delivery again." in text
    assert "Resend" not in text


async def test_events_are_chosen_by_group(user: ConsoleUser) -> None:
    """The form offers the wildcard of each group and checks what the endpoint has."""
    page = (await user.get(f"{await _create(user)}/edit")).text
    checked = re.findall(r'name="events" value="([^"]+)" checked', page)
    assert checked == ["memory.*", "plan.created"]
    assert 'value="task.*"' in page
    assert "`" not in get_text(page)
