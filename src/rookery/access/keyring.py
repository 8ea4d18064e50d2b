"""What both kinds of key have in common: looked up, listed, changed, suspended, rotated, deleted, pruned; each change noted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access import shown
from rookery.access.acting import acting_key
from rookery.access.audit import Audit, Subject
from rookery.access.authority import must_hold, sees
from rookery.access.errors import KeyInGrace
from rookery.access.models import SYSTEM, Actor, Entry, Environment, Key, KeyKind, KeyStatus, Minted, Use
from rookery.access.settings import Changes, Kept
from rookery.access.store import keys as store
from rookery.access.usage import Usage
from rookery.kernel.clock import Clock, iso, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import Bus, KeyChanged
from rookery.kernel.ids import uuid7
from rookery.kernel.preconditions import Expected, require_match
from rookery.kernel.secret import Secret

DEFAULT_GRACE_HOURS = 24
MAX_GRACE_HOURS = 720

_BATCH = 1_000
_NEWEST = "z"
"""Sorts after every id, in any collation."""

_NOT_NOTED = frozenset({"call_count", "last_used_at", "last_used_ip", "status"})
"""Fields that no change of settings changes by itself."""

_ANNOUNCED = {"created": "key.created", "rotated": "key.rotated", "revoked": "key.revoked", "deleted": "key.revoked"}
"""Which changes are told to the outside (D-80), by what the audit log calls them."""

_BY_TIME = frozenset({"ended", "pruned"})
"""What happens to keys that came to their end by time: past their grace, or expired, which was told when it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coined:
    """A new plaintext with what is stored of it."""

    plaintext: Secret
    lookup: str
    key_hash: str | None
    hint: str

    @property
    def digest(self) -> str:
        """The part of it that is stored."""
        return self.key_hash or self.lookup


