"""Agent keys: creation, revocation, expiry, permissions and allowed addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting_key import get_acting_key
from rookery.access.audit_log import AuditLog
from rookery.access.credentials import LOOKUP_LENGTH, SECRET_LENGTH
from rookery.access.delegation import can_reach_other_agent, require_delegable, require_environment
from rookery.access.errors import DelegationDenied, NameTaken
from rookery.access.key_fields import FieldValidator, KeyChanges, NewAgentKey, make_unique_slug, resolve_enforcement
from rookery.access.keyring import KeyMaterial, Keyring
from rookery.access.models import LIVE, Actor, Environment, Key, KeyWithSecret
from rookery.access.ports import IsAgentInUse
from rookery.access.store import keys as store
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.secret import Secret


def has_no_agents(_tx: Tx, _workspace_id: int, _agent_id: str) -> bool:
    """Return False. The default for installations that store nothing for agents."""
    return False


def generate_key() -> KeyMaterial:
    """Return the material of a new agent key, `ak_` and 32 random characters."""
    plaintext = Secret(f"ak_{random_text(SECRET_LENGTH)}")
    token = plaintext.reveal()
    lookup = hashlib.sha256(token.encode("ascii")).hexdigest()
    return KeyMaterial(plaintext=plaintext, lookup=lookup, key_hash=None, hint=f"{token[: len('ak_') + LOOKUP_LENGTH]}...")


class AgentKeys(Keyring):
    kind = "agent"

    def __init__(
        self,
        db: Database,
        usage: UsageLog,
        audit: AuditLog,
        clock: Clock,
        *,
        bus: EventBus | None = None,
        is_agent_in_use: IsAgentInUse = has_no_agents,
    ) -> None:
        super().__init__(db, usage, audit, clock, bus=bus)
        self._is_agent_in_use = is_agent_in_use

    async def create(self, workspace_id: int, new: NewAgentKey, *, by: Actor) -> KeyWithSecret:
        """
        Create a key. Only the returned object holds its plaintext.

        Raises:
            ValidationFailed: A field is invalid.
            NameTaken: Another agent key of the workspace has the requested agent_id.
            NotFound: The workspace does not exist.
            ScopeMissing, PermissionDenied, DelegationDenied: The new key would have more rights than *by* has.
        """
        work = self._prepare_creation(workspace_id, [new], by=by)
        return await self._db.write(lambda tx: work(tx)[0])

    async def create_many(self, workspace_id: int, new: Sequence[NewAgentKey], *, by: Actor) -> list[KeyWithSecret]:
        """Create several keys in one transaction. Raises as `create` does."""
        return await self._db.write(self._prepare_creation(workspace_id, new, by=by))

    def _prepare_creation(self, workspace_id: int, new: Sequence[NewAgentKey], *, by: Actor) -> Callable[[Tx], list[KeyWithSecret]]:
        """Validate the input, generate the secrets and return the transaction that stores the keys."""
        now = self._clock()
        new_keys = [_validate(fields, now, allow_platform_scopes=by.kind == "operator") for fields in new]
        materials = [generate_key() for _ in new_keys]

        def work(tx: Tx) -> list[KeyWithSecret]:
            require_workspace(tx, workspace_id)
            holder = get_acting_key(tx, by, now)
            if holder is not None:
                require_environment(holder, LIVE)
            created_keys, used_ids = list[KeyWithSecret](), store.list_agent_ids(tx, workspace_id)
            for fields, material in zip(new_keys, materials, strict=True):
                key = insert_key(tx, workspace_id, fields, material, now, used_agent_ids=used_ids)
                if holder is not None:
                    require_delegable(holder, key, is_new=True)
                    self._require_unused_agent(tx, holder, key)
                created_keys.append(KeyWithSecret(key=key, plaintext=material.plaintext, digest=material.digest))
            for new_key in created_keys:
                self._record_change(tx, by, "created", None, new_key.key)
            return created_keys

        return work

    async def revoke(self, workspace_id: int, key_id: str, *, by: Actor, expected: ExpectedETags = None) -> Key:
        """
        Revoke a key permanently: its next request fails with key_revoked. Revoking it again changes nothing.

        The acting key needs the scope for deletion, but not the rights of the revoked key.

        Raises:
            NotFound: The workspace has no such key.
            PreconditionFailed: The key has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> Key:
            _, entry = self._load_key(tx, workspace_id, key_id, by, now)
            require_match("key", entry.version, expected)
            before = entry.key
            after = replace(before, revoked_at=before.revoked_at or now)
            if after != before:
                store.update_key(tx, after)
                self._record_change(tx, by, "revoked", before, after)
            return after

        return await self._db.write(work)

    async def extend(
        self, workspace_id: int, key_id: str, expires_at: datetime | None, *, by: Actor, expected: ExpectedETags = None
    ) -> Key:
        """
        Replace the expiry, or remove it (None). An expired key becomes active again; a revoked key stays revoked.

        Raises:
            ValidationFailed: The new expiry is in the past.
            NotFound: The workspace has no such key.
            PreconditionFailed: The key has another version than *expected*.
        """
        return await self.update(workspace_id, key_id, KeyChanges(expires_at=expires_at), by=by, action="extended", expected=expected)

    async def set_permissions(
        self, workspace_id: int, key_id: str, permissions: Iterable[str], *, by: Actor, expected: ExpectedETags = None
    ) -> Key:
        """Replace the permissions. Raises as `update` does."""
        changes = KeyChanges(scopes=tuple(permissions))
        return await self.update(workspace_id, key_id, changes, by=by, action="permissions_replaced", expected=expected)

    async def set_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        is_enforced: bool | None = None,
        expected: ExpectedETags = None,
    ) -> Key:
        """
        Replace the IP list, and enforce it unless *is_enforced* is False.

        Args:
            workspace_id: The owner of the key.
            key_id: The key to change.
            entries: Addresses and CIDR ranges, or a text with one of them per line.
            by: The actor that makes the change.
            is_enforced: Enforce the list. None: enforce it if *entries* has at least one entry, else keep the setting.
                An enforced empty list blocks every request.
            expected: The ETags of If-Match; None: any version.

        Raises:
            ValidationFailed: An entry is not a valid address (`errors.ips`). Nothing is stored.
            NotFound: The workspace has no such key.
            PreconditionFailed: The key has another version than *expected*.
        """
        addresses = _validate_addresses(entries)
        enforcement = resolve_enforcement(addresses, is_enforced)
        return await self._change_addresses(
            workspace_id, key_id, lambda key: _with_enforcement(replace(key, ip_list=addresses), enforcement), by, expected
        )

    async def add_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        is_enforced: bool | None = None,
        expected: ExpectedETags = None,
    ) -> Key:
        """Add entries to the IP list, and enforce it as `set_addresses` does."""
        addresses = _validate_addresses(entries)
        enforcement = resolve_enforcement(addresses, is_enforced)

        def add(key: Key) -> Key:
            return _with_enforcement(replace(key, ip_list=_validate_addresses((*key.ip_list, *addresses))), enforcement)

        return await self._change_addresses(workspace_id, key_id, add, by, expected)

    async def remove_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        is_enforced: bool | None = None,
        expected: ExpectedETags = None,
    ) -> Key:
        """
        Remove entries from the IP list. Entries that the list does not have are ignored.

        If the list stays enforced, only its remaining entries are allowed; an empty list blocks every request.
        """
        removed_addresses = set(_validate_addresses(entries))

        def remove(key: Key) -> Key:
            return _with_enforcement(
                replace(key, ip_list=tuple(entry for entry in key.ip_list if entry not in removed_addresses)), is_enforced
            )

        return await self._change_addresses(workspace_id, key_id, remove, by, expected)

    async def set_enforcement(self, workspace_id: int, key_id: str, *, is_enforced: bool, by: Actor) -> Key:
        """Enforce the IP list, or stop enforcing it."""
        return await self._change_addresses(workspace_id, key_id, lambda key: replace(key, ip_restriction=is_enforced), by)

    async def _change_addresses(
        self, workspace_id: int, key_id: str, change: Callable[[Key], Key], by: Actor, expected: ExpectedETags = None
    ) -> Key:
        return await self.modify(workspace_id, key_id, change, by=by, action="addresses_changed", expected=expected)

    async def _generate_key(self, environment: Environment) -> KeyMaterial:
        del environment  # Agent keys are always live.
        return generate_key()

    def _require_unused_agent(self, tx: Tx, holder: Key, key: Key) -> None:
        """
        Raise an error if a key bound to one agent would create a key for another agent that has private data.

        Raises:
            DelegationDenied: The agent has private data, and *holder* may not read it.
        """
        if can_reach_other_agent(holder, key) and key.agent_id and self._is_agent_in_use(tx, key.workspace_id, key.agent_id):
            raise DelegationDenied(
                "agent_id",
                f"The agent {key.agent_id!r} has memories or sessions of its own that this key may not use. Choose another agent_id.",
            )


