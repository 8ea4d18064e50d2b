"""Keys and workspaces as they are shown, field by field as D-29 names them: what the wire and the command line have in common."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rookery.access.models import Entry, Key, Minted, Reach, Use, Workspace
from rookery.kernel.clock import iso

Fields = dict[str, object]


def api_key(key: Key, use: Use) -> Fields:
    """Return an API key's fields."""
    return {
        "id": key.id,
        "name": key.name,
        "workspace_id": key.workspace_id,
        "agent_id": key.agent_id,
        "scopes": list(key.scopes),
        "rate_limit_tier": key.tier,
        "environment": key.environment,
        "expires_at": _time(key.expires_at),
        "created_at": iso(key.created_at),
        "suspended_at": _time(key.suspended_at),
        "hint": key.hint,
        **_use(use),
        "delete_after": _time(key.delete_after),
        **_reach(key.reach),
    }


def agent_key(key: Key, use: Use, at: datetime) -> Fields:
    """Return an agent key's fields; its status is the one at that time."""
    return {
        "id": key.id,
        "name": key.name,
        "agent_id": key.agent_id,
        "workspace_id": key.workspace_id,
        "permissions": list(key.scopes),
        "rate_limit": key.rate_limit,
        "expires_at": _time(key.expires_at),
        "created_at": iso(key.created_at),
        "status": key.status(at).value,
        "hint": key.hint,
        "ip_restriction": key.ip_restriction,
        "ip_list": list(key.ip_list),
        **_use(use),
        **_reach(key.reach),
    }


def entry(found: Entry, at: datetime) -> Fields:
    """Return the fields of a key of either kind."""
    return api_key(found.key, found.use) if found.key.kind == "api" else agent_key(found.key, found.use, at)


def minted(made: Minted, at: datetime) -> Fields:
    """Return the fields of a key just made, with its plaintext: `plaintext_key` of an API key, `key` of an agent key."""
    secret = "plaintext_key" if made.key.kind == "api" else "key"
    return {**entry(Entry(key=made.key, use=Use()), at), secret: made.plaintext.reveal()}


def workspace(found: Workspace) -> Fields:
    """Return a workspace's fields."""
    return {"workspace_id": found.id, "name": found.name, "created_at": iso(found.created_at)}


def _use(use: Use) -> Mapping[str, object]:
    return {"call_count": use.call_count, "last_used_at": _time(use.last_used_at), "last_used_ip": use.last_used_ip}


def _reach(reach: Reach) -> Mapping[str, object]:
    return {
        "servers": None if reach.servers is None else sorted(reach.servers),
        "tools": None if reach.tools is None else list(reach.tools),
        "orgs": None if reach.orgs is None else sorted(reach.orgs),
        "projects": None if reach.projects is None else sorted(reach.projects),
        "tool_limits": dict(reach.tool_limits),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
