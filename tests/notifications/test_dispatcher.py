"""Sending: outcomes, retries, pauses, rates, several processes, and crashes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast
from urllib.parse import quote

import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.secret import Secret
from rookery.notifications.dispatcher import MAX_LEASED_PER_WORKSPACE
from rookery.notifications.store import queue
from rookery.notifications.store.queue import LeaseRoom
from tests.conftest import FakeClock, Settings, eventually
from tests.engines.smtp_service import PASSWORD, USER, SmtpCommand, run_smtp_service
from tests.notifications.rig import Json, NotificationRig, count_states, run_notifications
from tests.webhooks.receiver import Reply, run_receiver

_OK = Reply(status=204, body=b"")


def _wake(rig: NotificationRig) -> None:
    rig.instance.rookery.notifications.dispatcher.wake()


async def test_each_answer_has_its_state(settings: Settings, clock: FakeClock) -> None:
    """Accepted, rejected, gone (the channel becomes invalid), and a connection cut after the request (unknown)."""
    replies = {
        "/ok": _OK,
        "/bad": Reply(status=400),
        "/gone": Reply(status=410),
        "/cut": Reply(mode="no http"),
        "/moved": Reply(status=302),
    }
    async with run_notifications(settings, lambda request: replies[request.path], clock=clock) as rig:
        for path in replies:
            await rig.add_subscriber(path[1:])
        campaign = await rig.send_campaign()
        view = await rig.wait_for_status(campaign, "sent")
        deliveries = {str(delivery["external_id"]): delivery for delivery in await rig.list_deliveries(campaign)}
        channel = cast("list[Json]", (await rig.get("/subscribers/gone"))["channels"])[0]

        assert {name: delivery["state"] for name, delivery in deliveries.items()} == {
            "ok": "sent", "bad": "failed", "gone": "failed", "cut": "unknown", "moved": "failed",
        }  # fmt: skip
        assert count_states(view) == {"sent": 1, "failed": 3, "unknown": 1}
        assert (channel["status"], "410" in str(channel["status_reason"])) == ("invalid", True)
        entries = (await rig.instance.admin.get("/api/v1/audit?action=subscriber.channel_invalid")).json()["data"]
        assert [(entry["actor"]["kind"], entry["subject"]["name"], entry["before"], entry["after"]) for entry in entries] == [
            ("system", "gone", {"channels": ["webhook active"]}, {"channels": ["webhook invalid"]})
        ]
        retried = await rig.post(f"/campaigns/{campaign}/retry", status=202)
        assert count_states(retried) == {"sent": 1, "pending": 3, "unknown": 1}
        again = await rig.wait_for_status(campaign, "sent")
        assert count_states(again) == {"sent": 1, "failed": 2, "unknown": 1, "skipped": 1}
        assert rig.received_ids()[str(deliveries["ok"]["id"])] == rig.received_ids()[str(deliveries["cut"]["id"])] == 1


async def test_a_temporary_fault_is_tried_again_with_back_off(settings: Settings, clock: FakeClock) -> None:
    """503 twice, then accepted: the attempts have their times, and the delivery keeps its id."""
    replies = [Reply(status=503), Reply(status=429, headers={"Retry-After": "40"}), _OK]
    async with run_notifications(settings, lambda _: replies.pop(0), clock=clock) as rig:
        await rig.add_subscriber("anna")
        campaign = await rig.send_campaign()
        for seconds in (2, 40):
            number = 3 - len(replies)

            async def find_pending(number: int = number) -> bool:
                details = await rig.get_details(campaign, "anna")
                return details["state"] == "pending" and details["attempt_count"] == max(1, number)

            await eventually(find_pending)
            clock.advance(seconds=seconds - 1)
            _wake(rig)
            await asyncio.sleep(0)
            clock.advance(seconds=1)
            _wake(rig)
            left = len(replies)
            await eventually(lambda left=left: len(replies) < left)
        await rig.wait_for_status(campaign, "sent")
        attempts = cast("list[Json]", (await rig.get_details(campaign, "anna"))["attempts"])

        assert [(attempt["outcome"], attempt["status"]) for attempt in attempts] == [("retry", 503), ("retry", 429), ("sent", 204)]
        assert list(rig.received_ids().values()) == [3]


async def test_retries_end(settings: Settings, clock: FakeClock) -> None:
    """After six attempts the delivery fails; a campaign whose deliveries all failed is failed; ttl_s ends retries before."""
    async with run_notifications(settings, lambda _: Reply(status=503), clock=clock) as rig:
        await rig.add_subscriber("anna")
        campaign, short = await rig.send_campaign(), await rig.send_campaign(ttl_s=60)
        for number in range(1, 6):

            async def is_waiting(number: int = number) -> bool:
                details = [await rig.get_details(campaign_id, "anna") for campaign_id in (campaign, short)]
                return details[0]["attempt_count"] == number and all(entry["state"] != "sending" for entry in details)

            await eventually(is_waiting)
            clock.advance(seconds=1_000)
            _wake(rig)
        view = await rig.wait_for_status(campaign, "failed")
        details = await rig.get_details(short, "anna")

        assert count_states(view) == {"failed": 1}
        assert view["status_reason"] == "Its only delivery failed. The last reason: The receiver answered 503."
        assert (await rig.get_details(campaign, "anna"))["attempt_count"] == 6
        assert (details["state"], cast("int", details["attempt_count"]) < 6) == ("failed", True)


async def test_a_fault_of_the_server_pauses_the_campaign(settings: Settings) -> None:
    """No SMTP server is configured: the campaign pauses at once with the reason, and no subscriber is marked."""
    async with run_notifications(settings) as rig:
        for number in range(5):
            channel = {"type": "email", "address": f"a{number}@example.org"}
            await rig.post("/subscribers", {"external_id": f"a{number}", "channels": [channel]}, 201)
        campaign = await rig.send_campaign()
        view = await rig.wait_for_pause(campaign)

        assert "ROOKERY_SMTP" in str(view["status_reason"])
        assert count_states(view) == {"pending": 5}
        channels = [cast("list[Json]", entry["channels"])[0] for entry in cast("list[Json]", (await rig.get("/subscribers"))["data"])]
        assert {channel["status"] for channel in channels} == {"active"}
        await rig.post(f"/campaigns/{campaign}/resume")
        await rig.wait_for_pause(campaign)
        await rig.post(f"/campaigns/{campaign}/cancel")
        assert count_states(await rig.get(f"/campaigns/{campaign}")) == {"skipped": 5}


@pytest.mark.parametrize(("command", "outcome", "state"), [("MAIL", "retry", "pending"), ("DATA", "unknown", "unknown")])
async def test_only_a_message_that_had_begun_is_unknown_after_the_time_limit(
    command: SmtpCommand, outcome: str, state: str, settings: Settings, tmp_path: Path
) -> None:
    """A server that is too slow before the end of DATA has no mail, so it is tried again; after it, nobody knows."""
    async with run_smtp_service(tmp_path) as service:
        service.reply(command, *["silence"] * 20)
        login = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
        smtp = Secret(f"smtp://{login}@127.0.0.1:{service.port}?from=news@example.net")
        async with run_notifications(settings, smtp=smtp, verify_ssl=False) as rig:
            dispatcher = rig.instance.rookery.notifications.dispatcher
            dispatcher.sender = replace(dispatcher.sender, max_attempt_s=4)
            channel = {"type": "email", "address": "kim@example.org"}
            await rig.post("/subscribers", {"external_id": "kim", "channels": [channel]}, 201)
            campaign = await rig.send_campaign()

            async def find_attempt() -> Json | None:
                details = await rig.get_details(campaign, "kim")
                return details if details["attempts"] else None

            details = await eventually(find_attempt)

    assert details is not None
    attempt = cast("list[Json]", details["attempts"])[0]
    assert (attempt["outcome"], details["state"]) == (outcome, state)
    assert str(attempt["reason"]).startswith("It took longer than 4 s.")
    assert ("may have arrived" in str(attempt["reason"])) == (state == "unknown")


async def test_pause_and_resume_send_each_message_once(settings: Settings) -> None:
    """Nothing is sent while a campaign is paused, and nobody gets a second copy after it is resumed."""
    async with run_notifications(settings, lambda _: _OK) as rig:
        await rig.add_subscribers(300)
        campaign, sent = await rig.send_campaign(rate_per_second=400), 0
        for _ in range(3):
            await eventually(lambda sent=sent: len(rig.receiver.received) > sent)
            if (await rig.caller.post(f"/api/agent/notify/campaigns/{campaign}/pause")).status_code != 200:
                break

            async def is_quiet() -> bool:
                return "sending" not in count_states(await rig.get(f"/campaigns/{campaign}"))

            await eventually(is_quiet)
            sent = cast("int", count_states(await rig.get(f"/campaigns/{campaign}")).get("sent", 0))
            assert len(rig.receiver.received) == sent
            if sent == 300:
                break
            await rig.post(f"/campaigns/{campaign}/resume")
        view = await rig.wait_for_status(campaign, "sent")

        assert count_states(view) == {"sent": 300}
        assert set(rig.received_ids().values()) == {1}


async def test_the_rate_holds_over_two_dispatchers(settings: Settings) -> None:
    """With two processes on one store, one of them sends the campaign, at most at its rate."""
    async with run_notifications(settings, lambda _: _OK) as rig, run_notifications(settings) as _:
        await rig.add_subscribers(30)
        started = time.monotonic()
        campaign = await rig.send_campaign(rate_per_second=20)
        await rig.wait_for_status(campaign, "sent")

        assert time.monotonic() - started >= (30 - 2) / 20
        assert set(rig.received_ids().values()) == {1}


async def test_slow_campaigns_of_one_workspace_do_not_stop_another(settings: Settings) -> None:
    """A process sends a limited number of campaigns of one workspace at the same time. Those of another workspace still begin."""
    async with run_notifications(settings, lambda _: _OK) as rig:
        await rig.add_subscriber("slow")
        for _ in range(MAX_LEASED_PER_WORKSPACE + 2):
            await rig.send_campaign(rate_per_second=0.01)
        other = replace(rig, caller=await rig.instance.api_key(workspace_id=await rig.instance.workspace("other")))
        await other.add_subscriber("other")

        await other.wait_for_status(await other.send_campaign(), "sent")

        assert [request.path for request in rig.receiver.received] == ["/other"]


async def test_a_full_process_leases_one_campaign_of_each_further_workspace(settings: Settings) -> None:
    """A process that sends as many campaigns as it may still begins one of a workspace of which it sends none."""
    async with run_notifications(settings) as rig:
        await rig.instance.rookery.notifications.dispatcher.stop()
        other = replace(rig, caller=await rig.instance.api_key(workspace_id=await rig.instance.workspace("other")))
        for sender, count in ((rig, 3), (other, 2)):
            await sender.add_subscriber("anna")
            sent = [await sender.send_campaign() for _ in range(count)]
        room = LeaseRoom(total=64, per_workspace=1, counts={rig.instance.workspace_id: 3})

        leased = await rig.instance.rookery.runtime.db.write(
            lambda tx: queue.lease_campaigns(tx, "worker", utc_now(), until=utc_now() + timedelta(seconds=30), excluded_ids=[], room=room)
        )

        assert [campaign.id for campaign in leased] == sent[:1]


async def test_the_rate_of_a_host_holds_over_campaigns_and_dispatchers(settings: Settings) -> None:
    """Two processes on one store and two campaigns share the rate of a host; another host does not wait for it."""
    limited = replace(settings, notify_host_rate=10)
    async with run_receiver(lambda _: _OK) as other, run_notifications(limited, lambda _: _OK) as rig, run_notifications(limited) as _:
        await rig.add_subscribers(20)
        url = f"http://localhost:{other.port}/other"
        await rig.post("/subscribers", {"external_id": "other", "channels": [{"type": "webhook", "url": url}]}, 201)
        started = time.monotonic()
        campaigns = [await rig.send_campaign(), await rig.send_campaign()]
        await eventually(lambda: len(other.received) == 2)
        arrived_before = len(rig.receiver.received)
        for campaign in campaigns:
            assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 21}

        assert arrived_before < 40, "the other host did not wait for the limited one"
        assert time.monotonic() - started >= (40 - 2.5) / 10
        assert set(rig.received_ids().values()) == {1}


async def test_a_host_that_hangs_does_not_delay_others(settings: Settings) -> None:
    """At most a few messages wait for a host without an answer, while a campaign of another workspace is sent."""
    async with run_receiver() as slow, run_notifications(settings, notify_host_concurrency=4) as rig:
        slow.gate = asyncio.Event()
        for number in range(40):
            url = f"http://127.0.0.1:{slow.port}/{number}"
            await rig.post("/subscribers", {"external_id": f"slow{number}", "channels": [{"type": "webhook", "url": url}]}, 201)
        await rig.add_subscribers(20)
        campaign = await rig.send_campaign()
        await eventually(lambda: len(rig.receiver.received) == 20)

        assert slow.max_waiting <= 4
        slow.gate.set()
        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 60}


async def test_an_orderly_stop_leaves_no_unknown_delivery(settings: Settings) -> None:
    """Claims that were not sent are released, and the next start continues without a second copy."""
    async with run_receiver(lambda _: _OK) as receiver:
        async with run_notifications(settings) as rig:
            lines = "\n".join(f"s{number},{receiver.url}{number}" for number in range(400))
            await rig.caller.http.post(
                "/api/agent/notify/subscribers/import", content=f"external_id,webhook\n{lines}", headers={"Content-Type": "text/csv"}
            )
            campaign = await rig.send_campaign()
            key = rig.caller.key
            await eventually(lambda: len(receiver.received) > 20)
        async with run_notifications(settings) as rig:
            rig.caller = rig.instance.caller(key)
            view = await rig.wait_for_status(campaign, "sent")

    assert count_states(view) == {"sent": 400}
    assert {len([request for request in receiver.received if request.path == path]) for path in {r.path for r in receiver.received}} == {1}


async def test_a_stop_releases_the_sends_that_had_not_begun(settings: Settings) -> None:
    """A message that may have arrived is unknown after a stop, and one whose connection was still being opened is sent again."""
    async with run_receiver(lambda _: _OK) as receiver, run_receiver() as silent:
        receiver.gate = asyncio.Event()
        addresses = {"begun": receiver.url, "opening": f"https://127.0.0.1:{silent.port}/"}  # the receiver waits for the end of a header
        async with run_notifications(settings) as rig:
            for name, url in addresses.items():
                await rig.post("/subscribers", {"external_id": name, "channels": [{"type": "webhook", "url": url}]}, 201)
            campaign = await rig.send_campaign()
            key = rig.caller.key
            await eventually(lambda: receiver.received and silent.connections)
        connections = silent.connections
        async with run_notifications(settings) as rig:
            rig.caller = rig.instance.caller(key)
            await eventually(lambda: silent.connections > connections)
            states = {str(row["external_id"]): row["state"] for row in await rig.list_deliveries(campaign)}
            attempts = (await rig.get_details(campaign, "opening"))["attempts"]
            await silent.close_connections()

    assert states == {"begun": "unknown", "opening": "sending"}
    assert attempts == []
    assert len(receiver.received) == 1
