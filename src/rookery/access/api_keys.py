"""API keys: made, rotated, pruned (spec 2.3, 3.3, 5.2; D-20, D-26)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.credentials import RANDOM_LENGTH, lookup_of
from rookery.access.errors import KeyInGrace
from rookery.access.hashing import Bcrypt
from rookery.access.keyring import Keyring, Note, unnoted
from rookery.access.models import TEST, Entry, Environment, Key, Minted
from rookery.access.settings import Check, NewApiKey
from rookery.access.store import keys as store
from rookery.access.usage import Usage
from rookery.access.workspaces import must_exist, twin_of
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.secret import Secret

DEFAULT_GRACE_HOURS = 24
MAX_GRACE_HOURS = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Coined:
    """A new plaintext with what is stored of it."""

    plaintext: Secret
    lookup: str
    key_hash: str
    hint: str


async def coin(bcrypt: Bcrypt, environment: Environment) -> Coined:
    """Return a new plaintext of spec 5.2's form, hashed; takes as long as bcrypt does."""
    plaintext = Secret(f"sk_{environment}_{random_text(RANDOM_LENGTH)}")
    lookup = lookup_of(plaintext.reveal().encode("ascii"))
    return Coined(plaintext=plaintext, lookup=lookup, key_hash=await bcrypt.hash(plaintext), hint=f"sk_{environment}_{lookup}...")


class ApiKeys(Keyring):
    """The API keys of all workspaces."""

    kind = "api"

    def __init__(self, db: Database, bcrypt: Bcrypt, usage: Usage, clock: Clock, *, note: Note = unnoted) -> None:
        super().__init__(db, usage, clock, note=note)
        self._bcrypt = bcrypt

    async def create(self, workspace_id: int, new: NewApiKey, *, platform: bool = False) -> Minted:
        """
        Make a key; its plaintext is in the answer and nowhere else.

        Args:
            workspace_id: The owner; a test key acts in its sandbox twin, made with the first of them (D-25).
            new: What it is to be.
            platform: Whether platform scopes may be given: to the command line only (D-23).

        Raises:
            ValidationFailed: A field is not valid.
            NotFound: There is no such workspace.
        """
        new = _checked(new, self._clock(), platform=platform)
        coined = await coin(self._bcrypt, new.environment)
        now = self._clock()

        def work(tx: Tx) -> Minted:
            key = add(tx, workspace_id, new, coined, now)
            self._note(tx, None, key)
            return Minted(key=key, plaintext=coined.plaintext)

        return await self._db.write(work)

    async def rotate(self, workspace_id: int, key_id: str, *, grace_hours: int = DEFAULT_GRACE_HOURS) -> Minted:
        """
        Make a successor with every setting of the key, which itself ends after its grace period (D-26).

        Args:
            workspace_id: The owner.
            key_id: Which.
            grace_hours: 0 to 720; both keys work for so long.

        Raises:
            KeyInGrace: It was rotated already.
            Conflict: It has expired, and its successor would be born expired.
            NotFound: There is none, or it is another workspace's.
        """
        if not 0 <= grace_hours <= MAX_GRACE_HOURS:
            raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}"]})
        known = (await self.get(workspace_id, key_id)).key
        _must_be_rotatable(known, self._clock())
        coined = await coin(self._bcrypt, known.environment)
        now = self._clock()
        new_id = uuid7()

        def work(tx: Tx) -> Minted:
            old = self._locked(tx, workspace_id, key_id, to_micros(now))
            _must_be_rotatable(old, now)
            new = replace(old, id=new_id, hint=coined.hint, created_at=now, delete_after=None)
            ending = replace(old, delete_after=now + timedelta(hours=grace_hours))
            store.add_key(tx, new, lookup=coined.lookup, key_hash=coined.key_hash)
            store.change_key(tx, ending)
            self._note(tx, old, ending)
            self._note(tx, None, new)
            return Minted(key=new, plaintext=coined.plaintext)

        return await self._db.write(work)

    async def prune(self, *, workspace_id: int | None = None, expired_for: timedelta = timedelta(), dry_run: bool = False) -> list[Entry]:
        """
        Delete expired keys and those past their grace, and return them (spec 3.3).

        Args:
            workspace_id: Only that workspace's; None: all.
            expired_for: Only those that expired so long ago.
            dry_run: Only return them.
        """
        now = self._clock()
        at, expired_at = to_micros(now), to_micros(now - expired_for)

        def work(tx: Tx) -> list[Entry]:
            found = store.prunable(tx, at=at, expired_at=expired_at, workspace_id=workspace_id)
            if not dry_run:
                store.prune(tx, at=at, expired_at=expired_at, workspace_id=workspace_id)
                for entry in found:
                    self._note(tx, entry.key, None)
            return found

        return await (self._db.read(work) if dry_run else self._db.write(work))

    async def sweep(self) -> int:
        """Delete the keys whose grace period is over, of all workspaces; return how many. For a timer: they are refused anyway."""
        at = to_micros(self._clock())
        return await self._db.write(lambda tx: store.sweep(tx, at=at))


def add(tx: Tx, workspace_id: int, new: NewApiKey, coined: Coined, now: datetime) -> Key:
    """Store a key in this transaction, with its twin workspace if it needs one."""
    workspace = must_exist(tx, workspace_id)
    key = Key(
        id=uuid7(),
        kind="api",
        name=new.name,
        workspace_id=workspace_id,
        acts_in=twin_of(tx, workspace, now) if new.environment == TEST else workspace_id,
        environment=new.environment,
        scopes=new.scopes,
        tier=new.tier,
        rate_limit=None,
        agent_id=new.agent_id,
        reach=new.reach,
        hint=coined.hint,
        ip_restriction=False,
        ip_list=(),
        created_at=now,
        expires_at=new.expires_at,
        suspended_at=None,
        revoked_at=None,
        delete_after=None,
    )
    store.add_key(tx, key, lookup=coined.lookup, key_hash=coined.key_hash)
    return key


def _checked(new: NewApiKey, now: datetime, *, platform: bool) -> NewApiKey:
    check = Check()
    good = replace(
        new,
        name=check.name(new.name),
        scopes=check.grants(new.scopes, called="scopes", platform=platform),
        expires_at=check.expiry(new.expires_at, now),
        agent_id=check.agent_id(new.agent_id),
        reach=check.reach(new.reach),
    )
    check.done()
    return good


def _must_be_rotatable(key: Key, now: datetime) -> None:
    if key.delete_after is not None:
        raise KeyInGrace
    if key.expires_at is not None and key.expires_at <= now:
        msg = "This key has expired; make a new one, or extend it first."
        raise Conflict(msg)
