"""API keys: made of a random secret of which a bcrypt hash is kept (spec 2.3, 3.3, 5.2; D-20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting import acting_key
from rookery.access.audit import Audit
from rookery.access.authority import must_hold
from rookery.access.credentials import RANDOM_LENGTH, lookup_of
from rookery.access.hashing import Bcrypt
from rookery.access.keyring import Coined, Keyring
from rookery.access.models import TEST, Actor, Environment, Key, Minted, Workspace
from rookery.access.settings import Check, NewApiKey
from rookery.access.store import keys as store
from rookery.access.usage import Usage
from rookery.access.workspaces import must_exist, twin_of
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import Bus
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.secret import Secret

_AT_ONCE = 16
"""Hashes asked for together: more than there are threads, far less than may wait."""


async def coin(bcrypt: Bcrypt, environment: Environment) -> Coined:
    """Return a new plaintext of spec 5.2's form, hashed; takes as long as bcrypt does."""
    plaintext = Secret(f"sk_{environment}_{random_text(RANDOM_LENGTH)}")
    lookup = lookup_of(plaintext.reveal().encode("ascii"))
    return Coined(plaintext=plaintext, lookup=lookup, key_hash=await bcrypt.hash(plaintext), hint=f"sk_{environment}_{lookup}...")


class ApiKeys(Keyring):
    """The API keys of all workspaces."""

    kind = "api"

    def __init__(self, db: Database, bcrypt: Bcrypt, usage: Usage, audit: Audit, clock: Clock, *, bus: Bus | None = None) -> None:
        super().__init__(db, usage, audit, clock, bus=bus)
        self._bcrypt = bcrypt

    async def create(self, workspace_id: int, new: NewApiKey, *, by: Actor) -> Minted:
        """
        Make a key; its plaintext is in the answer and nowhere else.

        Args:
            workspace_id: The owner; a test key acts in its sandbox twin, made with the first of them (D-25).
            new: What it is to be.
            by: Who makes it; platform scopes the command line alone gives (D-23).

        Raises:
            ValidationFailed: A field is not valid.
            NotFound: There is no such workspace.
            ScopeMissing, PermissionDenied, NotHeld: It would have more than *by* has (D-24).
        """
        work = await self._creation(workspace_id, [new], by=by)
        return await self._db.write(lambda tx: work(tx)[0])

    async def create_many(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> list[Minted]:
        """Make several keys, all or none; raises as `create` does. *progress* is told how many are hashed: that takes the time."""
        return await self._db.write(await self._creation(workspace_id, new, by=by, progress=progress))

    async def _creation(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> Callable[[Tx], list[Minted]]:
        """Return the work that stores the new keys; their secrets are drawn and hashed before it."""
        checked = [_checked(each, self._clock(), platform=by.kind == "operator") for each in new]
        coins = list[Coined]()
        for start in range(0, len(checked), _AT_ONCE):
            coins += await asyncio.gather(*(self._coin(each.environment) for each in checked[start : start + _AT_ONCE]))
            progress(len(coins))
        now = self._clock()

        def work(tx: Tx) -> list[Minted]:
            workspace = must_exist(tx, workspace_id)
            holder = acting_key(tx, by, now)
            made = list[Minted]()
            for each, coined in zip(checked, coins, strict=True):
                key = add(tx, workspace, each, coined, now)
                if holder is not None:
                    must_hold(holder, key)
                made.append(Minted(key=key, plaintext=coined.plaintext, digest=coined.digest))
            for minted in made:
                self._note(tx, by, "created", None, minted.key)
            return made

        return work

    async def _coin(self, environment: Environment) -> Coined:
        return await coin(self._bcrypt, environment)


def add(tx: Tx, workspace: Workspace, new: NewApiKey, coined: Coined, now: datetime) -> Key:
    """Store a key of a workspace that this transaction has locked, with its twin if it needs one."""
    key = Key(
        id=uuid7(),
        kind="api",
        name=new.name,
        workspace_id=workspace.id,
        acts_in=twin_of(tx, workspace, now) if new.environment == TEST else workspace.id,
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
