"""Endpoints, events and deliveries for tests, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import orjson

from rookery.access.models import Actor
from rookery.domains import load_events
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventCatalogue
from rookery.kernel.ids import uuid7
from rookery.kernel.pages import PageSlice
from rookery.webhooks.models import Delivery, DeliveryFilter, WebhookEndpoint, WebhookEvent, WebhookTenant
from rookery.webhooks.outbox import BuildData, Outbox
from rookery.webhooks.store import deliveries
from rookery.webhooks.store.tables import ENDPOINTS, EVENTS

CATALOGUE = EventCatalogue(load_events())
AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
WORKSPACE = 1
TENANT = WebhookTenant(workspace_id=WORKSPACE, public_workspace_id=WORKSPACE, by=Actor(kind="operator", name="test"))


def make_endpoint(**overrides: object) -> WebhookEndpoint:
    """Return an endpoint in workspace 1 that is subscribed to all events."""
    endpoint = WebhookEndpoint(
        id=uuid7(),
        workspace_id=WORKSPACE,
        public_workspace_id=WORKSPACE,
        url="http://127.0.0.1:9/hook",
        events=("*",),
        description="",
        include_content=False,
        strict_order=False,
        concurrency=4,
        enabled=True,
        enabled_at=AT,
        disabled_at=None,
        disabled_reason=None,
        failures=0,
        last_success_at=None,
        sealed_secret=None,
        previous_secret=None,
        previous_until=None,
        created_at=AT,
        updated_at=AT,
    )
    return replace(endpoint, **overrides)


async def store_endpoint(db: Database, **overrides: object) -> WebhookEndpoint:
    """Store such an endpoint."""
    endpoint = make_endpoint(**overrides)
    await db.write(lambda tx: ENDPOINTS.insert(tx, endpoint))
    return endpoint


def build_payload(**fields: object) -> BuildData:
    """Return a payload builder of *fields*; `content` is included only on request."""

    def build(with_content: bool) -> Mapping[str, object]:
        return {name: value for name, value in fields.items() if with_content or name != "content"}

    return build


async def add_event(
    db: Database, recorder: Outbox, type: str = "memory.stored", data: BuildData | None = None, **overrides: object
) -> None:
    """Add one event in its own transaction."""
    workspace_id, at = cast("int", overrides.get("workspace_id", WORKSPACE)), cast("datetime", overrides.get("at", AT))
    build = build_payload(id="a", content="We deploy on Tuesdays.") if data is None else data
    await db.write(lambda tx: recorder.add_event(tx, CATALOGUE.by_name[type], workspace_id, build, at, memory_id="a"))


async def list_deliveries(db: Database, endpoint: WebhookEndpoint) -> list[tuple[Delivery, dict[str, object]]]:
    """Return the deliveries of an endpoint, oldest first, each with what it sends."""

    def read(tx: Tx) -> list[tuple[Delivery, dict[str, object]]]:
        page, *_ = deliveries.list_page(tx, endpoint.workspace_id, endpoint.id, DeliveryFilter(), page=PageSlice(10_000))
        return [(delivery, parse_body(_find_event(tx, delivery), delivery)) for delivery in reversed(page)]

    return await db.read(read)


def parse_body(event: WebhookEvent, delivery: Delivery) -> dict[str, object]:
    """Return the parsed body of a delivery."""
    return cast("dict[str, object]", orjson.loads(event.get_body(delivery)))


def _find_event(tx: Tx, delivery: Delivery) -> WebhookEvent:
    event = EVENTS.find(tx, delivery.workspace_id, id=delivery.event_id)
    assert event is not None
    return event
