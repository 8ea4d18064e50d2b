"""
The measured rankers: each ranks the documents of a collection for a question.

`Product` is the product's recall on its own stores: what ships, except the server around it. Another class of `Recaller`, which
remembers and recalls over HTTP, can be measured by the same command.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from benchmarks.recall_quality.measures import DEPTH
from benchmarks.recall_quality.questions import Collection, Question
from rookery.access.models import Caller
from rookery.engines import texts, vectors
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.workspace_shares import WorkspaceShares
from rookery.memory.candidates import CandidateSearch
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.feedback import RecallBuffer
from rookery.memory.indexing import build_document, build_passage
from rookery.memory.models import EmbeddedDocument, Memory, MemoryScope, RecallMode
from rookery.memory.ports import Embedder
from rookery.memory.recall import Recall
from rookery.memory.recall_models import RecallRequest, RecallResult
from rookery.memory.similarity_scales import SimilarityScales
from rookery.memory.store import records
from rookery.migrations import migrate

MODES: tuple[RecallMode, ...] = ("semantic", "keyword", "hybrid")

CONFIDENCE_TOP_K = 5
"""The number of hits that an agent is given; the confidence is that of the best of them."""

_WORKSPACE_ID = 1
_BATCH = 100
_START = datetime(2026, 11, 1, tzinfo=UTC)
_LATER = datetime(2026, 11, 21, tzinfo=UTC)
_CALLER = Caller.without_limits("benchmark", _WORKSPACE_ID)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddresses:
    """The engines of a store. Those on servers must be empty."""

    database: str = "embedded:"
    vectors: str = "embedded:"
    texts: str = "embedded:"


class Product:
    """The product's own recall, in each mode, on stores of its own, in a temporary folder unless *addresses* names servers."""

    def __init__(self, embedder: Embedder, *, addresses: Callable[[], EngineAddresses] = EngineAddresses) -> None:
        self._embedder = embedder
        self._addresses = addresses
        self._store: _Store | None = None

    async def learn(self, collection: Collection) -> None:
        await self.close()
        self._store = await _Store.open(self._embedder, self._addresses())
        await self._store.add(collection)

    async def rankings(self, question: str) -> Mapping[str, list[str]]:
        store = self._require_store()
        return {mode: [store.names[hit.memory.id] for hit in (await store.find(question, mode)).hits] for mode in MODES}

    async def measure_confidence(self, question: Question) -> Confidence:
        """Return the relevance of the best hybrid hits of *question*, and of those that are left if its answers are archived."""
        store = self._require_store()
        answered = await store.find(question.text, "hybrid", top_k=CONFIDENCE_TOP_K)
        async with store.without(question.gold):
            unanswered = await store.find(question.text, "hybrid", top_k=CONFIDENCE_TOP_K)
        return Confidence(
            hits=tuple((hit.score.relevance, store.names[hit.memory.id] in question.gold) for hit in answered.hits),
            is_confident=answered.is_confident,
            unanswered_hits=tuple(hit.score.relevance for hit in unanswered.hits),
            unanswered_is_confident=unanswered.is_confident,
        )

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    def _require_store(self) -> _Store:
        if self._store is None:
            raise RuntimeError("nothing was learnt")
        return self._store


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """
    The relevances that recall gave to a question with and without its answers.

    Attributes:
        hits: The relevance of each of the first hits, and whether it is an answer.
    """

    hits: tuple[tuple[float, bool], ...]
    is_confident: bool
    unanswered_hits: tuple[float, ...]
    unanswered_is_confident: bool


