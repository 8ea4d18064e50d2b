"""Campaigns and subscribers in the console."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rookery.console.views.campaigns import ACTIONS, DELETABLE, EDITABLE, UNSENT
from rookery.kernel.config import Settings
from rookery.notifications import campaign_states
from rookery.notifications.campaign_states import TRANSITIONS, CampaignAction
from tests.conftest import Instance, eventually
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.processes import Server
from tests.webhooks.receiver import Receiver, run_receiver

LINES = '{"external_id": "ada", "channels": [{"type": "webhook", "url": "URL"}], "attributes": {"first_name": "Ada"}, "tags": ["beta"]}\n'
LATER = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}T10:00"
FORM = [
    ("name", "June news"),
    ("title", "Hello {{first_name}}"),
    ("body", "The herons are back."),
    ("audience.all", "true"),
    ("channels", "webhook"),
]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings that let channels be on this host."""
    return replace(settings, egress_allow=("127.0.0.0/8",))


async def _import(user: ConsoleUser, receiver: Receiver, more: str = "") -> str:
    response = await user.post("subscribers", {"lines": LINES.replace("URL", receiver.url) + more})
    assert response.status_code == 200
    return response.text


async def _create(user: ConsoleUser, fields: list[tuple[str, str]] = FORM) -> str:
    """Create a campaign and return the path of its page."""
    response = await user.post("campaigns/new", fields)
    assert response.status_code == 303, response.text
    return response.headers["location"].partition("?")[0].removeprefix("../")


async def test_a_campaign_is_written_previewed_and_sent(user: ConsoleUser) -> None:
    """Preview in a frame, the audience before the sending, every delivery after it."""
    async with run_receiver() as receiver:
        await _import(user, receiver)
        path = await _create(user)
        assert "Send to 1 address?" in await user.read(path)
        message = await user.get(f"{path}/message")
        assert "Hello Ada" in message.text
        policy = message.headers["content-security-policy"]
        assert {"default-src 'none'", "sandbox"} <= set(policy.split("; "))
        await user.post(f"{path}/edit", [*FORM[:-1], ("body", "They nest on the roof.")])
        await user.post(f"{path}/do/send")
        await eventually(lambda: _is_sent(user, path))
        assert "ada" in await user.read(f"{path}?state=sent")
        assert "No delivery matches" in await user.read(f"{path}?state=failed")
        assert len(receiver.received) == 1
        copy = (await user.post(f"{path}/duplicate")).headers["location"]
        assert "/edit" in copy
        await user.post(f"{path}/delete")
        assert (await user.get(path)).status_code == 404


async def _is_sent(user: ConsoleUser, path: str) -> bool:
    return "Sent 1 of 1" in await user.read(path)


async def test_faults_before_the_sending_are_named(user: ConsoleUser) -> None:
    """A variable that subscribers lack and unknown subscribers are on the page before anything is sent."""
    async with run_receiver() as receiver:
        await _import(user, receiver)
    path = await _create(user, [*FORM[:1], ("title", "Hi {{city}}"), ("body", "x"), ("audience.subscribers", "ada\nnobody")])
    text = await user.read(path)
    assert "city" in text
    assert "nobody" in text
    refused = await user.post("campaigns/new", [("name", "x"), ("title", "{{"), ("body", ""), ("rate_per_second", "many")])
    assert (refused.status_code, "must be a number; got" in refused.text) == (422, True)
    assert (await user.post(f"{path}/do/explode")).status_code == 404


async def test_an_import_names_lines_with_faults(user: ConsoleUser) -> None:
    """Good lines are stored, bad ones are named; the list is searched by the server."""
    async with run_receiver() as receiver:
        text = await _import(user, receiver, '{"external_id": "bob", "channels": [{"type": "pigeon"}]}\n')
    assert "1 created" in text
    assert "1 with faults" in text
    assert "Line 2: channels.0" in text
    assert "ada" in await user.read("subscribers?q=ad")
    assert 'campaigns" aria-current="page"' in (await user.get("subscribers")).text
    assert "No subscriber matches" in await user.read("subscribers?q=zeno")
    exported = await user.get("subscribers/export?format=csv")
    assert (exported.headers["content-disposition"], "ada" in exported.text) == ('attachment; filename="subscribers.csv"', True)


