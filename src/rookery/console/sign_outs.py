"""The sign-outs of the last hours, in the record store, so that every process refuses a copy of a cookie."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from rookery.console import store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

LIFETIME_S = 12 * 3600
"""The lifetime of a session cookie. A sign-out is stored for as long."""


class SignOuts:
    """The sign-ins that have ended, by their ids."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add(self, sign_in_id: str) -> None:
        """
        Store that a sign-in has ended, and delete those whose cookies have expired.

        Raises:
            EngineUnavailable: The record store is down.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            store.delete_expired(tx, now=now)
            store.insert_sign_out(tx, sign_in_id, expires_at=now + timedelta(seconds=LIFETIME_S))

        await self._db.write(write)

    async def list_ended(self, sign_in_ids: Collection[str]) -> frozenset[str]:
        """
        Return those of *sign_in_ids* that have ended.

        Raises:
            EngineUnavailable: The record store is down.
        """
        return await self._db.lookup(lambda tx: store.list_ended(tx, sign_in_ids))
