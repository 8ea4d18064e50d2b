"""
Operations of `client.audit`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from datetime import datetime


from rookery_client.calls import UNSET, Call, Unset, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class AuditOperations:
    """Operations of `client.audit`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_audit_entries(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        workspace_id: int | Unset = UNSET, action: str | Unset = UNSET, subject_id: str | Unset = UNSET,
        actor_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
    ) -> Page[models.AuditEntry]:
        """
        List the changes to keys, servers, webhooks and workspaces, newest first.

        Entries of other workspaces and of the platform need the scope `platform:audit`.

        Requires the scope `audit:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            workspace_id: Another workspace, or 0 for the platform. Needs platform:audit.
            action: Only entries of this action.
            subject_id: The id of the changed resource.
            actor_id: The id of the key that made the change.
            since: Only entries at this time or later.
            until: Only entries before this time.
        """
        return self._session.send_page(Call(
            operation="list_audit_entries", method="GET", path="/api/v1/audit", result=PageBody[models.AuditEntry],
            query=given(
                cursor=cursor, page=page, per_page=per_page, workspace_id=workspace_id, action=action, subject_id=subject_id,
                actor_id=actor_id, since=since, until=until,
            ),
        ))


class AsyncAuditOperations:
    """Operations of `client.audit`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_audit_entries(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        workspace_id: int | Unset = UNSET, action: str | Unset = UNSET, subject_id: str | Unset = UNSET,
        actor_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.AuditEntry]:
        """
        List the changes to keys, servers, webhooks and workspaces, newest first.

        Entries of other workspaces and of the platform need the scope `platform:audit`.

        Requires the scope `audit:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            workspace_id: Another workspace, or 0 for the platform. Needs platform:audit.
            action: Only entries of this action.
            subject_id: The id of the changed resource.
            actor_id: The id of the key that made the change.
            since: Only entries at this time or later.
            until: Only entries before this time.
        """
        return await self._session.send_page(Call(
            operation="list_audit_entries", method="GET", path="/api/v1/audit", result=PageBody[models.AuditEntry],
            query=given(
                cursor=cursor, page=page, per_page=per_page, workspace_id=workspace_id, action=action, subject_id=subject_id,
                actor_id=actor_id, since=since, until=until,
            ),
        ))
