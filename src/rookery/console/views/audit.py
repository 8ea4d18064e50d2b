"""The audit log: who changed what, filtered and paged by the server."""

from __future__ import annotations

from starlette.responses import Response

from rookery.console.arguments import end_of_day
from rookery.console.routing import View
from rookery.console.visit import PER_PAGE, PageLinks, Visit
from rookery_client.calls import UNSET

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


VIEWS = (View("GET", "/audit", list_entries, "audit:read"),)
