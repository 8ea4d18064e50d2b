"""Campaigns over HTTP: fields, audiences, variables, statuses and schedules."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from sqlalchemy import select

from rookery.notifications.store.tables import attempts
from tests.conftest import OPERATOR, FakeClock, Settings, eventually
from tests.deadlines import HANG_S
from tests.notifications.rig import Json, NotificationRig, count_states, run_notifications
from tests.stopwatch import Stopwatch

_SLOW = {"rate_per_second": 0.01}
"""Nothing is sent during a test."""


async def test_a_campaign_is_sent_to_each_channel_once(rig: NotificationRig) -> None:
    """The message is rendered for each subscriber, and the statistics are counts of deliveries."""
    await rig.add_subscriber("anna", attributes={"name": "Anna"}, tags=["beta"], locale="de")
    await rig.add_subscriber("bert", tags=["beta"])
    await rig.add_subscriber("carl")
    campaign = await rig.send_campaign(
        title="Hi\n{{ name }}", body="{{ external_id }}: {{ locale }}", url="https://e.example/?n={{ name }}",
        audience={"tags": ["beta"], "subscribers": ["bert"]}, variables={"name": "a & b", "locale": "en"},
    )  # fmt: skip
    view = await rig.wait_for_status(campaign, "sent")
    events = {request.path: request.event for request in rig.receiver.received}

    assert count_states(view) == {"sent": 2}
    assert cast("Json", view["statistics"])["by_channel"] == {"webhook": {"sent": 2}}
    assert {path: (event["title"], event["body"], event["url"]) for path, event in events.items()} == {
        "/anna": ("Hi Anna", "anna: de", "https://e.example/?n=Anna"),
        "/bert": ("Hi a & b", "bert: en", "https://e.example/?n=a%20%26%20b"),
    }
    details = await rig.get_details(campaign, "anna")
    assert (details["state"], details["status"], details["attempt_count"]) == ("sent", 204, 1)
    assert [attempt["outcome"] for attempt in cast("list[Json]", details["attempts"])] == ["sent"]
    assert cast("list[Json]", (await rig.get("/subscribers/anna"))["channels"])[0]["last_confirmed_at"] is not None


async def test_the_audience_is_fixed_when_the_campaign_is_sent(settings: Settings) -> None:
    """Subscribers and attributes that change later change nothing; the deleted one is skipped, and its data is gone."""
    async with run_notifications(settings) as rig:
        await rig.add_subscriber("anna", attributes={"name": "Anna"})
        await rig.add_subscriber("bert", attributes={"name": "Bert"})
        campaign = await rig.send_campaign(title="{{ name }}", rate_per_second=0.01)
        await rig.post(f"/campaigns/{campaign}/pause")
        await rig.add_subscriber("carl", attributes={"name": "Carl"})
        await rig.caller.send("PATCH", "/api/agent/notify/subscribers/anna", {"attributes": {}})
        await rig.caller.send("DELETE", "/api/agent/notify/subscribers/bert")
        states = {delivery["external_id"]: delivery["state"] for delivery in await rig.list_deliveries(campaign)}

        assert states == {"anna": "pending", None: "skipped"}
        assert (await rig.get(f"/campaigns/{campaign}"))["status"] == "paused"


async def test_an_empty_audience_is_sent_at_once(rig: NotificationRig) -> None:
    """Sent with 0 deliveries, once, without a loop."""
    for audience in ({}, {"tags": ["nobody"]}, {"subscribers": ["nobody"]}, {"all": True}):
        campaign = await rig.create_campaign(audience=audience)
        view = await rig.post(f"/campaigns/{campaign}/send", status=202)
        assert (view["status"], cast("Json", view["statistics"])["total"]) == ("sent", 0)


async def test_a_missing_variable_is_found_before_the_first_message(rig: NotificationRig) -> None:
    """422 names the variable and the subscribers without it; nothing is sent, and the campaign stays a draft."""
    await rig.add_subscriber("anna", attributes={"name": "Anna", "note": 'say "city": x'})
    for number in range(7):
        await rig.add_subscriber(f"no-name-{number}")
    campaign = await rig.create_campaign(title="{{ name }}", body="{{ city }}", variables={"city": "Graz"})
    preview = await rig.post(f"/campaigns/{campaign}/preview", {"subscriber": "anna"})
    for verb, body in (("send", None), ("schedule", {"at": "2031-01-01T00:00"}), ("test", {"subscribers": ["no-name-1"]})):
        response = await rig.caller.post(f"/api/agent/notify/campaigns/{campaign}/{verb}", body)
        assert (response.status_code, list(response.json()["errors"])) == (422, ["variables.name"]), response.text
        assert "no-name-1" in response.text

    assert cast("list[Json]", preview["missing_variables"])[0]["count"] == 7
    assert cast("Json", preview["message"])["title"] == "Anna"
    assert ((await rig.get(f"/campaigns/{campaign}"))["status"], rig.receiver.received) == ("draft", [])
    missing = await rig.create_campaign(body="{{ city }}")
    assert (await rig.caller.post(f"/api/agent/notify/campaigns/{missing}/send")).status_code == 422


async def test_the_preview_of_a_large_audience_is_fast(rig: NotificationRig) -> None:
    """
    Its time grows with the number of subscribers, not with its square.

    SQLite once compared each subscriber with all channels of the workspace: 100,000 subscribers had no preview, but 503 after 30 s.
    """
    await rig.add_subscribers(6_000)
    campaign = await rig.create_campaign(title="{{ first_name }}")
    with Stopwatch() as stopwatch:
        preview = await rig.post(f"/campaigns/{campaign}/preview")

    assert (preview["subscribers"], preview["deliveries"]) == (6_000, 6_000)
    assert cast("list[Json]", preview["missing_variables"])[0]["count"] == 6_000
    assert stopwatch.reference_s < 1.5


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channels": ["pigeon"]}, "channels.0"),
        ({"channels": []}, "channels"),
        ({"title": " "}, "title"),
        ({"title": "{{ Name }}"}, "title"),
        ({"body": "{{ name"}, "body"),
        ({"url": "javascript:alert(1)"}, "url"),
        ({"url": "/relative"}, "url"),
        ({"audience": {"all": False}}, "audience.all"),
        ({"audience": {"everyone": True}}, "audience.everyone"),
        ({"rate_per_second": 0}, "rate_per_second"),
        ({"ttl_s": 1}, "ttl_s"),
        ({"variables": {"a": ["b"]}}, "variables"),
        ({"schedule": {"at": "2020-01-01T00:00"}}, "schedule.at"),
        ({"schedule": {"at": "tomorrow"}}, "schedule.at"),
        ({"schedule": {"at": "2031-01-01T00:00", "time_zone": "Mars/Base"}}, "schedule.time_zone"),
        ({"schedule": {"at": "2031-03-30T02:30", "time_zone": "Europe/Vienna"}}, "schedule.at"),
        ({"schedule": {"at": "2031-01-01T00:00", "time_zone": "../../etc/passwd"}}, "schedule.time_zone"),
        ({"schedule": {"at": "2031-01-01T00:00", "time_zone": ""}}, "schedule.time_zone"),
        ({"schedule": {"at": "2031-01-01T00:00", "time_zone": "localtime"}}, "schedule.time_zone"),
        ({"schedule": {"at": "2031-01-01T00:00", "time_zone": "right/Europe/Vienna"}}, "schedule.time_zone"),
    ],
)
async def test_bad_input_is_rejected_with_its_field(rig: NotificationRig, fields: Json, field: str) -> None:
    """Unknown channel, time in the past or that does not exist, unknown time zone, malformed placeholder."""
    body = {"name": "a", "title": "a", "body": "a", "audience": {"all": True}, **fields}
    response = await rig.caller.post("/api/agent/notify/campaigns", body)

    assert response.status_code == 422, response.text
    assert any(name.startswith(field) for name in response.json()["errors"]), response.text


_VERBS = ("send", "schedule", "unschedule", "pause", "resume", "cancel", "retry")
_ALLOWED = {
    "draft": {"send", "schedule"},
    "scheduled": {"send", "schedule", "unschedule", "cancel"},
    "sending": {"pause", "cancel"},
    "paused": {"resume", "cancel"},
    "sent": {"retry"},
    "cancelled": set[str](),
}


async def _bring_to(rig: NotificationRig, status: str) -> str:
    campaign = await rig.create_campaign(audience={} if status == "sent" else {"all": True}, **_SLOW)
    steps = {"scheduled": ["schedule"], "paused": ["send", "pause"], "cancelled": ["send", "cancel"], "sending": ["send"], "sent": ["send"]}
    for verb in steps.get(status, []):
        await rig.post(f"/campaigns/{campaign}/{verb}", {"at": "2031-01-01T00:00"} if verb == "schedule" else None)
    assert (await rig.get(f"/campaigns/{campaign}"))["status"] == status
    return campaign


async def test_each_status_allows_its_verbs(rig: NotificationRig) -> None:
    """Every other verb is 409 with the statuses that allow it, and a second send is campaign_already_sent."""
    await rig.add_subscriber("anna")
    for status, allowed in _ALLOWED.items():
        for verb in _VERBS:
            campaign = await _bring_to(rig, status)
            body = {"at": "2031-01-01T00:00"} if verb == "schedule" else None
            response = await rig.caller.post(f"/api/agent/notify/campaigns/{campaign}/{verb}", body)
            if verb in allowed and (status, verb) != ("sent", "retry"):
                assert response.is_success, (status, verb, response.text)
            else:
                assert response.status_code == 409, (status, verb, response.text)
            if verb == "send" and status in {"sending", "paused", "sent", "cancelled"}:
                assert response.json()["error"] == "campaign_already_sent", (status, response.text)
        campaign = await _bring_to(rig, status)
        changed = await rig.caller.send("PATCH", f"/api/agent/notify/campaigns/{campaign}", {"name": "new"})
        if status in {"draft", "scheduled"}:
            assert (changed.status_code, changed.json()["status"]) == (200, "draft"), changed.text
        else:
            assert (changed.status_code, changed.json()["error"]) == (409, "campaign_not_editable")
        deleted = await rig.caller.send("DELETE", f"/api/agent/notify/campaigns/{await _bring_to(rig, status)}")
        assert deleted.status_code == (409 if status in {"scheduled", "sending", "paused"} else 204)
    copy = await rig.post(f"/campaigns/{await _bring_to(rig, 'sent')}/duplicate", status=201)
    assert (copy["status"], copy["started_at"]) == ("draft", None)


async def test_a_campaign_changes_only_with_its_etag(rig: NotificationRig) -> None:
    """If-Match protects changes and verbs."""
    campaign = await rig.create_campaign(audience={})
    etag = (await rig.caller.get(f"/api/agent/notify/campaigns/{campaign}")).headers["etag"]
    changed = await rig.caller.send("PATCH", f"/api/agent/notify/campaigns/{campaign}", {"name": "new"}, **{"If-Match": etag})
    stale = await rig.caller.post(f"/api/agent/notify/campaigns/{campaign}/send", None, **{"If-Match": etag})

    assert (changed.status_code, stale.status_code, stale.json()["etag"]) == (200, 412, changed.headers["etag"])


async def test_a_second_send_with_the_same_idempotency_key_is_answered(rig: NotificationRig) -> None:
    """The stored response is returned, and each subscriber gets one message."""
    await rig.add_subscriber("anna")
    campaign = await rig.create_campaign()
    path = f"/api/agent/notify/campaigns/{campaign}/send"
    first, second = [await rig.caller.post(path, None, **{"Idempotency-Key": "k"}) for _ in range(2)]
    await rig.wait_for_status(campaign, "sent")

    assert (second.headers["idempotent-replay"], second.text) == ("true", first.text)
    assert len(rig.receiver.received) == 1


def test_time_zones_need_no_database_of_the_system() -> None:
    """Slim images and Windows have none, so the package `tzdata` is a dependency."""
    script = """
