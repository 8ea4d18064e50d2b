"""Graphiti's edges hold the facts, as a model would extract them; the old text of the changed fact is invalid."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from facts import FACTS, NEW, OLD
from graphiti_core.edges import EntityEdge

folder = Path(sys.argv[1])
at = datetime(2026, 5, 1, 9, tzinfo=timezone(timedelta(hours=9)))


def build(text: str, user: str, invalid_at: datetime | None = None) -> EntityEdge:
    return EntityEdge(
        group_id=user, source_node_uuid="a", target_node_uuid="b", created_at=datetime.now(UTC), name="KNOWS", fact=text, valid_at=at,
        invalid_at=invalid_at,
    )  # fmt: skip


edges = [build(text, user) for user, _, text, _ in FACTS] + [build(OLD, "kim", at), build(NEW, "kim")]
values = [json.loads(edge.model_dump_json()) for edge in edges]
(folder / "edges.json").write_text(json.dumps({"edges": values}), encoding="utf-8")
(folder / "edges.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
