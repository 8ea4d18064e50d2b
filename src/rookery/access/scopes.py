"""
The grammar of scopes and permissions, one for both (spec 5.2, 5.3, D-23). Pure: no I/O, no settings.

A grant is `{resource}:{action}`, `{resource}:*`, `*:read` or `*`; what a route needs is always `{resource}:{action}`.
`.` and `:` mean the same. `write` never implies `read`. What lies under `platform:` no wildcard grants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from types import MappingProxyType

from rookery.kernel.suggestions import find_nearest

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
"""Every scope there is, in the spec's spelling, and what it allows: the source of the guard and of the documentation."""

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
"""Permissions that go together, by name."""


_MAX_SUGGESTIONS = 10
"""So many mistakes are told what is nearest: a look costs up to a millisecond, and a request may name a thousand (1.1 s)."""


def _normalize(name: str) -> str:
    return name.replace(".", ":")


_RESOURCES = frozenset(_normalize(name).partition(":")[0] for name in SCOPES) - {PLATFORM}
_WILDCARDS = (ALL_SCOPES, ALL_READ, *(f"{resource}:*" for resource in sorted(_RESOURCES)))
_CANONICAL_SPELLING = {_normalize(name): name for name in (*SCOPES, *_WILDCARDS)}


def grants(held: frozenset[str], needed: str) -> bool:
    """Tell whether one of the grants *held* covers *needed*, a scope without wildcards."""
    return not list_covering_grants(needed).isdisjoint(held)


def grants_any(held: frozenset[str], needed: Iterable[str]) -> bool:
    """Tell whether *held* covers at least one of *needed* (spec 5.3); of nothing, none."""
    return any(grants(held, scope) for scope in needed)


def grants_all(held: frozenset[str], needed: Iterable[str]) -> bool:
    """Tell whether *held* covers each of *needed* (spec 5.3)."""
    return all(grants(held, scope) for scope in needed)


@lru_cache(maxsize=1024)
def list_covering_grants(needed: str) -> frozenset[str]:
    """Return every grant, in either spelling, that covers *needed*; a wildcard is no scope that can be needed: none."""
    resource, colon, action = _normalize(needed).partition(":")
    if not colon or not resource or not action or "*" in needed or ":" in action:
        return frozenset()
    if resource == PLATFORM:
        return _both_spellings(f"{resource}:{action}")
    reading = _both_spellings(ALL_READ) if action == "read" else frozenset[str]()
    return _both_spellings(f"{resource}:{action}") | _both_spellings(f"{resource}:*") | reading | {ALL_SCOPES}


def can_delegate(held: frozenset[str], grant: str) -> bool:
    """
    Tell whether who holds *held* may hand *grant* on (D-24): everything it ever grants, they hold by name or wider wildcard.

    All the actions of a resource, held one by one, do not cover its wildcard, which also grants those still to come.
    """
    resource, _, action = _normalize(grant).partition(":")
    if "*" not in grant:
        return grants(held, grant)
    wider = {ALL_SCOPES} if action == "*" and resource != "*" else set[str]()
    if resource == PLATFORM:
        return False
    if _normalize(grant) == ALL_READ:
        wider = {ALL_SCOPES}
    return not (_both_spellings(_normalize(grant)) | wider).isdisjoint(held)


def list_not_delegable(held: frozenset[str], wanted: Iterable[str]) -> list[str]:
    """Return those of *wanted* that who holds *held* may not hand on; empty: all may be (D-24)."""
    return [grant for grant in wanted if not can_delegate(held, grant)]


def parse_grants(
    names: Collection[str], *, allow_platform_scopes: bool, existing: Collection[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """
    Read grants that somebody wrote: return them in the spec's spelling, each once, and what is wrong with the others.

    Args:
        names: In any spelling.
        allow_platform_scopes: Whether `platform:` scopes may be granted here: only the command line may (D-23).
        existing: Grants in the spec's spelling that are there already, and may stay.
    """
    good: dict[str, None] = {}
    wrong: list[str] = []
    for name in names:
        spelled = _CANONICAL_SPELLING.get(_normalize(name))
        if spelled is None:
            wrong.append(_unknown_scope_message(name, suggest=len(wrong) < _MAX_SUGGESTIONS))
        elif not allow_platform_scopes and spelled.startswith(f"{PLATFORM}:") and spelled not in existing:
            wrong.append(f"{name}: only the command line grants platform scopes")
        else:
            good[spelled] = None
    return tuple(good), wrong


def _unknown_scope_message(name: str, *, suggest: bool) -> str:
    near = find_nearest(_normalize(name), _CANONICAL_SPELLING) if suggest else None
    shown = name if len(name) <= 64 else f"{name[:64]}…"
    return f"{shown}: unknown scope" + (f"; the nearest is {_CANONICAL_SPELLING[near]}" if near else "")


def _both_spellings(name: str) -> frozenset[str]:
    return frozenset((name, name.replace(":", ".")))
