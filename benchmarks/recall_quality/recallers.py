"""
The measured rankers: each ranks the documents of a collection for a question.

`Hybrid` uses the product's embedder, its full-text engine and its pure functions (words, fusion): it measures
what ships, except the server around it. Another class of `Recaller`, which remembers and recalls over HTTP, can be
measured by the same command.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.recall_quality.data import Collection
from benchmarks.recall_quality.measures import DEPTH
from rookery.engines import texts
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, Passage
from rookery.memory.ports import Embedder
from rookery.memory.ranking import fuse_scores
from rookery.memory.text_queries import parse_question

CANDIDATES = 100
"""The number of candidates that each arm returns."""

_BASELINE_STOP_WORDS = frozenset(
    # Fixed, as the floor is: not the product's list, which may become better.
    "a an the of to in on at is are was were be been did do does doing has have had what when where who whom which why how "
    "and or for with from by as it its this that these those i you he she they we my your his her their our me him them us "
    "can could would should will shall may might about into than then there here so if not no s t".split()
)


class Recaller(Protocol):
    """A ranking method."""

    async def learn(self, collection: Collection) -> None:
        """Load *collection*'s documents and discard the previous ones."""
        ...

    async def rankings(self, question: str) -> Mapping[str, list[str]]:
        """Return the best `DEPTH` documents' ids, best first, by the name of each way of ranking."""
        ...

    async def close(self) -> None:
        """Close open resources."""
        ...


class SqliteTexts:
    """Documents in SQLite's full text, in memory: English stems, bm25."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._ids = list(documents)
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE text USING fts5 (content, tokenize = 'porter unicode61')")
        self._db.executemany("INSERT INTO text (rowid, content) VALUES (?, ?)", enumerate(documents.values()))

    def match(self, phrases: list[str], *, limit: int) -> dict[str, float]:
        """Return scores above 0, best first, of documents in which any of *phrases* stands."""
        if not phrases:
            return {}
        query = " OR ".join(f'"{phrase}"' for phrase in phrases)
        rows: list[tuple[int, float]] = self._db.execute(
            "SELECT rowid, bm25(text) FROM text WHERE text MATCH ? ORDER BY bm25(text) LIMIT ?", (query, limit)
        ).fetchall()
        return {self._ids[row]: -score for row, score in rows}


class FullTextBaseline:
    """A minimal full-text ranking; a hybrid must be better than this."""

    def __init__(self) -> None:
        self._texts = SqliteTexts({})

    async def learn(self, collection: Collection) -> None:
        self._texts = SqliteTexts(collection.documents)

    async def rankings(self, question: str) -> Mapping[str, list[str]]:
        words: list[str] = re.findall(r"[a-z0-9]+", question.lower())
        telling = [word for word in words if word not in _BASELINE_STOP_WORDS] or words
        return {"floor": list(self._texts.match(list(dict.fromkeys(telling)), limit=DEPTH))}

    async def close(self) -> None:
        pass


class Hybrid:
    """The product's semantic and keyword rankings, alone and fused."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._texts: texts.TextEngine | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ids: list[str] = []
        self._vectors: npt.NDArray[np.float32] = np.zeros((0, embedder.dimension), dtype=np.float32)
        self._starts: list[int] = []

    async def learn(self, collection: Collection) -> None:
        await self.close()
        self._folder = tempfile.TemporaryDirectory()
        self._texts = texts.open("embedded:", data_dir=Path(self._folder.name))
        await self._texts.put([_document(name, text) for name, text in collection.documents.items()])
        self._ids = list(collection.documents)
        chunks = await self._embedder.embed_passages([Passage(context="", content=text) for text in collection.documents.values()])
        self._starts = list(np.cumsum([0, *map(len, chunks)])[:-1])
        self._vectors = np.vstack([np.frombuffer(vector, dtype="<f4") for vectors in chunks for vector in vectors])

    async def rankings(self, question: str) -> Mapping[str, list[str]]:
        if self._texts is None:
            raise RuntimeError("nothing was learnt")
        vector = np.frombuffer(await self._embedder.embed_query(question), dtype="<f4")
        best_chunks = np.maximum.reduceat(self._vectors @ vector, self._starts)
        similarities = dict(sorted(zip(self._ids, best_chunks.tolist(), strict=True), key=lambda pair: -pair[1]))
        matched = await self._texts.search(parse_question(question), access_filter=AccessFilter(workspace_id=1, at=_NOW), limit=CANDIDATES)
        scores = {hit.memory_id: hit.score for hit in matched}
        candidates = [*list(similarities)[:CANDIDATES], *scores]
        relevances = fuse_scores({memory_id: similarities[memory_id] for memory_id in candidates}, scores)
        return {
            "semantic": list(similarities)[:DEPTH],
            "keyword": list(scores)[:DEPTH],
            "hybrid": sorted(relevances, key=lambda document: (-relevances[document], document))[:DEPTH],
        }

    async def close(self) -> None:
        if self._texts is not None:
            await self._texts.close()
        if self._folder is not None:
            self._folder.cleanup()


_NOW = datetime(2026, 11, 21, tzinfo=UTC)


def _document(name: str, text: str) -> IndexDocument:
    return IndexDocument(
        memory_id=name,
        workspace_id=1,
        org=None,
        project=None,
        agent_id=None,
        session_id=None,
        memory_scope=MemoryScope.PROJECT,
        type="observation",
        tags=(),
        confidence=0.8,
        source="manual",
        content=text,
        created_at=_NOW,
        updated_at=_NOW,
        expires_at=None,
    )
