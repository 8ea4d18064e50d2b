"""The audit entry of a command that changed `servers.json`. The record store is imported for it alone: most commands do not need it."""

from __future__ import annotations

from pathlib import Path

from rookery.access.models import Actor
from rookery.kernel.config import Settings


def record_file_change(settings: Settings, operator: Actor, path: Path) -> str | None:
    """Write the entry to the record store as it is. Return why nothing was written, or None (`operator_audit.write_entries`)."""
    from rookery.access.operator_audit import write_entries
    from rookery.tools.servers.file_audit import record_file

    return write_entries(settings.data_dir, settings.database_url, lambda audit, tx: record_file(audit, tx, operator, path))
