"""The file in the data folder with the health of tool servers and its reason, which commands on this host read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import orjson

from rookery.kernel.data_folder import TOOL_HEALTH_FILE, read_config_file

_MAX_FILE_BYTES = 16 * 1024 * 1024
_MAX_REASON_CHARS = 300
_FILE_MODE = 0o600
"""The reasons may quote what a server wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedHealth:
    """
    The health of a server in a running Rookery.

    Attributes:
        reason: Why it is not online. None: it is, or the reason is not known.
        feature_count: The number of its tools, resources, templates and prompts. None: not known.
    """

    health: str
    reason: str | None = None
    tool_count: int | None = None
    feature_count: int | None = None


class HealthFile:
    """The file of one process. If several processes serve one data folder, it has the health that one of them saw last."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TOOL_HEALTH_FILE
        self._written: Mapping[str, ReportedHealth] | None = None

    async def update(self, reports: Mapping[str, ReportedHealth]) -> None:
        """Write the health of all servers, by id, if it changed or another process removed the file."""
        if reports != self._written or not self._path.exists():
            content = orjson.dumps({"servers": {server_id: asdict(report) for server_id, report in reports.items()}})
            await asyncio.to_thread(self._replace, content)
            self._written = reports

    def remove(self) -> None:
        """Remove the file, because this process no longer serves."""
        self._path.unlink(missing_ok=True)

    def _replace(self, content: bytes) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb") as file:
            file.write(content)
        new.replace(self._path)


def read_health_file(folder: Path) -> dict[str, ReportedHealth]:
    """Return the health of each server by id; empty if the file is missing or invalid. It may be that of a killed process."""
    try:
        document = cast("object", orjson.loads(read_config_file(folder / TOOL_HEALTH_FILE, max_bytes=_MAX_FILE_BYTES)))
    except (OSError, ValueError):
        return {}
    servers = cast("dict[str, object]", document).get("servers") if isinstance(document, dict) else None
    try:
        return {
            server_id: ReportedHealth(**cast("dict[str, object]", report))  # pyright: ignore[reportArgumentType] - as `update` wrote them
            for server_id, report in cast("dict[str, object]", servers or {}).items()
        }
    except (AttributeError, TypeError):  # written by another version
        return {}


def shorten_reason(reason: str) -> str | None:
    """Return a reason in one line of at most 300 characters; None if it is empty."""
    line = " ".join(reason.split())
    return (line if len(line) <= _MAX_REASON_CHARS else f"{line[: _MAX_REASON_CHARS - 1]}…") or None
