"""The events of webhooks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import Event, EventType, Recipient

DISABLED_EVENT = EventType(
    name="webhook.disabled",
    description="Another webhook of the workspace was disabled; `disabled_reason` has the reason.",
    data="that webhook",
    scope="webhooks:read",
    resource="/api/v1/webhooks/{webhook_id}",
)
TEST_EVENT = EventType(
    name="webhook.test",
    description="A test was requested. It is sent only to that webhook, regardless of its events.",
    data="a sentence",
    scope="webhooks:read",
    in_wildcard=False,
)
"""The type of tests, which `deliveries` sends without an event on the bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDisabled(Event):
    """A webhook was disabled. *reason* is `by_hand`, `failures` or `gone`."""

    types = (DISABLED_EVENT, TEST_EVENT)

    workspace_id: int
    endpoint_id: str
    reason: str
    at: datetime

    def select_types(self) -> Sequence[EventType]:
        return (DISABLED_EVENT,)

    def list_recipients(self) -> Sequence[Recipient]:
        return ((self.workspace_id, self.endpoint_id),)
