"""`/audit` (D-29): the audit log, newest entry first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.api.keys import visible_environment
from rookery.access.audit_log import AuditLog, entry_to_json
from rookery.access.guard import get_caller
from rookery.access.models import Environment
from rookery.access.schemas import AuditQuery
from rookery.kernel.http import Route, page_response
from rookery.kernel.schema import Page, ResponseModel, Timestamp

READ_SCOPE, ALL_CHAINS_SCOPE = "audit:read", "platform:audit"
"""The scopes of one's own chain, and of other workspaces' chains and the platform's."""


class AuditActorResponse(ResponseModel):
    """The actor of a change."""

    kind: str
    id: str | None
    name: str
    address: str | None
    request_id: str | None


class AuditSubjectResponse(ResponseModel):
    """The changed resource."""

    kind: str
    id: str
    name: str
    environment: Environment | None


class AuditEntryResponse(ResponseModel):
    """One change; *hash* covers this entry and *previous*, the hash of the entry before it."""

    workspace_id: int
    seq: int
    at: Timestamp
    actor: AuditActorResponse
    action: str
    subject: AuditSubjectResponse
    before: dict[str, object] | None
    after: dict[str, object] | None
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditRoutes:
    """The route of the audit log."""

    audit: AuditLog

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(
                method="GET",
                path="/audit",
                handler=self.get_entries,
                required_scope=READ_SCOPE,
                response_model=Page[AuditEntryResponse],
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
        caller = get_caller(request)
        workspace_id = caller.public_workspace_id if query.workspace_id is None else query.workspace_id
        if workspace_id != caller.public_workspace_id:
            caller.require_scope(ALL_CHAINS_SCOPE)
        filters = query.to_filter(visible_environment(caller))
        entries, total = await self.audit.list_page(workspace_id, filters, limit=query.per_page, offset=query.offset)
        return page_response(request, [entry_to_json(entry) for entry in entries], query=query, total=total)
