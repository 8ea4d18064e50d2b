"""The engine interfaces that memory needs. Indexes are derived data: they can be dropped and rebuilt from the records."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, Passage, TextHit, TextQuery, Vector, VectorHit
from rookery.memory.visibility import VectorFilter

IndexName: TypeAlias = Literal["vectors", "texts"]


class EmbedderFeature(StrEnum):
    """A feature that an embedder may lack. Its engine class lists it in `lacks`, and the documentation shows it."""

    OFFLINE = "offline"
    """Works without a network, and without a server beside Rookery."""

    WHOLE_TEXTS = "whole texts"
    """Embeds any text: none is rejected with `NotEmbeddable`."""


class VectorFeature(StrEnum):
    """A feature that a vector engine may lack. Its engine class lists it in `lacks`, and the documentation shows it."""

    EXACT = "exact"
    """Results are exact in small workspaces; otherwise they are approximate at every size."""

    ERASURE = "erasure"
    """Deleted vectors are removed from all files (`ErasableStore`); otherwise they stay until the engine overwrites them."""

    SHARED_BY_PROCESSES = "shared by processes"
    """Several processes of one host use the same index, and each sees the writes of the others at once."""

    SHARED_BY_HOSTS = "shared by hosts"
    """The same, for processes of several hosts."""


class TextFeature(StrEnum):
    """A feature that a full-text engine may lack. Its engine class lists it in `lacks`, and the documentation shows it."""

    PHRASES = "phrases"
    """Finds words that are adjacent; without it, a phrase matches where all of its words occur."""

    COVERAGE = "coverage"
    """Computes `TextHit.coverage`; without it, the best hit of a question counts as one that has all of its words."""

    LANGUAGES = "languages"
    """Finds other forms of words in languages other than English (`TextQuery.stem_terms`); without it, only English words are stemmed."""

    ERASURE = "erasure"
    """Deleted words are removed from all files (`ErasableStore`); otherwise they stay until the engine overwrites them."""

    SHARED_BY_PROCESSES = "shared by processes"
    """Several processes of one host use the same index, and each sees the writes of the others at once."""

    SHARED_BY_HOSTS = "shared by hosts"
    """The same, for processes of several hosts."""


class Embedder(Protocol):
    """
    A service that turns text into vectors.

    Raises `EngineUnavailable("embedder", …)`, and `NotEmbeddable` for a text that it cannot embed while it works. Of several passages, the
    error has the positions of all that it cannot embed.

    Attributes:
        model: Name and version, stored beside each vector. A different model makes vectors stale.
        dimension: The native dimension of the vectors.
        full_similarity: The cosine that counts as fully similar, if it was measured for this model. None otherwise: each model has its own
            scale, so its cosines have a meaning only beside each other.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def full_similarity(self) -> float | None: ...

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a query, cached. A text longer than the model's window loses its middle."""
        ...

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its overlapping chunks, in order, at least one."""
        ...


class TokenMeter(Protocol):
    """Counts the tokens that an embedding service uses."""

    def record(self, model: str, tokens: int, *, is_estimated: bool) -> None:
        """Count the tokens of one answer. *is_estimated*: the service did not report them, so they follow from the texts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """The embedding model and dimension of a set of vectors. Only vectors of the same version can be compared."""

    model: str
    dimension: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSet:
    """
    The vectors of a model version in a workspace.

    Attributes:
        is_retired: The workspace has changed to another version, and the vectors are being deleted.
    """

    workspace_id: int
    version: ModelVersion
    is_retired: bool = False


