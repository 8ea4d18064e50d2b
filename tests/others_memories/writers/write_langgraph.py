"""LangGraph's SqliteStore stores the facts, and gives them as items."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from facts import DELETED, FACTS, NEW, OLD
from langgraph.store.sqlite import SqliteStore

folder = Path(sys.argv[1])
with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
    store.setup()
    for number, (user, project, text, tags) in enumerate(FACTS):
        store.put(("memories", user, project), f"m{number}", {"content": text, "tags": list(tags)})
    store.put(("memories", "kim", "pier"), "hours", {"content": OLD})
    store.put(("memories", "kim", "pier"), "hours", {"content": NEW})
    store.put(("memories", "kim", "pier"), "anchor", {"content": DELETED})
    store.delete(("memories", "kim", "pier"), "anchor")
    items = [item.dict() for item in store.search(("memories",), limit=1_000)]
(folder / "items.jsonl").write_text("".join(json.dumps(item, default=str) + "\n" for item in items), encoding="utf-8")
