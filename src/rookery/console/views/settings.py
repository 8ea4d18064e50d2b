"""The settings (the state of the engines, the limits, and the key of the session) and the audit log."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from rookery.access.rate_limits import UNLIMITED_SENTINEL
from rookery.console.arguments import end_of_day
from rookery.console.formats import format_duration, format_number
from rookery.console.views.keys import describe_restrictions
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit, open_call_group
from rookery_client.calls import UNSET
from rookery_client.generated import models

DIAGNOSIS = "platform:metrics"


async def show_settings(visit: Visit) -> Response:
    """
    Show the engines, the limits of the key and its scopes. Settings themselves are changed where the server is started.

    The page loads the findings of the doctor by itself, because some of them wait for engines.
    """
    async with open_call_group() as group:
        health = group.create_task(visit.client.operation.check_readiness())
        start = group.create_task(visit.client.operation.get_start())
        rate = group.create_task(visit.client.keys.get_rate_limit())
    return visit.render(
        "settings/settings.html",
        health=health.result(),
        facts=_describe_key(visit.own_key.model_dump(mode="json"), visit.own_key.workspace_name, start.result().version),
        limits=_describe_limits(rate.result()),
        diagnosis_scope=DIAGNOSIS,
    )


async def show_diagnosis(visit: Visit) -> Response:
    """Show the findings of the doctor: as a part of the settings, or without scripts as a page."""
    diagnosis = await visit.client.operation.check_installation()
    return visit.render("settings/findings.html" if visit.is_partial else "settings/doctor.html", diagnosis=diagnosis)


def _describe_key(fields: Mapping[str, object], workspace: str, version: str | None) -> list[tuple[str, object]]:
    names = {
        "name": "Name",
        "hint": "Key",
        "agent_id": "Agent",
        "environment": "Environment",
        "expires_at": "Expires",
        "call_count": "Calls",
    }
    own = [(title, fields[name]) for name, title in names.items() if fields.get(name) is not None]
    place = ("Workspace", f"{workspace} ({fields.get('workspace_id')})")
    return [*own, place, *describe_restrictions(fields), ("Version", version or "–")]


def _describe_limits(rate: models.RateLimit) -> list[tuple[str, object]]:
    if rate.limit >= UNLIMITED_SENTINEL:
        return [("Requests", "unlimited"), ("Used in this window", format_number(rate.used))]
    limit = f"{format_number(rate.limit)} in {format_duration(rate.window_seconds * 1000)}"
    return [("Requests", limit), ("Remaining", format_number(rate.remaining)), ("Used in this window", format_number(rate.used))]


_PLATFORM_WORKSPACE = 0


async def list_entries(visit: Visit) -> Response:
    """List the entries of the workspace, or with `platform:audit` those of the platform, newest first."""
    is_platform = visit.query("chain") == "platform" and visit.can("platform:audit")
    page = await visit.client.audit.list_audit_entries(
        page=visit.page_number,
        per_page=PER_PAGE,
        workspace_id=_PLATFORM_WORKSPACE if is_platform else UNSET,
        action=visit.query("action") or UNSET,
        subject_id=visit.query("subject") or UNSET,
        actor_id=visit.query("actor") or UNSET,
        since=visit.query("since") or UNSET,
        until=end_of_day(visit.query("until")),
    )
    values = {name: visit.query(name) for name in ("action", "subject", "actor", "since", "until")}
    return visit.render("audit/audit.html", page=page, links=PageLinks.of(visit, page), values=values, is_platform=is_platform)


VIEWS = (
    View("GET", "/settings", show_settings),
    View("GET", "/settings/doctor", show_diagnosis, DIAGNOSIS),
    View("GET", "/audit", list_entries, "audit:read"),
)
