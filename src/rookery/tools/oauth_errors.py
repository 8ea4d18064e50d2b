"""Errors of authorisation servers: their text, and advice if the resource indicator is the likely cause (RFC 6749, RFC 8707)."""

from __future__ import annotations

import re

from rookery.kernel.control_characters import escape_control_characters

_MAX_QUOTED_CHARS = 300
_RESOURCE_ERROR = "invalid_target"
"""The error code for a resource that is not accepted (RFC 8707, section 2)."""

_OTHER_ERRORS = frozenset({"access_denied", "server_error", "temporarily_unavailable"})
"""Errors whose cause is another, even if the text has the word "resource"."""

_RESOURCE_WORD = re.compile(r"\bresources?\b(?!\s+owner)", re.IGNORECASE)


def describe_oauth_error(code: object, description: object, *, default: str) -> str:
    """Return the fields `error` and `error_description` of an authorisation server in one line; *default* if both are missing."""
    return ": ".join(part[:_MAX_QUOTED_CHARS] for part in _list_parts(code, description)) or default


def add_resource_advice(reason: str, code: object, description: object, *, resource: str | None) -> str:
    """
    Return *reason*, with advice if the error concerns the resource.

    Args:
        resource: The resource that the request named; None: it named none.
    """
    if not _concerns_resource(code, " ".join(_list_parts(code, description)), resource):
        return reason
    return f"{reason.rstrip('.')}. {_advise_on_resource(resource)}"


def _list_parts(code: object, description: object) -> list[str]:
    parts = [escape_control_characters(" ".join(part.split())) for part in (code, description) if isinstance(part, str)]
    return [part for part in parts if part]


def _concerns_resource(code: object, text: str, resource: str | None) -> bool:
    if code == _RESOURCE_ERROR:
        return True
    if resource is not None and re.search(rf"{re.escape(resource.rstrip('/'))}/?(?![\w/-]|[.:]\w)", text) is not None:
        return True
    return code not in _OTHER_ERRORS and _RESOURCE_WORD.search(text) is not None


def _advise_on_resource(resource: str | None) -> str:
    if resource is None:
        return 'If it requires a resource, which Rookery did not send, set "resource" in `auth` of the entry.'
    return (
        f"If the cause is the resource {resource[:_MAX_QUOTED_CHARS]!r} that Rookery sends, change `auth` of the entry: "
        '"resource": null leaves it out, as Entra ID requires, and a text replaces it.'
    )
