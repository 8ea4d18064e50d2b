"""The operations common to both kinds of key. Each change is recorded in the audit log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access import serializers
from rookery.access.acting_key import get_acting_key
from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.delegation import can_see, require_delegable
from rookery.access.errors import KeyInGrace
from rookery.access.events import KeyChanged
from rookery.access.key_fields import KeyChanges
from rookery.access.models import SYSTEM_ACTOR, Actor, Environment, Key, KeyKind, KeyStatus, KeyUsage, KeyWithSecret, KeyWithUsage
from rookery.access.store import keys as store
from rookery.access.usage_log import UsageLog
from rookery.kernel.clock import Clock, format_iso, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.secret import Secret
from rookery.kernel.unset import UNSET

DEFAULT_GRACE_HOURS = 24
MAX_GRACE_HOURS = 720

_UNAUDITED_FIELDS = frozenset({"call_count", "last_used_at", "last_used_ip", "status"})
"""Fields that no change of settings alters directly."""

_EVENT_BY_ACTION = {"created": "key.created", "rotated": "key.rotated", "revoked": "key.revoked", "deleted": "key.revoked"}
"""Events by action of the audit log."""

_EXPIRY_ACTIONS = frozenset({"ended", "pruned"})
"""Actions on keys whose time ended: past the grace period, or expired. The expiry event was sent when it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """A new plaintext, and the parts of it that are stored."""

    plaintext: Secret
    lookup: str
    key_hash: str | None
    hint: str

    @property
    def digest(self) -> str:
        """The stored form of the secret."""
        return self.key_hash or self.lookup


