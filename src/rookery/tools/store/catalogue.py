"""The last listed features of each server."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import cast

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Codec, Tx, map_table, metadata, upsert
from rookery.tools.models import FEATURE_KINDS, FeatureSnapshot, JsonObject, ServerFeatures, ServerInfo
from rookery.tools.store.servers import increment_revision


def _decode_features(text: str) -> ServerFeatures:
    content = cast("dict[str, object]", json.loads(text))
    lists = {kind: tuple(cast("list[JsonObject]", content.get(kind) or [])) for kind in FEATURE_KINDS}
    return ServerFeatures(
        tools=lists["tools"],
        resources=lists["resources"],
        templates=lists["templates"],
        prompts=lists["prompts"],
        required_scopes=cast("dict[str, str]", content.get("needs") or {}),
        instructions=cast("str | None", content.get("instructions")),
        info=ServerInfo(**cast("dict[str, str]", content.get("info") or {})),
    )


def _encode_features(features: ServerFeatures) -> str:
    lists: dict[str, object] = {name: getattr(features, name) for name in FEATURE_KINDS}
    # Not orjson, because schemas may contain integers beyond 64 bits.
    info = {name: value for name, value in asdict(features.info).items() if value}
    return json.dumps({**lists, "needs": features.required_scopes, "instructions": features.instructions, "info": info})


tool_catalogue, SNAPSHOTS = map_table(
    "tool_catalogue",
    FeatureSnapshot,
    key=("server_id",),
    columns={"server_key": "server_id", "features": "offer"},
    codecs={"features": Codec((str,), _decode_features, _encode_features)},
)

tool_deprecations = Table(
    "tool_deprecations",
    metadata,
    Column("server_id", Text, primary_key=True),  # of the file's servers; others have it in their entry
    Column("deprecated_at", BigInteger, nullable=False),
)

FEATURES_REVISION = "features"

_DEPRECATIONS = select(tool_deprecations)
_DEPRECATE = upsert(tool_deprecations, index_elements=["server_id"])
_UNDEPRECATE = delete(tool_deprecations).where(tool_deprecations.c.server_id == bindparam("server_id"))
_DELETE = delete(tool_catalogue).where(tool_catalogue.c.server_id == bindparam("server_id"))
_PURGE = delete(tool_catalogue).where(tool_catalogue.c.server_id.like(bindparam("pattern")))
_ALL_SNAPSHOTS = select(tool_catalogue)
_SEEN_TIMES = select(tool_catalogue.c.server_id, tool_catalogue.c.seen_at)
_SNAPSHOT = select(tool_catalogue).where(tool_catalogue.c.server_id == bindparam("server_id"))


def save_snapshot(tx: Tx, snapshot: FeatureSnapshot) -> None:
    """Insert or replace the features of a server, and increment the revision by which other processes see it."""
    SNAPSHOTS.save(tx, snapshot)
    increment_revision(tx, FEATURES_REVISION)


def delete_snapshot(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Delete the features of a server that a workspace added; return the number of rows."""
    del workspace_id  # the key contains it
    return tx.execute(_DELETE, {"server_id": server_key})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the features of a deleted workspace's servers; return the number of rows."""
    return tx.execute(_PURGE, {"pattern": f"{workspace_id}/%"})


def list_snapshots(tx: Tx) -> list[FeatureSnapshot]:
    """Return the stored features of all servers."""
    return SNAPSHOTS.fetch_all(tx, _ALL_SNAPSHOTS)


def list_seen_times(tx: Tx) -> dict[str, datetime]:
    """Return when the stored features of each server were listed, by the server's key."""
    return {row.text("server_id"): from_micros(row.integer("seen_at")) for row in tx.fetch_all(_SEEN_TIMES)}


def update_deprecations(tx: Tx, server_ids: Collection[str], now: datetime) -> dict[str, datetime]:
    """Set the deprecated servers of the file. Return the deprecation date of each, which is *now* for new ones."""
    deprecation_times = {row.text("server_id"): from_micros(row.integer("deprecated_at")) for row in tx.fetch_all(_DEPRECATIONS)}
    for server_id in server_ids:
        if server_id not in deprecation_times:
            tx.execute(_DEPRECATE, {"server_id": server_id, "deprecated_at": to_micros(now)})
    for server_id in deprecation_times.keys() - set(server_ids):
        tx.execute(_UNDEPRECATE, {"server_id": server_id})
    return {server_id: deprecation_times.get(server_id, now) for server_id in server_ids}


def find_snapshot(tx: Tx, server_key: str) -> FeatureSnapshot | None:
    """Return the stored features of one server, or None if it was never listed."""
    return SNAPSHOTS.fetch_one(tx, _SNAPSHOT, {"server_id": server_key})
