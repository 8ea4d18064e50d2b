"""The engines of the shared memory, opened according to the settings. Commands that use only memories need no other wiring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.agents.sessions.access import SessionFinder
from rookery.engines import embedders, texts, vectors
from rookery.engines.similarity.comparison import open_comparison
from rookery.engines.similarity.projection import project_vectors
from rookery.kernel.config import Settings
from rookery.kernel.runtime import Runtime
from rookery.kernel.sqlite import RecordStoreWal
from rookery.memory.build import MemoryPorts
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.ports import ErasableStore, ModelVersion, TokenMeter
from rookery.usage.build import UsageServices


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEngines:
    """The engines of the shared memory."""

    embedder: embedders.EmbedderEngine
    vectors: vectors.VectorEngine
    texts: texts.TextEngine


class PreviousEngines:
    """The engines of previous embedding models, opened on first use. They come from ROOKERY_EMBEDDER_PREVIOUS or are built in."""

    def __init__(self, settings: Settings, meter: TokenMeter) -> None:
        """Open nothing. Raises `WrongSettings` for an invalid URL."""
        self._settings = settings
        self._meter = meter
        self._previous = None if settings.embedder_previous is None else settings.embedder_previous.reveal()
        self._engines: dict[ModelVersion, tuple[embedders.EmbedderEngine, vectors.VectorEngine]] = {}
        if self._previous is not None:
            embedders.open(self._previous, data_dir=settings.data_dir, setting="ROOKERY_EMBEDDER_PREVIOUS")

    def find_index(self, generation: ModelVersion) -> IndexVersion | None:
        """Return the embedder and the vector index of *generation*; None if no known embedder has its model."""
        engines = self._engines.get(generation)
        if engines is None:
            settings = self._settings
            embedder = embedders.open_for_model(
                generation.model,
                generation.dimension,
                urls=(self._previous, settings.embedder.reveal()),
                data_dir=settings.data_dir,
                verify_ssl=settings.verify_ssl,
                meter=self._meter,
            )
            if embedder is None:
                return None
            index = _open_vectors(settings, model=generation.model, dimension=generation.dimension)
            engines = self._engines[generation] = (embedder, index)
        return IndexVersion(embedder=engines[0], vectors=engines[1], is_previous=True)

    async def close(self) -> None:
        """Close the open engines. They are opened again on their next use."""
        engine_pairs = list(self._engines.values())
        self._engines.clear()
        for embedder, index in engine_pairs:
            await embedder.close()
            await index.close()


def open_memory_engines(runtime: Runtime) -> MemoryEngines:
    """
    Return the engines. They connect on their first use.

    Raises:
        WrongSettings: The URL of an engine is invalid.
    """
    settings = runtime.settings
    embedder = embedders.open(
        settings.embedder.reveal(),
        data_dir=settings.data_dir,
        dimension=settings.vector_dimension,
        verify_ssl=settings.verify_ssl,
        meter=runtime.use(UsageServices).embedding_meter,
    )
    index = _open_vectors(settings, model=embedder.model, dimension=embedder.dimension)
    engines = MemoryEngines(
        embedder=embedder,
        vectors=index,
        texts=texts.open(settings.texts.reveal(), data_dir=settings.data_dir, verify_ssl=settings.verify_ssl),
    )
    runtime.on_close(engines.embedder.close)
    runtime.on_close(engines.texts.close)
    runtime.on_close(engines.vectors.close)
    return engines


def _open_vectors(settings: Settings, *, model: str, dimension: int) -> vectors.VectorEngine:
    return vectors.open(
        settings.vectors.reveal(), data_dir=settings.data_dir, model=model, dimension=dimension, verify_ssl=settings.verify_ssl
    )


def provide_memory_ports(runtime: Runtime) -> None:
    """Let memory use the engines of the settings, and the sessions of the agents domain."""

    def build(runtime: Runtime) -> MemoryPorts:
        settings, engines = runtime.settings, runtime.use(open_memory_engines)
        previous = PreviousEngines(settings, runtime.use(UsageServices).embedding_meter)
        runtime.on_close(previous.close)
        is_embedded = runtime.db.dialect == "sqlite"
        record_stores: list[ErasableStore] = [RecordStoreWal(settings.data_dir / "records.db")] if is_embedded else []
        return MemoryPorts(
            embedder=engines.embedder,
            vectors=engines.vectors,
            project_vectors=project_vectors,
            open_comparison=partial(open_comparison, folder=settings.data_dir),
            texts=engines.texts,
            erasable_stores=[engines.texts, engines.vectors, *record_stores],
            find_previous=previous.find_index,
            close_previous=previous.close,
            sessions=SessionFinder(db=runtime.db, clock=runtime.clock),
        )

    runtime.provide(MemoryPorts, build)
