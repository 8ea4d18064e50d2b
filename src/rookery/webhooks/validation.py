"""Validation of endpoints. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.secret import Secret
from rookery.webhooks.event_types import EventCatalogue
from rookery.webhooks.models import EndpointChange, NewEndpoint

MAX_URL_LENGTH = 2_048
MAX_EVENTS = 100
MAX_DESCRIPTION_LENGTH = 500
MAX_CONCURRENCY = 16
MAX_GRACE_HOURS = 720

_VALID_SECRET = re.compile(r"[!-~]{16,128}")
_PRINTABLE_ASCII = re.compile(r"[!-~]+")
_HOST_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_HOST_LENGTH = 253
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

    if endpoint.url is not None:
        add_error("url", find_url_error(endpoint.url))
    if endpoint.events is not None:
        for error in _find_event_errors(endpoint.events, catalogue):
            add_error("events", error)
    if endpoint.description is not None and (len(endpoint.description) > MAX_DESCRIPTION_LENGTH or "\x00" in endpoint.description):
        add_error("description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters without NUL")
    if endpoint.concurrency is not None and not 1 <= endpoint.concurrency <= MAX_CONCURRENCY:
        add_error("concurrency", f"must be 1 to {MAX_CONCURRENCY}")
    if isinstance(endpoint, NewEndpoint) and endpoint.secret is not None and _VALID_SECRET.fullmatch(endpoint.secret.reveal()) is None:
        add_error("secret", _INVALID_SECRET_MESSAGE)
    if errors:
        raise ValidationFailed(errors)
    return endpoint if endpoint.events is None else replace(endpoint, events=tuple(dict.fromkeys(endpoint.events)))


def validate_secret(secret: Secret) -> Secret:
    """Return *secret*, or raise ValidationFailed."""
    if _VALID_SECRET.fullmatch(secret.reveal()) is None:
        raise ValidationFailed({"secret": [_INVALID_SECRET_MESSAGE]})
    return secret


def validate_grace_hours(hours: int) -> None:
    """Raise ValidationFailed unless *hours* is a valid grace period."""
    if not 0 <= hours <= MAX_GRACE_HOURS:
        raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}, not {hours}"]})


def find_url_error(url: str) -> str | None:
    """Return the error in a URL, or None if it is valid. The address behind it is not checked."""
    if len(url) > MAX_URL_LENGTH:
        return f"must be at most {MAX_URL_LENGTH} characters"
    if _PRINTABLE_ASCII.fullmatch(url) is None:
        return "must be printable ASCII without spaces; write other letters of a host name as xn--…, and the rest as %XX"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not a valid URL"
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        return "must be an http or https URL, such as https://example.org/hooks"
    if "@" in parts.netloc:
        return "must not contain a user name or a password; verify signatures instead"
    if not _is_host(host):
        return "must have a host name, or an address written as 192.0.2.1 or [2001:db8::1]"
    if "#" in url:
        return "must not have a fragment, which would not be sent"
    return None


def _is_host(host: str) -> bool:
    """
    Return whether *host* is unambiguous.

    Programs interpret `0177.0.0.1`, `127.1` or `2130706433` differently: as a name or as an address.
    """
    try:
        ip_address(host)
    except ValueError:
        name = host.removesuffix(".")
        is_numeric = _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]) is not None
        return len(name) <= _MAX_HOST_LENGTH and _HOST_NAME.fullmatch(name) is not None and not is_numeric
    return "%" not in host


def _find_event_errors(events: Sequence[str], catalogue: EventCatalogue) -> list[str]:
    if not events:
        return ["must name at least one event; * means all except tool.called and webhook.test"]
    if len(events) > MAX_EVENTS:
        return [f"must have at most {MAX_EVENTS} entries"]
    return [error for pattern in dict.fromkeys(events) if (error := catalogue.find_pattern_error(pattern)) is not None]
