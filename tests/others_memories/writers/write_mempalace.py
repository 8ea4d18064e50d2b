"""MemPalace files the facts in its Chroma backend by its own tools, and exports them as Markdown."""

from __future__ import annotations

import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])

from embeddings import run_service  # noqa: E402

os.environ |= {
    "HOME": str(folder / "home"),
    "TZ": "Asia/Tokyo",
    "MEMPALACE_PALACE_PATH": str(folder / "palace"),
    "MEMPALACE_BACKEND": "chroma",
    "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
    "MEMPALACE_EMBEDDING_API_URL": run_service(),
    "MEMPALACE_EMBEDDING_API_MODEL": "hash",
    "MEMPALACE_EMBEDDING_API_KEY": "none",
}
for name in ("home", "palace"):
    (folder / name).mkdir(exist_ok=True)

import mempalace.mcp_server as palace_tools  # noqa: E402
from facts import DELETED, FACTS, NEW, OLD  # noqa: E402
from mempalace.exporter import export_palace  # noqa: E402


def add(wing: str, room: str, text: str) -> str:
    answer = palace_tools.tool_add_drawer(wing, room, text, added_by=room)
    assert answer.get("success"), answer
    return answer["drawer_id"]


for user, project, text, _ in FACTS:
    add(project, user, text)
updated, deleted = add("pier", "kim", OLD), add("pier", "kim", DELETED)
assert palace_tools.tool_update_drawer(updated, content=NEW).get("success")
assert palace_tools.tool_delete_drawer(deleted).get("success")
export_palace(str(folder / "palace"), str(folder / "export"))
