"""What a key may be made or changed to: the rules for its fields, in one place for every way in (D-12, D-23, D-28)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from rookery.access import networks, scopes
from rookery.access.models import Environment, Key, KeyRestrictions, Tier
from rookery.kernel.errors import ValidationFailed

MAX_NAME_LENGTH = 100
MAX_RATE_PER_MINUTE = 1_000_000
MAX_LIST_ITEMS = 1_000
"""Entries of any list of a key: rows stay small, since each is read at every request."""

_AGENT_ID = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_NON_SLUG_CHARACTERS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """What an API key is made with; new keys are live and of tier pro (D-27)."""

    name: str
    scopes: tuple[str, ...]
    tier: Tier = Tier.PRO
    environment: Environment = "live"
    expires_at: datetime | None = None
    agent_id: str | None = None
    restrictions: KeyRestrictions = field(default_factory=KeyRestrictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgentKey:
    """What an agent key is made with; *validate_agent_id* None: a slug of the name, unique in the workspace."""

    name: str
    permissions: tuple[str, ...]
    rate_limit: int = 600
    expires_at: datetime | None = None
    agent_id: str | None = None
    ip_restriction: bool = False
    ip_list: tuple[str, ...] = ()
    restrictions: KeyRestrictions = field(default_factory=KeyRestrictions)


class Unset(Enum):
    """Stands for a setting that a change leaves as it is, where None has a meaning of its own."""

    UNSET = "kept"


UNSET: Final = Unset.UNSET


_IMMUTABLE_FIELDS = {"api": ("rate_limit", "ip_restriction", "ip_list"), "agent": ("tier", "agent_id")}
"""What keys of the one kind have not, or never change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanges:
    """
    What a key is to be changed to; what is not named stays (D-23, D-29).

    Attributes:
        grants: Scopes of an API key, permissions of an agent key.
        tier: API keys only. *validate_rate_limit*, *ip_restriction*, *ip_list*: agent keys only; an agent's id never changes.
        expires_at: None removes the expiry.
        servers: None removes the restriction; so too *tools*, *orgs*, *projects*.
    """

    name: str | Unset = UNSET
    grants: tuple[str, ...] | Unset = UNSET
    tier: Tier | Unset = UNSET
    rate_limit: int | Unset = UNSET
    expires_at: datetime | Unset | None = UNSET
    agent_id: str | Unset | None = UNSET
    ip_restriction: bool | Unset = UNSET
    ip_list: tuple[str, ...] | Unset = UNSET
    servers: frozenset[str] | Unset | None = UNSET
    tools: tuple[str, ...] | Unset | None = UNSET
    orgs: frozenset[str] | Unset | None = UNSET
    projects: frozenset[str] | Unset | None = UNSET
    tool_limits: Mapping[str, int] | Unset = UNSET

    def apply(self, key: Key, now: datetime, *, allow_platform_scopes: bool) -> Key:
        """
        Return *key* as it is after the change.

        Args:
            allow_platform_scopes: Whether platform scopes may be given; those that the key has already may always stay.

        Raises:
            ValidationFailed: A field is not valid.
        """
        if wrong := [name for name in _IMMUTABLE_FIELDS[key.kind] if getattr(self, name) is not UNSET]:
            raise ValidationFailed({name: ["cannot be changed in a key of this kind"] for name in wrong})
        check, reach = FieldValidator(), key.restrictions
        reach = replace(
            reach,
            servers=_or_current(self.servers, reach.servers),
            tools=_or_current(self.tools, reach.tools),
            orgs=_or_current(self.orgs, reach.orgs),
            projects=_or_current(self.projects, reach.projects),
            tool_limits=_or_current(self.tool_limits, reach.tool_limits),
        )
        called = "scopes" if key.kind == "api" else "permissions"
        changed = replace(
            key,
            name=key.name if self.name is UNSET else check.validate_name(self.name),
            scopes=key.scopes
            if self.grants is UNSET
            else check.validate_grants(self.grants, field_name=called, allow_platform_scopes=allow_platform_scopes, existing=key.scopes),
            tier=_or_current(self.tier, key.tier),
            rate_limit=key.rate_limit if self.rate_limit is UNSET else check.validate_rate_limit(self.rate_limit),
            expires_at=key.expires_at if self.expires_at is UNSET else check.validate_expiry(self.expires_at, now),
            agent_id=key.agent_id if self.agent_id is UNSET else check.validate_agent_id(self.agent_id),
            ip_restriction=self._is_enforced(key),
            ip_list=key.ip_list if self.ip_list is UNSET else check.validate_addresses(self.ip_list),
            restrictions=check.validate_restrictions(reach),
        )
        check.raise_errors()
        return changed

    def _is_enforced(self, key: Key) -> bool:
        """Return whether the key's list of addresses is enforced after the change."""
        explicit = None if isinstance(self.ip_restriction, Unset) else self.ip_restriction
        on = resolve_enforcement(() if isinstance(self.ip_list, Unset) else self.ip_list, explicit)
        return key.ip_restriction if on is None else on


