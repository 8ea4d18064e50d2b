"""Validation of endpoints. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.secret import Secret
from rookery.kernel.signing import find_secret_error
from rookery.kernel.urls import find_url_error
from rookery.webhooks.event_types import EventCatalogue
from rookery.webhooks.models import EndpointChange

MAX_GRACE_HOURS = 720

_VALID_SECRET = re.compile(r"[!-~]{16,128}")
_INVALID_SECRET_MESSAGE = "must be 16 to 128 printable ASCII characters without spaces"  # noqa: S105 - a message


def validate_settings(settings: Mapping[str, Any], catalogue: EventCatalogue, secret: Secret | None = None) -> dict[str, Any]:
    """
    Return the new values of settings, with each event once.

    Raises:
        ValidationFailed: With the errors of all fields.
    """
    errors: dict[str, list[str]] = {}
    try:
        EndpointChange.of(**settings)
    except ValidationFailed as error:
        errors = {name: list(texts) for name, texts in error.field_errors.items()}
    events = tuple(dict.fromkeys(settings.get("events", ())))
    others: dict[str, list[str]] = {
        "url": [error] if "url" in settings and (error := find_url_error(settings["url"])) is not None else [],
        "events": [error for pattern in events if (error := catalogue.find_pattern_error(pattern)) is not None],
        "description": ["must not contain NUL"] if "\x00" in settings.get("description", "") else [],
        "secret": _find_secret_errors(secret),
    }
    errors = {name: texts for name, texts in others.items() if texts} | errors
    if errors:
        raise ValidationFailed(errors)
    return dict(settings) | ({"events": events} if events else {})


def validate_secret(secret: Secret) -> Secret:
    """Return *secret*, or raise ValidationFailed."""
    errors = _find_secret_errors(secret)
    if errors:
        raise ValidationFailed({"secret": errors})
    return secret


def _find_secret_errors(secret: Secret | None) -> list[str]:
    if secret is None:
        return []
    error = find_secret_error(secret.reveal()) if _VALID_SECRET.fullmatch(secret.reveal()) else _INVALID_SECRET_MESSAGE
    return [] if error is None else [error]


def validate_grace_hours(hours: int) -> None:
    """Raise ValidationFailed unless *hours* is a valid grace period."""
    if not 0 <= hours <= MAX_GRACE_HOURS:
        raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}, not {hours}"]})
