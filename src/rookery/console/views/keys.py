"""Keys: API keys and agent keys of the workspace. A secret is shown once, in the response that creates it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from starlette.responses import Response

from rookery.access.scopes import PLATFORM, PRESETS, SCOPES, can_delegate
from rookery.console.arguments import or_unset, refuse_field
from rookery.console.visit import PER_PAGE, ListedPage, PageLinks, SubmittedForm, View, Visit, get_field_errors
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

READ, WRITE, DELETE = "keys:read", "keys:write", "keys:delete"
_STATUSES: Mapping[str, Literal["Active", "Revoked", "Expired"]] = {"active": "Active", "revoked": "Revoked", "expired": "Expired"}
_FIELDS = {"permissions": "scopes", "ips": "ip_list"}
"""The fields of the API whose fields of the form have other names."""

_DEFAULT_GRACE_HOURS = 24
_SHOWN_CALLS = 15

Key = models.ApiKey | models.AgentKey


async def list_keys(visit: Visit) -> Response:
    """List API keys or agent keys."""
    status = _STATUSES.get(visit.query("status"), UNSET)
    keys, is_agent = visit.client.keys, visit.query("kind") == "agent"
    list_page = keys.list_agent_keys if is_agent else keys.list_api_keys
    page = await list_page(page=visit.page_number, per_page=PER_PAGE, status=status, q=visit.query("q") or UNSET)
    return visit.render(
        "keys/keys.html",
        page=page,
        links=PageLinks.of(visit, page),
        is_agent=is_agent,
        chosen_status=visit.query("status"),
        words=visit.query("q"),
    )


async def show_new_key(visit: Visit) -> Response:
    """Show the form for a new key."""
    return _show_form(visit, {"kind": visit.query("kind", "api")}, {})


async def create_key(visit: Visit) -> Response:
    """Create a key and show its secret once."""
    form, keys = await visit.form(), visit.client.keys
    scopes, preset = form.list("scopes"), form.get("preset")
    try:
        expires_at = _read_expiry(form)
        if form.get("kind") == "agent":
            agent = await keys.create_agent_key(
                name=form.get("name"),
                permissions=scopes if not preset else UNSET,
                preset=preset or UNSET,  # pyright: ignore[reportArgumentType] - the API checks it
                rate_limit=or_unset(form.integer("rate_limit")),
                agent_id=form.get("agent_id") or UNSET,
                expires_at=expires_at,
                ip_restriction=True if form.split("ip_list") else UNSET,
                ip_list=form.split("ip_list") or UNSET,
            )
            return _show_secret(visit, agent, agent.key, "agent")
        api = await keys.create_api_key(
            name=form.get("name"),
            scopes=scopes if not preset else UNSET,
            preset=preset or UNSET,  # pyright: ignore[reportArgumentType] - the API checks it
            rate_limit_tier=form.get("rate_limit_tier", "free"),  # pyright: ignore[reportArgumentType] - the API checks it
            environment=form.get("environment", "live"),  # pyright: ignore[reportArgumentType] - the API checks it
            expires_at=expires_at,
        )
    except ApiError as error:
        return _show_form(visit, form.as_dict() | {"scopes": ",".join(scopes)}, _get_errors(error), status=error.status)
    return _show_secret(visit, api, api.plaintext_key, "api")


async def show_api_key(visit: Visit) -> Response:
    """Show an API key with its rights and latest calls."""
    return await _show_key(visit, "api")


async def show_agent_key(visit: Visit) -> Response:
    """Show an agent key with its rights and latest calls."""
    return await _show_key(visit, "agent")


async def save_key(visit: Visit) -> Response:
    """Change the name, the rights and the expiry of a key."""
    form, kind, key_id = await visit.form(), visit.path("kind"), visit.path("key_id")
    keys, name, scopes = visit.client.keys, form.get("name"), form.list("scopes")
    try:
        expires_at = UNSET if form.get("expires_in", "keep") == "keep" else _read_expiry(form)
        if kind == "agent":
            await keys.update_agent_key(key_id, name=name, permissions=scopes, expires_at=expires_at)
        else:
            await keys.update_api_key(key_id, name=name, scopes=scopes, expires_at=expires_at)
    except ApiError as error:
        values = form.as_dict() | {"scopes": ",".join(scopes)}
        return await _show_key(visit, kind, values, _get_errors(error), status=error.status)
    return visit.redirect(f"keys/{kind}/{key_id}", "saved")


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


def _show_form(visit: Visit, values: Mapping[str, str], errors: Mapping[str, list[str]], *, status: int = 200) -> Response:
    content: dict[str, object] = {
        "values": {
            "kind": "api",
            "name": "",
            "preset": "",
            "environment": "live",
            "rate_limit_tier": "free",
            "agent_id": "",
            "rate_limit": "600",
        }
        | {"expires_in": "", "ip_list": "", "scopes": ""}
        | dict(values),
        "errors": errors,
        "scopes": _list_scopes(visit),
        "presets": sorted(PRESETS),
    }
    return visit.render("keys/new.html", status=status, **content)


async def _show_key(
    visit: Visit, kind: str, values: Mapping[str, str] | None = None, errors: Mapping[str, list[str]] | None = None, *, status: int = 200
) -> Response:
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
    options = _list_scopes(visit)
    others = [(scope, "kept as it is") for scope in granted if scope not in dict(options)]
    content: dict[str, object] = {
        "key": key,
        "granted": granted,
        "calls": calls,
        "links": PageLinks.of(visit, calls, _SHOWN_CALLS),
        "kind": kind,
        "scopes": [*options, *others],
        "grace": _DEFAULT_GRACE_HOURS,
        "values": {"name": key.name, "scopes": ",".join(granted), "expires_in": "keep"} | dict(values or {}),
        "errors": errors or {},
        "is_revoked": getattr(key, "revoked_at", None) is not None,
    }
    return visit.render("keys/key.html", status=status, **content)


def _get_errors(error: ApiError) -> dict[str, list[str]]:
    return {_FIELDS.get(name, name): texts for name, texts in get_field_errors(error).items()}


def _show_secret(visit: Visit, key: Key, secret: str, kind: str) -> Response:
    return visit.render("keys/secret.html", key=key, secret=secret, kind=kind)


def _list_scopes(visit: Visit) -> list[tuple[str, str]]:
    """Return the scopes that the key of the session may pass on, with their meaning."""
    wide = [(scope, meaning) for scope, meaning in (("*", "everything in the workspace"), ("*:read", "read everything"))]
    names = {name: meaning for name, meaning in SCOPES.items() if not name.startswith(f"{PLATFORM}:")}  # only the command line grants those
    return [(scope, meaning) for scope, meaning in (*wide, *names.items()) if can_delegate(visit.scopes, scope)]


def _read_expiry(form: SubmittedForm) -> datetime | None:
    """
    Return the time after the days of the form; None: never.

    Raises:
        ApiError: The field has something else.
    """
    days = form.integer("expires_in")
    if days is None:
        return None
    try:
        return datetime.now(UTC) + timedelta(days=days)
    except OverflowError:
        raise refuse_field("expires_in", f"must be a number of days before the year 10000; got {days}") from None


VIEWS = (
    View("GET", "/keys", list_keys, READ),
    View("GET", "/keys/new", show_new_key, WRITE),
    View("POST", "/keys/new", create_key, WRITE),
    View("GET", "/keys/api/{key_id}", show_api_key, READ),
    View("GET", "/keys/agent/{key_id}", show_agent_key, READ),
    View("POST", "/keys/{kind}/{key_id}", save_key, WRITE),
    View("POST", "/keys/{kind}/{key_id}/rotate", rotate_key, WRITE),
    View("POST", "/keys/{kind}/{key_id}/state", change_key_state, WRITE),
    View("POST", "/keys/{kind}/{key_id}/delete", delete_key, DELETE),
)