def resolve_enforcement(entries: Collection[str], explicit: bool | None) -> bool | None:  # noqa: FBT001 - three-valued
    """
    Return whether a request that gives *entries* as a list of addresses switches its enforcement on or off (D-28).

    Args:
        entries: The addresses that the request gives.
        explicit: What the request says itself; None: nothing.

    Returns:
        None if it stays as it was: the request gives no address and says nothing.
    """
    return True if explicit is None and entries else explicit


T = TypeVar("T")


def _or_current(wanted: T | Unset, kept: T) -> T:
    return kept if isinstance(wanted, Unset) else wanted


class FieldValidator:
    """Collects what is wrong with the fields of one request, so that its author hears of everything at once."""

    def __init__(self) -> None:
        self._errors: dict[str, list[str]] = {}

    def raise_errors(self) -> None:
        """
        Do nothing if all was well.

        Raises:
            ValidationFailed: Something was not.
        """
        if self._errors:
            raise ValidationFailed(self._errors)

    def validate_name(self, text: str) -> str:
        """Return a name: 1 to 100 printable characters, the spaces around it dropped."""
        text = text.strip()
        if not 1 <= len(text) <= MAX_NAME_LENGTH or not text.isprintable():
            self._add_error("name", f"must be 1 to {MAX_NAME_LENGTH} printable characters")
        return text

    def validate_grants(
        self, names: Iterable[str], *, field_name: str, allow_platform_scopes: bool, existing: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return scopes or permissions in the spec's spelling; at least one, all known, no new platform scopes unless allowed."""
        listed = list(names)
        if not listed:
            self._add_error(field_name, "must name at least one")
        if len(listed) > MAX_LIST_ITEMS:
            self._add_error(field_name, f"must name at most {MAX_LIST_ITEMS}")
            return ()
        good, wrong = scopes.parse_grants(listed, allow_platform_scopes=allow_platform_scopes, existing=existing)
        self._add_error(field_name, *wrong)
        return good

    def validate_addresses(self, entries: str | Iterable[str]) -> tuple[str, ...]:
        """Return addresses and ranges in their one form; one bad line refuses all (D-28)."""
        good, wrong = networks.parse_list(entries)
        self._add_error("ips", *wrong)
        if len(good) > MAX_LIST_ITEMS:
            self._add_error("ips", f"must be at most {MAX_LIST_ITEMS}")
        return good

    def validate_expiry(self, moment: datetime | None, now: datetime) -> datetime | None:
        """Return an expiry, which lies ahead."""
        if moment is not None and moment <= now:
            self._add_error("expires_at", "must be in the future")
        return moment

    def validate_rate_limit(self, number: int) -> int:
        """Return requests a minute."""
        if not 1 <= number <= MAX_RATE_PER_MINUTE:
            self._add_error("rate_limit", f"must be 1 to {MAX_RATE_PER_MINUTE}")
        return number

    def validate_agent_id(self, text: str | None) -> str | None:
        """Return an agent's id of the form that `slugify` makes, or None."""
        if text is not None and _AGENT_ID.fullmatch(text) is None:
            self._add_error("agent_id", "must be 1 to 64 of a-z, 0-9, - and _, beginning and ending with a letter or digit")
        return text

    def validate_restrictions(self, reach: KeyRestrictions) -> KeyRestrictions:
        """Return allow-lists of names that are not empty; tool limits of 1 call a minute and more."""
        for called, names in {"servers": reach.servers, "tools": reach.tools, "orgs": reach.orgs, "projects": reach.projects}.items():
            self._validate_names(called, names or ())
        self._validate_tool_limits(reach.tool_limits)
        return reach

    def _validate_names(self, called: str, names: Iterable[str]) -> None:
        listed = list(names)
        if len(listed) > MAX_LIST_ITEMS:
            self._add_error(called, f"must be at most {MAX_LIST_ITEMS}")
        if any(not name or len(name) > 256 or not name.isprintable() for name in listed):
            self._add_error(called, "must be 1 to 256 printable characters each")

    def _validate_tool_limits(self, limits: Mapping[str, int]) -> None:
        self._validate_names("tool_limits", limits)
        for glob, limit in limits.items():
            if not 1 <= limit <= MAX_RATE_PER_MINUTE:
                self._add_error("tool_limits", f"{glob[:64]}: must be 1 to {MAX_RATE_PER_MINUTE} calls a minute")

    def _add_error(self, called: str, *texts: str) -> None:
        if texts:
            self._errors.setdefault(called, []).extend(texts)


def slugify(name: str) -> str:
    """Return *validate_name* as an agent's id; one without a Latin letter or digit becomes `agent`."""
    return _NON_SLUG_CHARACTERS.sub("-", name.lower()).strip("-")[:64].rstrip("-") or "agent"


def make_unique_slug(name: str, used: set[str]) -> str:
    """Return the slug of *validate_name*, numbered from 2 if it is taken."""
    base = slugify(name)
    number, free = 1, base
    while free in used:
        number += 1
        tail = f"-{number}"
        free = base[: 64 - len(tail)].rstrip("-") + tail
    return free
