"""Limits, quotas and outages: the host or the campaign waits, resumes by itself, and no subscriber pays for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import quote

import pytest

from rookery.doctor import examine
from rookery.kernel.secret import Secret
from rookery.notifications.messages import SendOutcome, SendResult
from rookery.notifications.outcomes import get_host_wait_s
from tests.conftest import FakeClock, Settings, eventually
from tests.engines.smtp_service import PASSWORD, USER, SmtpService, run_smtp_service
from tests.notifications.rig import Json, NotificationRig, count_states, run_notifications
from tests.webhooks.receiver import ReceivedRequest, Reply, run_receiver

_OK = Reply(status=204, body=b"")
_HOUR_S = 3_600


def _wake(rig: NotificationRig) -> None:
    rig.instance.rookery.notifications.dispatcher.wake()


async def _wait_until_waiting(rig: NotificationRig, campaign: str) -> Json:
    """Wait until deliveries of a campaign wait for a host and nothing is being sent, and return it."""

    async def find() -> Json | None:
        view = await rig.get(f"/campaigns/{campaign}")
        return view if view["waits"] and "sending" not in count_states(view) else None

    view = await eventually(find)
    assert view is not None
    return view


async def _advance(rig: NotificationRig, clock: FakeClock, campaign: str) -> Json:
    """Let the wait of the host end, wait until one message was tried and refused, and return the campaign."""
    before = cast("list[Json]", (await rig.get(f"/campaigns/{campaign}"))["waits"])[0]["until"]
    clock.advance(seconds=_HOUR_S + 600)
    _wake(rig)

    async def find() -> Json | None:
        view = await rig.get(f"/campaigns/{campaign}")
        waits = cast("list[Json]", view["waits"])
        return view if waits and waits[0]["until"] != before and "sending" not in count_states(view) else None

    view = await eventually(find)
    assert view is not None
    return view


@asynccontextmanager
async def run_mail(
    settings: Settings, folder: Path, clock: FakeClock, count: int, *, accepts_login: bool = True
) -> AsyncGenerator[tuple[NotificationRig, SmtpService]]:
    """Run a server with an SMTP server, and subscribers with mail addresses. The start logs in too, and its connection is used again."""
    async with run_smtp_service(folder) as service:
        service.accepts_login = accepts_login
        login = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
        smtp = Secret(f"smtp://{login}@127.0.0.1:{service.port}?from=news@example.net&connections=2")
        async with run_notifications(settings, clock=clock, smtp=smtp, verify_ssl=False) as rig:
            lines = "\n".join(f"u{number},u{number}@example.org" for number in range(count))
            response = await rig.caller.http.post(
                "/api/agent/notify/subscribers/import", content=f"external_id,email\n{lines}\n", headers={"Content-Type": "text/csv"}
            )
            assert response.json()["created"] == count, response.text
            yield rig, service


async def test_a_daily_quota_pauses_the_campaign_until_the_server_accepts_again(
    settings: Settings, clock: FakeClock, tmp_path: Path
) -> None:
    """The quota is the sender's. One mail is tried after each wait, and the first that is accepted brings the others along."""
    async with run_mail(settings, tmp_path, clock, 20) as (rig, service):
        service.reply("RCPT", *["250 OK"] * 5, *["550 5.4.5 Daily user sending limit exceeded"] * 100)
        campaign = await rig.send_campaign(ttl_s=7 * 86_400)
        view = await rig.wait_for_pause(campaign)
        refusals = 100 - len(service.replies["RCPT"])

        assert count_states(view) == {"sent": 5, "pending": 15}
        assert "5.4.5 Daily user sending limit exceeded" in str(view["status_reason"])
        assert view["resume_at"] is not None
        assert refusals <= 2
        view = await _advance(rig, clock, campaign)
        assert (view["status"], 100 - len(service.replies["RCPT"])) == ("paused", refusals + 1)
        service.replies["RCPT"].clear()
        clock.advance(seconds=_HOUR_S + 600)
        _wake(rig)
        view = await rig.wait_for_status(campaign, "sent")

        assert (count_states(view), view["resume_at"], view["waits"]) == ({"sent": 20}, None, [])
        assert len(service.mails) == 20
        delivery = (await rig.list_deliveries(campaign))[0]
        assert cast("int", delivery["attempt_count"]) <= 3


