"""A disabled webhook endpoint whose held deliveries show the events of a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tests.conftest import Caller, eventually

Json = dict[str, object]

HOOKS = "/api/v1/webhooks"


@dataclass(frozen=True)
class EventRecorder:
    """The events of an endpoint, read over HTTP."""

    caller: Caller
    id: str

    async def list_payloads(self, *types: str) -> list[Json]:
        """Return every payload for it so far, of these types or of all, oldest first."""
        response = await self.caller.get(f"{HOOKS}/{self.id}/deliveries?per_page=100")
        assert response.status_code == 200, response.text
        rows = cast("list[Json]", response.json()["data"])
        ids = [row["id"] for row in reversed(rows) if not types or row["type"] in types]
        return [(await self.caller.get(f"{HOOKS}/{self.id}/deliveries/{delivery_id}")).json()["payload"] for delivery_id in ids]

    async def only_data(self, type: str) -> Json:
        """Wait for an event of *type*, the only one so far, and return its data."""

        async def load() -> list[Json]:
            return await self.list_payloads(type)

        (event,) = cast("list[Json]", await eventually(load))
        return cast("Json", event["data"])

    async def first_data(self, type: str, *, id: str, after: str = "") -> Json:
        """
        Wait for an event of *type* about the thing with this ID, and return the data of the first.

        Args:
            after: A type; only events that follow one of this type about the same thing count.
        """

        async def load() -> list[Json]:
            events = [event for event in await self.list_payloads(type, after) if cast("Json", event["data"])["id"] == id]
            start = next((number for number, event in enumerate(events) if event["type"] == after), len(events)) if after else 0
            return [cast("Json", event["data"]) for event in events[start:] if event["type"] == type]

        return cast("list[Json]", await eventually(load))[0]

    async def list_types(self) -> list[str]:
        """Return the types of all events so far, oldest first."""
        return [str(event["type"]) for event in await self.list_payloads()]


async def record_events(caller: Caller, *events: str, include_content: bool = False) -> EventRecorder:
    """Create a disabled endpoint that is subscribed to *events*."""
    body = {"url": "http://[2a00:ffff::1]/hook", "events": list(events), "include_content": include_content, "enabled": False}
    response = await caller.post(HOOKS, body)
    assert response.status_code == 201, response.text
    return EventRecorder(caller, str(response.json()["id"]))
