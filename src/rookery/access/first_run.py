"""The first workspace, API key and agent key of an empty installation, created once."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import structlog

from rookery.access import agent_keys, api_keys, workspaces
from rookery.access.audit_log import AuditLog
from rookery.access.credentials import get_lookup
from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.keyring import audit_key_change
from rookery.access.models import LIVE, SYSTEM_ACTOR, KeyKind, Tier
from rookery.access.scopes import ALL_SCOPES, PLATFORM, PRESETS, SCOPES
from rookery.access.store import keys
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.secret import Secret

_log = structlog.stdlib.get_logger("rookery.access")

WORKSPACE_NAME = "default"
KEYS_FILE = "first-run.json"
MIN_FILE_AGE = timedelta(hours=1)
"""Minimum age of the file before deletion, so that a script can read it a second time."""
MAX_FILE_AGE = timedelta(days=7)
"""Age at which the file is deleted even if the keys were not used."""
_MARKER = "first_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRunResult:
    """
    The workspace and keys to begin with.

    Attributes:
        workspace_id: The workspace `default`, or the oldest one if `default` was deleted; None if no workspace exists.
        api_key: The plaintext if the key was created just now, else None; *agent_key* likewise.
    """

    workspace_id: int | None
    api_key: Secret | None
    agent_key: Secret | None


async def create_first_keys(db: Database, bcrypt: Bcrypt, audit: AuditLog, clock: Clock) -> FirstRunResult:
    """Create the first workspace and keys unless that was done before. Safe if two processes call it at the same time."""
    existing = await db.read(_find_existing)
    if existing is not None:
        return existing
    material = await api_keys.generate_key(bcrypt, LIVE)
    agent_material = agent_keys.generate_key()
    now = clock()

    def work(tx: Tx) -> FirstRunResult | None:
        # A second process waits here for the first one's commit, and then finds the marker.
        if not store.mark_done(tx, _MARKER, to_micros(now)):
            return None
        workspace = workspaces.insert_workspace(tx, WORKSPACE_NAME, now)
        workspaces.audit_workspace_change(tx, audit, SYSTEM_ACTOR, None, workspace)
        for key in (
            api_keys.insert_key(tx, workspace, _FIRST_API_KEY, material, now),
            agent_keys.insert_key(tx, workspace.id, _FIRST_AGENT_KEY, agent_material, now, used_agent_ids=set()),
        ):
            audit_key_change(tx, audit, SYSTEM_ACTOR, "created", before=None, after=key)
        return FirstRunResult(workspace_id=workspace.id, api_key=material.plaintext, agent_key=agent_material.plaintext)

    result = await db.write(work)
    return result or await db.read(_find_existing) or FirstRunResult(workspace_id=None, api_key=None, agent_key=None)


def to_json(result: FirstRunResult) -> dict[str, object]:
    """Return the workspace and the keys as JSON fields; None for keys created earlier."""
    return {
        "workspace_id": result.workspace_id,
        "api_key": result.api_key.reveal() if result.api_key else None,
        "agent_key": result.agent_key.reveal() if result.agent_key else None,
    }


def write_keys_file(data_dir: Path, result: FirstRunResult, *, url: str) -> Path:
    """Write the keys to a file that only its owner may read, and return its path."""
    path = data_dir / KEYS_FILE
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url, **to_json(result)}, file)
    return path


def find_keys_file(data_dir: Path) -> Path | None:
    """Return the file with the first keys in plain text, if it still exists."""
    path = data_dir / KEYS_FILE
    return path if path.is_file() else None


class FirstKeysFile:
    """The file with the first keys, deleted when both keys were used and it is an hour old, or when it is seven days old."""

    def __init__(self, data_dir: Path, db: Database, clock: Clock) -> None:
        self._data_dir = data_dir
        self._db = db
        self._clock = clock

    async def delete_if_unneeded(self) -> bool:
        """Delete the file if it is no longer needed, and return whether it was deleted. Called by a timer."""
        path = find_keys_file(self._data_dir)
        if path is None:
            return False
        age = self._clock() - datetime.fromtimestamp(path.stat().st_mtime, UTC)
        if age < MAX_FILE_AGE and (age < MIN_FILE_AGE or not await self._are_used(path)):
            return False
        path.unlink(missing_ok=True)
        _log.info("first_run.file_deleted", path=str(path))
        return True

    async def _are_used(self, path: Path) -> bool:
        """Return whether both keys were used or no longer exist. False if the file's content is not ours."""
        lookups = _read_lookups(path)
        return lookups is not None and await self._db.read(lambda tx: all(self._is_used(tx, kind, it) for kind, it in lookups))

    def _is_used(self, tx: Tx, kind: KeyKind, lookup: str) -> bool:
        rows = keys.list_rows_by_lookup(tx, kind, lookup)
        at = to_micros(self._clock())
        entries = [keys.find_key(tx, kind, row.integer("workspace_id"), row.text("id"), at=at) for row in rows]
        return all(entry is None or entry.usage.last_used_at is not None for entry in entries)


def _read_lookups(path: Path) -> list[tuple[KeyKind, str]] | None:
    """Return the kinds and lookups of the keys in the file; None if the file's content is not ours."""
    try:
        document = cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))
        api_key, agent_key = (str(document[name]).encode("ascii") for name in ("api_key", "agent_key"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [("api", get_lookup(api_key)), ("agent", hashlib.sha256(agent_key).hexdigest())]


def _find_existing(tx: Tx) -> FirstRunResult | None:
    if not store.is_done(tx, _MARKER):
        return None
    workspace = store.find_workspace_by_name(tx, WORKSPACE_NAME)
    others = store.list_workspaces(tx) if workspace is None else []
    first = workspace or (others[0] if others else None)
    return FirstRunResult(workspace_id=first.id if first else None, api_key=None, agent_key=None)


_FIRST_API_KEY = NewApiKey(
    name="first key",
    scopes=(ALL_SCOPES, *(name for name in SCOPES if name.startswith(f"{PLATFORM}:"))),
    rate_limit_tier=Tier.ENTERPRISE,
)
_FIRST_AGENT_KEY = NewAgentKey(name="agent", permissions=PRESETS["agent"])
