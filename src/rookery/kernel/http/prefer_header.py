"""The `Prefer` header (RFC 7240): what a caller would like, which a server may pass over."""

from __future__ import annotations

from collections.abc import Iterable

PREFER_HEADER, PREFERENCE_APPLIED_HEADER = "prefer", "Preference-Applied"


def find_preference(headers: Iterable[str], name: str) -> str | None:
    """
    Return the value of the first preference *name*; empty if it has none, None if it is not there.

    Args:
        headers: The values of every `Prefer` header of a request.
        name: The preference, in lower case.
    """
    for token in ",".join(headers).split(","):
        found, _, value = token.partition(";")[0].partition("=")
        if found.strip().lower() == name:
            return value.strip().strip('"')
    return None
