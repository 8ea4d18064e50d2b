"""Search for tools by meaning and by words, among those that the caller may see."""

from __future__ import annotations

import contextlib
import heapq
from dataclasses import dataclass
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.errors import EngineUnavailable
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.discovery.lexical_scoring import ToolDocument, build_tool_document, normalize_name, score_by_words
from rookery.tools.models import Server, ServerFeatures
from rookery.tools.ports import TextSimilarity
from rookery.tools.servers.registry import ServerRegistry

MAX_RESULTS = 50

_EXACT_NAME_SCORE, _MAX_SCORE = 1.0, 0.9999
"""A tool whose exact name is the query ranks first, whatever the descriptions of others contain."""

SEMANTIC_WEIGHT = 0.8
"""Weight of the semantic score. Tuned on the first half of benchmarks/tool_search."""
_MIN_SCORE = 0.12
"""Tools with a lower combined score are dropped as irrelevant. By words alone, tools without any of the words are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMatch:
    """A matching tool. *score* is 0 to 1 and comparable only within one result."""

    server: Server
    tool: CatalogueTool
    score: float


class _ServerDocuments(NamedTuple):
    """The search documents of one server's tools. Invalid once its entry or its features change."""

    server: Server
    features: ServerFeatures
    documents: dict[str, ToolDocument]


class ToolSearch:
    """Searches tools. Without *similarity*, or while the embedder is unavailable, words alone decide."""

    def __init__(self, catalogue: Catalogue, registry: ServerRegistry, similarity: TextSimilarity | None = None) -> None:
        self._catalogue = catalogue
        self._registry = registry
        self._similarity = similarity
        self._documents: dict[str, _ServerDocuments] = {}

    async def find(
        self, caller: Caller, query: str, limit: int = 10, server: str | None = None, session_id: str | None = None
    ) -> list[ToolMatch]:
        """
        Return at most *limit* tools that *caller* may see and that match *query*, best first. It never waits for an upstream.

        Args:
            query: A need in plain language, words, or a tool's name.
            limit: 1 to 50.
            server: Only tools of this server.
            session_id: The agent session of the request; see `Catalogue.list_tools`.

        Raises:
            RookeryError: *server* does not exist, is disabled, or is not allowed for this key.
        """
        servers = self._catalogue.list_servers(caller) if server is None else [self._catalogue.get_server(caller, server)]
        candidates: list[tuple[Server, CatalogueTool]] = []
        documents: list[ToolDocument] = []
        for candidate_server in servers:
            server_documents = self._get_documents(candidate_server)
            for tool in self._catalogue.list_tools(caller, candidate_server, session_id):
                candidates.append((candidate_server, tool))
                document = server_documents.get(tool.name)  # None: the tool exists only in the caller's session
                documents.append(document or build_tool_document(candidate_server, tool.definition))
        if not candidates:
            return []
        word_scores = score_by_words(query, documents)
        semantic_scores = await self._score_semantically(query, documents)
        name = normalize_name(query)
        scores = [
            _EXACT_NAME_SCORE if name in document.names else min(combine_scores(word, meaning), _MAX_SCORE)
            for document, word, meaning in zip(documents, word_scores, semantic_scores, strict=True)
        ]
        thresholds = [0.0 if meaning is None else _MIN_SCORE for meaning in semantic_scores]
        # Ties keep the catalogue's order, so that a query always has the same result.
        best = heapq.nsmallest(min(limit, MAX_RESULTS), range(len(candidates)), key=lambda index: (-scores[index], index))
        return [
            ToolMatch(server=candidates[index][0], tool=candidates[index][1], score=round(scores[index], 4))
            for index in best
            if scores[index] > thresholds[index]
        ]

    async def preload_embeddings(self) -> None:
        """Compute the embeddings of all tools in advance. Fast if nothing changed."""
        servers = [server for server in self._registry.servers.values() if server.enabled]
        for key in self._documents.keys() - {server.key for server in servers}:
            del self._documents[key]
        if self._similarity is not None:
            with contextlib.suppress(EngineUnavailable):  # the next run retries
                await self._similarity.preload(
                    [document.embedded_text for server in servers for document in self._get_documents(server).values()]
                )

    def _get_documents(self, server: Server) -> dict[str, ToolDocument]:
        features = self._catalogue.get_features(server)
        cached_documents = self._documents.get(server.key)
        if cached_documents is None or cached_documents.features is not features or cached_documents.server is not server:
            documents = {
                name: build_tool_document(server, definition) for definition in features.tools if (name := str(definition.get("name", "")))
            }
            cached_documents = self._documents[server.key] = _ServerDocuments(server, features, documents)
        return cached_documents.documents

    async def _score_semantically(self, query: str, documents: list[ToolDocument]) -> list[float | None]:
        if self._similarity is None:
            return [None] * len(documents)
        try:
            return await self._similarity.compare(query, [document.embedded_text for document in documents])
        except EngineUnavailable:
            return [None] * len(documents)


def combine_scores(word_score: float, semantic_score: float | None, *, semantic_weight: float = SEMANTIC_WEIGHT) -> float:
    """Return the combined score of a tool, 0 to 1; without a semantic score, the word score alone."""
    return word_score if semantic_score is None else (1 - semantic_weight) * word_score + semantic_weight * max(0.0, semantic_score)
