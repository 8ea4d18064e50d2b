"""
Audit entries of commands on the whole installation: backups, moves of data, changes of the secret key and of servers.json.

They are in the chain of the platform. `PlatformAction` lists them all. A backup does not migrate the record store, and `servers add` does
not create one, so these entries are written to the store as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from rookery.access.audit_log import AuditLog
from rookery.access.store.audit import has_tables
from rookery.kernel.clock import utc_now
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import RookeryError
from rookery.kernel.secret import Secret

PlatformAction = Literal[
    "backup.created",
    "backup.restored",
    "indexes.moved",
    "records.moved",
    "secret_key.rotated",
    "servers_file.changed",
]

_RECORDS_FILE = "records.db"


def write_entries(data_dir: Path, database: Secret, write: Callable[[AuditLog, Tx], None]) -> str | None:
    """
    Run *write* on the audit log of a record store that this process has not opened. Return why nothing was written, or None.

    Nothing is written if there is no audit log: the data folder has no records, or the store has no tables yet.

    Args:
        database: The address of the record store, as in the settings.
    """
    if database.reveal() == "embedded:" and not (data_dir / _RECORDS_FILE).is_file():
        return None
    with ThreadPoolExecutor(max_workers=1) as pool:  # the caller may run in an event loop
        return pool.submit(lambda: asyncio.run(_write(data_dir, database, write))).result()


async def _write(data_dir: Path, database: Secret, write: Callable[[AuditLog, Tx], None]) -> str | None:
    db = open_database(database.reveal(), data_dir=data_dir)
    audit = AuditLog(db, utc_now)
    try:
        await db.write(lambda tx: write(audit, tx) if has_tables(tx) else None)
    except RookeryError as error:
        return error.message
    finally:
        await db.close()
    return None
