"""What of an entry is secret, and where its secrets go. Pure."""

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
    """Return what decides where the secrets of *entry* go: of an address its host, of a command all that it is started with."""
    url = entry.get("url")
    if not isinstance(url, str):
        return [entry.get(name) for name in ("command", "args", "env", "cwd")]
    filled = VARIABLE_PATTERN.sub(lambda found: secrets.get(found[1], found[0]), url)
    try:
        parts = urlsplit(filled)
    except ValueError:  # no address at all
        return filled
    return parts.scheme, parts.netloc.lower()


def find_plaintext_secrets(entry: JsonObject) -> list[str]:
    """Return the fields that hold a secret as it is, by what they are called: it would be shown to whoever may read the entry."""
    found: list[str] = []
    for field in ("headers", "env"):
        values = cast("dict[str, str]", entry.get(field) or {})
        found += [f"{field}.{name}" for name, value in values.items() if _is_plaintext_secret(name, value)]
    auth = entry.get("auth")
    if isinstance(auth, dict) and _is_plaintext_secret("client_secret", cast("dict[str, object]", auth).get("client_secret")):
        found.append("auth.client_secret")
    url = entry.get("url")
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
        except ValueError:  # told with its other faults
            return found
        named = parse_qsl(parts.query)
        if _is_plaintext_secret("password", parts.netloc.rpartition("@")[0]) or any(
            _is_plaintext_secret(name, value) for name, value in named
        ):
            found.append("url")
    return found


def find_exposed_secrets(entry: JsonObject) -> dict[str, str]:
    """Return the fields where no secret may be filled in, and why: they are told to whoever asks, so it would be read out."""
    auth = entry.get("auth")
    client_id = cast("dict[str, object]", auth).get("client_id") if isinstance(auth, dict) else None
    if isinstance(client_id, str) and VARIABLE_PATTERN.search(client_id) is not None:
        return {"auth.client_id": "is in the address where somebody logs in, for all to see: write it as it is, without ${NAME}"}
    return {}


def _is_plaintext_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and _SECRET_NAME.search(name) is not None and VARIABLE_PATTERN.search(value) is None
