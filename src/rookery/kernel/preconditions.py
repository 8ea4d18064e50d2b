"""
Conditional writes: a write that names ETags in If-Match is refused when the resource has another one (D-64).

An edge reads the header with `parse_if_match` and passes the result on. The verb calls `require_match` inside the transaction that
holds the resource, so that nothing changes between the check and the write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from hashlib import blake2b

import orjson

from rookery.kernel.errors import RookeryError

ExpectedETags = Collection[str] | None
"""The ETags that a request accepts; None: any."""

_TAG = re.compile(r'(?:W/)?"[^"]*"|[^\s,]+')
"""One entry of a list of ETags. What is not quoted is no ETag, and equals none."""


class PreconditionFailed(RookeryError):
    """If-Match names another version than the stored one: the resource changed since the caller read it."""

    status, code = 412, "precondition_failed"

    def __init__(self, kind: str, etag: str) -> None:
        super().__init__(
            f"This {kind} does not have the version that If-Match names: it is {etag} now. Read it again, then repeat the change.",
            etag=etag,
        )


class NotVersioned(PreconditionFailed):
    """If-Match was sent to an address that has no version, such as a collection."""

    def __init__(self, path: str) -> None:
        RookeryError.__init__(self, f"{path} has no version, so no If-Match can be true; leave the header out.", etag=None)


def format_etag(version: int | str) -> str:
    """Return the strong ETag of a version."""
    return f'"{version}"'


def version_of(*fields: object) -> str:
    """
    Return a version of a resource that has no counter: a digest of *fields*, JSON values whose changes are to be noticed.

    Values that change without a write, such as times of last use, are left out, and so are texts that must be nowhere once the resource
    is deleted: callers keep ETags.
    """
    return blake2b(orjson.dumps(fields), digest_size=12).hexdigest()


def parse_if_match(headers: Sequence[str]) -> ExpectedETags:
    """Return the ETags that the values of If-Match name; None where there is no such header, or it is `*`."""
    tags = [tag for value in headers for tag in _TAG.findall(value)]
    return None if not headers or "*" in tags else tags


def require_match(kind: str, version: int | str, expected: ExpectedETags) -> None:
    """
    Do nothing if *expected* names the version.

    Raises:
        PreconditionFailed: It names other ones.
    """
    if expected is not None and format_etag(version) not in expected:
        raise PreconditionFailed(kind, format_etag(version))
