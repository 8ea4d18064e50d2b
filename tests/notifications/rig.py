"""A server with a receiver on this host, for the tests of notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

from rookery.kernel.clock import Clock, utc_now
from tests.conftest import Caller, Instance, Settings, eventually, run_instance
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

Json = dict[str, object]


@dataclass
class NotificationRig:
    """
    A running server and a receiver.

    Attributes:
        caller: The key that acts.
    """

    instance: Instance
    receiver: Receiver
    caller: Caller

    async def post(self, path: str, body: object = None, status: int = 0) -> Json:
        """POST below /api/agent/notify and return the body; the response must have *status*, or be a success."""
        response = await self.caller.post(f"/api/agent/notify{path}", body)
        assert response.status_code == status if status else response.is_success, response.text
        return cast("Json", response.json())

    async def get(self, path: str) -> Json:
        """GET below /api/agent/notify."""
        response = await self.caller.get(f"/api/agent/notify{path}")
        assert response.status_code == 200, response.text
        return cast("Json", response.json())

    async def add_subscriber(self, external_id: str, *, path: str | None = None, **fields: object) -> Json:
        """Create a subscriber with a webhook of the receiver."""
        url = f"http://127.0.0.1:{self.receiver.port}/{path or external_id}"
        return await self.post("/subscribers", {"external_id": external_id, "channels": [{"type": "webhook", "url": url}], **fields}, 201)

    async def add_subscribers(self, count: int) -> None:
        """Create subscribers `s0`, `s1`, … by an import."""
        url = f"http://127.0.0.1:{self.receiver.port}"
        lines = "\n".join(f"s{number},{url}/s{number}" for number in range(count))
        response = await self.caller.http.post(
            "/api/agent/notify/subscribers/import", content=f"external_id,webhook\n{lines}\n", headers={"Content-Type": "text/csv"}
        )
        assert response.json()["created"] == count, response.text

    async def create_campaign(self, **fields: object) -> str:
        """Create a campaign for all subscribers and return its id."""
        body = {"name": "news", "title": "Hello", "body": "Text", "audience": {"all": True}, **fields}
        return str((await self.post("/campaigns", body, 201))["id"])

    async def send_campaign(self, **fields: object) -> str:
        """Create a campaign, send it and return its id."""
        campaign = await self.create_campaign(**fields)
        await self.post(f"/campaigns/{campaign}/send", status=202)
        return campaign

    async def wait_for_status(self, campaign: str, *statuses: str) -> Json:
        """Wait until a campaign has one of *statuses* and return it."""

        async def find() -> Json | None:
            view = await self.get(f"/campaigns/{campaign}")
            return view if view["status"] in statuses else None

        view = await eventually(find)
        assert view is not None
        return view

    async def wait_for_pause(self, campaign: str) -> Json:
        """Wait until a campaign is paused and what was being sent has ended, and return it."""

        async def find() -> Json | None:
            view = await self.get(f"/campaigns/{campaign}")
            return view if view["status"] == "paused" and "sending" not in count_states(view) else None

        view = await eventually(find)
        assert view is not None
        return view

    async def list_deliveries(self, campaign: str, query: str = "") -> list[Json]:
        """Return the first 100 deliveries."""
        return cast("list[Json]", (await self.get(f"/campaigns/{campaign}/deliveries?per_page=100{query}"))["data"])

    async def get_details(self, campaign: str, external_id: str) -> Json:
        """Return the delivery to a subscriber with its attempts."""
        delivery = (await self.list_deliveries(campaign, f"&subscriber={external_id}"))[0]
        return await self.get(f"/campaigns/{campaign}/deliveries/{delivery['id']}")

    def received_ids(self) -> Counter[str]:
        """Return the ids of received deliveries, with the number of times."""
        return Counter(str(request.event["id"]) for request in self.receiver.received)


def count_states(view: Mapping[str, object]) -> Json:
    """Return the states of a campaign that occur, with their numbers."""
    statistics = cast("Json", view["statistics"])
    return {name: count for name, count in statistics.items() if name not in {"total", "by_channel"} and count}


@asynccontextmanager
async def run_notifications(
    settings: Settings,
    reply: Callable[[ReceivedRequest], Reply] = lambda _: Reply(status=204, body=b""),
    *,
    clock: Clock = utc_now,
    allow: Sequence[str] = ("127.0.0.0/8",),
    **changes: object,
) -> AsyncGenerator[NotificationRig]:
    """Run a server that may send to this host, and a receiver that responds with *reply*."""
    allowed = replace(settings, egress_allow=tuple(allow), **changes)
    async with run_receiver(reply) as receiver, run_instance(allowed, clock) as instance:
        yield NotificationRig(instance, receiver, instance.admin)
