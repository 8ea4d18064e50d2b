"""What a key may be made or changed to: the rules for its fields, in one place for every way in (D-12, D-23, D-28)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from rookery.access import networks, scopes
from rookery.access.models import Environment, Key, Reach, Tier
from rookery.kernel.errors import ValidationFailed

MAX_NAME = 100
MAX_RATE = 1_000_000
MAX_LISTED = 1_000
"""Entries of any list of a key: rows stay small, since each is read at every request."""

_AGENT_ID = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """What an API key is made with; new keys are live and of tier pro (D-27)."""

    name: str
    scopes: tuple[str, ...]
    tier: Tier = Tier.PRO
    environment: Environment = "live"
    expires_at: datetime | None = None
    agent_id: str | None = None
    reach: Reach = field(default_factory=Reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgentKey:
    """What an agent key is made with; *agent_id* None: a slug of the name, unique in the workspace."""

    name: str
    permissions: tuple[str, ...]
    rate_limit: int = 600
    expires_at: datetime | None = None
    agent_id: str | None = None
    ip_restriction: bool = False
    ip_list: tuple[str, ...] = ()
    reach: Reach = field(default_factory=Reach)


class Kept(Enum):
    """Stands for a setting that a change leaves as it is, where None has a meaning of its own."""

    KEPT = "kept"


KEPT: Final = Kept.KEPT


_FIXED = {"api": ("rate_limit", "ip_restriction", "ip_list"), "agent": ("tier", "agent_id")}
"""What keys of the one kind have not, or never change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """
    What a key is to be changed to; what is not named stays (D-23, D-29).

    Attributes:
        grants: Scopes of an API key, permissions of an agent key.
        tier: API keys only. *rate_limit*, *ip_restriction*, *ip_list*: agent keys only; an agent's id never changes.
        expires_at: None removes the expiry.
        servers: None removes the restriction; so too *tools*, *orgs*, *projects*.
    """

    name: str | Kept = KEPT
    grants: tuple[str, ...] | Kept = KEPT
    tier: Tier | Kept = KEPT
    rate_limit: int | Kept = KEPT
    expires_at: datetime | Kept | None = KEPT
    agent_id: str | Kept | None = KEPT
    ip_restriction: bool | Kept = KEPT
    ip_list: tuple[str, ...] | Kept = KEPT
    servers: frozenset[str] | Kept | None = KEPT
    tools: tuple[str, ...] | Kept | None = KEPT
    orgs: frozenset[str] | Kept | None = KEPT
    projects: frozenset[str] | Kept | None = KEPT
    tool_limits: Mapping[str, int] | Kept = KEPT

    def applied(self, key: Key, now: datetime, *, platform: bool) -> Key:
        """
        Return *key* as it is after the change.

        Args:
            platform: Whether platform scopes may be given; those that the key has already may always stay.

        Raises:
            ValidationFailed: A field is not valid.
        """
        if wrong := [name for name in _FIXED[key.kind] if getattr(self, name) is not KEPT]:
            raise ValidationFailed({name: ["cannot be changed in a key of this kind"] for name in wrong})
        check, reach = Check(), key.reach
        reach = replace(
            reach,
            servers=_or(self.servers, reach.servers),
            tools=_or(self.tools, reach.tools),
            orgs=_or(self.orgs, reach.orgs),
            projects=_or(self.projects, reach.projects),
            tool_limits=_or(self.tool_limits, reach.tool_limits),
        )
        called = "scopes" if key.kind == "api" else "permissions"
        changed = replace(
            key,
            name=key.name if self.name is KEPT else check.name(self.name),
            scopes=key.scopes if self.grants is KEPT else check.grants(self.grants, called=called, platform=platform, had=key.scopes),
            tier=_or(self.tier, key.tier),
            rate_limit=key.rate_limit if self.rate_limit is KEPT else check.rate_limit(self.rate_limit),
            expires_at=key.expires_at if self.expires_at is KEPT else check.expiry(self.expires_at, now),
            agent_id=key.agent_id if self.agent_id is KEPT else check.agent_id(self.agent_id),
            ip_restriction=self._restriction(key),
            ip_list=key.ip_list if self.ip_list is KEPT else check.addresses(self.ip_list),
            reach=check.reach(reach),
        )
        check.done()
        return changed

    def _restriction(self, key: Key) -> bool:
        """Return whether the key's list of addresses is enforced after the change."""
        explicit = None if isinstance(self.ip_restriction, Kept) else self.ip_restriction
        on = enforces(() if isinstance(self.ip_list, Kept) else self.ip_list, explicit)
        return key.ip_restriction if on is None else on