class Keyring(ABC):
    """The keys of one kind. Methods without a workspace_id cover all workspaces."""

    kind: KeyKind

    def __init__(self, db: Database, usage: UsageLog, audit: AuditLog, clock: Clock, *, bus: EventBus | None = None) -> None:
        self._db = db
        self._usage = usage
        self._audit = audit
        self._clock = clock
        self._bus = bus or EventBus()

    async def get(self, workspace_id: int, key_id: str, *, environment: Environment | None = None) -> KeyWithUsage:
        """
        Return a key with its usage, including calls not yet stored.

        Raises:
            NotFound: The workspace has no such key, or it belongs to another *environment* than the given one.
        """
        await self._usage.flush()
        at = to_micros(self._clock())
        entry = await self._db.read(lambda tx: store.find_key(tx, self.kind, workspace_id, key_id, at=at))
        if entry is None or environment not in {None, entry.key.environment}:
            raise self._not_found(key_id)
        return entry

    async def list_page(
        self,
        workspace_id: int,
        *,
        page: PageSlice,
        environment: Environment | None = None,
        status: KeyStatus | None = None,
        text: str = "",
    ) -> ListPage[KeyWithUsage]:
        """
        Return a page of keys with their usage, newest first, and the total; *environment* and *status* None: no filter.

        Args:
            text: A part of the name, in upper or lower case.
        """
        await self._usage.flush()
        at = to_micros(self._clock())
        return await self._db.read(
            lambda tx: store.list_key_page(tx, self.kind, workspace_id, at=at, environment=environment, status=status, text=text, page=page)
        )

    async def list_expiring(self, *, within: timedelta, limit: int) -> list[KeyWithUsage]:
        """Return active keys of all workspaces that expire within *within*, the first to expire first; for operators."""
        now = self._clock()
        at, by = to_micros(now), to_micros(now + within)
        return await self._db.read(lambda tx: store.list_expiring(tx, self.kind, at=at, expires_by=by, limit=limit))

    async def list_unused(self, grant: str, *, unused_for: timedelta, limit: int) -> list[KeyWithUsage]:
        """Return active keys of all workspaces with exactly *grant* that were not used for *unused_for*; for operators."""
        now = self._clock()
        at, since = to_micros(now), to_micros(now - unused_for)
        return await self._db.read(lambda tx: store.list_unused(tx, self.kind, grant, at=at, unused_since=since, limit=limit))

    async def update(
        self, workspace_id: int, key_id: str, changes: KeyChanges, *, by: Actor, action: str = "changed", expected: ExpectedETags = None
    ) -> Key:
        """
        Change a key's settings. Raises as `modify` does, and ValidationFailed.

        Args:
            workspace_id: The owner of the key.
            key_id: The key to change.
            changes: The new settings.
            by: The actor that makes the change.
            action: The action's name in the audit log.
            expected: The ETags of If-Match; None: any version.

        Raises:
            Conflict: The change sets an expiry, but the key was revoked and stays revoked.
        """
        now = self._clock()

        def apply(key: Key) -> Key:
            if changes.expires_at is not UNSET:
                _require_not_revoked(key)
            return changes.apply(key, now, allow_platform_scopes=by.kind == "operator")

        return await self.modify(workspace_id, key_id, apply, by=by, action=action, expected=expected)

    async def modify(
        self, workspace_id: int, key_id: str, change: Callable[[Key], Key], *, by: Actor, action: str, expected: ExpectedETags = None
    ) -> Key:
        """
        Change a key's settings and return the key. The change takes effect with the next request to any process.

        Args:
            workspace_id: The owner of the key.
            key_id: The key to change.
            change: Called with the current key, which is locked; returns the new one. An error it raises undoes everything.
            by: The actor. An acting key must have every right that the changed key has before and after the change.
            action: The action's name in the audit log, after the kind: `changed`, `suspended`, …
            expected: The ETags of If-Match; None: any version.

        Raises:
            PreconditionFailed: The key has another version than *expected*.
            NotFound: The workspace has no such key, or *by* may not see it.
            ScopeMissing, PermissionDenied, DelegationDenied: The key has more rights than *by*.
        """
        now = self._clock()

        def work(tx: Tx) -> Key:
            holder, entry = self._load_key(tx, workspace_id, key_id, by, now)
            before = entry.key
            if holder is not None:
                require_delegable(holder, before)
            require_match("key", entry.version, expected)
            after = change(before)
            if after != before:
                if holder is not None:
                    require_delegable(holder, after)
                store.update_key(tx, after)
                self._record_change(tx, by, action, before, after)
            return after

        return await self._db.write(work)

    async def suspend(self, workspace_id: int, key_id: str, *, by: Actor, expected: ExpectedETags = None) -> Key:
        """
        Suspend the key until it is resumed. Suspending it again changes nothing. Raises as `modify` does.

        Raises:
            Conflict: The key was revoked, so it could never be resumed.
        """
        now = self._clock()

        def suspend(key: Key) -> Key:
            _require_not_revoked(key)
            return replace(key, suspended_at=key.suspended_at or now)

        return await self.modify(workspace_id, key_id, suspend, by=by, action="suspended", expected=expected)

    async def resume(self, workspace_id: int, key_id: str, *, by: Actor, expected: ExpectedETags = None) -> Key:
        """
        Resume a suspended key. Raises as `modify` does.

        Raises:
            Conflict: The key was revoked, which cannot be undone.
        """

        def resume(key: Key) -> Key:
            _require_not_revoked(key)
            return replace(key, suspended_at=None)

        return await self.modify(workspace_id, key_id, resume, by=by, action="resumed", expected=expected)

    async def rotate(
        self, workspace_id: int, key_id: str, *, by: Actor, grace_hours: int = DEFAULT_GRACE_HOURS, expected: ExpectedETags = None
    ) -> KeyWithSecret:
        """
        Create a successor with the same settings. The old key ends after its grace period.

        Args:
            workspace_id: The owner of the key.
            key_id: The key to rotate.
            by: The actor. An acting key must have every right that this key has.
            grace_hours: 0 to 720; hours during which both keys work.
            expected: The ETags of If-Match; None: any version.

        Raises:
            PreconditionFailed: The key has another version than *expected*.
            KeyInGrace: The key was already rotated.
            Conflict: The key has expired or was revoked.
            NotFound: The workspace has no such key.
        """
        if not 0 <= grace_hours <= MAX_GRACE_HOURS:
            raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}, not {grace_hours}"]})
        # Check first, so that a rejected request costs no bcrypt run.
        current_key = await self._db.read(
            lambda tx: self._load_rotatable(tx, workspace_id, key_id, by, self._clock(), expected=expected, lock=False)
        )
        material = await self._generate_key(current_key.environment)
        now = self._clock()
        new_id = uuid7()

        def work(tx: Tx) -> KeyWithSecret:
            old = self._load_rotatable(tx, workspace_id, key_id, by, now, expected=expected, lock=True)
            new = replace(old, id=new_id, hint=material.hint, created_at=now, delete_after=None)
            ending = replace(old, delete_after=now + timedelta(hours=grace_hours))
            store.add_key(tx, new, lookup=material.lookup, key_hash=material.key_hash)
            store.update_key(tx, ending)
            self._record_change(tx, by, "rotated", old, ending)
            self._record_change(tx, by, "created", None, new)
            return KeyWithSecret(key=new, plaintext=material.plaintext, digest=material.digest)

        return await self._db.write(work)

    async def delete(self, workspace_id: int, key_id: str, *, by: Actor, expected: ExpectedETags = None) -> None:
        """
        Delete a key permanently. Its usage log stays until the retention period ends.

        Raises:
            NotFound: The workspace has no such key, or *by* may not see it.
            PreconditionFailed: The key has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> None:
            _, entry = self._load_key(tx, workspace_id, key_id, by, now)
            require_match("key", entry.version, expected)
            store.delete_key(tx, entry.key, at=to_micros(now))
            self._record_change(tx, by, "deleted", entry.key, None, usage=entry.usage)

        await self._db.write(work)

    async def prune(
        self, *, by: Actor, workspace_id: int | None = None, expired_for: timedelta = timedelta(), dry_run: bool = False
    ) -> list[KeyWithUsage]:
        """
        Delete expired keys and keys past their grace period, and return them.

        Args:
            by: The actor.
            workspace_id: Only keys of this workspace; None: of all.
            expired_for: Only keys that expired at least this long ago.
            dry_run: Return the keys without deleting them.
        """
        now = self._clock()
        at, expired_at = to_micros(now), to_micros(now - expired_for)

        def work(tx: Tx) -> list[KeyWithUsage]:
            entries = store.list_prunable(tx, self.kind, at=at, expired_at=expired_at, workspace_id=workspace_id, lock=not dry_run)
            if not dry_run:
                self._announce_expired(tx, now)
                self._delete_all(tx, entries, by, "pruned", at)
            return entries

        return await (self._db.read(work) if dry_run else self._db.write(work))

    async def delete_past_grace(self) -> int:
        """Delete the keys of all workspaces past their grace period; return the number. For a timer; the guard already rejects them."""
        now = self._clock()
        at = to_micros(now)

        def work(tx: Tx) -> int:
            self._announce_expired(tx, now)
            entries = store.list_past_grace(tx, self.kind, at=at, lock=True)
            self._delete_all(tx, entries, SYSTEM_ACTOR, "ended", at)
            return len(entries)

        due = await self._db.read(lambda tx: bool(store.list_past_grace(tx, self.kind, at=at, lock=False)))
        return await self._db.write(work) if due else 0

    async def announce_expired(self) -> int:
        """Announce keys of all workspaces that expired since the last call, each once; return the number. For a timer."""
        now = self._clock()
        due = await self._db.read(lambda tx: bool(store.list_expired_unannounced(tx, self.kind, at=to_micros(now), lock=False)))
        return await self._db.write(lambda tx: self._announce_expired(tx, now)) if due else 0

    @abstractmethod
    async def _generate_key(self, environment: Environment) -> KeyMaterial:
        """Return a new plaintext of this kind and its stored form. Subclasses implement it."""

    def _delete_all(self, tx: Tx, entries: list[KeyWithUsage], by: Actor, action: str, at: int) -> None:
        """Delete keys of several workspaces. Locks all keys, then the chains, each in one order, to prevent deadlocks."""
        deleted_entries = [entry for entry in sorted(entries, key=lambda entry: entry.key.id) if store.delete_key(tx, entry.key, at=at)]
        for entry in sorted(deleted_entries, key=lambda entry: entry.key.workspace_id):
            self._record_change(tx, by, action, entry.key, None, usage=entry.usage)

    def _announce_expired(self, tx: Tx, now: datetime) -> int:
        """Announce newly expired keys with a snapshot, since the same transaction may delete them."""
        entries = store.list_expired_unannounced(tx, self.kind, at=to_micros(now), lock=True)
        store.mark_expiry_announced(tx, [entry.key.id for entry in entries])
        expired_entries = [entry for entry in entries if entry.key.revoked_at is None]
        for entry in expired_entries:
            self._announce(tx, "key.expired", entry.key, entry.usage, now, with_snapshot=True)
        return len(expired_entries)

    def _announce(self, tx: Tx, name: str, key: Key, usage: KeyUsage, now: datetime, *, with_snapshot: bool = False) -> None:
        """Publish an event of a key; *with_snapshot*: include its current fields, in case the transaction deletes it."""
        last = serializers.serialize_key_fields(key, usage, now, with_addresses=False) if with_snapshot else None
        self._bus.publish_on_commit(
            tx,
            KeyChanged(
                name=name, workspace_id=key.workspace_id, tenant_id=key.tenant_id, kind=key.kind, key_id=key.id, at=now, last_snapshot=last
            ),
        )

    def _load_key(
        self, tx: Tx, workspace_id: int, key_id: str, by: Actor, now: datetime, *, lock: bool = True
    ) -> tuple[Key | None, KeyWithUsage]:
        """
        Return the acting key, as `get_acting_key` does, and the key with its usage.

        The target key is locked first, so that a key that changes itself is checked in its state under the lock.
        """
        entry = store.find_key(tx, self.kind, workspace_id, key_id, at=to_micros(now), lock=lock)
        holder = get_acting_key(tx, by, now, lock=lock)
        if entry is None or (holder is not None and not can_see(holder, entry.key)):
            raise self._not_found(key_id)
        return holder, entry

    def _load_rotatable(
        self, tx: Tx, workspace_id: int, key_id: str, by: Actor, now: datetime, *, expected: ExpectedETags, lock: bool
    ) -> Key:
        """Return the key if *by* may rotate it. Raises as `rotate` does."""
        holder, entry = self._load_key(tx, workspace_id, key_id, by, now, lock=lock)
        key = entry.key
        if holder is not None:
            require_delegable(holder, key)
        require_match("key", entry.version, expected)
        _require_rotatable(key, now)
        return key

    def _record_change(
        self, tx: Tx, by: Actor, action: str, before: Key | None, after: Key | None, *, usage: KeyUsage | None = None
    ) -> None:
        """Record the change in the audit log, and publish its event if it has one; *usage*: of a deleted key."""
        audit_key_change(tx, self._audit, by, action, before=before, after=after)
        now, key, name = self._clock(), after or before, _EVENT_BY_ACTION.get(action)
        if key is None:
            return
        if action in _EXPIRY_ACTIONS and (key.expires_at is None or key.expires_at > now):
            name = "key.expired"
        if name is not None:
            self._announce(tx, name, key, usage or KeyUsage(), now, with_snapshot=after is None)

    def _not_found(self, key_id: str) -> NotFound:
        return NotFound(f"{self.kind} key", key_id[:64])


def audit_key_change(tx: Tx, audit: AuditLog, by: Actor, action: str, *, before: Key | None, after: Key | None) -> None:
    """Record in the workspace's chain that a key was created (*before* None), changed, or deleted (*after* None)."""
    key = after or before
    if key is None:
        return
    subject = AuditSubject(kind=f"{key.kind}_key", id=key.id, name=key.name, environment=key.environment)
    old_fields, new_fields = (None if key is None else _audited_fields(key) for key in (before, after))
    audit.record(tx, by, key.workspace_id, f"{key.kind}_key.{action}", subject, before=old_fields, after=new_fields)


def _audited_fields(key: Key) -> serializers.Fields:
    """Return the audited fields of a key: its settings without its usage."""
    fields = serializers.serialize_key_fields(key, KeyUsage(), key.created_at)
    return {name: value for name, value in fields.items() if name not in _UNAUDITED_FIELDS}


def _require_not_revoked(key: Key) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"The key {key.name!r} was revoked on {format_iso(key.revoked_at)} and stays revoked. Create a new key.")


def _require_rotatable(key: Key, now: datetime) -> None:
    if key.delete_after is not None:
        raise KeyInGrace
    _require_not_revoked(key)
    if key.expires_at is not None and key.expires_at <= now:
        msg = "This key has expired. Extend it first, or create a new key."
        raise Conflict(msg)
