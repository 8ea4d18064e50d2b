"""A model of what a key can do: sets of possible actions that tests compare between keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network

from rookery.access.models import Key, KeyKind, KeyRestrictions, Tier
from rookery.access.rate_limits import TIER_LIMITS_PER_HOUR
from rookery.access.scopes import SCOPES, grants

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

AGENTS = ("rook", "owl")
"""Agents with memories and sessions of their own."""

MOMENTS = tuple(NOW + timedelta(hours=hours) for hours in (0, 1, 2, 24 * 3650))
ORGS, PROJECTS, SERVERS, TOOLS = ("acme", "globex"), ("api", "web"), ("web", "time"), ("search", "fetch")
ADDRESSES = ("192.0.2.1", "192.0.2.200", "203.0.113.9", "2001:db8::1")
CALLS = (1, 5, 50)
_OF_AGENTS = ("brain:read", "brain:write", "brain:delete", "sessions.write")
"""Scopes that reach only the memories and sessions of the agent to which a key is bound."""

Capabilities = Mapping[str, frozenset[object]]


def capabilities_of(key: Key) -> Capabilities:
    """
    Return what *key* can do, by side. It may do an action only if no side forbids it.

    A test key acts in the sandbox. A live key may act there too, through a test key that it makes.
    """
    granted = frozenset(key.scopes)
    return {
        "workspace": frozenset({key.workspace_id}),
        "environment": frozenset({"test"} if key.environment == "test" else {"test", "live"}),
        "scope": frozenset(
            (scope, agent) for scope in SCOPES for agent in AGENTS if grants(granted, scope) and _can_act_for(key, scope, agent)
        ),
        "tool": frozenset(
            (server, tool, calls)
            for server in SERVERS
            for tool in TOOLS
            for calls in CALLS
            if _can_call(key.restrictions, server, tool, calls)
        ),
        "org": _allowed_names(ORGS, key.restrictions.orgs),
        "project": _allowed_names(PROJECTS, key.restrictions.projects),
        "time": frozenset(at for at in MOMENTS if not any(end is not None and end <= at for end in (key.expires_at, key.delete_after))),
        "address": frozenset(address for address in ADDRESSES if _is_address_allowed(key, address)),
    }


def list_excesses(one: Capabilities, other: Capabilities) -> list[str]:
    """Return the sides in which *one* can do more than *other*; empty if it can do nothing."""
    if not all(one.values()):
        return []
    return [side for side in one if not one[side] <= other[side]]


def exceeds_rate(key: Key, origin: Key) -> bool:
    """
    Return whether *key* has a higher rate limit than a key derived from *origin* may have.

    A key of the same kind may not exceed the limit of *origin*. For the other kind, limits are compared per hour. Every API
    key may create agent keys with the default limit of 600 per minute.
    """
    if origin.kind == "api":
        tier_limit = TIER_LIMITS_PER_HOUR[origin.rate_limit_tier or Tier.FREE]
        max_per_hour = {"api": tier_limit, "agent": None if tier_limit is None else max(600, tier_limit // 60) * 60}
    else:
        max_per_hour = {"api": 60 * (origin.rate_limit or 600), "agent": 60 * (origin.rate_limit or 600)}
    limit, requested = (
        max_per_hour[key.kind],
        TIER_LIMITS_PER_HOUR[key.rate_limit_tier or Tier.FREE] if key.kind == "api" else 60 * (key.rate_limit or 600),
    )
    return limit is not None and (requested is None or requested > limit)


def make_key(kind: KeyKind = "api", **fields: object) -> Key:
    """Return a key with all rights, changed by *fields*."""
    fields_with_defaults: dict[str, object] = {
        "id": "key",
        "kind": kind,
        "name": "key",
        "workspace_id": 1,
        "tenant_id": 1,
        "environment": "live",
        "scopes": ("*",),
        "rate_limit_tier": Tier.ENTERPRISE if kind == "api" else None,
        "rate_limit": None if kind == "api" else 1_000_000,
        "agent_id": None,
        "restrictions": KeyRestrictions(),
        "hint": "",
        "ip_restriction": False,
        "ip_list": (),
        "created_at": NOW,
        "expires_at": None,
        "suspended_at": None,
        "revoked_at": None,
        "delete_after": None,
    }
    return Key(**{**fields_with_defaults, **fields})  # pyright: ignore[reportArgumentType] - fields by their own names


def _can_act_for(key: Key, scope: str, agent: str) -> bool:
    return scope not in _OF_AGENTS or key.agent_id in {None, agent} or grants(frozenset(key.scopes), "brain:admin")


def _can_call(restrictions: KeyRestrictions, server: str, tool: str, calls: int) -> bool:
    name = f"{server}/{tool}"
    return (
        (restrictions.servers is None or server in restrictions.servers)
        and (restrictions.tools is None or any(fnmatchcase(name, glob) for glob in restrictions.tools))
        and all(calls <= limit for glob, limit in restrictions.tool_limits.items() if fnmatchcase(name, glob))
    )


def _allowed_names(names: Collection[str], allowed: frozenset[str] | None) -> frozenset[object]:
    return frozenset(name for name in names if allowed is None or name in allowed)


def _is_address_allowed(key: Key, address: str) -> bool:
    client = ip_address(address)
    ranges = [ip_network(entry, strict=False) for entry in key.ip_list]
    return not key.ip_restriction or any(client.version == network.version and client in network for network in ranges)
