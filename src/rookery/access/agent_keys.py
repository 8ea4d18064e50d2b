"""Agent keys: made, revoked, extended; their permissions and addresses (spec 2.2, 3.2, 5.3; D-21)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.credentials import LOOKUP_LENGTH, RANDOM_LENGTH
from rookery.access.errors import NameTaken
from rookery.access.keyring import Keyring
from rookery.access.models import LIVE, Key, Minted
from rookery.access.settings import Check, NewAgentKey, free_slug
from rookery.access.store import keys as store
from rookery.access.workspaces import must_exist
from rookery.kernel.db import Tx
from rookery.kernel.ids import random_text, uuid7
from rookery.kernel.secret import Secret


def coin() -> Secret:
    """Return a new plaintext of spec 5.3's form."""
    return Secret(f"ak_{random_text(RANDOM_LENGTH)}")


class AgentKeys(Keyring):
    """The agent keys of all workspaces."""

    kind = "agent"

    async def create(self, workspace_id: int, new: NewAgentKey, *, platform: bool = False) -> Minted:
        """
        Make a key; its plaintext is in the answer and nowhere else.

        Raises:
            ValidationFailed: A field is not valid.
            NameTaken: The agent_id asked for is another agent key's.
            NotFound: There is no such workspace.
        """
        return (await self.create_many(workspace_id, [new], platform=platform))[0]

    async def create_many(self, workspace_id: int, new: Sequence[NewAgentKey], *, platform: bool = False) -> list[Minted]:
        """Make several keys, all or none; raises as `create` does."""
        now = self._clock()
        checked = [_checked(each, now, platform=platform) for each in new]
        plaintexts = [coin() for _ in checked]

        def work(tx: Tx) -> list[Minted]:
            made = [
                Minted(key=add(tx, workspace_id, each, plaintext, now), plaintext=plaintext)
                for each, plaintext in zip(checked, plaintexts, strict=True)
            ]
            for minted in made:
                self._note(tx, None, minted.key)
            return made

        return await self._db.write(work)

    async def revoke(self, workspace_id: int, key_id: str) -> Key:
        """Revoke a key for good: its next request fails with key_revoked; twice does no harm."""
        now = self._clock()
        return await self.change(workspace_id, key_id, lambda key: replace(key, revoked_at=key.revoked_at or now))

    async def extend(self, workspace_id: int, key_id: str, expires_at: datetime | None) -> Key:
        """
        Replace the expiry, or remove it (None); an expired key is active again, a revoked one stays revoked (D-21).

        Raises:
            ValidationFailed: The new expiry does not lie ahead.
            NotFound: There is none, or it is another workspace's.
        """
        check = Check()
        check.expiry(expires_at, self._clock())
        check.done()
        return await self.change(workspace_id, key_id, lambda key: replace(key, expires_at=expires_at))

    async def set_permissions(self, workspace_id: int, key_id: str, permissions: Iterable[str], *, platform: bool = False) -> Key:
        """Replace the permissions; raises as `create` does."""
        check = Check()
        good = check.grants(permissions, called="permissions", platform=platform)
        check.done()
        return await self.change(workspace_id, key_id, lambda key: replace(key, scopes=good))

    async def set_addresses(self, workspace_id: int, key_id: str, entries: str | Iterable[str], *, restriction: bool | None = None) -> Key:
        """
        Replace the list of addresses; *restriction* also switches it on or off.

        Args:
            workspace_id: The owner.
            key_id: Which.
            entries: Addresses and ranges, or a pasted text of them.
            restriction: None: as it is. On with an empty list denies all (D-28).

        Raises:
            ValidationFailed: A line is no address (`errors.ips`); nothing has been stored then.
            NotFound: There is none, or it is another workspace's.
        """
        good = _addresses(entries)
        return await self.change(workspace_id, key_id, lambda key: _restricted(replace(key, ip_list=good), restriction))

    async def add_addresses(self, workspace_id: int, key_id: str, entries: str | Iterable[str], *, restriction: bool | None = None) -> Key:
        """Add to the list of addresses; as `set_addresses` otherwise."""
        good = _addresses(entries)

        def how(key: Key) -> Key:
            return _restricted(replace(key, ip_list=_addresses((*key.ip_list, *good))), restriction)

        return await self.change(workspace_id, key_id, how)

    async def remove_addresses(self, workspace_id: int, key_id: str, entries: str | Iterable[str]) -> Key:
        """Remove from the list of addresses; what is not in it is ignored. The restriction stays on or off."""
        gone = set(_addresses(entries))
        return await self.change(
            workspace_id, key_id, lambda key: replace(key, ip_list=tuple(each for each in key.ip_list if each not in gone))
        )

    async def restrict(self, workspace_id: int, key_id: str, *, on: bool) -> Key:
        """Switch the restriction to the list of addresses on or off."""
        return await self.change(workspace_id, key_id, lambda key: replace(key, ip_restriction=on))


def add(tx: Tx, workspace_id: int, new: NewAgentKey, plaintext: Secret, now: datetime) -> Key:
    """
    Store a key in this transaction.

    Raises:
        NameTaken: The agent_id asked for is another agent key's.
        NotFound: There is no such workspace.
    """
    must_exist(tx, workspace_id)  # Locks it too, so that two keys made at once cannot take one agent_id.
    taken = store.agent_ids(tx, workspace_id)
    if new.agent_id is not None and new.agent_id in taken:
        raise NameTaken("agent", new.agent_id)
    token = plaintext.reveal()
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
        hint=f"{token[: len('ak_') + LOOKUP_LENGTH]}...",
        ip_restriction=new.ip_restriction,
        ip_list=new.ip_list,
        created_at=now,
        expires_at=new.expires_at,
        suspended_at=None,
        revoked_at=None,
        delete_after=None,
    )
    store.add_key(tx, key, lookup=hashlib.sha256(token.encode("ascii")).hexdigest(), key_hash=None)
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
