"""Failures that all targets have in common: the campaign pauses, and no subscriber is marked."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from rookery.notifications.common_failures import MIN_COMMON_FAILURES, MIN_COMMON_REFUSALS, CommonFailure, FailureStreaks
from rookery.notifications.messages import ChannelType, SendOutcome, SendResult
from rookery.notifications.models import ChannelStatus, SubscriberChannel
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store.queue import ClaimedNotification
from tests.conftest import Settings
from tests.notifications.rig import Json, NotificationRig, count_states, run_notifications
from tests.webhooks.receiver import ReceivedRequest, Reply, run_receiver

_OK = Reply(status=204, body=b"")
_NOW = datetime(2026, 11, 20, tzinfo=UTC)


async def _list_statuses(rig: NotificationRig) -> set[object]:
    rows = cast("list[Json]", (await rig.get("/subscribers?per_page=100"))["data"])
    return {channel["status"] for row in rows for channel in cast("list[Json]", row["channels"])}


async def _list_audited_statuses(rig: NotificationRig) -> set[str]:
    """Return the statuses of channels after the last change of each subscriber that the server itself made."""
    entries = (await rig.instance.admin.get("/api/v1/audit?per_page=100")).json()["data"]
    own = [entry for entry in reversed(entries) if entry["subject"]["kind"] == "subscriber" and entry["actor"]["kind"] == "system"]
    last = {entry["subject"]["id"]: entry["after"]["channels"] for entry in own}
    return {channel for channels in last.values() for channel in channels}


@pytest.mark.parametrize("status", [302, 401, 404])
async def test_a_receiver_that_rejects_everything_pauses_the_campaign(settings: Settings, status: int) -> None:
    """
    A receiver that answers 404 after a wrong deployment made all subscribers invalid. Now a few are tried.

    After `resume`, each subscriber gets the message once, also those that were tried.
    """
    replies = {"reply": Reply(status=status)}
    async with run_notifications(settings, lambda _: replies["reply"], notify_host_concurrency=2) as rig:
        await rig.add_subscribers(60)
        campaign = await rig.send_campaign()
        view = await rig.wait_for_pause(campaign)
        tried_count = len(rig.receiver.received)
        tried_subscriber = rig.receiver.received[0].path.removeprefix("/")

        assert f"The receiver answered {status}" in str(view["status_reason"])
        assert (count_states(view), await _list_statuses(rig)) == ({"pending": 60}, {"active"})
        assert await _list_audited_statuses(rig) <= {"webhook active"}
        minimum = MIN_COMMON_REFUSALS if status == 401 else MIN_COMMON_FAILURES
        assert minimum <= tried_count < minimum + 4
        replies["reply"] = _OK
        await rig.post(f"/campaigns/{campaign}/resume")
        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 60}
        assert len(rig.receiver.received) == tried_count + 60
        details = await rig.get_details(campaign, tried_subscriber)
        outcomes = [attempt["outcome"] for attempt in cast("list[Json]", details["attempts"])]
        assert outcomes == ["gone" if status == 404 else "rejected", "sent"]


async def test_a_small_audience_survives_a_refused_login(settings: Settings) -> None:
    """A wrong login never burns the audience, also one of five. Each of them gets the message once."""
    replies = {"reply": Reply(status=403)}
    async with run_notifications(settings, lambda _: replies["reply"], notify_host_concurrency=1) as rig:
        await rig.add_subscribers(5)
        campaign = await rig.send_campaign()
        view = await rig.wait_for_pause(campaign)

        assert (count_states(view), await _list_statuses(rig)) == ({"pending": 5}, {"active"})
        replies["reply"] = _OK
        await rig.post(f"/campaigns/{campaign}/resume")
        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 5}


async def test_a_host_that_knows_nobody_does_not_stop_the_others(settings: Settings) -> None:
    """Other receivers get their messages. Then the campaign pauses, and the messages of the broken host wait for it."""
    replies = {"reply": Reply(status=404)}
    async with run_receiver(lambda _: _OK) as other, run_notifications(settings, lambda _: replies["reply"]) as rig:
        await rig.add_subscribers(40)
        for number in range(3):
            channel = {"type": "webhook", "url": f"http://localhost:{other.port}/{number}"}
            await rig.post("/subscribers", {"external_id": f"other{number}", "channels": [channel]}, 201)
        campaign = await rig.send_campaign()
        view = await rig.wait_for_pause(campaign)

        assert (count_states(view), len(other.received)) == ({"sent": 3, "pending": 40}, 3)
        assert "The receiver answered 404" in str(view["status_reason"])
        assert view["resume_at"] is not None
        assert await _list_statuses(rig) == {"active"}
        replies["reply"] = _OK
        await rig.post(f"/campaigns/{campaign}/resume")
        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 43}
        assert await _list_statuses(rig) == {"active"}


async def test_single_addresses_that_are_gone_are_marked(settings: Settings) -> None:
    """A receiver that accepts some messages and answers 410 to others is right about them."""

    def reply(request: ReceivedRequest) -> Reply:
        return Reply(status=410) if int(request.path.removeprefix("/s")) % 3 else _OK

    async with run_notifications(settings, reply) as rig:
        await rig.add_subscribers(60)
        view = await rig.wait_for_status(await rig.send_campaign(), "sent")

        assert count_states(view) == {"sent": 20, "failed": 40}
        assert cast("Json", (await rig.get("/subscribers?status=invalid"))["meta"])["total"] == 40


def _make_attempt(
    number: int, kind: ChannelType, result: SendResult, *, used_attempts: int = 0, host: str = "", attributes: str = "{}"
) -> SendAttempt:
    channel = SubscriberChannel(
        id=f"c{number}", workspace_id=1, subscriber_id=f"s{number}", position=0, type=kind, address=f"a{number}", p256dh="", auth="",
        host=host, status=ChannelStatus.ACTIVE, status_reason=None, last_confirmed_at=None, created_at=_NOW,
    )  # fmt: skip
    claim = ClaimedNotification(
        id=f"d{number}", workspace_id=1, campaign_id="c", external_id=f"s{number}", channel=channel, locale=None, attributes=attributes,
        attempt_number=1, used_attempts=used_attempts, due_at=_NOW, expires_at=_NOW.replace(year=2027),
    )  # fmt: skip
    return SendAttempt(claim=claim, result=result, started_at=_NOW, ended_at=_NOW, duration_s=0.0)


def _record_all(streaks: FailureStreaks, kind: ChannelType, results: list[SendResult], *, used_attempts: int = 0) -> list[CommonFailure]:
    attempts = [_make_attempt(number, kind, result, used_attempts=used_attempts) for number, result in enumerate(results)]
    return [failure for attempt in attempts if (failure := streaks.record(attempt)) is not None]


_RELAY_DENIED = SendResult(outcome=SendOutcome.REJECTED, status=550, reason="550 5.7.1 relay access denied")
_FORBIDDEN = SendResult(outcome=SendOutcome.REJECTED, status=403, reason="The server answered 403.")
_GONE = SendResult(outcome=SendOutcome.GONE, status=550, reason="550 5.1.1 no such user")
_DOWN = SendResult(outcome=SendOutcome.RETRY, reason="The connection could not be opened.")
_SENT = SendResult(outcome=SendOutcome.SENT, status=250)


@pytest.mark.parametrize(
    ("kind", "results", "used_attempts", "effect"),
    [
        (ChannelType.EMAIL, [_RELAY_DENIED] * 10, 0, "pause"),
        (ChannelType.EMAIL, [_RELAY_DENIED] * 9, 0, None),
        (ChannelType.EMAIL, [_SENT, *[_RELAY_DENIED] * 10], 0, "pause"),
        (ChannelType.EMAIL, [*[_RELAY_DENIED] * 9, _SENT, *[_RELAY_DENIED] * 9], 0, None),
        (ChannelType.EMAIL, [*[_RELAY_DENIED] * 9, _GONE, _RELAY_DENIED], 0, "pause"),
        (ChannelType.EMAIL, [replace(_RELAY_DENIED, reason=f"550 5.7.1 denied (id {number})") for number in range(10)], 0, "pause"),
        (ChannelType.EMAIL, [replace(_RELAY_DENIED, reason=f"550 5.7.{number} denied") for number in range(10)], 0, None),
        (ChannelType.EMAIL, [_GONE] * 20, 0, None),
        (ChannelType.WEBPUSH, [_GONE] * 20, 0, None),
        (ChannelType.NTFY, [_GONE] * 10, 0, "pause"),
        (ChannelType.NTFY, [_FORBIDDEN] * 3, 0, "pause"),
        (ChannelType.APPRISE, [_FORBIDDEN, _SENT, *[_FORBIDDEN] * 2], 0, None),
        (ChannelType.WEBHOOK, [_DOWN] * 2, 0, None),
        (ChannelType.WEBHOOK, [_DOWN] * 3, 0, "wait"),
        (ChannelType.WEBHOOK, [_DOWN, _SENT, _DOWN, _SENT, _DOWN], 5, None),
        (ChannelType.APPRISE, [*[_RELAY_DENIED] * 5, *[_DOWN] * 2, *[_RELAY_DENIED] * 4], 0, None),
    ],
)
def test_the_same_failure_in_a_row_is_common(kind: ChannelType, results: list[SendResult], used_attempts: int, effect: str | None) -> None:
    """
    Ten final failures in a row pause the campaign, three if the host refuses who sends, whatever was accepted before.

    A host that is down only waits. Push services and mail servers are right about addresses that are gone.
    """
    failures = _record_all(FailureStreaks(), kind, results, used_attempts=used_attempts)

    assert bool(failures) == (effect is not None)
    assert all(failure.is_fault == (effect == "pause") for failure in failures)


def test_messages_that_may_have_arrived_count_as_failures() -> None:
    """A receiver that takes messages and never answers makes ten deliveries unknown, not all."""
    unknown = SendResult(outcome=SendOutcome.UNKNOWN, reason="The receiver did not answer within 10 seconds.")
    failures = _record_all(FailureStreaks(), ChannelType.WEBHOOK, [unknown] * 12)

    assert [len(failure.sends) for failure in failures] == [10, 1, 1]


def _record_large(streaks: FailureStreaks, host: str) -> None:
    attempt = _make_attempt(1, ChannelType.WEBHOOK, _GONE, host=host, attributes="x" * 16_000)
    assert streaks.record(attempt) is None


def test_failures_of_many_hosts_take_little_memory() -> None:
    """Each of a million subscribers may have a host of its own, and attributes of 16 KB. The latest hosts are counted."""
    streaks, count = FailureStreaks(), 2_000

    tracemalloc.start()
    try:
        for number in range(count):
            _record_large(streaks, f"{number}.example")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 2_000_000
    latest = _make_attempt(1, ChannelType.WEBHOOK, _GONE, host=f"{count - 1}.example")
    failures = [streaks.record(latest) for _ in range(MIN_COMMON_FAILURES - 1)]
    assert [len(failure.sends) for failure in failures if failure is not None] == [MIN_COMMON_FAILURES]
