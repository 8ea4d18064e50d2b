"""What an empty installation starts with, once in its life: a workspace, an API key and an agent key (D-03)."""

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
from rookery.access.audit import Audit
from rookery.access.credentials import lookup_of
from rookery.access.hashing import Bcrypt
from rookery.access.keyring import note_key
from rookery.access.models import LIVE, SYSTEM, KeyKind, Tier
from rookery.access.scopes import ALL, PLATFORM, PRESETS, SCOPES
from rookery.access.settings import NewAgentKey, NewApiKey
from rookery.access.store import keys
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.secret import Secret

_log = structlog.stdlib.get_logger("rookery.access")

WORKSPACE = "default"
FILE = "first-run.json"
KEEP_USED = timedelta(hours=1)
"""How long the file stays at least, so that a script that reads it a second time still finds it."""
KEEP = timedelta(days=7)
"""How long the file stays if the keys are not used."""
_DONE = "first_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """
    Where to begin.

    Attributes:
        workspace_id: `default`, or the oldest workspace if that was deleted since; None if there is none.
        api_key: None unless it was made just now; so too *agent_key*.
    """

    workspace_id: int | None
    api_key: Secret | None
    agent_key: Secret | None


async def first_run(db: Database, bcrypt: Bcrypt, audit: Audit, clock: Clock) -> FirstRun:
    """Make the first workspace and keys if this was never done; two processes at once make them once."""
    known = await db.read(_known)
    if known is not None:
        return known
    coined = await api_keys.coin(bcrypt, LIVE)
    agent_coined = agent_keys.coin()
    now = clock()

    def work(tx: Tx) -> FirstRun | None:
        # Whoever comes second waits here for the first one's commit, and then finds it done.
        if not store.do_once(tx, _DONE, to_micros(now)):
            return None
        workspace = workspaces.add(tx, WORKSPACE, now)
        workspaces.note(tx, audit, SYSTEM, None, workspace)
        for key in (
            api_keys.add(tx, workspace, _API_KEY, coined, now),
            agent_keys.add(tx, workspace.id, _AGENT_KEY, agent_coined, now, taken=set()),
        ):
            note_key(tx, audit, SYSTEM, "created", before=None, after=key)
        return FirstRun(workspace_id=workspace.id, api_key=coined.plaintext, agent_key=agent_coined.plaintext)

    made = await db.write(work)
    return made or await db.read(_known) or FirstRun(workspace_id=None, api_key=None, agent_key=None)


def as_json(made: FirstRun) -> dict[str, object]:
    """Return the workspace and the keys, None for keys made earlier."""
    return {
        "workspace_id": made.workspace_id,
        "api_key": made.api_key.reveal() if made.api_key else None,
        "agent_key": made.agent_key.reveal() if made.agent_key else None,
    }


def write(data_dir: Path, made: FirstRun, *, url: str) -> Path:
    """Write the keys into a file that only its owner may read, and return its path."""
    path = data_dir / FILE
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url, **as_json(made)}, file)
    return path


def leftover(data_dir: Path) -> Path | None:
    """Return the file with the first keys in plain text, if it still exists."""
    path = data_dir / FILE
    return path if path.is_file() else None


class FirstKeysFile:
    """Deletes the file with the first keys once it is not needed: both keys were used, or it is a week old."""

    def __init__(self, data_dir: Path, db: Database, clock: Clock) -> None:
        self._data_dir = data_dir
        self._db = db
        self._clock = clock

    async def expire(self) -> bool:
        """Delete the file if it has served its purpose; return whether it was deleted. For a timer."""
        path = leftover(self._data_dir)
        if path is None:
            return False
        age = self._clock() - datetime.fromtimestamp(path.stat().st_mtime, UTC)
        if age < KEEP and (age < KEEP_USED or not await self._are_used(path)):
            return False
        path.unlink(missing_ok=True)
        _log.info("first_run.file_deleted", path=str(path))
        return True

    async def _are_used(self, path: Path) -> bool:
        """Return whether both keys were used, or no longer exist; False if the file is not one that we wrote."""
        written = _read(path)
        return written is not None and await self._db.read(lambda tx: all(self._is_used(tx, kind, it) for kind, it in written))

    def _is_used(self, tx: Tx, kind: KeyKind, lookup: str) -> bool:
        found = keys.by_lookup(tx, kind, lookup)
        at = to_micros(self._clock())
        entries = [keys.find_key(tx, kind, row.integer("workspace_id"), row.text("id"), at=at) for row in found]
        return all(entry is None or entry.use.last_used_at is not None for entry in entries)


def _read(path: Path) -> list[tuple[KeyKind, str]] | None:
    """Return the kinds and lookups of the keys in the file; None if it is not one that we wrote."""
    try:
        found = cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))
        api_key, agent_key = (str(found[name]).encode("ascii") for name in ("api_key", "agent_key"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [("api", lookup_of(api_key)), ("agent", hashlib.sha256(agent_key).hexdigest())]


def _known(tx: Tx) -> FirstRun | None:
    if not store.was_done(tx, _DONE):
        return None
    found = store.find_workspace_named(tx, WORKSPACE)
    others = store.list_workspaces(tx) if found is None else []
    first = found or (others[0] if others else None)
    return FirstRun(workspace_id=first.id if first else None, api_key=None, agent_key=None)


_API_KEY = NewApiKey(
    name="first key",
    scopes=(ALL, *(name for name in SCOPES if name.startswith(f"{PLATFORM}:"))),
    tier=Tier.ENTERPRISE,
)
_AGENT_KEY = NewAgentKey(name="agent", permissions=PRESETS["agent"])