async def test_messages_cannot_run_anything(user: ConsoleUser) -> None:
    """A campaign's author cannot act as the person who previews it."""
    async with run_receiver() as receiver:
        await _import(user, receiver)
    path = await _create(user, [*FORM[:2], ("body", "<script>alert(1)</script><img src=x onerror=alert(1)>"), ("audience.all", "true")])
    message = (await user.get(f"{path}/message")).text
    assert "<script>" not in message
    assert "<img" not in message
    assert "sandbox" in (await user.get(path)).text


async def test_campaigns_of_other_workspaces_do_not_exist(instance: Instance, user: ConsoleUser) -> None:
    """Two tenants: no page and no action finds another workspace's campaign."""
    path = await _create(user)
    other = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(other.key or "")
        assert [(await stranger.get(path + more)).status_code for more in ("", "/edit", "/message")] == [404, 404, 404]
        assert [(await stranger.post(path + more)).status_code for more in ("/do/send", "/delete", "/duplicate")] == [404, 404, 404]


async def test_a_campaign_is_sent_in_a_browser(person: BrowserUser, server: Server) -> None:
    """The pages of campaigns have no faults, at both widths."""
    async with run_receiver() as receiver:
        await person.go("subscribers")
        await person.click("[commandfor=import]")
        await person.type("#lines", LINES.replace("URL", receiver.url))
        await person.click("#import button.primary")
        await person.wait_for_text("1 created")
        assert await person.find_faults() == []
        fields = {"name": "News", "title": "Hello {{first_name}}", "body": "Herons.", "audience": {"all": True}}
        campaign = server.client.post("/api/agent/notify/campaigns", json=fields).json()["id"]
        await person.page.resize(360, 740)
        await person.go(f"campaigns/{campaign}")
        assert await person.find_faults() == []
        await person.click("[commandfor=send]")
        await person.click("#send form[method=post] button")
        await person.wait_for("location.search === '?done=started'")
        await eventually(lambda: server.client.get(f"/api/agent/notify/campaigns/{campaign}").json()["status"] == "sent")
        await person.go(f"campaigns/{campaign}")
        assert await person.find_faults() == []


async def test_each_action_needs_its_own_scope(instance: Instance, user: ConsoleUser) -> None:
    """Sending needs `notify:send`, and pausing, cancelling and unscheduling `notify:write`, as in the API."""
    path = await _create(user, [*FORM[:3], ("audience.subscribers", "ada")])
    scheduled = await user.post(f"{path}/schedule", {"at": LATER, "time_zone": "Europe/Berlin"})
    assert scheduled.status_code == 303, get_text(scheduled.text)
    shown = (await user.get(path)).text
    assert f'value="{LATER}"' in shown
    assert 'value="Europe/Berlin"' in shown
    for scope, has_send, has_unschedule in (("notify:write", False, True), ("notify:send", True, False)):
        key = await instance.api_key("console:read", "notify:read", scope)
        async with ConsoleUser(instance.rookery) as other:
            await other.sign_in(key.key or "")
            page = (await other.get(path)).text
            assert (f"{path}/do/send" in page, f"{path}/do/unschedule" in page) == (has_send, has_unschedule), scope
            assert ("subscribers/export" in (await other.get("subscribers")).text) is (scope == "notify:write")
            refused = await other.post(f"{path}/do/{'send' if scope == 'notify:write' else 'unschedule'}")
            assert refused.status_code == 403


def test_buttons_are_those_of_the_transitions() -> None:
    """A button is shown in the statuses in which the API accepts its action, and in no other."""
    for name, button in ACTIONS.items():
        assert button.statuses == {str(status) for status in TRANSITIONS[CampaignAction(name)]}, name
    assert {str(status) for status in TRANSITIONS[CampaignAction.SCHEDULE]} == UNSENT
    assert {str(status) for status in campaign_states.EDITABLE} == EDITABLE
    assert {str(status) for status in campaign_states.DELETABLE} == DELETABLE


async def test_a_refused_form_leads_back_to_its_page(user: ConsoleUser) -> None:
    """The error page of a form that was sent leads back to the page with the form, under any prefix."""
    path = await _create(user)
    referrer = {"Referer": f"http://localhost/prefix/console/{path}?done=saved"}
    response = await user.http.post(f"{path}/schedule", data={"at": "2020-01-01T10:00"}, headers=referrer)
    assert (response.status_code, f'href="../../{path}?done=saved"' in response.text) == (422, True)
    assert 'href="../../campaigns"' in (await user.post(f"{path}/schedule", {"at": "2020-01-01T10:00"})).text