def insert_key(tx: Tx, workspace_id: int, new: NewAgentKey, material: KeyMaterial, now: datetime, *, used_agent_ids: set[str]) -> Key:
    """
    Store a key. The caller's transaction must hold the lock of the workspace, so that agent_ids stay unique.

    Args:
        used_agent_ids: The agent_ids of the workspace. The new agent_id is added to the set.

    Raises:
        NameTaken: Another agent key of the workspace has the requested agent_id.
    """
    if new.agent_id is not None and new.agent_id in used_agent_ids:
        raise NameTaken("agent", new.agent_id)
    key = Key(
        id=uuid7(),
        kind="agent",
        name=new.name,
        workspace_id=workspace_id,
        tenant_id=workspace_id,
        environment=LIVE,
        scopes=new.permissions,
        rate_limit=new.rate_limit,
        agent_id=new.agent_id or make_unique_slug(new.name, used_agent_ids),
        restrictions=new.restrictions,
        hint=material.hint,
        ip_restriction=new.ip_restriction,
        ip_list=new.ip_list,
        created_at=now,
        expires_at=new.expires_at,
    )
    store.add_key(tx, key, lookup=material.lookup, key_hash=None)
    used_agent_ids.add(key.agent_id or "")
    return key


def _validate(new: NewAgentKey, now: datetime, *, allow_platform_scopes: bool) -> NewAgentKey:
    check = FieldValidator()
    valid_key = replace(
        new,
        name=check.validate_name(new.name),
        permissions=check.validate_grants(new.permissions, field_name="permissions", allow_platform_scopes=allow_platform_scopes),
        rate_limit=check.validate_rate_limit(new.rate_limit),
        expires_at=check.validate_expiry(new.expires_at, now),
        agent_id=check.validate_agent_id(new.agent_id),
        ip_list=check.validate_addresses(new.ip_list),
        restrictions=check.validate_restrictions(new.restrictions),
    )
    check.raise_errors()
    return valid_key


def _validate_addresses(entries: str | Iterable[str]) -> tuple[str, ...]:
    check = FieldValidator()
    addresses = check.validate_addresses(entries)
    check.raise_errors()
    return addresses


def _with_enforcement(key: Key, restriction: bool | None) -> Key:  # noqa: FBT001 - private, three-valued
    return key if restriction is None else replace(key, ip_restriction=restriction)
