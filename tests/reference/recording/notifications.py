"""The part of the story about notifications."""

from __future__ import annotations

from tests.conftest import eventually
from tests.reference.recording.recorder import Json, Recorder

_NOTIFY = "/api/agent/notify"
_SUBSCRIBER = f"{_NOTIFY}/subscribers/{{subscriber}}"
_CAMPAIGN = f"{_NOTIFY}/campaigns/{{campaign}}"


async def play(recorder: Recorder) -> None:
    """Subscribe people, send a campaign, pause another one, and read what was sent."""
    admin = recorder.instance.admin
    kim: Json = {
        "external_id": "kim",
        "channels": [{"type": "webhook", "url": f"{recorder.receiver}/kim"}],
        "tags": ["beta"],
        "attributes": {"name": "Kim"},
        "locale": "en",
    }
    await recorder.send(admin, f"POST {_NOTIFY}/subscribers", kim)
    lee = {**kim, "external_id": "lee", "channels": [{"type": "webhook", "url": f"{recorder.receiver}/lee"}], "attributes": {"name": "Lee"}}
    await admin.post(f"{_NOTIFY}/subscribers", lee)
    await recorder.send(admin, f"GET {_NOTIFY}/subscribers", query={"tag": "beta", "per_page": 20})
    await recorder.send(admin, f"GET {_NOTIFY}/subscribers/export", query={"format": "jsonl"})
    await recorder.send(admin, f"GET {_SUBSCRIBER}", subscriber="kim")
    await recorder.send(admin, f"PATCH {_SUBSCRIBER}", {"tags": ["beta", "staff"]}, subscriber="kim")
    await recorder.send(admin, f"POST {_SUBSCRIBER}/subscribe-link", {"expires_in_hours": 24}, subscriber="kim")
    await recorder.send(admin, f"GET {_NOTIFY}/vapid-public-key")
    await _send_campaign(recorder)
    await _change_campaigns(recorder)
    await recorder.send(admin, f"DELETE {_SUBSCRIBER}", subscriber="lee")
    await recorder.send(admin, f"POST {_NOTIFY}/webhook-secret/rotate")
    sandbox = await recorder.instance.api_key(environment="test")
    await sandbox.post(f"{_NOTIFY}/subscribers", kim)
    tried = (await sandbox.post(f"{_NOTIFY}/campaigns", _make_campaign("A try"))).json()["id"]
    await sandbox.post(f"{_NOTIFY}/campaigns/{tried}/send")

    async def is_in_outbox() -> bool:
        return bool((await sandbox.get(f"{_NOTIFY}/outbox")).json()["data"])

    await eventually(is_in_outbox)
    await recorder.send(sandbox, f"GET {_NOTIFY}/outbox", query={"per_page": 20})
    await recorder.send(sandbox, f"DELETE {_NOTIFY}/outbox")


async def _send_campaign(recorder: Recorder) -> None:
    admin = recorder.instance.admin
    campaign = (await recorder.send(admin, f"POST {_NOTIFY}/campaigns", _make_campaign("Version 2")))["id"]
    await recorder.send(admin, f"POST {_CAMPAIGN}/preview", {"subscriber": "kim"}, campaign=campaign)
    await recorder.send(admin, f"POST {_CAMPAIGN}/test", {"subscribers": ["kim"]}, campaign=campaign)
    await recorder.send(admin, f"POST {_CAMPAIGN}/send", campaign=campaign)

    async def is_sent() -> bool:
        return (await admin.get(f"{_NOTIFY}/campaigns/{campaign}")).json()["status"] == "sent"

    await eventually(is_sent)
    await recorder.send(admin, f"GET {_NOTIFY}/campaigns", query={"status": "sent", "per_page": 20})
    await recorder.send(admin, f"GET {_CAMPAIGN}", campaign=campaign)
    deliveries = await recorder.send(admin, f"GET {_CAMPAIGN}/deliveries", query={"per_page": 20}, campaign=campaign)
    first = (await admin.get(f"{_NOTIFY}/campaigns/{campaign}/deliveries")).json()["data"][0]["id"]
    await recorder.send(admin, f"GET {_CAMPAIGN}/deliveries/{{delivery}}", campaign=campaign, delivery=first)
    assert deliveries["data"]


async def _change_campaigns(recorder: Recorder) -> None:
    admin = recorder.instance.admin
    slow = (await admin.post(f"{_NOTIFY}/campaigns", {**_make_campaign("Version 3"), "rate_per_second": 0.01})).json()["id"]
    copy = (await recorder.send(admin, f"POST {_CAMPAIGN}/duplicate", campaign=slow))["id"]
    await recorder.send(admin, f"PATCH {_CAMPAIGN}", {"title": "Hello, {{ name }}"}, campaign=copy)
    schedule = {"at": "2031-01-01T09:00", "time_zone": "Europe/Berlin"}
    await recorder.send(admin, f"POST {_CAMPAIGN}/schedule", schedule, campaign=copy)
    await recorder.send(admin, f"POST {_CAMPAIGN}/unschedule", campaign=copy)
    await recorder.send(admin, f"DELETE {_CAMPAIGN}", campaign=copy)
    await admin.post(f"{_NOTIFY}/campaigns/{slow}/send")
    await recorder.send(admin, f"POST {_CAMPAIGN}/pause", campaign=slow)
    await recorder.send(admin, f"POST {_CAMPAIGN}/resume", campaign=slow)
    await recorder.send(admin, f"POST {_CAMPAIGN}/cancel", campaign=slow)
    failing: Json = {**_make_campaign("Version 4"), "url": "{{ name }}"}
    failed = (await admin.post(f"{_NOTIFY}/campaigns", failing)).json()["id"]
    await admin.post(f"{_NOTIFY}/campaigns/{failed}/send")

    async def is_failed() -> bool:
        return (await admin.get(f"{_NOTIFY}/campaigns/{failed}")).json()["status"] == "failed"

    await eventually(is_failed)
    await recorder.send(admin, f"POST {_CAMPAIGN}/retry", campaign=failed)


def _make_campaign(name: str) -> Json:
    return {
        "name": name,
        "title": "News for {{ name }}",
        "body": "{{ product }} is out.",
        "variables": {"product": name},
        "audience": {"tags": ["beta"]},
    }
