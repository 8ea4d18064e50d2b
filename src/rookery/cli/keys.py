"""Keys, workspaces and the audit log, opened for one command with a third of the imports of the whole platform."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from rookery.access.agent_keys import AgentKeys, IsAgentInUse
from rookery.access.api_keys import ApiKeys
from rookery.access.commands.key_services import KeyServices
from rookery.access.hashing import Bcrypt
from rookery.access.usage_log import UsageLog
from rookery.cli.store import open_records
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus


def open_keys_for_reading(settings: Settings) -> AbstractAsyncContextManager[KeyServices]:
    """Open them without webhooks, for commands that only read. A change of a key raises AssertionError."""
    return open_keys(settings, bus=_NoBus(), is_known_agent=_refuse_agent)


@asynccontextmanager
async def open_keys(settings: Settings, *, bus: EventBus, is_known_agent: IsAgentInUse) -> AsyncGenerator[KeyServices]:
    """Open them. Workspaces cannot be deleted with these services."""
    async with open_records(settings) as records:
        clock, bcrypt, usage = utc_now, Bcrypt(cost=settings.bcrypt_cost), UsageLog(records.db, utc_now)
        try:
            yield KeyServices(
                workspaces=records.workspaces,
                api_keys=ApiKeys(records.db, bcrypt, usage, records.audit, clock, bus=bus),
                agent_keys=AgentKeys(records.db, usage, records.audit, clock, bus=bus, is_agent_in_use=is_known_agent),
                usage=usage,
                audit=records.audit,
            )
        finally:
            await usage.close()
            bcrypt.close()


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
