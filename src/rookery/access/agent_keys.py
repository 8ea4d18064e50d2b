"""Agent keys: made, revoked, extended; their permissions and addresses (spec 2.2, 3.2, 5.3; D-21)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting import acting_key
from rookery.access.audit import Audit
from rookery.access.authority import must_hold, must_reach, speaks_for_another
from rookery.access.credentials import LOOKUP_LENGTH, RANDOM_LENGTH
from rookery.access.errors import NameTaken, NotHeld
from rookery.access.keyring import Coined, Keyring
from rookery.access.models import LIVE, Actor, Environment, Key, Minted
from rookery.access.settings import Changes, Check, NewAgentKey, enforces, free_slug
from rookery.access.store import keys as store
from rookery.access.usage import Usage
from rookery.access.workspaces import must_exist
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import Bus
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.preconditions import Expected, require_match
from rookery.kernel.secret import Secret

IsKnownAgent = Callable[[Tx, int, str], bool]
"""Tells whether anything of the workspace is an agent's own: whoever speaks for it from now on would read that."""


def nobody_is_known(_tx: Tx, _workspace_id: int, _agent_id: str) -> bool:
    """Know no agent: where nothing is kept for agents."""
    return False


def coin() -> Coined:
    """Return a new plaintext of spec 5.3's form."""
    plaintext = Secret(f"ak_{random_text(RANDOM_LENGTH)}")
    token = plaintext.reveal()
    lookup = hashlib.sha256(token.encode("ascii")).hexdigest()
    return Coined(plaintext=plaintext, lookup=lookup, key_hash=None, hint=f"{token[: len('ak_') + LOOKUP_LENGTH]}...")


