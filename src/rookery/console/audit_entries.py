"""The audit entries of the console: sign-ins, and exports that it streams page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request

from rookery.access.audit_log import PLATFORM_CHAIN, AuditSubject
from rookery.access.models import TEST, Actor
from rookery.console.ports import ConsolePorts
from rookery_client.generated import models


async def record_action(
    ports: ConsolePorts, request: Request, action: str, fields: Mapping[str, object], own_key: models.Who | None
) -> None:
    """Write an entry to the audit log: of the key's workspace, or of the platform if no key is known."""
    address = ports.find_address(request.scope)
    request_id = cast("Mapping[str, str]", request.scope["state"])["request_id"]
    if own_key is None:
        actor, chain = Actor(kind="system", name="console", address=address, request_id=request_id), PLATFORM_CHAIN
    else:
        kind = "agent" if own_key.kind == "agent" else "api"
        actor = Actor(
            kind=kind,
            id=str(getattr(own_key, "id", "")),
            name=str(getattr(own_key, "name", "")),
            address=address,
            request_id=request_id,
        )
        chain = int(getattr(own_key, "workspace_id", 0))
    environment = "test" if getattr(own_key, "environment", None) == TEST else "live"
    subject = AuditSubject(kind="console", id=actor.id or address, name=actor.name, environment=environment)
    await ports.audit.record_alone(actor, chain, action, subject, after=fields or None)
