"""Keys, workspaces and the audit log, opened for one command with a third of the imports of the whole platform."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from rookery.access.agent_keys import AgentKeys, IsAgentInUse
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.hashing import Bcrypt
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.cli.store import prepare_store
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.events import EventBus


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyServices:
    """The services for the commands of keys, workspaces and the audit log."""

    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    usage: UsageLog
    audit: AuditLog


def open_keys_for_reading(settings: Settings) -> AbstractAsyncContextManager[KeyServices]:
    """Open them without webhooks, for commands that only read. A change of a key raises AssertionError."""
    return open_keys(settings, bus=_NoBus(), is_known_agent=_refuse_agent)


@asynccontextmanager
async def open_keys(settings: Settings, *, bus: EventBus, is_known_agent: IsAgentInUse) -> AsyncGenerator[KeyServices]:
    """Open them. Workspaces cannot be deleted with these services."""
    settings.require_secret_key()
    prepare_store(settings)
    db = open_database(settings.database_url.reveal(), data_dir=settings.data_dir)
    clock, bcrypt, usage = utc_now, Bcrypt(cost=settings.bcrypt_cost), UsageLog(db, utc_now)
    audit = AuditLog(db, clock)
    try:
        yield KeyServices(
            workspaces=Workspaces(db, audit, clock, purgers=[_reject_deletion]),
            api_keys=ApiKeys(db, bcrypt, usage, audit, clock, bus=bus),
            agent_keys=AgentKeys(db, usage, audit, clock, bus=bus, is_agent_in_use=is_known_agent),
            usage=usage,
            audit=audit,
        )
    finally:
        await usage.close()
        bcrypt.close()
        await db.close()


class _NoBus(EventBus):
    """A bus for commands that change nothing."""

    def publish_on_commit(self, tx: Tx, event: object) -> NoReturn:
        """Raise AssertionError, so that the transaction is rolled back."""
        del tx
        msg = f"{type(event).__name__} cannot be sent to webhooks: keys were opened for reading"
        raise AssertionError(msg)


def _refuse_agent(tx: Tx, workspace_id: int, agent_id: str) -> bool:
    del tx
    msg = f"memories of agent {agent_id} in workspace {workspace_id} cannot be checked: keys were opened for reading"
    raise AssertionError(msg)


def _reject_deletion(tx: Tx, workspace_id: int) -> int:
    del tx
    msg = f"workspace {workspace_id} can be deleted only by the whole platform, which covers every table"
    raise AssertionError(msg)
