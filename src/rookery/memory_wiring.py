"""The shared memory, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rookery.engines import embedders, texts, vectors
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids
from rookery.kernel.jobs import Jobs
from rookery.kernel.wiping import LogOfRecords
from rookery.memory.answers import Answers
from rookery.memory.capacity import Capacity, Limits
from rookery.memory.context import Context
from rookery.memory.feedback import Feedback
from rookery.memory.indexing import Indexer
from rookery.memory.journal import Journal
from rookery.memory.listing import Listing
from rookery.memory.maintenance.erasing import Erasing
from rookery.memory.maintenance.index_check import IndexCheck
from rookery.memory.maintenance.lifecycle import Lifecycle
from rookery.memory.maintenance.tidying import Tidying, tidying
from rookery.memory.ports import Generation, OpenSessions, Traces
from rookery.memory.rebuild import Rebuild, Side
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.search import Search
from rookery.memory.sessions import SessionMemories
from rookery.memory.training import Training
from rookery.memory.transfer.exporting import Export
from rookery.memory.transfer.importing import Import
from rookery.memory.transfer.moving import Moving
from rookery.memory.upkeep import Upkeep

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """The shared memory."""

    remember: Remember
    records: Records
    recall: Recall
    search: Search
    listing: Listing
    feedback: Feedback
    context: Context
    answers: Answers
    sessions: SessionMemories
    lifecycle: Lifecycle
    index_check: IndexCheck
    rebuild: Rebuild
    formers: Formers
    tidying: Tidying
    moving: Moving
    indexer: Indexer
    journal: Journal
    training: Training
    upkeep: Upkeep


@dataclass(frozen=True, slots=True)
class Indexes:
    """The engines that memory stands on."""

    embedder: embedders.Engine
    vectors: vectors.Engine
    texts: texts.Engine


class Formers:
    """The sides of former generations, opened when they are first asked for (D-54): by ROOKERY_EMBEDDER_PREVIOUS, or built in."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing; raises `WrongSettings` of an address that cannot be."""
        self._settings = settings
        self._previous = None if settings.embedder_previous is None else settings.embedder_previous.reveal()
        self._opened: dict[Generation, tuple[embedders.Engine, vectors.Engine]] = {}
        if self._previous is not None:
            embedders.open(self._previous, data_dir=settings.data_dir, setting="ROOKERY_EMBEDDER_PREVIOUS")

    def side(self, generation: Generation) -> Side | None:
        """Return the side of *generation*; None: no embedder that we know of has its model."""
        opened = self._opened.get(generation)
        if opened is None:
            settings = self._settings
            embedder = embedders.of_model(
                generation.model,
                generation.dimension,
                candidates=(self._previous, settings.embedder.reveal()),
                data_dir=settings.data_dir,
                verify_ssl=settings.verify_ssl,
            )
            if embedder is None:
                return None
            index = vectors.open(
                settings.vectors.reveal(), data_dir=settings.data_dir, model=generation.model, dimension=generation.dimension
            )
            opened = self._opened[generation] = (embedder, index)
        return Side(embedder=opened[0], vectors=opened[1], is_former=True)

    async def close(self) -> None:
        """Close what was opened; it is opened again when it is asked for."""
        opened = list(self._opened.values())
        self._opened.clear()
        for embedder, index in opened:
            await embedder.close()
            await index.close()


def build_memory(
    settings: Settings,
    indexes: Indexes,
    *,
    db: Database,
    jobs: Jobs,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    sessions: OpenSessions,
) -> MemoryServices:
    """Put the memory together; nothing is opened."""
    limits = Limits(
        max_memories=settings.max_memories,
        max_backlog=settings.max_backlog,
        min_free_bytes=settings.min_free_disk_mb * _MIB,
        folder=settings.data_dir if db.dialect == "sqlite" else None,
    )
    formers, now = Formers(settings), Side(embedder=indexes.embedder, vectors=indexes.vectors)
    rebuild = Rebuild(now=now, generations=indexes.vectors, former=formers.side, release=formers.close)
    indexer = Indexer(db=db, embedder=indexes.embedder, vectors=indexes.vectors, texts=indexes.texts, clock=clock, rebuild=rebuild)
    erasing = Erasing(db=db, stores=_traces(settings, indexes, db), clock=clock)
    capacity, journal = Capacity(db=db, jobs=jobs, limits=limits, monotonic=time.monotonic), Journal(db=db)
    context = Context(db=db, clock=clock, half_lives_days=dict(settings.half_lives))
    answers = Answers(clock=clock, model=indexes.embedder.model, half_lives_days=dict(settings.half_lives))
    return MemoryServices(
        remember=Remember(
            db=db,
            jobs=jobs,
            indexer=indexer,
            capacity=capacity,
            bus=bus,
            clock=clock,
            ids=ids,
            index_first=not settings.async_embedding,
            sessions=sessions,
        ),
        records=Records(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock),
        recall=Recall(
            db=db,
            rebuild=rebuild,
            texts=indexes.texts,
            journal=journal,
            bus=bus,
            clock=clock,
            ids=ids,
            half_lives_days=dict(settings.half_lives),
        ),
        search=Search(db=db, texts=indexes.texts, clock=clock),
        feedback=Feedback(db=db, jobs=jobs, journal=journal, clock=clock),
        context=context,
        listing=Listing(db=db, clock=clock, model=indexes.embedder.model),
        answers=answers,
        sessions=SessionMemories(jobs=jobs, bus=bus, context=context, answers=answers),
        lifecycle=Lifecycle(db=db, indexer=indexer, texts=indexes.texts, bus=bus, clock=clock, rebuild=rebuild, erasing=erasing),
        index_check=IndexCheck(db=db, vectors=indexes.vectors, texts=indexes.texts, clock=clock, model=indexes.embedder.model),
        rebuild=rebuild,
        formers=formers,
        tidying=tidying(
            db=db,
            indexer=indexer,
            vectors=indexes.vectors,
            comparisons=indexes.vectors,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            erasing=erasing,
            half_lives_days=dict(settings.half_lives),
        ),
        moving=Moving(
            exporting=Export(db=db, clock=clock),
            importing=Import(db=db, jobs=jobs, indexer=indexer, capacity=capacity, bus=bus, clock=clock),
        ),
        indexer=indexer,
        journal=journal,
        training=Training(db=db, bus=bus, clock=clock),
        upkeep=Upkeep(db=db, jobs=jobs, bus=bus, clock=clock),
    )


def _traces(settings: Settings, indexes: Indexes, db: Database) -> list[Traces]:
    """Return the stores with files here; the records come last, as what they are asked to forget is noted in them."""
    own: list[Traces] = [LogOfRecords(settings.data_dir / "records.db")] if db.dialect == "sqlite" else []
    return [indexes.texts, indexes.vectors, *own]