async def test_a_wrong_login_pauses_until_it_works(settings: Settings, clock: FakeClock, tmp_path: Path) -> None:
    """The login is tried with one mail at a time, and its owner need not press a button."""
    async with run_mail(settings, tmp_path, clock, 6, accepts_login=False) as (rig, service):
        campaign = await rig.send_campaign(ttl_s=7 * 86_400)
        view = await rig.wait_for_pause(campaign)
        assert (count_states(view), "refuses the login (535)" in str(view["status_reason"])) == ({"pending": 6}, True)
        await _advance(rig, clock, campaign)
        service.accepts_login = True
        clock.advance(seconds=_HOUR_S + 600)
        _wake(rig)

        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 6}


async def test_the_operator_sees_that_the_mail_server_refuses_messages(settings: Settings, clock: FakeClock, tmp_path: Path) -> None:
    """`/readyz` is degraded, and the doctor has the reason and the time of the next attempt, until a message is accepted."""

    async def read_state() -> tuple[str, str, list[str]]:
        ready = (await rig.caller.http.get("/readyz")).json()
        findings = [each for each in await examine(rig.instance.rookery) if each.about == "notifications" and each.grade == "warning"]
        return ready["status"], ready["engines"]["mail"], [each.says for each in findings]

    async with run_mail(settings, tmp_path, clock, 1) as (rig, service):
        service.reply("RCPT", "550 5.4.5 Daily user sending limit exceeded")
        campaign = await rig.send_campaign(ttl_s=7 * 86_400)
        view = await rig.wait_for_pause(campaign)
        status, mail, (warning,) = await read_state()
        clock.advance(seconds=_HOUR_S + 600)
        _wake(rig)
        await rig.wait_for_status(campaign, "sent")

        assert (status, mail) == ("degraded", "refuses messages")
        assert f"takes no messages until {view['resume_at']}" in warning
        assert "5.4.5 Daily user sending limit exceeded" in warning
        assert await read_state() == ("ok", "ok", [])


async def test_a_busy_mail_server_costs_no_attempt_until_the_messages_expire(settings: Settings, clock: FakeClock, tmp_path: Path) -> None:
    """4xx at MAIL FROM is about the sender. The campaign says why it waits, for as many hours as its time to live has."""
    async with run_mail(settings, tmp_path, clock, 8) as (rig, service):
        service.reply("MAIL", *["450 4.7.1 Error: too much mail from 192.0.2.1"] * 100)
        campaign = await rig.send_campaign(ttl_s=12 * _HOUR_S)
        view = await _wait_until_waiting(rig, campaign)
        wait = cast("list[Json]", view["waits"])[0]

        assert (view["status"], count_states(view)) == ("sending", {"pending": 8})
        assert "8 deliveries by email wait until" in str(view["status_reason"])
        assert (wait["channel"], wait["host"], wait["deliveries"]) == ("email", "", 8)
        tried_count = 100 - len(service.replies["MAIL"])
        for _ in range(8):
            view = await _advance(rig, clock, campaign)
        assert (view["status"], count_states(view)) == ("sending", {"pending": 8})
        assert 100 - len(service.replies["MAIL"]) == tried_count + 8
        for _ in range(4):
            clock.advance(seconds=_HOUR_S + 600)
            _wake(rig)
        view = await rig.wait_for_status(campaign, "failed")

        assert "time to live" in str(view["status_reason"])
        assert "too much mail" in str(view["status_reason"])


@pytest.mark.parametrize("reply", [Reply(status=404), Reply(status=401), Reply(status=500), Reply(status=429)])
async def test_a_receiver_that_breaks_in_the_middle_costs_nobody_a_message(settings: Settings, clock: FakeClock, reply: Reply) -> None:
    """None of 60 subscribers is failed, unsubscribed or tried in vain again and again, and the rest follows by itself."""
    broken = {"after": 20}

    def answer(_: ReceivedRequest) -> Reply:
        broken["after"] -= 1
        return _OK if broken["after"] >= 0 else reply

    async with run_notifications(settings, answer, clock=clock, notify_host_concurrency=4) as rig:
        await rig.add_subscribers(60)
        campaign = await rig.send_campaign(ttl_s=7 * 86_400)
        view = await _wait_until_waiting(rig, campaign)
        assert count_states(view) == {"sent": 20, "pending": 40}
        assert f"answered {reply.status}" in str(view["status_reason"])
        for _ in range(3):
            await _advance(rig, clock, campaign)
        assert -broken["after"] <= 20
        broken["after"] = 1_000
        clock.advance(seconds=_HOUR_S + 600)
        _wake(rig)
        view = await rig.wait_for_status(campaign, "sent")
        rows = cast("list[Json]", (await rig.get("/subscribers?per_page=100"))["data"])

        assert count_states(view) == {"sent": 60}
        assert {channel["status"] for row in rows for channel in cast("list[Json]", row["channels"])} == {"active"}


