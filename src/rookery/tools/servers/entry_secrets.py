"""Rules for secrets in server entries: where they may be and where they are sent. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qsl, urlsplit

from rookery.tools.models import JsonObject
from rookery.tools.servers.entries import VARIABLE_PATTERN

_SECRET_NAME = re.compile(
    r"authorization|cookie|token([-_]|$)|secret|passw|credential|(^|[-_])(api)?[-_]?key$|^apikey$|^auth$", re.IGNORECASE
)


def get_secret_destination(entry: JsonObject, secrets: Mapping[str, str]) -> object:
    """Return what determines where an entry's secrets are sent: for a URL its scheme and host, for a command its whole invocation."""
    url = entry.get("url")
    if not isinstance(url, str):
        return [entry.get(name) for name in ("command", "args", "env", "cwd")]
    filled_url = VARIABLE_PATTERN.sub(lambda match: secrets.get(match[1], match[0]), url)
    try:
        parts = urlsplit(filled_url)
    except ValueError:  # not a URL
        return filled_url
    return parts.scheme, parts.netloc.lower()


def find_plaintext_secrets(entry: JsonObject) -> list[str]:
    """Return the names of fields that contain a plaintext secret. It would be visible to everyone who may read the entry."""
    names: list[str] = []
    for field in ("headers", "env"):
        values = cast("dict[str, str]", entry.get(field) or {})
        names += [f"{field}.{name}" for name, value in values.items() if _is_plaintext_secret(name, value)]
    auth = entry.get("auth")
    if isinstance(auth, dict) and _is_plaintext_secret("client_secret", cast("dict[str, object]", auth).get("client_secret")):
        names.append("auth.client_secret")
    url = entry.get("url")
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
        except ValueError:  # reported with the other faults of the entry
            return names
        parameters = parse_qsl(parts.query)
        if _is_plaintext_secret("password", parts.netloc.rpartition("@")[0]) or any(
            _is_plaintext_secret(name, value) for name, value in parameters
        ):
            names.append("url")
    return names


def find_exposed_secrets(entry: JsonObject) -> dict[str, str]:
    """Return the fields that must not contain a secret, with the reason. Their values are visible to others."""
    auth = entry.get("auth")
    fields = cast("dict[str, object]", auth) if isinstance(auth, dict) else {}
    visible_fields = {name: fields.get(name) for name in ("client_id", "resource")}
    return {
        f"auth.{name}": "is visible in the login URL: write the value itself, without ${NAME}"
        for name, value in visible_fields.items()
        if isinstance(value, str) and VARIABLE_PATTERN.search(value) is not None
    }


def is_secret_name(name: str) -> bool:
    """Return whether a header, variable or option of this name has a secret as its value."""
    return _SECRET_NAME.search(name) is not None


def _is_plaintext_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and is_secret_name(name) and VARIABLE_PATTERN.search(value) is None
