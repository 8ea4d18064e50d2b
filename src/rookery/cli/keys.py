"""Keys, workspaces and the audit log alone, opened for one command: a third of the imports of the whole platform."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit import Audit
from rookery.access.hashing import Bcrypt
from rookery.access.usage import Usage
from rookery.access.workspaces import Workspaces
from rookery.announcing import Announcer, key_announcements
from rookery.cli.store import prepare_store
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.events import Bus
from rookery.kernel.ids import uuid7
from rookery.memory.store import records as memory_records
from rookery.webhooks.recording import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyServices:
    """What the commands of keys, workspaces and the audit log work with."""

    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    usage: Usage
    audit: Audit


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncGenerator[KeyServices]:
    """Open them; changes of keys are announced to webhooks as by the whole platform. Workspaces cannot be deleted here."""
    settings.must_have_secret_key()
    prepare_store(settings)
    db = open_database(settings.database_url.reveal(), data_dir=settings.data_dir)
    bus, clock, bcrypt, usage = Bus(), utc_now, Bcrypt(cost=settings.bcrypt_cost), Usage(db, utc_now)
    Announcer(Recorder(clock, uuid7), key_announcements(clock)).connect(bus)
    audit = Audit(db, clock)
    try:
        yield KeyServices(
            workspaces=Workspaces(db, audit, clock, purgers=[_refuse_deletion]),
            api_keys=ApiKeys(db, bcrypt, usage, audit, clock, bus=bus),
            agent_keys=AgentKeys(db, usage, audit, clock, bus=bus, is_known_agent=memory_records.knows_agent),
            usage=usage,
            audit=audit,
        )
    finally:
        await usage.close()
        bcrypt.close()
        await db.close()


def _refuse_deletion(tx: Tx, workspace_id: int) -> int:
    del tx
    msg = f"workspace {workspace_id} can only be deleted by the whole platform, which knows every table"
    raise AssertionError(msg)