def enforces(entries: Collection[str], explicit: bool | None) -> bool | None:  # noqa: FBT001 - three-valued
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


def _or(wanted: T | Kept, kept: T) -> T:
    return kept if isinstance(wanted, Kept) else wanted


class Check:
    """Collects what is wrong with the fields of one request, so that its author hears of everything at once."""

    def __init__(self) -> None:
        self._errors: dict[str, list[str]] = {}

    def done(self) -> None:
        """
        Do nothing if all was well.

        Raises:
            ValidationFailed: Something was not.
        """
        if self._errors:
            raise ValidationFailed(self._errors)

    def name(self, text: str) -> str:
        """Return a name: 1 to 100 printable characters, the spaces around it dropped."""
        text = text.strip()
        if not 1 <= len(text) <= MAX_NAME or not text.isprintable():
            self._say("name", f"must be 1 to {MAX_NAME} printable characters")
        return text

    def grants(self, names: Iterable[str], *, called: str, platform: bool, had: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return scopes or permissions in the spec's spelling; at least one, all known, no new platform scopes unless allowed."""
        listed = list(names)
        if not listed:
            self._say(called, "must name at least one")
        if len(listed) > MAX_LISTED:
            self._say(called, f"must name at most {MAX_LISTED}")
            return ()
        good, wrong = scopes.read(listed, platform=platform, had=had)
        self._say(called, *wrong)
        return good

    def addresses(self, entries: str | Iterable[str]) -> tuple[str, ...]:
        """Return addresses and ranges in their one form; one bad line refuses all (D-28)."""
        good, wrong = networks.read_list(entries)
        self._say("ips", *wrong)
        if len(good) > MAX_LISTED:
            self._say("ips", f"must be at most {MAX_LISTED}")
        return good

    def expiry(self, moment: datetime | None, now: datetime) -> datetime | None:
        """Return an expiry, which lies ahead."""
        if moment is not None and moment <= now:
            self._say("expires_at", "must be in the future")
        return moment

    def rate_limit(self, number: int) -> int:
        """Return requests a minute."""
        if not 1 <= number <= MAX_RATE:
            self._say("rate_limit", f"must be 1 to {MAX_RATE}")
        return number

    def agent_id(self, text: str | None) -> str | None:
        """Return an agent's id of the form that `slug` makes, or None."""
        if text is not None and _AGENT_ID.fullmatch(text) is None:
            self._say("agent_id", "must be 1 to 64 of a-z, 0-9, - and _, beginning and ending with a letter or digit")
        return text

    def reach(self, reach: Reach) -> Reach:
        """Return allow-lists of names that are not empty; tool limits of 1 call a minute and more."""
        for called, names in {"servers": reach.servers, "tools": reach.tools, "orgs": reach.orgs, "projects": reach.projects}.items():
            self._names(called, names or ())
        self._limits(reach.tool_limits)
        return reach

    def _names(self, called: str, names: Iterable[str]) -> None:
        listed = list(names)
        if len(listed) > MAX_LISTED:
            self._say(called, f"must be at most {MAX_LISTED}")
        if any(not name or len(name) > 256 or not name.isprintable() for name in listed):
            self._say(called, "must be 1 to 256 printable characters each")

    def _limits(self, limits: Mapping[str, int]) -> None:
        self._names("tool_limits", limits)
        for glob, limit in limits.items():
            if not 1 <= limit <= MAX_RATE:
                self._say("tool_limits", f"{glob[:64]}: must be 1 to {MAX_RATE} calls a minute")

    def _say(self, called: str, *texts: str) -> None:
        if texts:
            self._errors.setdefault(called, []).extend(texts)


def slug(name: str) -> str:
    """Return *name* as an agent's id; one without a Latin letter or digit becomes `agent`."""
    return _NOT_SLUG.sub("-", name.lower()).strip("-")[:64].rstrip("-") or "agent"


def free_slug(name: str, taken: set[str]) -> str:
    """Return the slug of *name*, numbered from 2 if it is taken."""
    base = slug(name)
    number, free = 1, base
    while free in taken:
        number += 1
        tail = f"-{number}"
        free = base[: 64 - len(tail)].rstrip("-") + tail
    return free
