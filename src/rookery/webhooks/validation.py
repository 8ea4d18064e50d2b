"""Validation of endpoints. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.secret import Secret
from rookery.kernel.signing import find_secret_error
from rookery.kernel.unset import UNSET
from rookery.kernel.urls import find_url_error
from rookery.webhooks.event_types import EventCatalogue
from rookery.webhooks.models import EndpointChange, NewEndpoint

MAX_EVENTS = 100
MAX_DESCRIPTION_LENGTH = 500
MAX_CONCURRENCY = 16
MAX_GRACE_HOURS = 720

_VALID_SECRET = re.compile(r"[!-~]{16,128}")
_INVALID_SECRET_MESSAGE = "must be 16 to 128 printable ASCII characters without spaces"  # noqa: S105 - a message

_EndpointInput = TypeVar("_EndpointInput", NewEndpoint, EndpointChange)


def validate_endpoint(endpoint: _EndpointInput, catalogue: EventCatalogue) -> _EndpointInput:
    """
    Return *endpoint* with duplicate events removed.

    Raises:
        ValidationFailed: With the errors of all fields.
    """
    errors: dict[str, list[str]] = {}

    def add_error(field: str, error: str | None) -> None:
        if error is not None:
            errors.setdefault(field, []).append(error)

    if endpoint.url is not UNSET:
        add_error("url", find_url_error(endpoint.url))
    if endpoint.events is not UNSET:
        for error in _find_event_errors(endpoint.events, catalogue):
            add_error("events", error)
    if endpoint.description is not UNSET and (len(endpoint.description) > MAX_DESCRIPTION_LENGTH or "\x00" in endpoint.description):
        add_error("description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters without NUL")
    if endpoint.concurrency is not UNSET and not 1 <= endpoint.concurrency <= MAX_CONCURRENCY:
        add_error("concurrency", f"must be 1 to {MAX_CONCURRENCY}")
    if isinstance(endpoint, NewEndpoint) and endpoint.secret is not None:
        add_error("secret", _find_secret_error(endpoint.secret))
    if errors:
        raise ValidationFailed(errors)
    return endpoint if endpoint.events is UNSET else replace(endpoint, events=tuple(dict.fromkeys(endpoint.events)))


def validate_secret(secret: Secret) -> Secret:
    """Return *secret*, or raise ValidationFailed."""
    error = _find_secret_error(secret)
    if error is not None:
        raise ValidationFailed({"secret": [error]})
    return secret


def _find_secret_error(secret: Secret) -> str | None:
    if _VALID_SECRET.fullmatch(secret.reveal()) is None:
        return _INVALID_SECRET_MESSAGE
    return find_secret_error(secret.reveal())


def validate_grace_hours(hours: int) -> None:
    """Raise ValidationFailed unless *hours* is a valid grace period."""
    if not 0 <= hours <= MAX_GRACE_HOURS:
        raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}, not {hours}"]})


def _find_event_errors(events: Sequence[str], catalogue: EventCatalogue) -> list[str]:
    if not events:
        return ["must name at least one event; * means all except tool.called and webhook.test"]
    if len(events) > MAX_EVENTS:
        return [f"must have at most {MAX_EVENTS} entries"]
    return [error for pattern in dict.fromkeys(events) if (error := catalogue.find_pattern_error(pattern)) is not None]
