"""What both kinds of key have in common: to be looked up, listed, changed, suspended and deleted by their workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rookery.access.models import Entry, Key, KeyKind
from rookery.access.store import keys as store
from rookery.access.usage import Usage
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound

Note = Callable[[Tx, Key | None, Key | None], None]
"""Told of a change inside its transaction: the key before (None: made) and after (None: deleted)."""


def unnoted(_tx: Tx, _before: Key | None, _after: Key | None) -> None:
    """Take no notice."""


class Keyring:
    """The keys of one kind; every method is bound to a workspace and knows no other's."""

    kind: KeyKind

    def __init__(self, db: Database, usage: Usage, clock: Clock, *, note: Note = unnoted) -> None:
        self._db = db
        self._usage = usage
        self._clock = clock
        self._note = note

    async def get(self, workspace_id: int, key_id: str) -> Entry:
        """
        Return a key with its use, calls of this moment included.

        Raises:
            NotFound: There is none, or it is another workspace's.
        """
        await self._usage.flush()
        at = to_micros(self._clock())
        found = await self._db.read(lambda tx: store.find_key(tx, self.kind, workspace_id, key_id, at=at))
        if found is None:
            raise self._not_found(key_id)
        return found

    async def page(self, workspace_id: int, *, limit: int, offset: int = 0) -> tuple[list[Entry], int]:
        """Return keys with their use, newest first, and how many there are in all."""
        await self._usage.flush()
        at = to_micros(self._clock())
        return await self._db.read(lambda tx: store.page_of_keys(tx, self.kind, workspace_id, at=at, limit=limit, offset=offset))

    async def change(self, workspace_id: int, key_id: str, how: Callable[[Key], Key]) -> Key:
        """
        Change a key's settings and return it; it acts on the very next request of every process.

        Args:
            workspace_id: The owner.
            key_id: Which.
            how: Given the key as it is, locked, returns it as it is to be; what it raises leaves all as it was.

        Raises:
            NotFound: There is none, or it is another workspace's.
        """
        at = to_micros(self._clock())

        def work(tx: Tx) -> Key:
            before = self._locked(tx, workspace_id, key_id, at)
            after = how(before)
            if after != before:
                store.change_key(tx, after)
                self._note(tx, before, after)
            return after

        return await self._db.write(work)

    async def suspend(self, workspace_id: int, key_id: str) -> Key:
        """Let the key open nothing until it is resumed (D-21); twice does no harm."""
        now = self._clock()
        return await self.change(workspace_id, key_id, lambda key: replace(key, suspended_at=key.suspended_at or now))

    async def resume(self, workspace_id: int, key_id: str) -> Key:
        """End a suspension; a revocation stays."""
        return await self.change(workspace_id, key_id, lambda key: replace(key, suspended_at=None))

    async def delete(self, workspace_id: int, key_id: str) -> None:
        """
        Delete a key for good; its usage log stays until it is forgotten.

        Raises:
            NotFound: There is none, or it is another workspace's.
        """
        at = to_micros(self._clock())

        def work(tx: Tx) -> None:
            before = self._locked(tx, workspace_id, key_id, at)
            store.delete_key(tx, self.kind, workspace_id, key_id)
            self._note(tx, before, None)

        await self._db.write(work)

    def _locked(self, tx: Tx, workspace_id: int, key_id: str, at: int) -> Key:
        found = store.find_key(tx, self.kind, workspace_id, key_id, at=at, lock=True)
        if found is None:
            raise self._not_found(key_id)
        return found.key

    def _not_found(self, key_id: str) -> NotFound:
        return NotFound(f"{self.kind} key", key_id[:64])
