"""
Conditional writes: a write with ETags in If-Match is rejected if the resource has another version.

The HTTP layer parses the header with `parse_if_match` and passes the result on. The domain function calls `require_match` inside the
transaction that holds the resource, so that nothing changes between the check and the write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from hashlib import blake2b

import orjson

from rookery.kernel.errors import RookeryError

ExpectedETags = Collection[str] | None
"""The ETags that a request accepts; None: any version."""

_TAG = re.compile(r'(?:W/)?"[^"]*"|[^\s,]+')
"""One entry of a list of ETags. An unquoted entry is not an ETag and matches none."""


class PreconditionFailed(RookeryError):
    """`If-Match` is not the current version, or the path has no version."""

    status, code = 412, "precondition_failed"
    fields = "`etag`: the current version, or null"

    def __init__(self, kind: str, etag: str) -> None:
        super().__init__(
            f"This {kind} has changed: its version is {etag} now, which If-Match does not contain. Read it again, then repeat the change.",
            etag=etag,
        )


class NotVersioned(PreconditionFailed):
    """If-Match was sent to a path without a version, such as a collection."""

    def __init__(self, path: str) -> None:
        RookeryError.__init__(self, f"{path} has no version, so If-Match cannot match. Remove the header.", etag=None)


def format_etag(version: int | str) -> str:
    """Return the strong ETag of a version."""
    return f'"{version}"'


def compute_version(*fields: object) -> str:
    """
    Return a version for a resource without a counter: a digest of *fields*, JSON values whose changes matter.

    Leave out values that change without a write, such as times of last use. Leave out texts that must not outlive the resource,
    because callers store ETags.
    """
    return blake2b(orjson.dumps(fields), digest_size=12).hexdigest()


def parse_if_match(headers: Sequence[str]) -> ExpectedETags:
    """Return the ETags in the values of If-Match; None if there is no such header, or if it is `*`."""
    tags = [tag for value in headers for tag in _TAG.findall(value)]
    return None if not headers or "*" in tags else tags


def require_match(kind: str, version: int | str, expected: ExpectedETags) -> None:
    """
    Check that *expected* contains the version.

    Raises:
        PreconditionFailed: It contains only other versions.
    """
    if expected is not None and format_etag(version) not in expected:
        raise PreconditionFailed(kind, format_etag(version))