class AgentKeys(Keyring):
    """The agent keys of all workspaces."""

    kind = "agent"

    def __init__(
        self,
        db: Database,
        usage: Usage,
        audit: Audit,
        clock: Clock,
        *,
        bus: Bus | None = None,
        is_known_agent: IsKnownAgent = nobody_is_known,
    ) -> None:
        super().__init__(db, usage, audit, clock, bus=bus)
        self._is_known_agent = is_known_agent

    async def create(self, workspace_id: int, new: NewAgentKey, *, by: Actor) -> Minted:
        """
        Make a key; its plaintext is in the answer and nowhere else.

        Raises:
            ValidationFailed: A field is not valid.
            NameTaken: The agent_id asked for is another agent key's.
            NotFound: There is no such workspace.
            ScopeMissing, PermissionDenied, NotHeld: It would have more than *by* has (D-24).
        """
        work = self._creation(workspace_id, [new], by=by)
        return await self._db.write(lambda tx: work(tx)[0])

    async def create_many(self, workspace_id: int, new: Sequence[NewAgentKey], *, by: Actor) -> list[Minted]:
        """Make several keys, all or none; raises as `create` does."""
        return await self._db.write(self._creation(workspace_id, new, by=by))

    def _creation(self, workspace_id: int, new: Sequence[NewAgentKey], *, by: Actor) -> Callable[[Tx], list[Minted]]:
        """Return the work that stores the new keys; their secrets are drawn before it."""
        now = self._clock()
        checked = [_checked(each, now, platform=by.kind == "operator") for each in new]
        coins = [coin() for _ in checked]

        def work(tx: Tx) -> list[Minted]:
            must_exist(tx, workspace_id)
            holder = acting_key(tx, by, now)
            if holder is not None:
                must_reach(holder, LIVE)
            made, taken = list[Minted](), store.agent_ids(tx, workspace_id)
            for each, coined in zip(checked, coins, strict=True):
                key = add(tx, workspace_id, each, coined, now, taken=taken)
                if holder is not None:
                    must_hold(holder, key, is_new=True)
                    self._must_be_new(tx, holder, key)
                made.append(Minted(key=key, plaintext=coined.plaintext, digest=coined.digest))
            for minted in made:
                self._note(tx, by, "created", None, minted.key)
            return made

        return work

    async def revoke(self, workspace_id: int, key_id: str, *, by: Actor, expected: Expected = None) -> Key:
        """
        Revoke a key for good: its next request fails with key_revoked; twice does no harm.

        To take away needs the right to delete, not all that the key has (D-24).

        Raises:
            NotFound: There is none, or it is another workspace's.
            PreconditionFailed: The key has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> Key:
            _, found = self._at_hand(tx, workspace_id, key_id, by, now)
            require_match("key", found.version, expected)
            before = found.key
            after = replace(before, revoked_at=before.revoked_at or now)
            if after != before:
                store.change_key(tx, after)
                self._note(tx, by, "revoked", before, after)
            return after

        return await self._db.write(work)

    async def extend(self, workspace_id: int, key_id: str, expires_at: datetime | None, *, by: Actor, expected: Expected = None) -> Key:
        """
        Replace the expiry, or remove it (None); an expired key is active again, a revoked one stays revoked (D-21).

        Raises:
            ValidationFailed: The new expiry does not lie ahead.
            NotFound: There is none, or it is another workspace's.
            PreconditionFailed: The key has another version than *expected*.
        """
        return await self.alter(workspace_id, key_id, Changes(expires_at=expires_at), by=by, action="extended", expected=expected)

    async def set_permissions(
        self, workspace_id: int, key_id: str, permissions: Iterable[str], *, by: Actor, expected: Expected = None
    ) -> Key:
        """Replace the permissions; raises as `alter` does."""
        changes = Changes(grants=tuple(permissions))
        return await self.alter(workspace_id, key_id, changes, by=by, action="permissions_replaced", expected=expected)

    async def set_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        restriction: bool | None = None,
        expected: Expected = None,
    ) -> Key:
        """
        Replace the list of addresses, and enforce it unless *restriction* is False.

        Args:
            workspace_id: The owner.
            key_id: Which.
            entries: Addresses and ranges, or a pasted text of them.
            by: Who does it.
            restriction: Whether the list is enforced. None: enforced if *entries* has any, else as before.
                An enforced empty list blocks every request (D-28).
            expected: The ETags of If-Match; None: any version.

        Raises:
            ValidationFailed: A line is no address (`errors.ips`); nothing has been stored then.
            NotFound: There is none, or it is another workspace's.
            PreconditionFailed: The key has another version than *expected*.
        """
        good = _addresses(entries)
        on = enforces(good, restriction)
        return await self._readdress(workspace_id, key_id, lambda key: _restricted(replace(key, ip_list=good), on), by, expected)

    async def add_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        restriction: bool | None = None,
        expected: Expected = None,
    ) -> Key:
        """Add to the list of addresses, and enforce it as `set_addresses` does."""
        good = _addresses(entries)
        on = enforces(good, restriction)

        def how(key: Key) -> Key:
            return _restricted(replace(key, ip_list=_addresses((*key.ip_list, *good))), on)

        return await self._readdress(workspace_id, key_id, how, by, expected)

    async def remove_addresses(
        self,
        workspace_id: int,
        key_id: str,
        entries: str | Iterable[str],
        *,
        by: Actor,
        restriction: bool | None = None,
        expected: Expected = None,
    ) -> Key:
        """Remove from the list of addresses; what is not in it is ignored. A restriction that stays on then denies all that is left out."""
        gone = set(_addresses(entries))

        def how(key: Key) -> Key:
            return _restricted(replace(key, ip_list=tuple(each for each in key.ip_list if each not in gone)), restriction)

        return await self._readdress(workspace_id, key_id, how, by, expected)

    async def restrict(self, workspace_id: int, key_id: str, *, on: bool, by: Actor) -> Key:
        """Switch the restriction to the list of addresses on or off."""
        return await self._readdress(workspace_id, key_id, lambda key: replace(key, ip_restriction=on), by)

    async def _readdress(self, workspace_id: int, key_id: str, how: Callable[[Key], Key], by: Actor, expected: Expected = None) -> Key:
        return await self.change(workspace_id, key_id, how, by=by, action="addresses_changed", expected=expected)

    async def _coin(self, environment: Environment) -> Coined:
        del environment  # agent keys are live
        return coin()

    def _must_be_new(self, tx: Tx, holder: Key, key: Key) -> None:
        """
        Let who speaks for one agent make a key for another only if nothing is that one's own yet (D-24).

        Raises:
            NotHeld: There is, and *holder* may not read it.
        """
        if speaks_for_another(holder, key) and key.agent_id and self._is_known_agent(tx, key.workspace_id, key.agent_id):
            raise NotHeld(
                "agent_id", f"The agent {key.agent_id!r} has memories of its own, which this key may not read; choose another name."
            )


def add(tx: Tx, workspace_id: int, new: NewAgentKey, coined: Coined, now: datetime, *, taken: set[str]) -> Key:
    """
    Store a key of a workspace that this transaction has locked, so that two made at once cannot take one agent_id.

    Args:
        taken: The workspace's agent_ids; the new one joins them.

    Raises:
        NameTaken: The agent_id asked for is another agent key's.
    """
    if new.agent_id is not None and new.agent_id in taken:
        raise NameTaken("agent", new.agent_id)
    key = Key(
        id=uuid7(),
        kind="agent",
        name=new.name,
        workspace_id=workspace_id,
        acts_in=workspace_id,
        environment=LIVE,
        scopes=new.permissions,
        tier=None,
        rate_limit=new.rate_limit,
        agent_id=new.agent_id or free_slug(new.name, taken),
        reach=new.reach,
        hint=coined.hint,
        ip_restriction=new.ip_restriction,
        ip_list=new.ip_list,
        created_at=now,
        expires_at=new.expires_at,
        suspended_at=None,
        revoked_at=None,
        delete_after=None,
    )
    store.add_key(tx, key, lookup=coined.lookup, key_hash=None)
    taken.add(key.agent_id or "")
    return key


def _checked(new: NewAgentKey, now: datetime, *, platform: bool) -> NewAgentKey:
    check = Check()
    good = replace(
        new,
        name=check.name(new.name),
        permissions=check.grants(new.permissions, called="permissions", platform=platform),
        rate_limit=check.rate_limit(new.rate_limit),
        expires_at=check.expiry(new.expires_at, now),
        agent_id=check.agent_id(new.agent_id),
        ip_list=check.addresses(new.ip_list),
        reach=check.reach(new.reach),
    )
    check.done()
    return good


def _addresses(entries: str | Iterable[str]) -> tuple[str, ...]:
    check = Check()
    good = check.addresses(entries)
    check.done()
    return good


def _restricted(key: Key, restriction: bool | None) -> Key:  # noqa: FBT001 - private, three-valued
    return key if restriction is None else replace(key, ip_restriction=restriction)
