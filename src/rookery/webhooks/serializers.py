"""How endpoints and deliveries look to those who may see them: over HTTP, on the command line, and in an event's data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

import orjson

from rookery.kernel.clock import format_iso
from rookery.webhooks.models import (
    Attempt,
    Delivery,
    DeliveryDetails,
    DeliveryState,
    EndpointUpdate,
    EndpointWithSecret,
    WebhookEndpoint,
    WebhookEventType,
)

Fields = Mapping[str, object]


def serialize_endpoint(endpoint: WebhookEndpoint, now: datetime) -> dict[str, object]:
    """Return an endpoint, without its secret."""
    return {
        "id": endpoint.id,
        "workspace_id": endpoint.public_workspace_id,
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "include_content": endpoint.include_content,
        "strict_order": endpoint.strict_order,
        "concurrency": endpoint.concurrency,
        "enabled": endpoint.enabled,
        "disabled_at": _format_optional_time(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason and endpoint.disabled_reason.value,
        "failures": endpoint.failures,
        "last_success_at": _format_optional_time(endpoint.last_success_at),
        "previous_secret_until": _format_optional_time(endpoint.grace_until(now)),
        "created_at": format_iso(endpoint.created_at),
        "updated_at": format_iso(endpoint.updated_at),
    }


def serialize_endpoint_update(change: EndpointUpdate, now: datetime) -> dict[str, object]:
    """Return an endpoint after a change; *held_count* only when it was enabled again."""
    return (
        serialize_endpoint(change.endpoint, now)
        if change.held_count is None
        else {**serialize_endpoint(change.endpoint, now), "held": change.held_count}
    )


def serialize_endpoint_with_secret(made: EndpointWithSecret, now: datetime) -> dict[str, object]:
    """Return an endpoint with its secret, this once."""
    return {**serialize_endpoint(made.endpoint, now), "secret": made.secret.reveal()}


def serialize_delivery(of: Delivery) -> dict[str, object]:
    """Return a row of the log."""
    return {
        "id": of.id,
        "webhook_id": of.endpoint_id,
        "event_id": of.event_id,
        "type": of.event_type,
        "kind": of.kind.value,
        "state": of.state.value,
        "attempt_count": of.attempt_count,
        "next_at": _format_optional_time(of.next_at) if of.state is DeliveryState.PENDING else None,
        "status": of.status,
        "error": of.error,
        "created_at": format_iso(of.created_at),
        "ended_at": _format_optional_time(of.ended_at),
        "of_delivery": of.resend_of,
    }


def serialize_delivery_details(view: DeliveryDetails) -> dict[str, object]:
    """Return a row of the log with what is sent, and each attempt."""
    payload = cast("object", orjson.loads(view.body))
    return {**serialize_delivery(view.delivery), "payload": payload, "attempts": [serialize_attempt(each) for each in view.attempts]}


def serialize_attempt(of: Attempt) -> dict[str, object]:
    """Return one try."""
    return {
        "number": of.number,
        "started_at": format_iso(of.started_at),
        "ended_at": _format_optional_time(of.ended_at),
        "outcome": of.outcome and of.outcome.value,
        "status": of.status,
        "error": of.error,
        "response": of.response,
        "duration_ms": None if of.duration_ms is None else round(of.duration_ms, 1),
    }


def serialize_event_type(of: WebhookEventType) -> dict[str, object]:
    """Return a row of the catalogue."""
    return {
        "name": of.name,
        "description": of.description,
        "data": of.data_description,
        "resource": of.resource,
        "in_wildcard": of.in_wildcard,
    }


def _format_optional_time(at: datetime | None) -> str | None:
    return None if at is None else format_iso(at)
