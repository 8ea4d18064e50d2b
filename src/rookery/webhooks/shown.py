"""How endpoints and deliveries look to those who may see them: over HTTP, on the command line, and in an event's data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

import orjson

from rookery.kernel.clock import iso
from rookery.webhooks.models import Attempt, Delivery, DeliveryState, DeliveryView, Endpoint, EndpointChanged, EventType, Minted

Fields = Mapping[str, object]


def webhook(endpoint: Endpoint, now: datetime) -> dict[str, object]:
    """Return an endpoint, without its secret."""
    return {
        "id": endpoint.id,
        "workspace_id": endpoint.shown_workspace_id,
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "include_content": endpoint.include_content,
        "strict_order": endpoint.strict_order,
        "concurrency": endpoint.concurrency,
        "enabled": endpoint.enabled,
        "disabled_at": _time(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason and endpoint.disabled_reason.value,
        "failures": endpoint.failures,
        "last_success_at": _time(endpoint.last_success_at),
        "previous_secret_until": _time(endpoint.grace_until(now)),
        "created_at": iso(endpoint.created_at),
        "updated_at": iso(endpoint.updated_at),
    }


def changed(change: EndpointChanged, now: datetime) -> dict[str, object]:
    """Return an endpoint after a change; *held* only when it was enabled again."""
    return webhook(change.endpoint, now) if change.held is None else {**webhook(change.endpoint, now), "held": change.held}


def minted(made: Minted, now: datetime) -> dict[str, object]:
    """Return an endpoint with its secret, this once."""
    return {**webhook(made.endpoint, now), "secret": made.secret.reveal()}


def delivery(of: Delivery) -> dict[str, object]:
    """Return a row of the log."""
    return {
        "id": of.id,
        "webhook_id": of.endpoint_id,
        "event_id": of.event_id,
        "type": of.event_type,
        "kind": of.kind.value,
        "state": of.state.value,
        "attempt_count": of.attempts,
        "next_at": _time(of.next_at) if of.state is DeliveryState.PENDING else None,
        "status": of.status,
        "error": of.error,
        "created_at": iso(of.created_at),
        "ended_at": _time(of.ended_at),
        "of_delivery": of.of_delivery,
    }


def detail(view: DeliveryView) -> dict[str, object]:
    """Return a row of the log with what is sent, and each attempt."""
    payload = cast("object", orjson.loads(view.body))
    return {**delivery(view.delivery), "payload": payload, "attempts": [attempt(each) for each in view.attempts]}


def attempt(of: Attempt) -> dict[str, object]:
    """Return one try."""
    return {
        "number": of.number,
        "started_at": iso(of.started_at),
        "ended_at": _time(of.ended_at),
        "outcome": of.outcome and of.outcome.value,
        "status": of.status,
        "error": of.error,
        "response": of.response,
        "duration_ms": None if of.duration_ms is None else round(of.duration_ms, 1),
    }


def event_type(of: EventType) -> dict[str, object]:
    """Return a row of the catalogue."""
    return {"name": of.name, "description": of.says, "data": of.data, "resource": of.resource, "in_wildcard": of.in_wildcard}


def _time(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
