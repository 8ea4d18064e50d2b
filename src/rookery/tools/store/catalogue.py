"""What each server offered when last seen."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import cast

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, metadata, upsert
from rookery.tools.models import JsonObject, Offer, Snapshot

tool_catalogue = Table(
    "tool_catalogue",
    metadata,
    Column("server_id", Text, primary_key=True),  # the server's key
    Column("fingerprint", Text, nullable=False),
    Column("offer", Text, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

tool_deprecations = Table(
    "tool_deprecations",
    metadata,
    Column("server_id", Text, primary_key=True),  # of the file's servers; others have it in their entry
    Column("deprecated_at", BigInteger, nullable=False),
)

_DEPRECATIONS = select(tool_deprecations)
_DEPRECATE = upsert(tool_deprecations, index_elements=["server_id"])
_UNDEPRECATE = delete(tool_deprecations).where(tool_deprecations.c.server_id == bindparam("of_key"))
_KEEP = upsert(
    tool_catalogue,
    index_elements=["server_id"],
    set_=lambda new: {"fingerprint": new["fingerprint"], "offer": new["offer"], "seen_at": new["seen_at"]},
)
_FORGET = delete(tool_catalogue).where(tool_catalogue.c.server_id == bindparam("of_key"))
_PURGE = delete(tool_catalogue).where(tool_catalogue.c.server_id.like(bindparam("of_keys")))
_ALL_SNAPSHOTS = select(tool_catalogue)
_SNAPSHOT = select(tool_catalogue).where(tool_catalogue.c.server_id == bindparam("of_key"))


def keep_snapshot(tx: Tx, snapshot: Snapshot) -> None:
    """Keep what a server offers, in the place of what it offered before."""
    offer = snapshot.offer
    content = {
        "tools": offer.tools,
        "resources": offer.resources,
        "templates": offer.templates,
        "prompts": offer.prompts,
        "needs": offer.needs,
        "instructions": offer.instructions,
    }
    tx.run(
        _KEEP,
        {
            "server_id": snapshot.server_key,
            "fingerprint": snapshot.fingerprint,
            "offer": json.dumps(content),  # not orjson: schemas may have integers past 64 bits
            "seen_at": to_micros(snapshot.seen_at),
        },
    )


def forget_snapshot(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Forget what a server offered that a workspace had added; return how many snapshots that was."""
    del workspace_id  # the key has it
    return tx.run(_FORGET, {"of_key": server_key})


def purge(tx: Tx, workspace_id: int) -> int:
    """Forget what the servers of a workspace offered that is being deleted; return how many snapshots that was."""
    return tx.run(_PURGE, {"of_keys": f"{workspace_id}/%"})


def snapshots(tx: Tx) -> list[Snapshot]:
    """Return what every server offered when it was last seen."""
    return [_snapshot(row) for row in tx.all(_ALL_SNAPSHOTS)]


def update_deprecations(tx: Tx, server_ids: Collection[str], now: datetime) -> dict[str, datetime]:
    """Make *server_ids* the deprecated servers of the file; return since when each is, which is *now* for new ones."""
    known = {row.text("server_id"): from_micros(row.integer("deprecated_at")) for row in tx.all(_DEPRECATIONS)}
    for server_id in server_ids:
        if server_id not in known:
            tx.run(_DEPRECATE, {"server_id": server_id, "deprecated_at": to_micros(now)})
    for server_id in known.keys() - set(server_ids):
        tx.run(_UNDEPRECATE, {"of_key": server_id})
    return {server_id: known.get(server_id, now) for server_id in server_ids}


def find_snapshot(tx: Tx, server_key: str) -> Snapshot | None:
    """Return what one server offered when it was last seen; None if it never was."""
    row = tx.one(_SNAPSHOT, {"of_key": server_key})
    return None if row is None else _snapshot(row)


def _snapshot(row: Row) -> Snapshot:
    content = cast("dict[str, object]", json.loads(row.text("offer")))

    def things(name: str) -> tuple[JsonObject, ...]:
        return tuple(cast("list[JsonObject]", content.get(name) or []))

    return Snapshot(
        server_key=row.text("server_id"),
        fingerprint=row.text("fingerprint"),
        offer=Offer(
            tools=things("tools"),
            resources=things("resources"),
            templates=things("templates"),
            prompts=things("prompts"),
            needs=cast("dict[str, str]", content.get("needs") or {}),
            instructions=cast("str | None", content.get("instructions")),
        ),
        seen_at=from_micros(row.integer("seen_at")),
    )
