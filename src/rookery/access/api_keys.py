"""API keys: made of a random secret of which a bcrypt hash is kept (spec 2.3, 3.3, 5.2; D-20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting_key import get_acting_key
from rookery.access.audit_log import AuditLog
from rookery.access.credentials import SECRET_LENGTH, get_lookup
from rookery.access.delegation import require_delegable
from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import FieldValidator, NewApiKey
from rookery.access.keyring import KeyMaterial, Keyring
from rookery.access.models import TEST, Actor, Environment, Key, KeyWithSecret, Workspace
from rookery.access.store import keys as store
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import get_or_create_sandbox, require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.secret import Secret

_HASH_BATCH_SIZE = 16
"""Hashes asked for together: more than there are threads, far less than may wait."""


async def generate_key(bcrypt: Bcrypt, environment: Environment) -> KeyMaterial:
    """Return a new plaintext of spec 5.2's form, hashed; takes as long as bcrypt does."""
    plaintext = Secret(f"sk_{environment}_{random_text(SECRET_LENGTH)}")
    lookup = get_lookup(plaintext.reveal().encode("ascii"))
    return KeyMaterial(plaintext=plaintext, lookup=lookup, key_hash=await bcrypt.hash(plaintext), hint=f"sk_{environment}_{lookup}...")


class ApiKeys(Keyring):
    """The API keys of all workspaces."""

    kind = "api"

    def __init__(
        self, db: Database, bcrypt: Bcrypt, usage: UsageLog, audit: AuditLog, clock: Clock, *, bus: EventBus | None = None
    ) -> None:
        super().__init__(db, usage, audit, clock, bus=bus)
        self._bcrypt = bcrypt

    async def create(self, workspace_id: int, new: NewApiKey, *, by: Actor) -> KeyWithSecret:
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
        work = await self._prepare_creation(workspace_id, [new], by=by)
        return await self._db.write(lambda tx: work(tx)[0])

    async def create_many(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> list[KeyWithSecret]:
        """Make several keys, all or none; raises as `create` does. *progress* is told how many are hashed: that takes the time."""
        return await self._db.write(await self._prepare_creation(workspace_id, new, by=by, progress=progress))

    async def _prepare_creation(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> Callable[[Tx], list[KeyWithSecret]]:
        """Return the work that stores the new keys; their secrets are drawn and hashed before it."""
        checked = [_validate(each, self._clock(), allow_platform_scopes=by.kind == "operator") for each in new]
        coins = list[KeyMaterial]()
        for start in range(0, len(checked), _HASH_BATCH_SIZE):
            coins += await asyncio.gather(*(self._generate_key(each.environment) for each in checked[start : start + _HASH_BATCH_SIZE]))
            progress(len(coins))
        now = self._clock()

        def work(tx: Tx) -> list[KeyWithSecret]:
            workspace = require_workspace(tx, workspace_id)
            holder = get_acting_key(tx, by, now)
            made = list[KeyWithSecret]()
            for each, coined in zip(checked, coins, strict=True):
                key = insert_key(tx, workspace, each, coined, now)
                if holder is not None:
                    require_delegable(holder, key)
                made.append(KeyWithSecret(key=key, plaintext=coined.plaintext, digest=coined.digest))
            for minted in made:
                self._record_change(tx, by, "created", None, minted.key)
            return made

        return work

    async def _generate_key(self, environment: Environment) -> KeyMaterial:
        return await generate_key(self._bcrypt, environment)


def insert_key(tx: Tx, workspace: Workspace, new: NewApiKey, coined: KeyMaterial, now: datetime) -> Key:
    """Store a key of a workspace that this transaction has locked, with its twin if it needs one."""
    key = Key(
        id=uuid7(),
        kind="api",
        name=new.name,
        workspace_id=workspace.id,
        tenant_id=get_or_create_sandbox(tx, workspace, now) if new.environment == TEST else workspace.id,
        environment=new.environment,
        scopes=new.scopes,
        tier=new.tier,
        rate_limit=None,
        agent_id=new.agent_id,
        restrictions=new.restrictions,
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


def _validate(new: NewApiKey, now: datetime, *, allow_platform_scopes: bool) -> NewApiKey:
    check = FieldValidator()
    good = replace(
        new,
        name=check.validate_name(new.name),
        scopes=check.validate_grants(new.scopes, field_name="scopes", allow_platform_scopes=allow_platform_scopes),
        expires_at=check.validate_expiry(new.expires_at, now),
        agent_id=check.validate_agent_id(new.agent_id),
        restrictions=check.validate_restrictions(new.restrictions),
    )
    check.raise_errors()
    return good
