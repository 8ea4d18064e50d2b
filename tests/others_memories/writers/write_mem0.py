"""mem0 stores the facts without a model, and gives them by get_all, as rows of its vector store, and in history.db."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ |= {"MEM0_DIR": str(folder / "home"), "MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none"}

from embeddings import run_service  # noqa: E402
from facts import DELETED, FACTS, NEW, OLD  # noqa: E402
from mem0 import Memory  # noqa: E402

url = run_service()
memory = Memory.from_config(
    {
        "embedder": {"provider": "openai", "config": {"openai_base_url": url, "embedding_dims": 384, "model": "hash"}},
        "llm": {"provider": "openai", "config": {"openai_base_url": url}},
        "vector_store": {"provider": "qdrant", "config": {"path": str(folder / "qdrant"), "embedding_model_dims": 384, "on_disk": True}},
        "history_db_path": str(folder / "history.db"),
    }
)


def add(text: str, user: str, **metadata: object) -> str:
    return memory.add(text, user_id=user, metadata=metadata, infer=False)["results"][0]["id"]


for user, project, text, tags in FACTS:
    add(text, user, project=project, tags=list(tags))
updated, deleted = add(OLD, "kim"), add(DELETED, "kim")
memory.update(updated, NEW)
memory.delete(deleted)
results = [
    entry for user in ("kim", "ida") for entry in memory.get_all(filters={"user_id": user}, top_k=1_000_000, show_expired=True)["results"]
]
(folder / "get_all.json").write_text(json.dumps({"results": results}), encoding="utf-8")
points = [
    {"id": str(point.id), "payload": point.payload} for point in memory.vector_store.client.scroll(memory.collection_name, limit=100)[0]
]
(folder / "scroll.json").write_text(json.dumps({"result": {"points": points, "next_page_offset": None}}), encoding="utf-8")
