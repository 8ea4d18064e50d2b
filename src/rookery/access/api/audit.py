"""`/audit`: the audit log, newest entry first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.api.keys import visible_environment
from rookery.access.audit_log import AuditLog, entry_to_json
from rookery.access.models import AuditEntry, Caller, Environment
from rookery.access.schemas import AuditQuery
from rookery.kernel.http import ItemPage, Operation
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
class AuditOperations:
    """The operation of the audit log."""

    audit: AuditLog

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            Operation(method="GET", path="/audit", handler=self.get_entries, present=_present_entry,
                      required_scope=READ_SCOPE, response_model=Page[AuditEntryResponse], operation_id="list_audit_entries",
                      summary="List audit entries", tags=("Audit",)),
        ]  # fmt: skip

    async def get_entries(self, caller: Caller, query: AuditQuery) -> ItemPage[AuditEntry]:
        """
        List the changes to keys, servers, webhooks and workspaces, newest first.

        Entries of other workspaces and of the platform need the scope `platform:audit`.
        """
        workspace_id = caller.public_workspace_id if query.workspace_id is None else query.workspace_id
        if workspace_id != caller.public_workspace_id:
            caller.require_scope(ALL_CHAINS_SCOPE)
        filters = query.to_filter(visible_environment(caller))
        return ItemPage(*await self.audit.list_page(workspace_id, filters, page=query.slice))


def _present_entry(_: Caller, entry: AuditEntry) -> Mapping[str, object]:
    return entry_to_json(entry)
