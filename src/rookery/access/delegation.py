"""
How far a key may go with other keys: never further than itself (D-24). Pure: no I/O, no clock, no settings.

What a key could not do itself, it can neither make a key for, nor make a key that has it do: so no privilege can grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from rookery.access import scopes
from rookery.access.errors import DelegationDenied, ScopeMissing
from rookery.access.models import TEST, Environment, Key, Tier, missing_scope_error
from rookery.access.networks import covers_all, parse_networks
from rookery.access.rate_limits import DEFAULT_RATE_PER_MINUTE, TIER_LIMITS_PER_HOUR
from rookery.kernel.errors import PermissionDenied

_WILDCARD_CHARACTERS = frozenset("*?[")
_MINUTES_PER_HOUR = 60


def require_delegable(holder: Key, target: Key, *, is_new: bool = False) -> None:
    """
    Do nothing if *holder* has all that *target* has.

    Args:
        holder: The key that acts.
        target: The key that it makes or changes, as it is before or after.
        is_new: An agent key being made has an agent's name of its own: that nobody used it before is for the maker to look up.

    Raises:
        ScopeMissing, PermissionDenied: A scope that it does not have.
        NotHeld: Anything else that it does not have, with the field's name.
    """
    refusal = _check_scopes(holder, target) or _check_settings(holder, target)
    if refusal is None and not (is_new and target.kind == "agent"):
        refusal = _check_agent(holder, target)
    if refusal is not None:
        raise refusal


def require_environment(holder: Key, environment: Environment) -> None:
    """
    Do nothing if *holder* may make keys of *environment*: asked before any other key is looked at, which a test key must not hear of.

    Raises:
        NotHeld: It is a test key, and those would be live (D-25).
    """
    if not _can_reach_environment(holder, environment):
        raise _test_keys_only_error()


def can_see(holder: Key, target: Key) -> bool:
    """Tell whether *target* exists for *holder*: in its own workspace, and for a test key test keys alone (D-25)."""
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
    mine, theirs = holder.restrictions, target.restrictions
    for field, held, wanted in (
        ("servers", mine.servers, theirs.servers),
        ("orgs", mine.orgs, theirs.orgs),
        ("projects", mine.projects, theirs.projects),
    ):
        if not _covers_names(held, wanted):
            return DelegationDenied(field, f"This key's own {field} are restricted, and the other's reach further.")
    if mine.tools is not None and (theirs.tools is None or not all(_covers_glob(mine.tools, glob) for glob in theirs.tools)):
        return DelegationDenied("tools", "This key's own tools are restricted, and the other's reach further.")
    if not _covers_limits(mine.tool_limits, theirs.tool_limits):
        return DelegationDenied("tool_limits", "This key's own calls of tools are limited, and the other's are less so.")
    return _check_rate_limit(holder, target) or _check_expiry_and_addresses(holder, target)


def _can_reach_environment(holder: Key, environment: Environment) -> bool:
    return holder.environment != TEST or environment == TEST


def _test_keys_only_error() -> DelegationDenied:
    return DelegationDenied("environment", "This test key reaches only test keys.")


def _covers_names(held: frozenset[str] | None, wanted: frozenset[str] | None) -> bool:
    return held is None or (wanted is not None and wanted <= held)


def _covers_glob(held: Collection[str], wanted: str) -> bool:
    """Tell whether everything that the glob *wanted* matches is matched by one of *held*; in doubt, not."""
    literal = wanted[: min((place for place, sign in enumerate(wanted) if sign in _WILDCARD_CHARACTERS), default=len(wanted))]
    for glob in held:
        if glob == wanted or (literal == wanted and fnmatchcase(wanted, glob)):
            return True
        stem = glob[:-1]
        if glob.endswith("*") and _WILDCARD_CHARACTERS.isdisjoint(stem) and literal.startswith(stem):
            return True
    return False


def _covers_limits(held: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(glob in wanted and wanted[glob] <= limit for glob, limit in held.items())


def _check_rate_limit(holder: Key, target: Key) -> DelegationDenied | None:
    """Compare how much the two may ask: in an hour for an API key, in a minute for an agent key."""
    if target.kind == "api":
        most = (
            TIER_LIMITS_PER_HOUR[holder.tier or Tier.FREE]
            if holder.kind == "api"
            else _max_hourly_rate(holder.rate_limit or DEFAULT_RATE_PER_MINUTE)
        )
        wanted = TIER_LIMITS_PER_HOUR[target.tier or Tier.FREE]
        if most is not None and (wanted is None or wanted > most):
            return DelegationDenied(
                "rate_limit_tier", f"This key may not make keys of the tier {target.tier}, only of {most} requests an hour."
            )
        return None
    if holder.kind == "api":
        hourly = TIER_LIMITS_PER_HOUR[holder.tier or Tier.FREE]
        # The default rate of an agent is more than the lower tiers have in a minute, but any key that may make keys may make a usual one.
        most = None if hourly is None else max(DEFAULT_RATE_PER_MINUTE, hourly // _MINUTES_PER_HOUR)
    else:
        most = holder.rate_limit or DEFAULT_RATE_PER_MINUTE
    if most is not None and (target.rate_limit or DEFAULT_RATE_PER_MINUTE) > most:
        return DelegationDenied("rate_limit", f"This key may not make keys with more than {most} requests a minute.")
    return None


def _max_hourly_rate(rate: int) -> int:
    """
    Return how many requests an hour an API key may have that an agent key of *rate* a minute makes.

    Any API key may make agent keys of the usual rate. So a slower agent key makes no API key, and one of just that rate only
    the slowest: by way of the other kind it would get at more, a free key at a higher tier and a slow agent at the usual rate.
    """
    if rate > DEFAULT_RATE_PER_MINUTE:
        return rate * _MINUTES_PER_HOUR
    return TIER_LIMITS_PER_HOUR[Tier.FREE] or 0 if rate == DEFAULT_RATE_PER_MINUTE else 0


def _check_expiry_and_addresses(holder: Key, target: Key) -> DelegationDenied | None:
    if holder.expires_at is not None and (target.expires_at is None or target.expires_at > holder.expires_at):
        return DelegationDenied("expires_at", "This key expires, and the other would outlive it.")
    if holder.delete_after is not None and (target.delete_after is None or target.delete_after > holder.delete_after):
        ends = target.expires_at
        if ends is None or ends > holder.delete_after:
            return DelegationDenied("expires_at", "This key was rotated and ends with its grace period, and the other would outlive it.")
    if holder.ip_restriction and not (target.ip_restriction and covers_all(parse_networks(holder.ip_list), parse_networks(target.ip_list))):
        return DelegationDenied("ip_list", "This key may be used from its own addresses only, and the other from more.")
    return None


def _check_agent(holder: Key, target: Key) -> DelegationDenied | None:
    if can_reach_other_agent(holder, target):
        return DelegationDenied("agent_id", f"This key speaks for the agent {holder.agent_id!r}, and the other would for more.")
    return None


def can_reach_other_agent(holder: Key, target: Key) -> bool:
    """Tell whether *holder*, which speaks for one agent alone, could through *target* read another's own memories (D-43)."""
    if holder.agent_id in {None, target.agent_id} or scopes.grants(frozenset(holder.scopes), "brain:admin"):
        return False
    return scopes.grants_any(frozenset(target.scopes), ("brain:read", "brain:write", "brain:delete"))
