"""API keys, stored as bcrypt hashes of random secrets."""

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
"""Secrets hashed concurrently: more than the bcrypt threads, far fewer than the queue holds."""


async def generate_key(bcrypt: Bcrypt, environment: Environment) -> KeyMaterial:
    """Return the material of a new API key. Takes the time of one bcrypt run."""
    plaintext = Secret(f"sk_{environment}_{random_text(SECRET_LENGTH)}")
    lookup = get_lookup(plaintext.reveal().encode("ascii"))
    return KeyMaterial(plaintext=plaintext, lookup=lookup, key_hash=await bcrypt.hash(plaintext), hint=f"sk_{environment}_{lookup}...")


class ApiKeys(Keyring):
    kind = "api"

    def __init__(
        self, db: Database, bcrypt: Bcrypt, usage: UsageLog, audit: AuditLog, clock: Clock, *, bus: EventBus | None = None
    ) -> None:
        super().__init__(db, usage, audit, clock, bus=bus)
        self._bcrypt = bcrypt

    async def create(self, workspace_id: int, new: NewApiKey, *, by: Actor) -> KeyWithSecret:
        """
        Create a key. Only the returned object holds its plaintext.

        Args:
            workspace_id: The owner. A test key acts in the sandbox of this workspace, created with the first test key.
            new: The settings of the key.
            by: The actor. Only the command line may grant platform scopes.

        Raises:
            ValidationFailed: A field is invalid.
            NotFound: The workspace does not exist.
            ScopeMissing, PermissionDenied, DelegationDenied: The new key would have more rights than *by* has.
        """
        work = await self._prepare_creation(workspace_id, [new], by=by)
        return await self._db.write(lambda tx: work(tx)[0])

    async def create_many(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> list[KeyWithSecret]:
        """Create several keys in one transaction. Raises as `create` does; calls *progress* with the number hashed so far."""
        return await self._db.write(await self._prepare_creation(workspace_id, new, by=by, progress=progress))

    async def _prepare_creation(
        self, workspace_id: int, new: Sequence[NewApiKey], *, by: Actor, progress: Callable[[int], None] = lambda _: None
    ) -> Callable[[Tx], list[KeyWithSecret]]:
        """Validate the input, generate and hash the secrets, and return the transaction that stores the keys."""
        new_keys = [_validate(fields, self._clock(), allow_platform_scopes=by.kind == "operator") for fields in new]
        materials = list[KeyMaterial]()
        for start in range(0, len(new_keys), _HASH_BATCH_SIZE):
            materials += await asyncio.gather(
                *(self._generate_key(fields.environment) for fields in new_keys[start : start + _HASH_BATCH_SIZE])
            )
            progress(len(materials))
        now = self._clock()

        def work(tx: Tx) -> list[KeyWithSecret]:
            workspace = require_workspace(tx, workspace_id)
            holder = get_acting_key(tx, by, now)
            created_keys = list[KeyWithSecret]()
            for fields, material in zip(new_keys, materials, strict=True):
                key = insert_key(tx, workspace, fields, material, now)
                if holder is not None:
                    require_delegable(holder, key)
                created_keys.append(KeyWithSecret(key=key, plaintext=material.plaintext, digest=material.digest))
            for new_key in created_keys:
                self._record_change(tx, by, "created", None, new_key.key)
            return created_keys

        return work

    async def _generate_key(self, environment: Environment) -> KeyMaterial:
        return await generate_key(self._bcrypt, environment)


def insert_key(tx: Tx, workspace: Workspace, new: NewApiKey, material: KeyMaterial, now: datetime) -> Key:
    """Store a key, and the sandbox for a test key. The caller's transaction must hold the lock of the workspace."""
    key = Key(
        id=uuid7(),
        kind="api",
        name=new.name,
        workspace_id=workspace.id,
        tenant_id=get_or_create_sandbox(tx, workspace, now) if new.environment == TEST else workspace.id,
        environment=new.environment,
        scopes=new.scopes,
        rate_limit_tier=new.rate_limit_tier,
        agent_id=new.agent_id,
        restrictions=new.restrictions,
        hint=material.hint,
        created_at=now,
        expires_at=new.expires_at,
    )
    store.add_key(tx, key, lookup=material.lookup, key_hash=material.key_hash)
    return key


def _validate(new: NewApiKey, now: datetime, *, allow_platform_scopes: bool) -> NewApiKey:
    check = FieldValidator()
    valid_key = replace(
        new,
        name=check.validate_name(new.name),
        scopes=check.validate_grants(new.scopes, field_name="scopes", allow_platform_scopes=allow_platform_scopes),
        expires_at=check.validate_expiry(new.expires_at, now),
        agent_id=check.validate_agent_id(new.agent_id),
        restrictions=check.validate_restrictions(new.restrictions),
    )
    check.raise_errors()
    return valid_key
