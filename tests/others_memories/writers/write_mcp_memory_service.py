"""mcp-memory-service stores the facts in its SQLite file, and exports them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
os.environ |= {"MCP_MEMORY_BASE_DIR": str(folder / "home"), "HF_HUB_OFFLINE": "1", "MCP_MEMORY_USE_ONNX": "false"}

from facts import DELETED, FACTS, NEW, OLD  # noqa: E402
from mcp_memory_service.models.memory import Memory  # noqa: E402
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage  # noqa: E402
from mcp_memory_service.sync.exporter import MemoryExporter  # noqa: E402
from mcp_memory_service.utils.hashing import generate_content_hash  # noqa: E402


async def main() -> None:
    storage = SqliteVecMemoryStorage(str(folder / "sqlite_vec.db"))
    await storage.initialize()

    async def add(text: str, user: str, tags: tuple[str, ...] = ()) -> str:
        content_hash = generate_content_hash(text)
        memory = Memory(content=text, content_hash=content_hash, tags=list(tags), memory_type="note", metadata={"user": user})
        is_stored, reason = await storage.store(memory, skip_semantic_dedup=True)
        assert is_stored, reason
        return content_hash

    for user, project, text, tags in FACTS:
        await add(text, user, (*tags, f"project:{project}"))
    await storage.update_memory_versioned(await add(OLD, "kim"), NEW, reason="winter")
    await storage.delete(await add(DELETED, "kim"))
    await MemoryExporter(storage).export_to_json(folder / "export.json")
    await storage.close()


asyncio.run(main())
