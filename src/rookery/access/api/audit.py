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
from rookery.access.models import Environment
from rookery.access.schemas import AuditQuery
from rookery.kernel.http import Route, page
from rookery.kernel.http.pages import Page
from rookery.kernel.wire import Answer, Moment

READ, ALL = "audit:read", "platform:audit"
"""To read another workspace's chain, and the platform's."""


class AuditActorAnswer(Answer):
    """Who did it."""

    kind: str
    id: str | None
    name: str
    address: str | None
    request_id: str | None


class AuditSubjectAnswer(Answer):
    """What it was done to."""

    kind: str
    id: str
    name: str
    environment: Environment | None


class AuditEntryAnswer(Answer):
    """One change; *hash* is over this entry and *previous*, the hash of the one before it."""

    workspace_id: int
    seq: int
    at: Moment
    actor: AuditActorAnswer
    action: str
    subject: AuditSubjectAnswer
    before: dict[str, object] | None
    after: dict[str, object] | None
    previous: str
    hash: str


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
                answers=Page[AuditEntryAnswer],
                operation_id="list_audit_entries",
                summary="List audit entries",
                tags=("Audit",),
            )
        ]

    async def get_entries(self, request: Request, query: Annotated[AuditQuery, Query()]) -> Response:
        """
        List the changes to keys, servers, webhooks and workspaces, newest first.

        Entries of other workspaces and of the platform need the scope `platform:audit`.
        """
        caller = caller_of(request)
        wanted = caller.shown_workspace_id if query.workspace_id is None else query.workspace_id
        if wanted != caller.shown_workspace_id:
            caller.must(ALL)
        which = query.entries(environment_of(caller))
        found, total = await self.audit.page(wanted, which, limit=query.per_page, offset=query.offset)
        return page(request, [as_json(each) for each in found], query=query, total=total)
