"""The tool servers that a workspace added: add, change, pause, check, log in and remove."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal, cast

from starlette.responses import Response

from rookery.console.views.tools import server_path
from rookery.console.visit import SubmittedForm, View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import inputs, models

_ADDED = "/tools/_added/{server_id}"
_FIELDS = (
    "id name tagline url type headers secrets timeout_s isolation protocol use_when auth allow deny max_concurrency "
    "forward_headers forward_meta"
).split()
_ISOLATIONS = (
    ("per_workspace", "one for the workspace"),
    ("shared", "one for all"),
    ("per_key", "one for each key"),
    ("per_session", "one for each agent session"),
)
_PROTOCOLS = (
    ("auto", "negotiated"),
    ("handshake", "the newest with a handshake"),
    *((revision, revision) for revision in ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")),
)


async def show_new(visit: Visit) -> Response:
    """Show the form for a new server."""
    return _render_form(visit, None, {"type": "http", "timeout_s": "60", "isolation": "per_workspace", "protocol": "auto"}, {})


async def add(visit: Visit) -> Response:
    """Add a server. Its tools are listed in the background."""
    form = await visit.form()
    fields, problems = _read_fields(form)
    if problems:
        return _render_form(visit, None, form.as_dict(), problems)
    try:
        server = await visit.client.servers.add_server(
            id=form.get("id"), secrets=_read_secrets(form), **fields  # pyright: ignore[reportArgumentType] - named as its arguments
        )  # fmt: skip
    except ApiError as error:
        return _refuse(visit, None, form, error)
    return visit.redirect(server_path(server.id), done="created")


async def show_edit(visit: Visit) -> Response:
    """Show the settings of a server in the form."""
    server = await visit.client.servers.get_added_server(visit.path("server_id"))
    return _render_form(visit, server, _to_values(server), {})


async def change(visit: Visit) -> Response:
    """Change the settings of a server. Secrets whose field is empty stay."""
    form = await visit.form()
    server = await visit.client.servers.get_added_server(visit.path("server_id"))
    fields, problems = _read_fields(form, server.tools)
    if fields.get("max_concurrency") == server.max_concurrency:
        fields["max_concurrency"] = UNSET  # it may be the default, which stays one
    if problems:
        return _render_form(visit, server, form.as_dict(), problems)
    secrets: dict[str, object] = {**dict.fromkeys(form.list("removed_secret")), **_read_secrets(form)}
    try:
        await visit.client.servers.update_added_server(
            server.id, secrets=secrets or UNSET, **fields  # pyright: ignore[reportArgumentType] - named as its arguments
        )  # fmt: skip
    except ApiError as error:
        return _refuse(visit, server, form, error)
    return visit.redirect(server_path(server.id), done="saved")


async def pause(visit: Visit) -> Response:
    """Stop listing a server, and refuse its calls."""
    server = await visit.client.servers.update_added_server(visit.path("server_id"), enabled=False)
    return visit.redirect(server_path(server.id), done="stopped")


async def resume(visit: Visit) -> Response:
    """List a server again, and allow its calls."""
    server = await visit.client.servers.update_added_server(visit.path("server_id"), enabled=True)
    return visit.redirect(server_path(server.id), done="started")


async def remove(visit: Visit) -> Response:
    """Remove a server and its secrets. Its calls stay in the log."""
    await visit.client.servers.remove_server(visit.path("server_id"))
    return visit.redirect("tools", done="deleted")


async def check(visit: Visit) -> Response:
    """Connect to a server in a session of its own, and show what it lists or what is wrong."""
    result = await visit.client.servers.check_server(visit.path("server_id"))
    return visit.render("tools/check.html", result=result, here=server_path(result.id))


async def log_in(visit: Visit) -> Response:
    """Show the link that starts a login. The person opens it, and the authorisation server leads back to Rookery."""
    started = await visit.client.servers.start_server_login(visit.path("server_id"))
    return visit.render("tools/login.html", started=started, here=server_path(started.server))


async def log_out(visit: Visit) -> Response:
    """Delete the tokens of the workspace."""
    server_id = visit.path("server_id")
    await visit.client.servers.delete_server_login(server_id)
    return visit.redirect(server_path(server_id), done="deleted")


def _refuse(visit: Visit, server: models.AddedServer | None, form: SubmittedForm, error: ApiError) -> Response:
    """Show the form again with what the server says about it."""
    errors = cast("Mapping[str, list[str]]", error.detail.get("errors") or {"id" if server is None else "url": [error.message]})
    if error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY} or error.code == "scope_missing":
        raise error
    return _render_form(visit, server, form.as_dict(), errors)


def _render_form(visit: Visit, server: models.AddedServer | None, values: Mapping[str, str], errors: Mapping[str, list[str]]) -> Response:
    # A header or a secret is named in the error as `headers.NAME`; its field is the list of all.
    by_field: dict[str, list[str]] = {}
    for name, texts in errors.items():
        first, _, rest = name.partition(".")
        by_field.setdefault(first, []).extend(f"{rest}: {text}" if rest else text for text in texts)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if errors else 200
    choices = {"isolations": _ISOLATIONS, "protocols": _PROTOCOLS}
    return visit.render(
        "tools/form.html", status=status, server=server, values={name: values.get(name, "") for name in _FIELDS}, errors=by_field, **choices
    )


def _to_values(server: models.AddedServer) -> dict[str, str]:
    rules = server.tools or {}
    return {
        "id": server.id,
        "name": server.name,
        "tagline": server.tagline,
        "url": server.url or "",
        "type": server.type,
        "headers": "\n".join(f"{name}: {value}" for name, value in (server.headers or {}).items()),
        "timeout_s": f"{server.timeout_s:g}",
        "isolation": server.isolation,
        "protocol": server.protocol,
        "use_when": server.use_when or "",
        "auth": "oauth" if server.auth is not None else "",
        "max_concurrency": str(server.max_concurrency),
        "forward_headers": "\n".join(server.forward_headers),
        "forward_meta": "\n".join(server.forward_meta),
        "allow": "\n".join(cast("list[str]", rules.get("allow") or [])),
        "deny": "\n".join(cast("list[str]", rules.get("deny") or [])),
    }


def _read_fields(form: SubmittedForm, rules: Mapping[str, object] | None = None) -> tuple[dict[str, object], dict[str, list[str]]]:
    """
    Return the settings of the form, and what is wrong with their texts. An empty field removes the setting.

    Args:
        rules: The present rules for tools. The form changes only which tools are offered.
    """
    problems: dict[str, list[str]] = {}
    fields: dict[str, object] = {name: form.get(name) or None for name in ("name", "tagline", "use_when")}
    fields["url"] = form.get("url") or None
    fields["type"] = cast("Literal['http', 'sse']", form.get("type") or "http")
    fields["isolation"] = form.get("isolation") or "per_workspace"
    fields["protocol"] = form.get("protocol") or "auto"
    fields["auth"] = _read_auth(form)
    headers: dict[str, str] = {}
    for line in form.get_text("headers").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            problems.setdefault("headers", []).append(f"{line[:60]!r} is no header: write Name: value.")
        elif line.strip():
            headers[name.strip()] = value.strip()
    fields["headers"] = headers or None
    try:
        fields["timeout_s"] = float(form.get("timeout_s") or 60)
    except ValueError:
        problems["timeout_s"] = ["Write a number of seconds."]
    if "max_concurrency" in form.as_dict():
        try:
            fields["max_concurrency"] = int(form.get("max_concurrency")) if form.get("max_concurrency") else None
        except ValueError:
            problems["max_concurrency"] = ["Write a number of calls."]
    fields |= {name: _read_lines(form, name) or None for name in ("forward_headers", "forward_meta") if name in form.as_dict()}
    if form.get("has_rules"):
        allow, deny = _read_lines(form, "allow"), _read_lines(form, "deny")
        fields["tools"] = _merge_rules(allow, deny, rules or {})
    return fields, problems


def _read_lines(form: SubmittedForm, name: str) -> list[str]:
    return [line.strip() for line in form.get_text(name).splitlines() if line.strip()]


def _merge_rules(allow: list[str], deny: list[str], rules: Mapping[str, object]) -> inputs.ToolRulesBody | None:
    """Return *rules* with other tools allowed and denied. Time-outs and caching of single tools stay."""
    unchanged = {name: rules[name] for name in ("timeouts", "cache_s") if rules.get(name)}
    return cast("inputs.ToolRulesBody", {"allow": allow or None, "deny": deny, **unchanged}) if allow or deny or unchanged else None


def _read_auth(form: SubmittedForm) -> Literal["oauth"] | Unset | None:
    """Return the kind of login. A client that was registered by hand stays as it is."""
    if form.get("auth") == "kept":
        return UNSET
    return "oauth" if form.get("auth") == "oauth" else None


def _read_secrets(form: SubmittedForm) -> dict[str, str]:
    """Return the secrets of the lines `NAME=value`."""
    lines = (line.partition("=") for line in form.get_text("secrets").splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in lines}


VIEWS = (
    View("GET", "/tools/add", show_new, "servers:write"),
    View("POST", "/tools/add", add, "servers:write"),
    View("GET", _ADDED, show_edit, "servers:write"),
    View("POST", _ADDED, change, "servers:write"),
    View("POST", f"{_ADDED}/pause", pause, "servers:write"),
    View("POST", f"{_ADDED}/resume", resume, "servers:write"),
    View("POST", f"{_ADDED}/check", check, "servers:write"),
    View("POST", f"{_ADDED}/login", log_in, "servers:write"),
    View("POST", f"{_ADDED}/logout", log_out, "servers:write"),
    View("POST", f"{_ADDED}/remove", remove, "servers:delete"),
)
