"""The record store, its workspaces and the audit log, opened for one command."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from rookery.access.audit_log import AuditLog
from rookery.access.workspaces import Workspaces
from rookery.cli.store import prepare_store
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx, open_database


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordServices:
    """The record store and the services that every small opening needs."""

    db: Database
    workspaces: Workspaces
    audit: AuditLog


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncGenerator[RecordServices]:
    """Migrate the record store and open it. Workspaces cannot be deleted with these services."""
    settings.require_secret_key()
    prepare_store(settings)
    db = open_database(settings.database_url.reveal(), data_dir=settings.data_dir)
    audit = AuditLog(db, utc_now)
    try:
        yield RecordServices(db=db, workspaces=Workspaces(db, audit, utc_now, purgers=[_reject_deletion]), audit=audit)
    finally:
        await db.close()


def _reject_deletion(tx: Tx, workspace_id: int) -> NoReturn:
    del tx
    msg = f"workspace {workspace_id} can be deleted only by the whole platform, which covers every table"
    raise AssertionError(msg)
