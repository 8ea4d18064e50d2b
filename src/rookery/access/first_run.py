"""What an empty installation starts with, once in its life: a workspace, an API key and an agent key (D-03)."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access import agent_keys, api_keys, workspaces
from rookery.access.audit import Audit
from rookery.access.hashing import Bcrypt
from rookery.access.keyring import note_key
from rookery.access.models import LIVE, SYSTEM, Tier
from rookery.access.scopes import ALL, PLATFORM, PRESETS, SCOPES
from rookery.access.settings import NewAgentKey, NewApiKey
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.secret import Secret

WORKSPACE = "default"
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
