"""Validation of the fields of new and changed keys, shared by the API and the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from rookery.access import networks, scopes
from rookery.access.models import Environment, Key, KeyRestrictions, Tier
from rookery.kernel import globs
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.unset import UNSET, get_set_fields, value_or

MAX_NAME_LENGTH = 100
MAX_RATE_PER_MINUTE = 1_000_000
MAX_LIST_ITEMS = 1_000
"""Maximum entries of any list of a key. Keeps rows small, since the guard reads one at every request."""

MAX_SETS_PER_PATTERN = 8
"""Maximum sets of characters, such as `[a-z]`, in a pattern of tools. Each takes a regular expression."""

_AGENT_ID = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_NON_SLUG_CHARACTERS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """The input for a new API key. Defaults: live, tier pro."""

    name: str
    scopes: tuple[str, ...]
    rate_limit_tier: Tier = Tier.PRO
    environment: Environment = "live"
    expires_at: datetime | None = None
    agent_id: str | None = None
    restrictions: KeyRestrictions = field(default_factory=KeyRestrictions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgentKey:
    """The input for a new agent key; *agent_id* None: a slug of the name, unique in the workspace."""

    name: str
    permissions: tuple[str, ...]
    rate_limit: int = 600
    expires_at: datetime | None = None
    agent_id: str | None = None
    ip_restriction: bool = False
    ip_list: tuple[str, ...] = ()
    restrictions: KeyRestrictions = field(default_factory=KeyRestrictions)


_IMMUTABLE_FIELDS = {"api": ("rate_limit", "ip_restriction", "ip_list"), "agent": ("rate_limit_tier", "agent_id")}
"""Fields that keys of this kind do not have, or that never change."""

RESTRICTION_NAMES = frozenset(restriction.name for restriction in fields(KeyRestrictions))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanges:
    """
    A change of a key's settings. Fields that are not set keep their value.

    Attributes:
        scopes: Scopes of an API key, permissions of an agent key.
        rate_limit_tier: Only for API keys.
        rate_limit: Only for agent keys; *ip_restriction* and *ip_list* likewise.
        agent_id: Only for API keys; the agent_id of an agent key never changes.
        expires_at: None removes the expiry.
        servers: None removes the restriction; *tools*, *orgs*, *projects* likewise.
    """

    name: str | UNSET = UNSET
    scopes: tuple[str, ...] | UNSET = UNSET
    rate_limit_tier: Tier | UNSET = UNSET
    rate_limit: int | UNSET = UNSET
    expires_at: datetime | UNSET | None = UNSET
    agent_id: str | UNSET | None = UNSET
    ip_restriction: bool | UNSET = UNSET
    ip_list: tuple[str, ...] | UNSET = UNSET
    servers: frozenset[str] | UNSET | None = UNSET
    tools: tuple[str, ...] | UNSET | None = UNSET
    orgs: frozenset[str] | UNSET | None = UNSET
    projects: frozenset[str] | UNSET | None = UNSET
    tool_limits: Mapping[str, int] | UNSET = UNSET

    def apply(self, key: Key, now: datetime, *, allow_platform_scopes: bool) -> Key:
        """
        Return *key* with the change applied.

        Args:
            allow_platform_scopes: Accept new platform scopes. Platform scopes that the key already has are always accepted.

        Raises:
            ValidationFailed: A field is invalid.
        """
        if invalid := [name for name in _IMMUTABLE_FIELDS[key.kind] if getattr(self, name) is not UNSET]:
            noun = "an API key" if key.kind == "api" else "an agent key"
            raise ValidationFailed({name: [f"cannot be changed for {noun}"] for name in invalid})
        check = FieldValidator()
        changed_lists = {name: value for name, value in get_set_fields(self).items() if name in RESTRICTION_NAMES}
        field_name = "scopes" if key.kind == "api" else "permissions"
        changed_key = replace(
            key,
            name=key.name if self.name is UNSET else check.validate_name(self.name),
            scopes=key.scopes
            if self.scopes is UNSET
            else check.validate_grants(
                self.scopes, field_name=field_name, allow_platform_scopes=allow_platform_scopes, existing=key.scopes
            ),
            rate_limit_tier=value_or(self.rate_limit_tier, key.rate_limit_tier),
            rate_limit=key.rate_limit if self.rate_limit is UNSET else check.validate_rate_limit(self.rate_limit),
            expires_at=key.expires_at if self.expires_at is UNSET else check.validate_expiry(self.expires_at, now),
            agent_id=key.agent_id if self.agent_id is UNSET else check.validate_agent_id(self.agent_id),
            ip_restriction=self._is_enforced(key),
            ip_list=key.ip_list if self.ip_list is UNSET else check.validate_addresses(self.ip_list),
            restrictions=check.validate_restrictions(replace(key.restrictions, **changed_lists)),
        )
        check.raise_errors()
        return changed_key

    def _is_enforced(self, key: Key) -> bool:
        """Return whether the key's IP list is enforced after the change."""
        is_enforced = resolve_enforcement(value_or(self.ip_list, ()), None if self.ip_restriction is UNSET else self.ip_restriction)
        return key.ip_restriction if is_enforced is None else is_enforced


