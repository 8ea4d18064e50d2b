"""Endpoints, deliveries and event types as JSON fields. The API, the command line and events share them."""

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
    """Return the fields of an endpoint without its secret."""
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
    """Return the fields of a changed endpoint; `held` only if the change enabled it."""
    return (
        serialize_endpoint(change.endpoint, now)
        if change.held_count is None
        else {**serialize_endpoint(change.endpoint, now), "held": change.held_count}
    )


def serialize_endpoint_with_secret(endpoint_with_secret: EndpointWithSecret, now: datetime) -> dict[str, object]:
    """Return the fields of an endpoint with its new secret."""
    return {**serialize_endpoint(endpoint_with_secret.endpoint, now), "secret": endpoint_with_secret.secret.reveal()}


def serialize_delivery(delivery: Delivery) -> dict[str, object]:
    """Return the fields of a delivery."""
    return {
        "id": delivery.id,
        "webhook_id": delivery.endpoint_id,
        "event_id": delivery.event_id,
        "type": delivery.event_type,
        "kind": delivery.kind.value,
        "state": delivery.state.value,
        "attempt_count": delivery.attempt_count,
        "next_at": _format_optional_time(delivery.next_at) if delivery.state is DeliveryState.PENDING else None,
        "status": delivery.status,
        "error": delivery.error,
        "created_at": format_iso(delivery.created_at),
        "ended_at": _format_optional_time(delivery.ended_at),
        "of_delivery": delivery.resend_of,
    }


def serialize_delivery_details(details: DeliveryDetails) -> dict[str, object]:
    """Return the fields of a delivery with its payload and its attempts."""
    payload = cast("object", orjson.loads(details.body))
    return {
        **serialize_delivery(details.delivery),
        "payload": payload,
        "attempts": [serialize_attempt(attempt) for attempt in details.attempts],
    }


def serialize_attempt(attempt: Attempt) -> dict[str, object]:
    """Return the fields of an attempt."""
    return {
        "number": attempt.number,
        "started_at": format_iso(attempt.started_at),
        "ended_at": _format_optional_time(attempt.ended_at),
        "outcome": attempt.outcome and attempt.outcome.value,
        "status": attempt.status,
        "error": attempt.error,
        "response": attempt.response,
        "duration_ms": None if attempt.duration_ms is None else round(attempt.duration_ms, 1),
    }


def serialize_event_type(event_type: WebhookEventType) -> dict[str, object]:
    """Return the fields of an event type."""
    return {
        "name": event_type.name,
        "description": event_type.description,
        "data": event_type.data_description,
        "resource": event_type.resource,
        "in_wildcard": event_type.in_wildcard,
    }


def _format_optional_time(at: datetime | None) -> str | None:
    return None if at is None else format_iso(at)
