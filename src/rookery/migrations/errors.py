"""The error of a migration."""

from __future__ import annotations

from rookery.kernel.errors import RookeryError


class MigrationFailed(RookeryError):
    """
    A migration of the record store failed, and its schema is unchanged: one line on standard error, exit code 1.

    Args:
        version: The revision of the schema. None: there are no tables.
        head: The newest revision.
    """

    code = "migration_failed"

    def __init__(self, version: str | None, head: str, reason: str) -> None:
        schema = f"of revision {version}" if version else "empty"
        super().__init__(
            f"The migration of the record store to revision {head} failed: {reason}. "
            f"Nothing was changed: the schema is still {schema}. Remove the cause, then run `rookery migrate`."
        )
