"""What memory needs from engines. Indexes are derived: they may be dropped and rebuilt from the records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, Passage, TextHit, TextQuery, Vector, VectorHit


class Embedder(Protocol):
    """
    Turns text into vectors. Raises `EngineUnavailable("embedder", …)`, and `NotEmbeddable` of a text that it cannot while it works.

    Attributes:
        model: Name and version, as stored beside each vector; another one makes vectors stale (D-54).
        dimension: The native width.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question; longer than the window, its beginning counts. Answers are cached."""
        ...

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its overlapping chunks, in order, at least one (D-55)."""
        ...


class VectorIndex(Protocol):
    """
    Memories by meaning. Raises `EngineUnavailable("vectors", …)` and no other engine error.

    A write is durable when its call returns; a query sees every write that returned before it, of any process.
    """

    async def is_ready(self, workspace_id: int) -> bool:
        """
        Tell whether the workspace can be asked; false: that takes long yet, is being changed, and later it can be.

        Who asks all the same is answered truly, after that time.
        """
        ...

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Replace all points of each document's memory; twice the same does no harm."""
        ...

    async def search(self, vector: Vector, *, access_filter: AccessFilter, limit: int) -> list[VectorHit]:
        """
        Return at most *limit* memories of *access_filter*, most similar first, ties by id.

        Args:
            vector: Unit length, the index's width.
            access_filter: Never widened: the workspace and every filter hold for each result.
            limit: At least 1.
        """
        ...

    async def compute_similarities(self, vector: Vector, *, workspace_id: int, ids: Collection[str]) -> Mapping[str, float]:
        """Return the similarity of those of *ids* that the workspace has; unknown ones are left out."""
        ...

    async def get_vectors(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Return the vectors, in the order of the chunks, of those of *ids* that the workspace has; unknown ones are left out."""
        ...

    async def delete(self, workspace_id: int, ids: Collection[str]) -> None:
        """Forget *ids* of the workspace; unknown ones are ignored, so a retried job is harmless."""
        ...

    async def count(self, workspace_id: int) -> int:
        """Return how many memories of the workspace are indexed."""
        ...


class VectorComparison(Protocol):
    """Vectors of a workspace, to be compared with each other. Raises `EngineUnavailable("vectors", …)` and no other engine error."""

    async def find_similar(self, ids: Collection[str], *, threshold: float, limit: int) -> Mapping[str, Sequence[str]]:
        """
        Return of each of *ids* which others of exactly its space are like it, the most similar first; one like no other is left out.

        A space is org, project, agent, session, scope and type. None is missed: this is no approximate search. What was put since
        the comparing began may be.

        Args:
            threshold: What the similarity of two memories, that of their two most similar chunks, must exceed.
            limit: So many of each at most.
        """
        ...

    def exclude(self, ids: Collection[str]) -> None:
        """Let no later answer name *ids*."""
        ...


class VectorComparer(Protocol):
    """The memories of a workspace compared with each other, all with all (D-52): far quicker than a question to the index for each."""

    def open_comparison(
        self, workspace_id: int, *, org: str | None = None, project: str | None = None
    ) -> AbstractAsyncContextManager[VectorComparison]:
        """Begin to compare those of *org* and of *project*, exactly, or of any; an engine may copy them aside until the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """Whose vectors: those of an embedder's model, in a width. Only such of one generation can be compared (D-54)."""

    model: str
    dimension: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedWorkspace:
    """
    A workspace in which another generation answers than the one of now.

    Attributes:
        total: How many memories it has vectors of.
        pending: How many of those have none of the generation of now yet.
    """

    workspace_id: int
    active_version: ModelVersion
    total: int
    pending: int


class ModelVersions(Protocol):
    """
    The vectors of several models side by side: in each workspace those of one answer, all of them (D-54).

    A `VectorIndex` is one generation's. Its `put` and `search` leave the others alone, its `delete` takes a memory out of all.
    Raises as `VectorIndex`.
    """

    async def get_active_version(self, workspace_id: int) -> ModelVersion | None:
        """Return whose vectors answer in the workspace: the first that were ever put there, or those switched to; None: it has none."""
        ...

    async def list_outdated(self) -> list[OutdatedWorkspace]:
        """Return the workspaces in which another generation answers; it counts, which takes a second for a million memories."""
        ...

    async def activate(self, *, ignored_ids: Collection[str] = ()) -> int:
        """
        Let this generation answer wherever it has vectors of each memory that the other one has, and return in how many workspaces.

        Args:
            ignored_ids: Memories that are not waited for: they cannot be embedded.
        """
        ...

    async def delete_retired(self) -> None:
        """Take away the vectors of generations that were switched from; a query that began before the switch may miss them."""
        ...


class SessionLookup(Protocol):
    """Which agent sessions there are (D-53); wiring fills it with those of agent work."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Tell whether the workspace has such a session, and it has not ended."""
        ...


class TextIndex(Protocol):
    """
    Memories by words, English stemming. Raises `EngineUnavailable("texts", …)` and no other engine error.

    Durable and fresh as `VectorIndex`.
    """

    async def setup(self) -> None:
        """Create what is missing; done twice it changes nothing (spec 4.4, brain:elastic-setup)."""
        ...

    async def put(self, documents: Sequence[IndexDocument]) -> None:
        """Replace each memory's document; twice the same does no harm."""
        ...

    async def put_if_newer(self, documents: Sequence[IndexDocument]) -> None:
        """
        Put what a `put` will follow, for it to be found until then: one that is there and as new, by `updated_at`, stays.

        A query sees it once this returned, and a process that is killed loses nothing; yet when the power fails it may be gone.
        """
        ...

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        """Return at most *limit* memories of *access_filter* after *offset*, best first, ties by id."""
        ...

    async def count_matches(self, query: TextQuery, *, access_filter: AccessFilter) -> int:
        """Return how many memories of *access_filter* match."""
        ...

    async def delete(self, workspace_id: int, ids: Collection[str]) -> None:
        """Forget *ids* of the workspace; unknown ones are ignored."""
        ...

    async def count(self, workspace_id: int) -> int:
        """Return how many memories of the workspace are indexed."""
        ...


class ErasableStore(Protocol):
    """A store that keeps bytes of what was deleted from it, until they happen to be written over."""

    async def erase(self) -> None:
        """
        Leave none of them in any file of the store; those who read and write beside it go on.

        Raises:
            EngineUnavailable: It is not done, and must be done again.
        """
        ...