def resolve_enforcement(entries: Collection[str], explicit: bool | None) -> bool | None:  # noqa: FBT001 - three-valued
    """
    Return whether a request with *entries* as its IP list switches the enforcement on or off.

    Args:
        entries: The addresses in the request.
        explicit: The value in the request; None: the request does not set it.

    Returns:
        None to keep the current setting: the request has no address and does not set the enforcement.
    """
    return True if explicit is None and entries else explicit


class FieldValidator:
    """Collects the errors of all fields of a request, so that one response lists them all."""

    def __init__(self) -> None:
        self._errors: dict[str, list[str]] = {}

    def raise_errors(self) -> None:
        """
        Raise the collected errors, if any.

        Raises:
            ValidationFailed: At least one field is invalid.
        """
        if self._errors:
            raise ValidationFailed(self._errors)

    def validate_name(self, text: str) -> str:
        """Return the name without surrounding spaces: 1 to 100 printable characters."""
        text = text.strip()
        if not 1 <= len(text) <= MAX_NAME_LENGTH or not text.isprintable():
            self._add_error("name", f"must be 1 to {MAX_NAME_LENGTH} printable characters")
        return text

    def validate_grants(
        self, names: Iterable[str], *, field_name: str, allow_platform_scopes: bool, existing: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return scopes or permissions in canonical spelling: at least one, all known, no new platform scopes unless allowed."""
        name_list = list(names)
        if not name_list:
            self._add_error(field_name, "must have at least one entry")
        if len(name_list) > MAX_LIST_ITEMS:
            self._add_error(field_name, f"must have at most {MAX_LIST_ITEMS} entries")
            return ()
        valid_names, errors = scopes.parse_grants(name_list, allow_platform_scopes=allow_platform_scopes, existing=existing)
        self._add_error(field_name, *errors)
        return valid_names

    def validate_addresses(self, entries: str | Iterable[str]) -> tuple[str, ...]:
        """Return canonical addresses and ranges. One invalid entry invalidates the list."""
        valid_addresses, errors = networks.parse_list(entries)
        self._add_error("ips", *errors)
        if len(valid_addresses) > MAX_LIST_ITEMS:
            self._add_error("ips", f"must have at most {MAX_LIST_ITEMS} entries")
        return valid_addresses

    def validate_expiry(self, moment: datetime | None, now: datetime) -> datetime | None:
        """Return the expiry, which must be in the future."""
        if moment is not None and moment <= now:
            self._add_error("expires_at", "must be in the future")
        return moment

    def validate_rate_limit(self, number: int) -> int:
        """Return the limit in requests per minute."""
        if not 1 <= number <= MAX_RATE_PER_MINUTE:
            self._add_error("rate_limit", f"must be 1 to {MAX_RATE_PER_MINUTE}")
        return number

    def validate_agent_id(self, text: str | None) -> str | None:
        """Return an agent_id in the format of `slugify`, or None."""
        if text is not None and _AGENT_ID.fullmatch(text) is None:
            self._add_error("agent_id", "must be 1 to 64 characters (a-z, 0-9, - and _) and begin and end with a letter or digit")
        return text

    def validate_restrictions(self, restrictions: KeyRestrictions) -> KeyRestrictions:
        """Return the restrictions: allow-lists without empty names, and tool limits of at least 1 call per minute."""
        for field_name, names in {
            "servers": restrictions.servers,
            "tools": restrictions.tools,
            "orgs": restrictions.orgs,
            "projects": restrictions.projects,
        }.items():
            self._validate_names(field_name, names or ())
        self._validate_patterns("tools", restrictions.tools or ())
        self._validate_tool_limits(restrictions.tool_limits)
        return restrictions

    def _validate_names(self, field_name: str, names: Iterable[str]) -> None:
        name_list = list(names)
        if len(name_list) > MAX_LIST_ITEMS:
            self._add_error(field_name, f"must have at most {MAX_LIST_ITEMS} entries")
        if any(not name or len(name) > 256 or not name.isprintable() for name in name_list):
            self._add_error(field_name, "must have entries of 1 to 256 printable characters")

    def _validate_patterns(self, field_name: str, patterns: Collection[str]) -> None:
        if any(globs.count_sets(pattern) > MAX_SETS_PER_PATTERN for pattern in patterns):
            self._add_error(field_name, f"must have patterns with at most {MAX_SETS_PER_PATTERN} sets of characters, such as [a-z]")

    def _validate_tool_limits(self, limits: Mapping[str, int]) -> None:
        self._validate_names("tool_limits", limits)
        self._validate_patterns("tool_limits", limits)
        for glob, limit in limits.items():
            if not 1 <= limit <= MAX_RATE_PER_MINUTE:
                self._add_error("tool_limits", f"{glob[:64]}: must be 1 to {MAX_RATE_PER_MINUTE} calls per minute")

    def _add_error(self, field_name: str, *texts: str) -> None:
        if texts:
            self._errors.setdefault(field_name, []).extend(texts)


def slugify(name: str) -> str:
    """Return *name* as an agent_id; a name without a Latin letter or digit becomes `agent`."""
    return _NON_SLUG_CHARACTERS.sub("-", name.lower()).strip("-")[:64].rstrip("-") or "agent"


def make_unique_slug(name: str, used_slugs: set[str]) -> str:
    """Return the slug of *name*, with a number from 2 if it is taken."""
    base = slugify(name)
    number, free = 1, base
    while free in used_slugs:
        number += 1
        tail = f"-{number}"
        free = base[: 64 - len(tail)].rstrip("-") + tail
    return free
