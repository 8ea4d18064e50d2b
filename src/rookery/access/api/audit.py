"""`/audit` (D-29): who changed what, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.api.keys import environment_of
from rookery.access.audit import Audit, as_json
from rookery.access.guard import caller_of
from rookery.access.schemas import AuditQuery
from rookery.kernel.http import Route, page

READ, ALL = "audit:read", "platform:audit"
"""To read another workspace's chain, and the platform's."""


@dataclass(frozen=True, slots=True)
class AuditRoutes:
    """Reads a request, calls one verb, shapes the answer."""

    audit: Audit

    def routes(self) -> list[Route]:
        """Return the one route."""
        return [
            Route(
                method="GET",
                path="/audit",
                handler=self.get_entries,
                needs=READ,
                summary="List the changes to keys and workspaces, newest first",
                tags=("Audit",),
            )
        ]

    async def get_entries(self, request: Request, query: Annotated[AuditQuery, Query()]) -> Response:
        """List the entries of the key's own workspace; of another, or of the platform itself, with platform:audit."""
        caller = caller_of(request)
        wanted = caller.shown_workspace_id if query.workspace_id is None else query.workspace_id
        if wanted != caller.shown_workspace_id:
            caller.must(ALL)
        which = query.entries(environment_of(caller))
        found, total = await self.audit.page(wanted, which, limit=query.per_page, offset=query.offset)
        return page(request, [as_json(each) for each in found], query=query, total=total)
