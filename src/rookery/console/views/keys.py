"""Keys: API keys and agent keys of the workspace. A secret is shown once, in the response that creates it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from starlette.responses import Response

from rookery.access.scopes import PLATFORM, SCOPES, can_delegate
from rookery.console.arguments import or_unset
from rookery.console.formats import format_counted
from rookery.console.operation_forms import ControlGroup, ControlHint, Options, ResourceForm
from rookery.console.operation_lists import Column, Filter, OperationList
from rookery.console.visit import ListedPage, PageLinks, View, Visit
from rookery_client.generated import models

READ, WRITE, DELETE = "keys:read", "keys:write", "keys:delete"
_DEFAULT_GRACE_HOURS = 24
_SHOWN_CALLS = 15
_MAX_OPTIONS = 50
_AREAS = {
    "brain": "Memories",
    **dict.fromkeys(("mcp", "tools", "servers"), "Tools"),
    **dict.fromkeys(("plans", "phases", "sessions", "templates"), "Plans and sessions"),
    "notify": "Campaigns",
    **dict.fromkeys(("content", "score"), "Content"),
}
"""The areas of scopes, by the first part of their names."""

_OTHER_AREA = "Administration"

Key = models.ApiKey | models.AgentKey


async def list_keys(visit: Visit) -> Response:
    """List API keys or agent keys."""
    kind = "agent" if visit.query("kind") == "agent" else "api"
    listing = await KEY_LISTS[kind].load(visit, path="keys", hidden={"kind": kind})
    return visit.render("keys/keys.html", status=listing.status, listing=listing, kind=kind)


async def load_scopes(visit: Visit) -> Options:
    """Return the scopes that the key of the session may pass on, by area. Only the command line grants those of the platform."""
    groups = {area: list[tuple[str, str]]() for area in ("Whole workspace", *dict.fromkeys(_AREAS.values()), _OTHER_AREA)}
    wide = {"*": "everything in the workspace", "*:read": "read everything"}
    for scope, meaning in (wide | dict(SCOPES)).items():
        resource = re.split("[.:]", scope)[0]
        if resource != PLATFORM and can_delegate(visit.scopes, scope):
            groups["Whole workspace" if scope in wide else _AREAS.get(resource, _OTHER_AREA)].append((scope, meaning))
    return {area: options for area, options in groups.items() if options}


async def load_servers(visit: Visit) -> Options:
    """Return the tool servers that the key of the session may use."""
    servers = (await visit.client.tools.list_servers()).servers if visit.can("mcp:read") else []
    return {"": [(server.id, server.name) for server in servers]}


async def load_tools(visit: Visit) -> Options:
    """Return the pattern of all tools of each server."""
    return {"": [(f"{server}/*", f"all tools of {name}") for server, name in (await load_servers(visit))[""]]}


async def load_orgs(visit: Visit) -> Options:
    """Return the orgs that memories have."""
    return {"": [(org.org, format_counted(org.count, "memory", "memories")) for org in await _list_orgs(visit) if org.org]}


async def load_projects(visit: Visit) -> Options:
    """Return the projects that memories have."""
    names = {project.name: org.org for org in await _list_orgs(visit) for project in org.projects}
    return {"": [(name, f"in {org}" if org else "") for name, org in names.items()][:_MAX_OPTIONS]}


async def _list_orgs(visit: Visit) -> list[models.Org]:
    return (await visit.client.memory.list_scopes()).scopes[:_MAX_OPTIONS] if visit.can("brain:read") else []


def _declare_list(kind: str, operation: str, rights: str, empty: tuple[str, str]) -> OperationList:
    return OperationList(
        path="keys",
        client="keys",
        operation=operation,
        title="Keys",
        lead="API keys are for programs of your team, agent keys for one agent each.",
        noun="key",
        icon="keys",
        columns=(
            Column(name="name", macro="key_environment"),
            Column(name="hint", title="Key", macro="key_hint"),
            Column(name=rights, title="Rights", show=lambda key: _count_rights(getattr(key, rights))),
            Column(name="status", macro="key_state"),
            Column(name="call_count", title="Calls"),
            Column(name="last_used_at", title="Last used"),
        ),
        filters=(
            Filter(name="q", label="Search names"),
            Filter(name="status", options=(("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked"))),
        ),
        link=lambda key: f"keys/{kind}/{key.id}",
        empty=empty,
        empty_label="Create a key",
        new=(f"keys/{kind}/new", WRITE, "New key"),
    )


def _count_rights(scopes: Sequence[str]) -> str:
    return "everything" if "*" in scopes else format_counted(len(scopes), "scope")


def _declare_form(kind: str, rights: str, agent_help: str, *beside_name: str) -> ResourceForm:
    name = f"{kind}_key"
    return ResourceForm(
        path=f"keys/{kind}",
        list_path=f"keys?kind={kind}",
        parameter="key_id",
        client="keys",
        scope=WRITE,
        create=f"create_{name}",
        get=f"get_{name}",
        change=f"update_{name}",
        noun="agent key" if kind == "agent" else "API key",
        back="Keys",
        lead="You can pass on only what your own key has.",
        create_label="Create key",
        groups=(
            ControlGroup("", ("name",)),
            ControlGroup("", beside_name, is_row=True),
            ControlGroup("", ("expires_at", "preset", rights)),
            ControlGroup(
                "Restrictions", ("servers", "tools", "tool_limits", "orgs", "projects", "ip_list", "ip_restriction"), is_folded=True
            ),
        ),
        hints=_HINTS
        | {
            rights: ControlHint(label="Scopes", kind="checks", load_options=load_scopes, help=""),
            "agent_id": ControlHint(label="Agent", help=agent_help),
        },
        error_names={"ips": "ip_list"},
        show_created=lambda visit, key: _show_secret(visit, key, key.key if kind == "agent" else key.plaintext_key, kind),
    )


_HINTS = {
    "name": ControlHint(help="Who or what uses it, such as “billing service”."),
    "environment": ControlHint(texts={"": "as your key", "test": "test: nothing is sent, data apart"}, help=""),
    "rate_limit_tier": ControlHint(
        label="Rate limit",
        texts={
            "free": "free: 1,000 an hour",
            "pro": "pro: 10,000 an hour",
            "business": "business: 50,000 an hour",
            "enterprise": "enterprise: unlimited",
        },
    ),
    "rate_limit": ControlHint(label="Requests per minute", help=""),
    "expires_at": ControlHint(label="Expires", kind="expiry", help=""),
    "preset": ControlHint(texts={"": "none"}, help="Its rights are added to the scopes below."),
    "servers": ControlHint(label="Tool servers", load_options=load_servers, help="Other ids of servers, one a line."),
    "tools": ControlHint(load_options=load_tools, help="Other tools, one a line, such as `web/search` or `*/read_*`."),
    "orgs": ControlHint(label="Orgs of memories", load_options=load_orgs, help="Other orgs, one a line."),
    "projects": ControlHint(label="Projects of memories", load_options=load_projects, help="Other projects, one a line."),
    "tool_limits": ControlHint(
        label="Limits of tools",
        kind="rows",
        placeholder="web/*",
        load_options=load_tools,
        help="Calls per minute of a tool or a pattern. Save to get more rows.",
    ),
    "ip_list": ControlHint(label="Addresses", scope="audit:read", help="Addresses or networks, one a line, such as `10.0.0.0/8`."),
    "ip_restriction": ControlHint(
        label="Refuse other addresses",
        texts={"": "if there is an address in the list", "true": "always", "false": "never"},
        help="With an empty list, every request is refused.",
    ),
}
KEY_LISTS = {
    "api": _declare_list("api", "list_api_keys", "scopes", ("No keys here", "An API key is for a program of your team.")),
    "agent": _declare_list(
        "agent",
        "list_agent_keys",
        "permissions",
        ("No keys here", "An agent key gives one agent its own permissions, rate limit and addresses."),
    ),
}
KEY_FORMS = {
    "api": _declare_form(
        "api", "scopes", "The agent in whose name it acts. Empty: any agent.", "environment", "rate_limit_tier", "agent_id"
    ),
    "agent": _declare_form("agent", "permissions", "Empty: made from the name. It never changes.", "agent_id", "rate_limit"),
}


async def show_api_key(visit: Visit) -> Response:
    """Show an API key with its rights and latest calls."""
    return await _show_key(visit, "api")


async def show_agent_key(visit: Visit) -> Response:
    """Show an agent key with its rights and latest calls."""
    return await _show_key(visit, "agent")


async def rotate_key(visit: Visit) -> Response:
    """Create a new secret for a key. The old one works for the hours of the form."""
    form, kind, key_id = await visit.form(), visit.path("kind"), visit.path("key_id")
    hours = or_unset(form.integer("grace_period_hours"))
    if kind == "agent":
        agent = await visit.client.keys.rotate_agent_key(key_id, grace_period_hours=hours)
        return _show_secret(visit, agent, agent.key, "agent")
    api = await visit.client.keys.rotate_api_key(key_id, grace_period_hours=hours)
    return _show_secret(visit, api, api.plaintext_key, "api")


async def change_key_state(visit: Visit) -> Response:
    """Suspend, resume or revoke a key."""
    kind, key_id, keys = visit.path("kind"), visit.path("key_id"), visit.client.keys
    action = (await visit.form()).get("action")
    if action == "suspend":
        await (keys.suspend_agent_key(key_id) if kind == "agent" else keys.suspend_api_key(key_id))
        return visit.redirect(f"keys/{kind}/{key_id}", "stopped")
    await (keys.resume_agent_key(key_id) if kind == "agent" else keys.resume_api_key(key_id))
    return visit.redirect(f"keys/{kind}/{key_id}", "started")


async def delete_key(visit: Visit) -> Response:
    """Revoke an agent key, or delete an API key. Their calls stay in the log."""
    kind, key_id = visit.path("kind"), visit.path("key_id")
    if kind == "agent":
        await visit.client.keys.revoke_agent_key(key_id)
        return visit.redirect("keys?kind=agent", "revoked")
    await visit.client.keys.delete_api_key(key_id)
    return visit.redirect("keys", "revoked")


async def _show_key(visit: Visit, kind: str) -> Response:
    keys, key_id, page = visit.client.keys, visit.path("key_id"), visit.page_number
    key: Key
    calls: ListedPage
    if kind == "agent":
        key = await keys.get_agent_key(key_id)
        granted = key.permissions
        calls = await keys.list_agent_key_calls(key_id, page=page, per_page=_SHOWN_CALLS)
    else:
        key = await keys.get_api_key(key_id)
        granted = key.scopes
        calls = await keys.list_api_key_calls(key_id, page=page, per_page=_SHOWN_CALLS)
    form, is_revoked = KEY_FORMS[kind], getattr(key, "revoked_at", None) is not None
    return visit.render(
        "keys/key.html",
        status=200,
        key=key,
        granted=granted,
        restrictions=describe_restrictions(key.model_dump()),
        calls=calls,
        links=PageLinks.of(visit, calls, _SHOWN_CALLS),
        kind=kind,
        grace=_DEFAULT_GRACE_HOURS,
        is_revoked=is_revoked,
        **({} if is_revoked or not visit.can(WRITE) else await form.build(visit, form.change, key)),
    )


def describe_restrictions(key: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the names and values of what restricts a key. A list of a restriction may be empty, which allows nothing."""
    limits = cast("Mapping[str, int]", key.get("tool_limits") or {})
    addresses = ["a list that your key may not read"] if key.get("ip_list") is None else key["ip_list"]
    restricted = {
        **{name.capitalize(): key.get(name) for name in ("servers", "tools", "orgs", "projects")},
        "Limits of tools": [f"{pattern}: {count:,} a minute" for pattern, count in limits.items()] or None,
        "Addresses": addresses if key.get("ip_restriction") else None,
    }
    return [(title, ", ".join(cast("list[str]", values)) or "none") for title, values in restricted.items() if values is not None]


def _show_secret(visit: Visit, key: Key, secret: str, kind: str) -> Response:
    return visit.render("keys/secret.html", key=key, secret=secret, kind=kind)


VIEWS = (
    View("GET", "/keys", list_keys, READ),
    *KEY_FORMS["api"].views(),
    *KEY_FORMS["agent"].views(),
    View("GET", "/keys/api/{key_id}", show_api_key, READ),
    View("GET", "/keys/agent/{key_id}", show_agent_key, READ),
    View("POST", "/keys/{kind}/{key_id}/rotate", rotate_key, WRITE),
    View("POST", "/keys/{kind}/{key_id}/state", change_key_state, WRITE),
    View("POST", "/keys/{kind}/{key_id}/delete", delete_key, DELETE),
)
