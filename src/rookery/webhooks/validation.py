"""What may be asked of an endpoint: its fields, checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.secret import Secret
from rookery.webhooks.event_types import find_pattern_error
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


def validate_endpoint(asked: _EndpointInput) -> _EndpointInput:
    """
    Return what is asked with its events in their one form: each once, in the order given.

    Raises:
        ValidationFailed: With all that is wrong at once.
    """
    wrong: dict[str, list[str]] = {}

    def say(field: str, why: str | None) -> None:
        if why is not None:
            wrong.setdefault(field, []).append(why)

    if asked.url is not None:
        say("url", find_url_error(asked.url))
    if asked.events is not None:
        for why in _find_event_errors(asked.events):
            say("events", why)
    if asked.description is not None and (len(asked.description) > MAX_DESCRIPTION_LENGTH or "\x00" in asked.description):
        say("description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters, none of them NUL")
    if asked.concurrency is not None and not 1 <= asked.concurrency <= MAX_CONCURRENCY:
        say("concurrency", f"must be 1 to {MAX_CONCURRENCY}")
    if isinstance(asked, NewEndpoint) and asked.secret is not None and _VALID_SECRET.fullmatch(asked.secret.reveal()) is None:
        say("secret", _INVALID_SECRET_MESSAGE)
    if wrong:
        raise ValidationFailed(wrong)
    return asked if asked.events is None else replace(asked, events=tuple(dict.fromkeys(asked.events)))


def validate_secret(secret: Secret) -> Secret:
    """Return *secret*, or raise ValidationFailed."""
    if _VALID_SECRET.fullmatch(secret.reveal()) is None:
        raise ValidationFailed({"secret": [_INVALID_SECRET_MESSAGE]})
    return secret


def validate_grace_hours(hours: int) -> None:
    """Do nothing if *hours* is a grace period, or raise ValidationFailed."""
    if not 0 <= hours <= MAX_GRACE_HOURS:
        raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}"]})


def find_url_error(url: str) -> str | None:
    """Return what is wrong with an address, whoever may be there; None: nothing."""
    if len(url) > MAX_URL_LENGTH:
        return f"must be at most {MAX_URL_LENGTH} characters"
    if _PRINTABLE_ASCII.fullmatch(url) is None:
        return "must be written in printable ASCII without spaces; a host name in other letters as xn--…, the rest as %XX"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is no address that can be read"
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        return "must be an http or https address, such as https://example.org/hooks"
    if "@" in parts.netloc:
        return "must not have a user name or a password: deliveries are signed"
    if not _is_host(host):
        return "must have a host that is a name, or an address written as 192.0.2.1 or [2001:db8::1]"
    if "#" in url:
        return "must not have a fragment: it would not be sent"
    return None


def _is_host(host: str) -> bool:
    """
    Tell whether *host* means one thing to everybody who reads it.

    Programs do not agree on `0177.0.0.1`, `127.1` or `2130706433`: what one reads as a name another reads as an address.
    """
    try:
        ip_address(host)
    except ValueError:
        name = host.removesuffix(".")
        is_numeric = _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]) is not None
        return len(name) <= _MAX_HOST_LENGTH and _HOST_NAME.fullmatch(name) is not None and not is_numeric
    return "%" not in host


def _find_event_errors(events: Sequence[str]) -> list[str]:
    if not events:
        return ["must name at least one event; * means all but those that must be named"]
    if len(events) > MAX_EVENTS:
        return [f"must be at most {MAX_EVENTS}"]
    return [why for each in dict.fromkeys(events) if (why := find_pattern_error(each)) is not None]