class Keyring(ABC):
    """The keys of one kind; every method is bound to a workspace and knows no other's."""

    kind: KeyKind

    def __init__(self, db: Database, usage: Usage, audit: Audit, clock: Clock, *, bus: Bus | None = None) -> None:
        self._db = db
        self._usage = usage
        self._audit = audit
        self._clock = clock
        self._bus = bus or Bus()

    async def get(self, workspace_id: int, key_id: str, *, environment: Environment | None = None) -> Entry:
        """
        Return a key with its use, calls of this moment included.

        Raises:
            NotFound: There is none, or it is another workspace's, or of another *environment* than the one asked for.
        """
        await self._usage.flush()
        at = to_micros(self._clock())
        found = await self._db.read(lambda tx: store.find_key(tx, self.kind, workspace_id, key_id, at=at))
        if found is None or environment not in {None, found.key.environment}:
            raise self._not_found(key_id)
        return found

    async def page(
        self,
        workspace_id: int,
        *,
        limit: int,
        offset: int = 0,
        environment: Environment | None = None,
        status: KeyStatus | None = None,
    ) -> tuple[list[Entry], int]:
        """Return keys with their use, newest first, and the number of all; *environment* and *status* None: of any."""
        await self._usage.flush()
        at = to_micros(self._clock())
        return await self._db.read(
            lambda tx: store.page_of_keys(
                tx, self.kind, workspace_id, at=at, environment=environment, status=status, limit=limit, offset=offset
            )
        )

    async def entries(self, workspace_id: int, *, environment: Environment | None = None) -> AsyncGenerator[Entry]:
        """Yield all keys with their use, newest first, in batches: 100,000 need no more memory than a thousand."""
        await self._usage.flush()
        at, before = to_micros(self._clock()), _NEWEST
        while found := await self._db.read(self._batch(workspace_id, at, environment, before)):
            for entry in found:
                yield entry
            before = found[-1].key.id

    async def expiring(self, *, within: timedelta, limit: int) -> list[Entry]:
        """Return active keys of all workspaces that expire soon, the first to expire first; for operators."""
        now = self._clock()
        at, by = to_micros(now), to_micros(now + within)
        return await self._db.read(lambda tx: store.expiring(tx, self.kind, at=at, by=by, limit=limit))

    async def idle(self, grant: str, *, unused_for: timedelta, limit: int) -> list[Entry]:
        """Return active keys of all workspaces that have *grant*, as it is written, and were not used so long; for operators."""
        now = self._clock()
        at, since = to_micros(now), to_micros(now - unused_for)
        return await self._db.read(lambda tx: store.idle(tx, self.kind, grant, at=at, since=since, limit=limit))

    async def alter(
        self, workspace_id: int, key_id: str, changes: Changes, *, by: Actor, action: str = "changed", expected: Expected = None
    ) -> Key:
        """
        Change a key's settings; raises as `change` does, and ValidationFailed.

        Args:
            workspace_id: The owner.
            key_id: Which.
            changes: To what.
            by: Who does it.
            action: What to call it in the audit log.
            expected: The ETags of If-Match; None: any version.

        Raises:
            Conflict: A new expiry is given to a key that was revoked: it stays revoked (D-21).
        """
        now = self._clock()

        def how(key: Key) -> Key:
            if not isinstance(changes.expires_at, Kept):
                _require_not_revoked(key)
            return changes.applied(key, now, platform=by.kind == "operator")

        return await self.change(workspace_id, key_id, how, by=by, action=action, expected=expected)

    async def change(
        self, workspace_id: int, key_id: str, how: Callable[[Key], Key], *, by: Actor, action: str, expected: Expected = None
    ) -> Key:
        """
        Change a key's settings and return it; it acts on the very next request of every process.

        Args:
            workspace_id: The owner.
            key_id: Which.
            how: Given the key as it is, locked, returns it as it is to be; what it raises leaves all as it was.
            by: Who does it; a key must hold all that the changed one has, before and after (D-24).
            action: What to call it in the audit log, after the kind: `changed`, `suspended`…
            expected: The ETags of If-Match; None: any version.

        Raises:
            PreconditionFailed: The key has another version than *expected*.
            NotFound: There is none, or it is another workspace's, or not to be seen by *by*.
            ScopeMissing, PermissionDenied, NotHeld: It is more than *by* has.
        """
        now = self._clock()

        def work(tx: Tx) -> Key:
            holder, found = self._at_hand(tx, workspace_id, key_id, by, now)
            before = found.key
            if holder is not None:
                must_hold(holder, before)
            require_match("key", found.version, expected)
            after = how(before)
            if after != before:
                if holder is not None:
                    must_hold(holder, after)
                store.change_key(tx, after)
                self._note(tx, by, action, before, after)
            return after

        return await self._db.write(work)

    async def suspend(self, workspace_id: int, key_id: str, *, by: Actor, expected: Expected = None) -> Key:
        """
        Suspend the key until it is resumed (D-21). Suspending it again changes nothing. Raises as `change` does.

        Raises:
            Conflict: The key was revoked: it could never be resumed.
        """
        now = self._clock()

        def how(key: Key) -> Key:
            _require_not_revoked(key)
            return replace(key, suspended_at=key.suspended_at or now)

        return await self.change(workspace_id, key_id, how, by=by, action="suspended", expected=expected)

    async def resume(self, workspace_id: int, key_id: str, *, by: Actor, expected: Expected = None) -> Key:
        """
        End a suspension. Raises as `change` does.

        Raises:
            Conflict: The key was revoked, which cannot be undone.
        """

        def how(key: Key) -> Key:
            _require_not_revoked(key)
            return replace(key, suspended_at=None)

        return await self.change(workspace_id, key_id, how, by=by, action="resumed", expected=expected)

    async def rotate(
        self, workspace_id: int, key_id: str, *, by: Actor, grace_hours: int = DEFAULT_GRACE_HOURS, expected: Expected = None
    ) -> Minted:
        """
        Make a successor with every setting of the key, which itself ends after its grace period (D-26).

        Args:
            workspace_id: The owner.
            key_id: Which.
            by: Who does it; a key must hold all that this one has.
            grace_hours: 0 to 720; both keys work for so long.
            expected: The ETags of If-Match; None: any version.

        Raises:
            PreconditionFailed: The key has another version than *expected*.
            KeyInGrace: It was rotated already.
            Conflict: It has expired or was revoked, and its successor would be born so.
            NotFound: There is none, or it is another workspace's.
        """
        if not 0 <= grace_hours <= MAX_GRACE_HOURS:
            raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}"]})
        # Asked before too: what is refused is not worth a run of bcrypt.
        known = await self._db.read(lambda tx: self._rotatable(tx, workspace_id, key_id, by, self._clock(), expected=expected, lock=False))
        coined = await self._coin(known.environment)
        now = self._clock()
        new_id = uuid7()

        def work(tx: Tx) -> Minted:
            old = self._rotatable(tx, workspace_id, key_id, by, now, expected=expected, lock=True)
            new = replace(old, id=new_id, hint=coined.hint, created_at=now, delete_after=None)
            ending = replace(old, delete_after=now + timedelta(hours=grace_hours))
            store.add_key(tx, new, lookup=coined.lookup, key_hash=coined.key_hash)
            store.change_key(tx, ending)
            self._note(tx, by, "rotated", old, ending)
            self._note(tx, by, "created", None, new)
            return Minted(key=new, plaintext=coined.plaintext, digest=coined.digest)

        return await self._db.write(work)

    async def delete(self, workspace_id: int, key_id: str, *, by: Actor, expected: Expected = None) -> None:
        """
        Delete a key for good; its usage log stays until it is forgotten.

        Raises:
            NotFound: There is none, or it is another workspace's, or not to be seen by *by*.
            PreconditionFailed: The key has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> None:
            _, found = self._at_hand(tx, workspace_id, key_id, by, now)
            require_match("key", found.version, expected)
            store.delete_key(tx, found.key, at=to_micros(now))
            self._note(tx, by, "deleted", found.key, None, use=found.use)

        await self._db.write(work)

    async def prune(
        self, *, by: Actor, workspace_id: int | None = None, expired_for: timedelta = timedelta(), dry_run: bool = False
    ) -> list[Entry]:
        """
        Delete expired keys and those past their grace, and return them (spec 3.3).

        Args:
            by: Who does it.
            workspace_id: Only that workspace's; None: all.
            expired_for: Only those that expired so long ago.
            dry_run: Only return them.
        """
        now = self._clock()
        at, expired_at = to_micros(now), to_micros(now - expired_for)

        def work(tx: Tx) -> list[Entry]:
            found = store.prunable(tx, self.kind, at=at, expired_at=expired_at, workspace_id=workspace_id, lock=not dry_run)
            if not dry_run:
                self._tell_expired(tx, now)
                self._delete_all(tx, found, by, "pruned", at)
            return found

        return await (self._db.read(work) if dry_run else self._db.write(work))

    async def sweep(self) -> int:
        """Delete the keys whose grace period is over, of all workspaces; return how many. For a timer: they are refused anyway."""
        now = self._clock()
        at = to_micros(now)

        def work(tx: Tx) -> int:
            self._tell_expired(tx, now)
            found = store.past_grace(tx, self.kind, at=at, lock=True)
            self._delete_all(tx, found, SYSTEM, "ended", at)
            return len(found)

        due = await self._db.read(lambda tx: bool(store.past_grace(tx, self.kind, at=at, lock=False)))
        return await self._db.write(work) if due else 0

    async def tell_expired(self) -> int:
        """Announce the keys, of all workspaces, whose expiry came since this was done last, each once; return how many. For a timer."""
        now = self._clock()
        due = await self._db.read(lambda tx: bool(store.expired_untold(tx, self.kind, at=to_micros(now), lock=False)))
        return await self._db.write(lambda tx: self._tell_expired(tx, now)) if due else 0

    def _batch(self, workspace_id: int, at: int, environment: Environment | None, before: str) -> Callable[[Tx], list[Entry]]:
        return lambda tx: store.keys_before(tx, self.kind, workspace_id, at=at, environment=environment, before=before, limit=_BATCH)

    @abstractmethod
    async def _coin(self, environment: Environment) -> Coined:
        """Return a new plaintext of this kind, with what is stored of it."""

    def _delete_all(self, tx: Tx, found: list[Entry], by: Actor, action: str, at: int) -> None:
        """Delete keys of several workspaces: all keys first, then the chains, each in one order, so that nobody waits in a circle."""
        gone = [entry for entry in sorted(found, key=lambda each: each.key.id) if store.delete_key(tx, entry.key, at=at)]
        for entry in sorted(gone, key=lambda each: each.key.workspace_id):
            self._note(tx, by, action, entry.key, None, use=entry.use)

    def _tell_expired(self, tx: Tx, now: datetime) -> int:
        """Announce the keys whose expiry came, as they are now: what prunes them may follow in this transaction."""
        found = store.expired_untold(tx, self.kind, at=to_micros(now), lock=True)
        store.note_told(tx, [entry.key.id for entry in found])
        ended = [entry for entry in found if entry.key.revoked_at is None]
        for entry in ended:
            self._announce(tx, "key.expired", entry.key, entry.use, now, is_last=True)
        return len(ended)

    def _announce(self, tx: Tx, name: str, key: Key, use: Use, now: datetime, *, is_last: bool = False) -> None:
        """Tell the outside of a key; *is_last*: with what is shown of it now, as it may be gone by the end of the transaction."""
        last = shown.key(key, use, now, with_addresses=False) if is_last else None
        self._bus.announce(
            tx,
            KeyChanged(name=name, workspace_id=key.workspace_id, acts_in=key.acts_in, kind=key.kind, key_id=key.id, at=now, last=last),
        )

    def _at_hand(self, tx: Tx, workspace_id: int, key_id: str, by: Actor, now: datetime, *, lock: bool = True) -> tuple[Key | None, Entry]:
        """
        Return who acts, as `acting_key` does, and the key with its use.

        The key is locked first: who changes itself is judged as it is under the lock, not as it was before another's change.
        """
        found = store.find_key(tx, self.kind, workspace_id, key_id, at=to_micros(now), lock=lock)
        holder = acting_key(tx, by, now, lock=lock)
        if found is None or (holder is not None and not sees(holder, found.key)):
            raise self._not_found(key_id)
        return holder, found

    def _rotatable(self, tx: Tx, workspace_id: int, key_id: str, by: Actor, now: datetime, *, expected: Expected, lock: bool) -> Key:
        """Return a key that may be rotated, and by whom it is; raises as `rotate` does."""
        holder, found = self._at_hand(tx, workspace_id, key_id, by, now, lock=lock)
        key = found.key
        if holder is not None:
            must_hold(holder, key)
        require_match("key", found.version, expected)
        _must_be_rotatable(key, now)
        return key

    def _note(self, tx: Tx, by: Actor, action: str, before: Key | None, after: Key | None, *, use: Use | None = None) -> None:
        """Tell the audit log, and the outside if it is to know; *use*: of a key that is gone."""
        note_key(tx, self._audit, by, action, before=before, after=after)
        now, key, name = self._clock(), after or before, _ANNOUNCED.get(action)
        if key is None:
            return
        if action in _BY_TIME and (key.expires_at is None or key.expires_at > now):
            name = "key.expired"
        if name is not None:
            self._announce(tx, name, key, use or Use(), now, is_last=after is None)

    def _not_found(self, key_id: str) -> NotFound:
        return NotFound(f"{self.kind} key", key_id[:64])


def note_key(tx: Tx, audit: Audit, by: Actor, action: str, *, before: Key | None, after: Key | None) -> None:
    """Tell the audit log of a key made (*before* None), changed, or deleted (*after* None), in its workspace's chain."""
    key = after or before
    if key is None:
        return
    subject = Subject(kind=f"{key.kind}_key", id=key.id, name=key.name, environment=key.environment)
    was, now_is = (None if each is None else _settings(each) for each in (before, after))
    audit.note(tx, by, key.workspace_id, f"{key.kind}_key.{action}", subject, before=was, after=now_is)


def _settings(key: Key) -> shown.Fields:
    """Return what is noted of a key: its settings, not its use."""
    fields = shown.api_key(key, Use(), key.created_at) if key.kind == "api" else shown.agent_key(key, Use(), key.created_at)
    return {name: value for name, value in fields.items() if name not in _NOT_NOTED}


def _require_not_revoked(key: Key) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"The key {key.name!r} was revoked on {iso(key.revoked_at)}, and stays revoked; make a new one.")


def _must_be_rotatable(key: Key, now: datetime) -> None:
    if key.delete_after is not None:
        raise KeyInGrace
    _require_not_revoked(key)
    if key.expires_at is not None and key.expires_at <= now:
        msg = "This key has expired; make a new one, or extend it first."
        raise Conflict(msg)
