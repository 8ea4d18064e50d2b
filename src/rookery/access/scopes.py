"""
The grammar of scopes and permissions, which is the same for both. No I/O, no settings.

A grant is `{resource}:{action}`, `{resource}:*`, `*:read` or `*`. A route always requires one `{resource}:{action}`.
`.` and `:` are equivalent. `write` never implies `read`. No wildcard grants a scope under `platform:`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from types import MappingProxyType

from rookery.kernel.sentences import find_nearest

ALL_SCOPES = "*"
ALL_READ = "*:read"
PLATFORM = "platform"
ALL_WORKSPACES_SCOPE = "platform:workspaces"
ADDRESSES_SCOPE = "audit:read"

SCOPES = MappingProxyType(
    {
        "plans.read": "list and view plans",
        "plans.write": "create, update, archive plans",
        "phases.write": "update phases, manage tasks",
        "sessions.read": "list and view sessions",
        "sessions.write": "start, update, end sessions",
        "tools.read": "view tool analytics",
        "templates.read": "list and view templates",
        "templates.instantiate": "create plans from templates",
        "templates.write": "create, change and delete templates",
        "notify:read": "list push campaigns",
        "notify:write": "create and update campaigns",
        "notify:send": "send notifications",
        "mcp:read": "list tool servers, tools, resources and prompts, and read resources",
        "mcp:write": "call tools",
        "brain:read": "recall, search and list memories",
        "brain:write": "remember, and give feedback",
        "brain:delete": "delete, forget, archive and restore memories",
        "brain:admin": "another agent's own memories, export, import",
        "content.read": "read generated content and prompt templates",
        "content.write": "generate content, change prompt templates",
        "score:read": "score texts",
        "usage:read": "see what keys, agents, models and tools used, and what it cost",
        "keys:read": "list and view keys",
        "keys:write": "create, change and rotate keys",
        "keys:delete": "revoke and delete keys",
        "servers:read": "view the registration of tool servers",
        "servers:write": "register and change tool servers",
        "servers:delete": "remove tool servers",
        "webhooks:read": "list and view webhooks and their deliveries",
        "webhooks:write": "create, change and test webhooks",
        "webhooks:delete": "delete webhooks",
        "docs:read": "read the API documentation",
        ADDRESSES_SCOPE: "read the audit log, addresses and address lists",
        "console:read": "sign in to the console",
        ALL_WORKSPACES_SCOPE: "manage all workspaces",
        "platform:servers": "manage the tool servers of all workspaces",
        "platform:metrics": "read the platform's metrics",
        "platform:audit": "read the audit log of all workspaces",
    }
)
"""All scopes in their canonical spelling with their meaning. The guard and the documentation use this table."""

PRESETS = MappingProxyType(
    {
        "agent": (
            "mcp:read", "mcp:write", "brain:read", "brain:write", "brain:delete", "plans.read", "plans.write", "phases.write",
            "sessions.read", "sessions.write", "templates.read", "templates.instantiate", "tools.read", "score:read",
        ),
        "reader": ("mcp:read", "brain:read", "plans.read", "sessions.read", "templates.read", "tools.read", "notify:read", "content.read"),
        "planner": (
            "plans.read", "plans.write", "phases.write", "sessions.read", "sessions.write", "templates.read", "templates.write",
            "templates.instantiate", "brain:read", "brain:write",
        ),
        "notifier": ("notify:read", "notify:write", "notify:send", "content.read", "content.write"),
    }
)  # fmt: skip
"""Sets of permissions by name."""


_MAX_SUGGESTIONS = 10
"""Maximum invalid grants that get a suggestion. One takes up to a millisecond, so 1,000 would take 1.1 s."""


def _normalize(name: str) -> str:
    return name.replace(".", ":")


_RESOURCES = frozenset(_normalize(name).partition(":")[0] for name in SCOPES) - {PLATFORM}
_WILDCARDS = (ALL_SCOPES, ALL_READ, *(f"{resource}:*" for resource in sorted(_RESOURCES)))
_CANONICAL_SPELLING = {_normalize(name): name for name in (*SCOPES, *_WILDCARDS)}


def grants(held_scopes: frozenset[str], needed_scope: str) -> bool:
    """Return whether one of *held_scopes* covers *needed_scope*, a scope without wildcards."""
    return not list_covering_grants(needed_scope).isdisjoint(held_scopes)


def grants_any(held_scopes: frozenset[str], needed_scopes: Iterable[str]) -> bool:
    """Return whether *held_scopes* cover at least one of *needed_scopes*. False if *needed_scopes* is empty."""
    return any(grants(held_scopes, scope) for scope in needed_scopes)


def grants_all(held_scopes: frozenset[str], needed_scopes: Iterable[str]) -> bool:
    """Return whether *held_scopes* cover each of *needed_scopes*."""
    return all(grants(held_scopes, scope) for scope in needed_scopes)


@lru_cache(maxsize=1024)
def list_covering_grants(needed_scope: str) -> frozenset[str]:
    """Return every grant, in both spellings, that covers *needed_scope*. Empty for a wildcard, which no route can require."""
    resource, colon, action = _normalize(needed_scope).partition(":")
    if not colon or not resource or not action or "*" in needed_scope or ":" in action:
        return frozenset()
    if resource == PLATFORM:
        return _both_spellings(f"{resource}:{action}")
    read_grants = _both_spellings(ALL_READ) if action == "read" else frozenset[str]()
    return _both_spellings(f"{resource}:{action}") | _both_spellings(f"{resource}:*") | read_grants | {ALL_SCOPES}


def can_delegate(held_scopes: frozenset[str], grant: str) -> bool:
    """
    Return whether a holder of *held_scopes* may pass on *grant*: all of it must be covered by name or by a wider wildcard.

    Single actions, even all of a resource, do not cover its wildcard, which also grants future actions.
    """
    resource, _, action = _normalize(grant).partition(":")
    if "*" not in grant:
        return grants(held_scopes, grant)
    wider = {ALL_SCOPES} if action == "*" and resource != "*" else set[str]()
    if resource == PLATFORM:
        return False
    if _normalize(grant) == ALL_READ:
        wider = {ALL_SCOPES}
    return not (_both_spellings(_normalize(grant)) | wider).isdisjoint(held_scopes)


def list_not_delegable(held_scopes: frozenset[str], requested: Iterable[str]) -> list[str]:
    """Return those of *requested* that a holder of *held_scopes* may not pass on."""
    return [grant for grant in requested if not can_delegate(held_scopes, grant)]


def parse_grants(
    names: Collection[str], *, allow_platform_scopes: bool, existing: Collection[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """
    Parse grants. Return the valid ones in canonical spelling without duplicates, and an error for each invalid one.

    Args:
        names: The grants, in any spelling.
        allow_platform_scopes: Accept `platform:` scopes, which only the command line may grant.
        existing: Platform scopes that the key already has, in canonical spelling. They are always accepted.
    """
    valid: dict[str, None] = {}
    invalid: list[str] = []
    for name in names:
        canonical = _CANONICAL_SPELLING.get(_normalize(name))
        if canonical is None:
            invalid.append(_unknown_scope_message(name, suggest=len(invalid) < _MAX_SUGGESTIONS))
        elif not allow_platform_scopes and canonical.startswith(f"{PLATFORM}:") and canonical not in existing:
            invalid.append(f"{name}: only the command line can grant platform scopes")
        else:
            valid[canonical] = None
    return tuple(valid), invalid


def _unknown_scope_message(name: str, *, suggest: bool) -> str:
    nearest = find_nearest(_normalize(name), _CANONICAL_SPELLING) if suggest else None
    short_name = name if len(name) <= 64 else f"{name[:64]}…"
    return f"{short_name}: unknown scope" + (f"; the nearest is {_CANONICAL_SPELLING[nearest]}" if nearest else "")


def _both_spellings(name: str) -> frozenset[str]:
    return frozenset((name, name.replace(":", ".")))
