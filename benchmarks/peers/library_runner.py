"""
A peer's library in a separate process: `PYTHON library_runner.py PEER FOLDER EMBEDDINGS_URL`, run by the Python of the peer.

It reads one JSON request a line and writes one response a line: `{"space": …}` creates an empty space, `{"id": …, "text": …}` stores,
`{"query": …, "mode": …}` recalls. Each response has the milliseconds of the library. It imports no module of Rookery, and the peer by
its name, because the packages of peers are not dependencies of Rookery.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import logging
import os
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

MODEL, WIDTH, DEPTH = "all-MiniLM-L6-v2", 384, 20


class Peer(Protocol):
    """One way to remember."""

    async def begin(self, space: str) -> None:
        """Start an empty space."""
        ...

    async def store(self, name: str, text: str) -> None:
        """Store a text."""
        ...

    async def recall(self, query: str, mode: str) -> list[str]:
        """Return the names of the best, best first."""
        ...


class Mem0:
    """mem0, without a language model, on its embedded Qdrant."""

    def __init__(self, folder: Path, url: str) -> None:
        os.environ |= {"MEM0_TELEMETRY": "false", "MEM0_DIR": str(folder / "mem0")}
        llm = {"provider": "openai", "config": {"api_key": "x", "model": "never-asked"}}
        embedder = {
            "provider": "openai",
            "config": {"model": MODEL, "api_key": "x", "openai_base_url": url, "embedding_dims": WIDTH},
        }
        store = {
            "provider": "qdrant",
            "config": {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": WIDTH, "collection_name": "peers"},
        }
        config = {"llm": llm, "embedder": embedder, "vector_store": store, "history_db_path": str(folder / "history.db")}
        self._memory = _of("mem0", "Memory").from_config(config)
        self._space = ""

    async def begin(self, space: str) -> None:
        self._space = space

    async def store(self, name: str, text: str) -> None:
        self._memory.add(text, user_id=self._space, metadata={"name": name}, infer=False)

    async def recall(self, query: str, mode: str) -> list[str]:  # noqa: ARG002 - it has one mode alone
        results = self._memory.search(query, filters={"user_id": self._space}, top_k=DEPTH)
        return [result["metadata"]["name"] for result in results["results"]]


class LangGraph:
    """LangGraph's store; *kind* is `memory` or `sqlite`."""

    def __init__(self, folder: Path, url: str, *, kind: str) -> None:
        index = {"dims": WIDTH, "embed": _embedding(url), "fields": ["text"]}
        if kind == "memory":
            self._store = _of("langgraph.store.memory", "InMemoryStore")(index=index)
        else:
            opened = contextlib.ExitStack()
            self._store = opened.enter_context(
                _of("langgraph.store.sqlite", "SqliteStore").from_conn_string(str(folder / "langgraph.db"), index=index)
            )
            self._opened = opened
            self._store.setup()
        self._space = ""

    async def begin(self, space: str) -> None:
        self._space = space.replace(".", "-")

    async def store(self, name: str, text: str) -> None:
        self._store.put((self._space,), name, {"text": text})

    async def recall(self, query: str, mode: str) -> list[str]:  # noqa: ARG002 - it has one mode alone
        return [item.key for item in self._store.search((self._space,), query=query, limit=DEPTH)]


class McpMemoryService:
    """mcp-memory-service's storage itself, a file a space."""

    def __init__(self, folder: Path, url: str) -> None:
        os.environ |= {
            "MCP_EXTERNAL_EMBEDDING_URL": f"{url}/embeddings",
            "MCP_EXTERNAL_EMBEDDING_MODEL": MODEL,
            "MCP_SEMANTIC_DEDUP_ENABLED": "false",
            "MCP_MEMORY_BASE_DIR": str(folder),
        }
        self._folder = folder
        self._open = _of("mcp_memory_service.storage.sqlite_vec", "SqliteVecMemoryStorage")
        self._memory = _of("mcp_memory_service.models.memory", "Memory")
        self._storage: Any = None

    async def begin(self, space: str) -> None:
        if self._storage is not None:
            await self._storage.close()
        self._storage = self._open(str(self._folder / f"{hashlib.sha256(space.encode()).hexdigest()[:16]}.db"))
        await self._storage.initialize()

    async def store(self, name: str, text: str) -> None:
        memory = self._memory(content=text, content_hash=hashlib.sha256(text.encode()).hexdigest(), tags=[name], memory_type="observation")
        is_stored, reason = await self._storage.store(memory, skip_semantic_dedup=True)
        if not is_stored and "uplicate" not in reason:
            raise RuntimeError(reason)

    async def recall(self, query: str, mode: str) -> list[str]:
        ask = self._storage.retrieve_hybrid if mode == "hybrid" else self._storage.retrieve
        return [result.memory.tags[0] for result in await ask(query, DEPTH)]


def _of(module: str, name: str) -> Any:  # noqa: ANN401 - a library that is not there when this is checked
    return getattr(importlib.import_module(module), name)


def _embedding(url: str) -> Any:  # noqa: ANN401 - as LangGraph takes it: a plain function
    def embed(texts: Sequence[str]) -> list[list[float]]:
        body = json.dumps({"model": MODEL, "input": list(texts)}).encode()
        request = urllib.request.Request(f"{url}/embeddings", data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - the same
            return [row["embedding"] for row in json.load(response)["data"]]

    return embed


def _peer(name: str, folder: Path, url: str) -> Peer:
    match name:
        case "mem0":
            return Mem0(folder, url)
        case "mcp-memory-service":
            return McpMemoryService(folder, url)
        case _:
            return LangGraph(folder, url, kind=name.removeprefix("langgraph-"))


async def main() -> None:
    """Answer lines until there are no more."""
    peer = _peer(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    print(json.dumps({"ready": True}), file=sys.__stdout__, flush=True)
    for line in sys.stdin:
        request = cast("dict[str, str]", json.loads(line))
        started_s, names = time.perf_counter(), list[str]()
        if "space" in request:
            await peer.begin(request["space"])
        elif "text" in request:
            await peer.store(request["id"], request["text"])
        else:
            names = await peer.recall(request["query"], request["mode"])
        print(json.dumps({"ms": (time.perf_counter() - started_s) * 1000, "names": names}), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    # Output of libraries would be read as responses.
    sys.stdout = sys.stderr
    asyncio.run(main())
