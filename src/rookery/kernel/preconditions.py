"""
Conditional writes: a write that names ETags in If-Match is refused when the resource has another one (D-64).

An edge reads the header with `if_match` and passes the result on. The verb calls `require_match` inside the transaction that
holds the resource, so that nothing changes between the check and the write.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rookery.kernel.errors import RookeryError

Expected = Collection[str] | None
"""The ETags that a request accepts; None: any."""


class PreconditionFailed(RookeryError):
    """If-Match names another version than the stored one: the resource changed since the caller read it."""

    status, code = 412, "precondition_failed"

    def __init__(self, kind: str, etag: str) -> None:
        super().__init__(
            f"This {kind} does not have the version that If-Match names: it is {etag} now. Read it again, then repeat the change.",
            etag=etag,
        )


class NoVersion(PreconditionFailed):
    """If-Match was sent to an address that has no version, such as a collection."""

    def __init__(self, path: str) -> None:
        RookeryError.__init__(self, f"{path} has no version, so no If-Match can be true; leave the header out.", etag=None)


def etag(version: int | str) -> str:
    """Return the strong ETag of a version."""
    return f'"{version}"'


def if_match(headers: Sequence[str]) -> Expected:
    """Return the ETags that the values of If-Match name; None where there is no such header, or it is `*`."""
    tags = [tag for value in headers for each in value.split(",") if (tag := each.strip())]
    return None if not headers or "*" in tags else tags


def require_match(kind: str, version: int | str, expected: Expected) -> None:
    """
    Do nothing if *expected* names the version.

    Raises:
        PreconditionFailed: It names other ones.
    """
    if expected is not None and etag(version) not in expected:
        raise PreconditionFailed(kind, etag(version))