class _Store:
    """A workspace of one collection, filled past the queue."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], embedder: Embedder, addresses: EngineAddresses) -> None:
        path = Path(folder.name)
        self._folder = folder
        self._embedder = embedder
        self._db = open_database(addresses.database, data_dir=path)
        self._texts = texts.open(addresses.texts, data_dir=path)
        self._vectors = vectors.open(addresses.vectors, data_dir=path, model=embedder.model, dimension=embedder.dimension)
        self._ids: dict[str, str] = {}
        self.names: dict[str, str] = {}
        breakers = EngineBreakers(Settings())
        self._recall = Recall(
            db=self._db,
            candidates=CandidateSearch(
                db=self._db,
                migration=EmbeddingMigration(
                    db=self._db, clock=lambda: _LATER, current=IndexVersion(embedder=embedder, vectors=self._vectors)
                ),
                texts=self._texts,
                scales=SimilarityScales(db=self._db, breaker=breakers.vectors),
                breakers=breakers,
            ),
            writes=breakers.writes,
            buffer=RecallBuffer(db=self._db),
            bus=EventBus(),
            clock=lambda: _LATER,
            ids=uuid7,
            shares=WorkspaceShares(),
        )

    @classmethod
    async def open(cls, embedder: Embedder, addresses: EngineAddresses) -> _Store:
        """Return an empty store."""
        folder = tempfile.TemporaryDirectory()
        await asyncio.to_thread(migrate, addresses.database, data_dir=Path(folder.name))
        return cls(folder, embedder, addresses)

    async def add(self, collection: Collection) -> None:
        """Store the documents of *collection*, a second apart."""
        memories = [_make_memory(collection, name, _START + timedelta(seconds=number)) for number, name in enumerate(collection.documents)]
        self._ids = dict(zip(collection.documents, (memory.id for memory in memories), strict=True))
        self.names = {memory_id: name for name, memory_id in self._ids.items()}
        for start in range(0, len(memories), _BATCH):
            batch = memories[start : start + _BATCH]
            await self._db.write(lambda tx, batch=batch: records.add(tx, *batch))
            await self._index(batch)

    async def find(self, question: str, mode: RecallMode, *, top_k: int = DEPTH) -> RecallResult:
        """Return the best memories."""
        return await self._recall.find(_CALLER, RecallRequest(query=question, mode=mode, top_k=top_k))

    @contextlib.asynccontextmanager
    async def without(self, names: Iterable[str]) -> AsyncGenerator[None]:
        """Archive the documents *names* for a while."""
        ids = [self._ids[name] for name in names]
        memories = await self._db.read(lambda tx: records.get_memories(tx, _WORKSPACE_ID, ids))
        await self._replace(memories, [replace(memory, archived_at=_LATER) for memory in memories])
        await self._texts.drop(_WORKSPACE_ID, ids)
        vectors_by_id = await self._vectors.fetch(_WORKSPACE_ID, ids)
        await self._vectors.drop(_WORKSPACE_ID, ids)
        yield
        await self._replace(memories, memories)
        await self._texts.put([build_document(memory) for memory in memories])
        await self._vectors.put(
            [EmbeddedDocument(document=build_document(memory), vectors=vectors_by_id[memory.id]) for memory in memories]
        )

    async def close(self) -> None:
        """Close the stores and delete the folder. Delete the documents, which a server would keep."""
        await self._texts.drop(_WORKSPACE_ID, list(self.names))
        await self._vectors.drop(_WORKSPACE_ID, list(self.names))
        await self._vectors.close()
        await self._texts.close()
        await self._db.close()
        self._folder.cleanup()

    async def _index(self, memories: Sequence[Memory]) -> None:
        chunks = await self._embedder.embed_passages([build_passage(memory) for memory in memories])
        documents = [build_document(memory) for memory in memories]
        await self._texts.put(documents)
        await self._vectors.put(
            [EmbeddedDocument(document=document, vectors=found) for document, found in zip(documents, chunks, strict=True)]
        )

    async def _replace(self, old: Sequence[Memory], new: Sequence[Memory]) -> None:
        def write(tx: Tx) -> None:
            for before, after in zip(old, new, strict=True):
                records.update_memory(tx, before, after)

        await self._db.write(write)


def _make_memory(collection: Collection, name: str, at: datetime) -> Memory:
    return Memory(
        id=uuid7(),
        type=collection.types.get(name, "observation"),
        tags=(),
        org=None,
        project=None,
        agent_id=None,
        session_id=collection.sessions.get(name),
        memory_scope=MemoryScope.PROJECT,
        confidence=0.8,
        base_confidence=0.8,
        source="manual",
        created_at=at,
        updated_at=at,
        content_at=at,
        content=collection.documents[name],
        workspace_id=_WORKSPACE_ID,
    )