from datetime import UTC, datetime
from zoneinfo import TZPATH
from rookery.notifications.schedules import parse_schedule
print(TZPATH, parse_schedule("2031-07-01T09:00", "Europe/Vienna", datetime(2031, 1, 1, tzinfo=UTC)).at_utc.isoformat())
"""
    environment = os.environ | {"PYTHONTZPATH": ""}
    parsed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=HANG_S, check=True)

    assert parsed.stdout.strip() == "() 2031-07-01T07:00:00+00:00"


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"at": "2020-01-01T00:00"}, "at", "in the past"),
        ({"at": "tomorrow"}, "at", "ISO 8601"),
        ({"at": "2031-03-30T02:30", "time_zone": "Europe/Vienna"}, "at", "does not exist"),
        ({"at": "2031-01-01T00:00", "time_zone": "europe/viena"}, "time_zone", "did you mean 'Europe/Vienna'?"),
        ({"time_zone": "Europe/Vienna"}, "at", "required with time_zone"),
        ({}, "at", "is required"),
    ],
)
async def test_errors_of_a_schedule_name_the_fields_of_the_body(rig: NotificationRig, body: Json, field: str, reason: str) -> None:
    """A time zone without a time was once ignored, and an error named `schedule.at`, which the body does not have."""
    response = await rig.caller.post(f"/api/agent/notify/campaigns/{await rig.create_campaign()}/schedule", body)

    assert (response.status_code, list(response.json()["errors"])) == (422, [field]), response.text
    assert reason in response.text


@pytest.mark.parametrize(
    ("at", "time_zone", "utc"),
    [
        ("2031-10-26T02:30", "Europe/Vienna", "2031-10-26T00:30:00.000000Z"),
        ("2031-10-26T02:30:00+01:00", None, "2031-10-26T01:30:00.000000Z"),
        ("2031-10-26T02:30", "Asia/Kathmandu", "2031-10-25T20:45:00.000000Z"),
    ],
)
async def test_a_time_that_occurs_twice_is_the_first(rig: NotificationRig, at: str, time_zone: str | None, utc: str) -> None:
    """When clocks are set back; an offset chooses the second."""
    campaign = await rig.create_campaign()
    view = await rig.post(f"/campaigns/{campaign}/schedule", {"at": at, "time_zone": time_zone})

    assert cast("Json", view["schedule"])["at_utc"] == utc


async def test_a_campaign_starts_at_its_time(settings: Settings, clock: FakeClock) -> None:
    """A local time in a time zone; the campaign is sent when the clock reaches it, and not before."""
    async with run_notifications(settings, clock=clock) as rig:
        await rig.add_subscriber("anna")
        campaign = await rig.create_campaign()
        local = (clock() + timedelta(minutes=10)).replace(tzinfo=None).isoformat(timespec="seconds")
        scheduled = await rig.post(f"/campaigns/{campaign}/schedule", {"at": local, "time_zone": "UTC"})
        assert (scheduled["status"], cast("Json", scheduled["schedule"])["at"]) == ("scheduled", local)
        clock.advance(minutes=9)
        rig.instance.rookery.notifications.dispatcher.wake()
        assert (await rig.get(f"/campaigns/{campaign}"))["status"] == "scheduled"
        clock.advance(minutes=2)
        rig.instance.rookery.notifications.dispatcher.wake()

        assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 1}


async def test_a_campaign_whose_time_passed_long_ago_is_missed(settings: Settings, clock: FakeClock) -> None:
    """More than an hour late, it is missed with a reason, and sent only on request; a late start within the hour is sent."""
    async with run_notifications(settings, clock=clock) as rig:
        await rig.add_subscriber("anna")
        late, missed = await rig.create_campaign(), await rig.create_campaign()
        at = {"at": (clock() + timedelta(minutes=10)).isoformat()}
        await rig.post(f"/campaigns/{missed}/schedule", at)
    clock.advance(minutes=71)
    async with run_notifications(settings, clock=clock) as rig:
        caller = await rig.instance.api_key(workspace_id=1)
        rig = replace(rig, caller=caller)  # noqa: PLW2901 - the first run has shown its keys
        view = await rig.wait_for_status(missed, "missed")
        assert "no server was running" in str(view["status_reason"])
        assert rig.receiver.received == []
        channel = {"type": "webhook", "url": rig.receiver.url}
        await rig.caller.send("PATCH", "/api/agent/notify/subscribers/anna", {"channels": [channel]})
        await rig.post(f"/campaigns/{late}/schedule", {"at": (clock() + timedelta(minutes=10)).isoformat()})
        clock.advance(minutes=60)
        rig.instance.rookery.notifications.dispatcher.wake()
        await rig.wait_for_status(late, "sent")
        await rig.post(f"/campaigns/{missed}/send", status=202)
        await rig.wait_for_status(missed, "sent")


async def test_a_scheduled_campaign_that_cannot_start_fails_with_the_reason(settings: Settings, clock: FakeClock) -> None:
    """A subscriber that joined after the check has no value for the variable; nothing is sent."""
    async with run_notifications(settings, clock=clock) as rig:
        await rig.add_subscriber("anna", attributes={"name": "Anna"})
        campaign = await rig.create_campaign(title="{{ name }}")
        await rig.post(f"/campaigns/{campaign}/schedule", {"at": (clock() + timedelta(minutes=1)).isoformat()})
        await rig.add_subscriber("bert")
        clock.advance(minutes=2)
        rig.instance.rookery.notifications.dispatcher.wake()
        view = await rig.wait_for_status(campaign, "failed")

        assert "bert" in str(view["status_reason"])
        assert (count_states(view), rig.receiver.received) == ({}, [])


async def test_a_test_is_a_campaign_of_its_own(rig: NotificationRig) -> None:
    """It reaches named subscribers whatever the status, and does not count in the statistics."""
    await rig.add_subscriber("anna")
    await rig.add_subscriber("bert")
    campaign = await rig.create_campaign()
    test = await rig.post(f"/campaigns/{campaign}/test", {"subscribers": ["anna"]}, 202)
    await rig.wait_for_status(str(test["id"]), "sent")
    unknown = await rig.caller.post(f"/api/agent/notify/campaigns/{campaign}/test", {"subscribers": ["zoe"]})

    assert [request.path for request in rig.receiver.received] == ["/anna"]
    assert (test["test_of"], count_states(await rig.get(f"/campaigns/{campaign}"))) == (campaign, {})
    assert [entry["id"] for entry in cast("list[Json]", (await rig.get("/campaigns"))["data"])] == [campaign]
    assert cast("Json", (await rig.get(f"/campaigns?test_of={campaign}"))["meta"])["total"] == 1
    assert (unknown.status_code, "zoe" in unknown.text) == (422, True)


async def test_a_test_key_sends_nothing(rig: NotificationRig) -> None:
    """Its messages go to an outbox, which another workspace and a live key do not see."""
    tester = replace(rig, caller=await rig.instance.api_key(environment="test"))
    await tester.add_subscriber("anna", attributes={"name": "Anna"})
    campaign = await tester.send_campaign(title="Hi {{ name }}")
    view = await tester.wait_for_status(campaign, "sent")
    outbox = cast("list[Json]", (await tester.get("/outbox"))["data"])

    assert (count_states(view), rig.receiver.received) == ({"sent": 1}, [])
    assert [(message["external_id"], message["title"]) for message in outbox] == [("anna", "Hi Anna")]
    assert (await rig.get("/outbox"))["data"] == []
    assert (await tester.caller.send("DELETE", "/api/agent/notify/outbox")).status_code == 204
    assert (await tester.get("/outbox"))["data"] == []


async def test_the_outbox_hides_tokens_and_forgets_deleted_subscribers(rig: NotificationRig) -> None:
    """A key with notify:read sees no token of an address, as in lists; the data of a deleted subscriber is removed."""
    tester = replace(rig, caller=await rig.instance.api_key(environment="test"))
    channels = [{"type": "ntfy", "url": "http://tk_secrettoken@127.0.0.1:1/topic"}, {"type": "apprise", "url": "tgram://secrettoken/chat"}]
    for name in ("anna", "bert"):
        await tester.post("/subscribers", {"external_id": name, "channels": channels}, 201)
    await tester.wait_for_status(await tester.send_campaign(), "sent")
    outbox = cast("list[Json]", (await tester.get("/outbox"))["data"])

    assert [message["address"] for message in outbox if message["channel"] == "ntfy"] == ["http://***@127.0.0.1:1/topic"] * 2
    assert (len(outbox), "secrettoken" in str(outbox)) == (4, False)
    assert (await tester.caller.send("DELETE", "/api/agent/notify/subscribers/anna")).status_code == 204
    assert {message["external_id"] for message in cast("list[Json]", (await tester.get("/outbox"))["data"])} == {"bert"}


async def test_events_and_audit_entries_follow_a_campaign(rig: NotificationRig) -> None:
    """Webhooks receive the campaign as GET returns it; the audit log has each change."""
    hook = {"url": f"http://127.0.0.1:{rig.receiver.port}/events", "events": ["campaign.*", "subscriber.*"]}
    assert (await rig.caller.post("/api/v1/webhooks", hook)).status_code == 201
    await rig.add_subscriber("anna")
    campaign = await rig.send_campaign()
    await rig.wait_for_status(campaign, "sent")
    await eventually(lambda: len([request for request in rig.receiver.received if request.path == "/events"]) == 3)
    events = {
        str(request.event["type"]): cast("Json", request.event["data"]) for request in rig.receiver.received if request.path == "/events"
    }
    entries = (await rig.caller.get("/api/v1/audit?per_page=100")).json()["data"]

    assert sorted(events) == ["campaign.sent", "campaign.started", "subscriber.created"]
    assert events["campaign.sent"] == await rig.get(f"/campaigns/{campaign}")
    assert {"campaign.created", "campaign.started", "campaign.sent", "subscriber.created"} <= {entry["action"] for entry in entries}


async def test_old_deliveries_are_deleted_and_their_statistics_stay(settings: Settings, clock: FakeClock) -> None:
    """After 30 days."""
    async with run_notifications(settings, clock=clock) as rig:
        await rig.add_subscriber("anna")
        campaign = await rig.send_campaign()
        await rig.wait_for_status(campaign, "sent")
        clock.advance(days=31)
        services = rig.instance.rookery.notifications

        assert await services.campaigns.delete_old_deliveries(before=clock() - timedelta(days=30)) == 1
        assert await services.campaigns.delete_old_deliveries(before=clock() - timedelta(days=30)) == 0
        assert await rig.list_deliveries(campaign) == []
        assert count_states(await rig.get(f"/campaigns/{campaign}")) == {"sent": 1}


async def test_a_deleted_workspace_leaves_nothing(rig: NotificationRig) -> None:
    """The purger deletes subscribers, campaigns and deliveries."""
    workspace = await rig.instance.workspace("other")
    other = replace(rig, caller=await rig.instance.api_key(workspace_id=workspace))
    await other.add_subscriber("anna", tags=["a"])
    await other.wait_for_status(await other.send_campaign(), "sent")
    deletion = await rig.instance.rookery.access.workspaces.delete(workspace, by=OPERATOR)

    assert (deletion.row_count or 0) >= 5


async def test_a_workspace_deleted_while_messages_leave_it_leaves_nothing(rig: NotificationRig) -> None:
    """The results that arrive after the deletion once left attempts without a delivery in the store for good."""
    workspace = await rig.instance.workspace("other")
    other = replace(rig, caller=await rig.instance.api_key(workspace_id=workspace))
    await other.add_subscribers(5)
    rig.receiver.gate = asyncio.Event()
    await other.send_campaign()
    await eventually(lambda: rig.receiver.waiting == 5)
    await rig.instance.rookery.access.workspaces.delete(workspace, by=OPERATOR)
    rig.receiver.gate.set()
    await rig.instance.rookery.notifications.dispatcher.wait_until_idle()
    left = await rig.instance.rookery.db.read(lambda tx: tx.fetch_all(select(attempts)))

    assert (len(rig.receiver.received), left) == (5, [])


async def test_a_preview_warns_of_channels_that_cut_the_text(rig: NotificationRig) -> None:
    """Ntfy counts bytes, so that 2,000 characters of Chinese are too many."""
    channels = [{"type": "ntfy", "url": "http://127.0.0.1/topic"}, {"type": "webhook", "url": "http://127.0.0.1/hook"}]
    await rig.post("/subscribers", {"external_id": "anna", "channels": channels}, 201)
    long, short = await rig.create_campaign(body="文" * 2_000), await rig.create_campaign(body="文" * 1_000)
    warnings = [(await rig.post(f"/campaigns/{campaign}/preview"))["warnings"] for campaign in (long, short)]

    assert [len(cast("list[str]", texts)) for texts in warnings] == [1, 0]
    assert "ntfy: the text has 6,000 bytes" in str(warnings[0])
