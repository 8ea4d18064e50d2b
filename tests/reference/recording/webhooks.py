"""The part of the story about webhooks."""

from __future__ import annotations

from tests.conftest import eventually
from tests.reference.recording.recorder import Json, Recorder

_HOOKS = "/api/v1/webhooks"
_HOOK = f"{_HOOKS}/{{webhook_id}}"
_DELIVERIES = f"{_HOOK}/deliveries"


async def play(recorder: Recorder) -> None:
    """Create a webhook, read its deliveries, and resend them."""
    admin = recorder.instance.admin
    await recorder.send(admin, "GET /api/v1/events")
    new = {"url": recorder.receiver, "events": ["memory.*", "plan.completed"], "description": "The team's chat", "include_content": False}
    hook = (await recorder.send(admin, f"POST {_HOOKS}", new))["id"]
    await recorder.send(admin, f"GET {_HOOKS}", query={"per_page": 20})
    await recorder.send(admin, f"GET {_HOOK}", webhook_id=hook)
    await recorder.send(admin, f"PATCH {_HOOK}", {"events": ["memory.stored", "plan.completed"]}, webhook_id=hook)
    delivery_id = (await recorder.send(admin, f"POST {_HOOK}/test", webhook_id=hook))["id"]
    path = f"{_HOOKS}/{hook}/deliveries/{delivery_id}"

    async def has_ended() -> Json | None:
        delivery = (await admin.get(path)).json()
        return delivery if delivery["ended_at"] else None

    await eventually(has_ended)
    await recorder.send(admin, f"GET {_DELIVERIES}", query={"status": "delivered"}, webhook_id=hook)
    await recorder.send(admin, f"GET {_DELIVERIES}/{{delivery_id}}", webhook_id=hook, delivery_id=delivery_id)
    await recorder.send(admin, f"POST {_DELIVERIES}/{{delivery_id}}/resend", webhook_id=hook, delivery_id=delivery_id)
    await recorder.send(admin, f"POST {_HOOK}/resend-failed", {"since": "2027-02-28T00:00:00Z"}, webhook_id=hook)
    await recorder.send(admin, f"POST {_HOOK}/rotate-secret", {"grace_period_hours": 24}, webhook_id=hook)
    await recorder.send(admin, f"DELETE {_HOOK}", webhook_id=hook)
