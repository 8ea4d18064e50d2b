"""
Delegation: a key may only create or change keys that have at most its own rights. No I/O, clock or settings.

This prevents privilege escalation through other keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rookery.access import scopes
from rookery.access.errors import DelegationDenied, ScopeMissing
from rookery.access.models import TEST, Environment, Key, Tier, missing_scope_error
from rookery.access.networks import covers_all, parse_networks
from rookery.access.rate_limits import DEFAULT_RATE_PER_MINUTE, TIER_LIMITS_PER_HOUR
from rookery.kernel import globs
from rookery.kernel.clock import format_iso
from rookery.kernel.errors import PermissionDenied

_AGENT_SCOPES = ("brain:read", "brain:write", "brain:delete", "sessions.write")
"""Scopes with which a key that is bound to an agent reaches memories and sessions of this agent alone."""
_MINUTES_PER_HOUR = 60


def require_delegable(holder: Key, target: Key, *, is_new: bool = False) -> None:
    """
    Raise an error unless *holder* has every right that *target* has.

    Args:
        holder: The acting key.
        target: The key to be created or changed, as it is before or after the change.
        is_new: *target* is being created. A new agent key may name another agent; the caller must check that the
            agent has no private data.

    Raises:
        ScopeMissing, PermissionDenied: A scope that *holder* lacks.
        DelegationDenied: Another setting that exceeds *holder*'s, with the name of the field.
    """
    error = _check_scopes(holder, target) or _check_settings(holder, target)
    if error is None and not (is_new and target.kind == "agent"):
        error = _check_agent(holder, target)
    if error is not None:
        raise error


def require_environment(holder: Key, environment: Environment) -> None:
    """
    Raise an error unless *holder* may create keys of *environment*. Call it before reading other keys, which a test key must not see.

    Raises:
        DelegationDenied: *holder* is a test key, and the new keys would be live.
    """
    if not _can_reach_environment(holder, environment):
        raise _test_keys_only_error()


def can_see(holder: Key, target: Key) -> bool:
    """Return whether *holder* can see *target*: same workspace, and for a test key only test keys."""
    return _is_same_workspace(holder, target) and _can_reach_environment(holder, target.environment)


def _is_same_workspace(holder: Key, target: Key) -> bool:
    return target.workspace_id == holder.workspace_id or scopes.grants(frozenset(holder.scopes), scopes.ALL_WORKSPACES_SCOPE)


def _check_scopes(holder: Key, target: Key) -> ScopeMissing | PermissionDenied | None:
    lacking = scopes.list_not_delegable(frozenset(holder.scopes), target.scopes)
    return missing_scope_error(holder.kind, lacking[0]) if lacking else None


def _check_settings(holder: Key, target: Key) -> DelegationDenied | None:
    if not _is_same_workspace(holder, target):
        return DelegationDenied("workspace_id", "This key belongs to another workspace.")
    if not _can_reach_environment(holder, target.environment):
        return _test_keys_only_error()
    own, other = holder.restrictions, target.restrictions
    for field, allowed, requested in (
        ("servers", own.servers, other.servers),
        ("orgs", own.orgs, other.orgs),
        ("projects", own.projects, other.projects),
    ):
        if not _covers_names(allowed, requested):
            return DelegationDenied(field, f"This key is restricted to some {field}; the other key's {field} must be a subset of them.")
    if own.tools is not None and (other.tools is None or not all(_covers_glob(own.tools, glob) for glob in other.tools)):
        return DelegationDenied("tools", "This key is restricted to some tools; the other key's tools must be a subset of them.")
    if not _covers_limits(own.tool_limits, other.tool_limits):
        return DelegationDenied("tool_limits", "This key has tool_limits; the other key needs the same or lower limits.")
    return _check_rate_limit(holder, target) or _check_expiry_and_addresses(holder, target)


def _can_reach_environment(holder: Key, environment: Environment) -> bool:
    return holder.environment != TEST or environment == TEST


def _test_keys_only_error() -> DelegationDenied:
    return DelegationDenied("environment", "This is a test key; it can create and change only test keys.")


def _covers_names(allowed: frozenset[str] | None, requested: frozenset[str] | None) -> bool:
    return allowed is None or (requested is not None and requested <= allowed)


def _covers_glob(allowed: Collection[str], requested: str) -> bool:
    """Return whether one of *allowed* matches everything that the glob *requested* matches; False if unsure."""
    literal = requested[: min((index for index, char in enumerate(requested) if char in globs.WILDCARDS), default=len(requested))]
    for glob in allowed:
        if glob == requested or (literal == requested and globs.matches(requested, glob)):
            return True
        stem = glob[:-1]
        if glob.endswith("*") and globs.WILDCARDS.isdisjoint(stem) and literal.startswith(stem):
            return True
    return False


def _covers_limits(allowed: Mapping[str, int], requested: Mapping[str, int]) -> bool:
    return all(glob in requested and requested[glob] <= limit for glob, limit in allowed.items())


def _check_rate_limit(holder: Key, target: Key) -> DelegationDenied | None:
    """Compare the rate limits: requests per hour for an API key, per minute for an agent key."""
    if target.kind == "api":
        max_rate = (
            TIER_LIMITS_PER_HOUR[holder.rate_limit_tier or Tier.FREE]
            if holder.kind == "api"
            else _max_hourly_rate(holder.rate_limit or DEFAULT_RATE_PER_MINUTE)
        )
        requested_rate = TIER_LIMITS_PER_HOUR[target.rate_limit_tier or Tier.FREE]
        if max_rate is not None and (requested_rate is None or requested_rate > max_rate):
            return DelegationDenied(
                "rate_limit_tier",
                f"This key may only create keys with at most {max_rate} requests per hour; tier {target.rate_limit_tier} has more.",
            )
        return None
    if holder.kind == "api":
        hourly = TIER_LIMITS_PER_HOUR[holder.rate_limit_tier or Tier.FREE]
        # The default rate of an agent key exceeds the lower tiers' rate per minute, but every key may create keys with that default.
        max_rate = None if hourly is None else max(DEFAULT_RATE_PER_MINUTE, hourly // _MINUTES_PER_HOUR)
    else:
        max_rate = holder.rate_limit or DEFAULT_RATE_PER_MINUTE
    if max_rate is not None and (target.rate_limit or DEFAULT_RATE_PER_MINUTE) > max_rate:
        return DelegationDenied("rate_limit", f"This key may only create keys with at most {max_rate} requests per minute.")
    return None


def _max_hourly_rate(rate: int) -> int:
    """
    Return the highest hourly limit of an API key that an agent key with *rate* requests per minute may create.

    Any API key may create agent keys with the default rate. So a slower agent key may create no API key, and an agent
    key with exactly the default rate may create only keys of tier free. Otherwise two steps would raise a limit: a free
    key would get a higher tier, and a slow agent the default rate.
    """
    if rate > DEFAULT_RATE_PER_MINUTE:
        return rate * _MINUTES_PER_HOUR
    return TIER_LIMITS_PER_HOUR[Tier.FREE] or 0 if rate == DEFAULT_RATE_PER_MINUTE else 0


def _check_expiry_and_addresses(holder: Key, target: Key) -> DelegationDenied | None:
    if holder.expires_at is not None and (target.expires_at is None or target.expires_at > holder.expires_at):
        return DelegationDenied("expires_at", f"This key expires at {format_iso(holder.expires_at)}; the other key must not expire later.")
    if holder.delete_after is not None and (target.delete_after is None or target.delete_after > holder.delete_after):
        ends = target.expires_at
        if ends is None or ends > holder.delete_after:
            message = f"This key was rotated and stops working at {format_iso(holder.delete_after)}; the other key must not expire later."
            return DelegationDenied("expires_at", message)
    if holder.ip_restriction and not (target.ip_restriction and covers_all(parse_networks(holder.ip_list), parse_networks(target.ip_list))):
        return DelegationDenied("ip_list", "This key is restricted to its IP list; the other key's IP list must be enforced and within it.")
    return None


def _check_agent(holder: Key, target: Key) -> DelegationDenied | None:
    if can_reach_other_agent(holder, target):
        return DelegationDenied("agent_id", f"This key is bound to the agent {holder.agent_id!r}; the other key must be bound to it too.")
    return None


def can_reach_other_agent(holder: Key, target: Key) -> bool:
    """Return whether *holder*, bound to one agent, could use private memories or sessions of another agent through *target*."""
    if holder.agent_id in {None, target.agent_id} or scopes.grants(frozenset(holder.scopes), "brain:admin"):
        return False
    return scopes.grants_any(frozenset(target.scopes), _AGENT_SCOPES)