class VectorIndex(Protocol):
    """
    An index of memories by meaning, for one model version. Raises `EngineUnavailable("vectors", …)` and no other engine error.

    A write is durable when its call returns. A query sees every write that returned before it, of any process. The class
    `VectorContract` of the tests checks an implementation.

    An engine stores the vectors of several versions side by side, and each instance writes and searches those of its own. Which of them
    serves a workspace is decided by `EmbeddingMigration`.
    """

    async def start(self) -> None:
        """Connect now, so that errors appear at the start, and warm up in the background. Otherwise the first use connects."""
        ...

    async def close(self) -> None:
        """Finish pending writes and release connections and threads."""
        ...

    async def is_ready(self, workspace_id: int) -> bool:
        """
        Return whether the workspace can be queried without a long wait, and prepare it if not.

        A query sent meanwhile waits and returns the correct result. An engine that needs no preparation returns True.
        """
        ...

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Replace all vectors of each document's memory. Idempotent. Raises `ValueError` for a vector of another dimension."""
        ...

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        """
        Return at most *limit* memories that match *where*, most similar first, ties by id.

        Args:
            vector: Unit length, of the index's dimension.
            where: Applied in full, including the workspace, to each result.
            limit: At least 1.
        """
        ...

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Return the vectors by id, in the order of the chunks, of those of *ids* that the workspace has. Unknown ids are left out."""
        ...

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete the memories *ids* of the workspace, of every model version. Unknown ids are ignored, so the call is idempotent."""
        ...

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        """
        Delete all vectors that *version* has in the workspace when the call begins. Vectors written later stay. Idempotent.

        It may take minutes. If it is interrupted, it is called again. An instance of *version* that is open may still return the vectors.
        """
        ...

    async def count(self, workspace_id: int) -> int:
        """Return the number of indexed memories of the workspace."""
        ...


SpaceRow = tuple[str, tuple[str | None, ...]]
"""The id of a memory and its space: the fields that memories must share to be merged."""


class VectorComparison(Protocol):
    """Vectors of memories, fetched from a `VectorIndex` of any engine, for comparison of all with each other."""

    async def find_similar(self, ids: Collection[str], *, threshold: float, limit: int) -> Mapping[str, Sequence[str]]:
        """
        Return for each of *ids* the similar memories of exactly its space, most similar first. Ids without one are left out.

        The search is exact. Memories that changed after the comparison began are compared as they were.

        Args:
            threshold: Exclusive minimum similarity. The similarity of two memories is that of their two most similar chunks.
            limit: Maximum results per id.
        """
        ...

    def exclude(self, ids: Collection[str]) -> None:
        """Leave *ids* out of all later results."""
        ...


OpenComparison = Callable[[VectorIndex, int, AsyncIterable[Sequence[SpaceRow]]], AbstractAsyncContextManager[VectorComparison]]
"""Opens a comparison of memories of a workspace, given in batches. Raises `EngineUnavailable` if a temporary copy cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapProjection:
    """
    Vectors on a plane. Both lists have one entry for each item.

    Attributes:
        coordinates: x and y, each in -32767..32767. Similar items are near each other.
        clusters: The number of the group in which the item lies, from 0 for the largest one.
    """

    coordinates: Sequence[tuple[int, int]]
    clusters: Sequence[int]


ProjectVectors = Callable[[Sequence[Sequence[Vector]]], MapProjection]
"""Projects items, each given by the vectors of its chunks, at least one. It computes for seconds, so it is called in a thread."""


class SessionLookup(Protocol):
    """A lookup of agent sessions, implemented by the agents domain."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return whether the workspace has this session and it has not ended."""
        ...

    async def list_predecessors(self, workspace_id: int, session_id: str) -> Collection[str]:
        """Return the sessions of the workspace that this session continues."""
        ...


class TextIndex(Protocol):
    """
    A full-text index of memories, with stems of English and other languages.

    Raises `EngineUnavailable("texts", …)` and no other engine error.

    It has the same guarantees of durability and visibility as `VectorIndex`.
    """

    async def setup(self) -> None:
        """Create missing tables or indexes. Idempotent. For `brain:elastic-setup`."""
        ...

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        """
        Replace each memory's document. Idempotent.

        Args:
            is_early: A later `put` writes *documents* again. An existing document that is as new or newer, by `updated_at`, stays. The
                write survives a killed process, but may be lost in a power failure.
        """
        ...

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        """Return at most *limit* memories that match *access_filter*, after *offset*, best first, ties by id."""
        ...

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete *ids* of the workspace. Unknown ids are ignored."""
        ...

    async def list_ids(self, *, after: tuple[int, str] | None, limit: int) -> Sequence[tuple[int, str]]:
        """
        Return the workspace and id of at most *limit* documents of all workspaces, in this order.

        Args:
            after: Only those after this one. None: from the first one on.
        """
        ...

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        """Return the number of memories of the workspace: of all, or of those that match *query* and *access_filter*, passed together."""
        ...


class ErasableStore(Protocol):
    """A store whose files keep bytes of deleted data until they are overwritten."""

    async def erase(self) -> None:
        """
        Remove all deleted data from every file of the store. Concurrent reads and writes continue.

        Raises:
            EngineUnavailable: The erasure is incomplete and must be retried.
        """
        ...