async def test_a_host_that_waits_does_not_hold_up_others(settings: Settings, clock: FakeClock) -> None:
    """Only the deliveries of the throttled host wait, and those of another workspace to the same host are tried."""
    async with run_receiver(lambda _: _OK) as other, run_notifications(settings, lambda _: Reply(status=429), clock=clock) as rig:
        await rig.add_subscribers(5)
        for number in range(5):
            channel = {"type": "webhook", "url": f"http://localhost:{other.port}/{number}"}
            await rig.post("/subscribers", {"external_id": f"other{number}", "channels": [channel]}, 201)
        campaign = await rig.send_campaign()
        view = await _wait_until_waiting(rig, campaign)
        await eventually(lambda: len(other.received) == 5)
        neighbour = replace(rig, caller=await rig.instance.api_key(workspace_id=await rig.instance.workspace("neighbour")))
        await neighbour.add_subscriber("anna")
        tried_count = len(rig.receiver.received)
        own = await neighbour.send_campaign()
        await eventually(lambda: len(rig.receiver.received) == tried_count + 1)

        assert cast("list[Json]", view["waits"])[0]["deliveries"] == 5
        assert count_states(await _wait_until_waiting(neighbour, own)) == {"pending": 1}


async def test_a_paused_campaign_that_would_resume_by_itself_can_be_paused_for_good(settings: Settings, clock: FakeClock) -> None:
    """`pause` ends the attempts of the server, and `resume` begins them at once."""
    replies = {"reply": Reply(status=404)}
    async with run_notifications(settings, lambda _: replies["reply"], clock=clock) as rig:
        await rig.add_subscribers(15)
        campaign = await rig.send_campaign(ttl_s=7 * 86_400)
        await rig.wait_for_pause(campaign)
        view = await rig.post(f"/campaigns/{campaign}/pause")
        assert (view["status"], view["resume_at"], view["status_reason"]) == ("paused", None, "Paused on request.")
        replies["reply"] = _OK
        clock.advance(seconds=2 * _HOUR_S)
        await rig.instance.rookery.notifications.dispatcher.wait_until_idle()
        assert count_states(await rig.get(f"/campaigns/{campaign}")) == {"pending": 15}
        await rig.post(f"/campaigns/{campaign}/resume")

        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 15}


async def test_a_test_is_tried_whatever_the_host(settings: Settings, clock: FakeClock) -> None:
    """A test of a campaign returns the answer of the service at once."""
    async with run_notifications(settings, lambda _: Reply(status=429), clock=clock) as rig:
        await rig.add_subscribers(5)
        campaign = await rig.send_campaign()
        await _wait_until_waiting(rig, campaign)
        tried_count = len(rig.receiver.received)
        await rig.post(f"/campaigns/{campaign}/test", {"subscribers": ["s1"]}, 202)
        await eventually(lambda: len(rig.receiver.received) == tried_count + 1)


def _list_waits(result: SendResult, count: int) -> list[int]:
    """Return the waits of a host in whole seconds."""
    return [round(get_host_wait_s(result, refusal_count=number, name="host")) for number in range(1, count + 1)]


_LIMITED = SendResult(outcome=SendOutcome.RETRY, status=429, concerns_host=True)


@pytest.mark.parametrize(
    ("result", "least"),
    [
        (_LIMITED, [60, 300, 600, 900, 1_800, 3_600, 3_600]),
        (SendResult(outcome=SendOutcome.BLOCKED, status=535), [60, 300, 600, 900, 1_800, 3_600, 3_600]),
        (SendResult(outcome=SendOutcome.RETRY), [2, 10, 60, 300, 600, 900, 1_800, 3_600, 3_600]),
    ],
)
def test_waits_grow_to_an_hour_and_are_spread(result: SendResult, least: list[int]) -> None:
    """A host that is down is tried sooner than one that named a limit."""
    for wait_s, least_s in zip(_list_waits(result, len(least)), least, strict=True):
        assert least_s <= wait_s <= least_s * 1.05 + 1
    assert len({get_host_wait_s(result, refusal_count=1, name=f"host{number}") for number in range(20)}) > 10


def test_a_service_that_names_the_time_is_believed_once() -> None:
    """Retry-After replaces the first wait, and a limit that ends at midnight shortens the longest ones."""
    asked = replace(_LIMITED, retry_after_s=5)

    assert _list_waits(asked, 1) == [5]
    assert _list_waits(asked, 2)[1] >= 300
    assert get_host_wait_s(replace(_LIMITED, retry_after_s=10**9), refusal_count=1, name="host") == _HOUR_S
    assert get_host_wait_s(replace(_LIMITED, resets_in_s=1_000), refusal_count=6, name="host") == 1_000
