"""The `Prefer` header (RFC 7240): preferences of the client that a server may ignore."""

from __future__ import annotations

from collections.abc import Iterable

PREFER_HEADER, PREFERENCE_APPLIED_HEADER = "prefer", "Preference-Applied"


def find_preference(headers: Iterable[str], name: str) -> str | None:
    """
    Return the value of the first preference *name*: empty if it has no value, None if it is missing.

    Args:
        headers: The values of every `Prefer` header of a request.
        name: The preference, in lower case.
    """
    for token in ",".join(headers).split(","):
        preference, _, value = token.partition(";")[0].partition("=")
        if preference.strip().lower() == name:
            return value.strip().strip('"')
    return None
