"""The tools that fit a need, found by meaning and by word, among those that the caller may see (D-37)."""

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
"""A tool whose very name is asked for fits best, whatever others say of themselves."""

SEMANTIC_WEIGHT = 0.8
"""How much meaning counts beside words; tuned on the first half of benchmarks/tool_search."""
_MIN_SCORE = 0.12
"""What scores no more by both has nothing to do with what was asked, and is left out; by words alone, what has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMatch:
    """A tool that fits; *score* is 0 to 1, of use only to compare the tools of one answer."""

    server: Server
    tool: CatalogueTool
    score: float


class _ServerDocuments(NamedTuple):
    """What was made of one server's tools, worth nothing once its entry or its offer is another."""

    server: Server
    features: ServerFeatures
    documents: dict[str, ToolDocument]


class ToolSearch:
    """Finds tools. Without *similarity*, and while the embedder is not there, words alone decide."""

    def __init__(self, catalogue: Catalogue, registry: ServerRegistry, similarity: TextSimilarity | None = None) -> None:
        self._catalogue = catalogue
        self._registry = registry
        self._similarity = similarity
        self._documents: dict[str, _ServerDocuments] = {}

    async def find(self, caller: Caller, query: str, limit: int = 10, server: str | None = None) -> list[ToolMatch]:
        """
        Return at most *limit* tools that *caller* may see and that fit *query*, the best first; never waits for an upstream.

        Args:
            query: A need in plain language, words, or a tool's name.
            limit: 1 to 50.
            server: Only tools of this server.

        Raises:
            RookeryError: *get_server* is not there, not for this key, or switched off.
        """
        servers = self._catalogue.list_servers(caller) if server is None else [self._catalogue.get_server(caller, server)]
        seen: list[tuple[Server, CatalogueTool]] = []
        cards: list[ToolDocument] = []
        for each in servers:
            known = self._get_documents(each)
            for tool in self._catalogue.list_tools(caller, each):
                seen.append((each, tool))
                cards.append(known[tool.name])
        if not seen:
            return []
        words = score_by_words(query, cards)
        meanings = await self._score_semantically(query, cards)
        called = normalize_name(query)
        scores = [
            _EXACT_NAME_SCORE if called in one.names else min(combine_scores(word, meaning), _MAX_SCORE)
            for one, word, meaning in zip(cards, words, meanings, strict=True)
        ]
        least = [0.0 if meaning is None else _MIN_SCORE for meaning in meanings]
        # Of equals the first in the catalogue's order, so that one question has one answer.
        best = heapq.nsmallest(min(limit, MAX_RESULTS), range(len(seen)), key=lambda at: (-scores[at], at))
        return [ToolMatch(server=seen[at][0], tool=seen[at][1], score=round(scores[at], 4)) for at in best if scores[at] > least[at]]

    async def preload_embeddings(self) -> None:
        """Have the meanings of all tools ready before somebody asks; quick when nothing is new."""
        servers = [server for server in self._registry.servers.values() if server.enabled]
        for key in self._documents.keys() - {server.key for server in servers}:
            del self._documents[key]
        if self._similarity is not None:
            with contextlib.suppress(EngineUnavailable):  # it is tried again
                await self._similarity.preload([each.embedded_text for server in servers for each in self._get_documents(server).values()])

    def _get_documents(self, server: Server) -> dict[str, ToolDocument]:
        offer = self._catalogue.get_features(server)
        known = self._documents.get(server.key)
        if known is None or known.features is not offer or known.server is not server:
            cards = {
                name: build_tool_document(server, definition) for definition in offer.tools if (name := str(definition.get("name", "")))
            }
            known = self._documents[server.key] = _ServerDocuments(server, offer, cards)
        return known.documents

    async def _score_semantically(self, query: str, documents: list[ToolDocument]) -> list[float | None]:
        if self._similarity is None:
            return [None] * len(documents)
        try:
            return await self._similarity.compare(query, [each.embedded_text for each in documents])
        except EngineUnavailable:
            return [None] * len(documents)


def combine_scores(word_score: float, semantic_score: float | None, *, semantic_weight: float = SEMANTIC_WEIGHT) -> float:
    """Return how well a tool fits by its words and its meaning together, 0 to 1; without a meaning by words alone."""
    return word_score if semantic_score is None else (1 - semantic_weight) * word_score + semantic_weight * max(0.0, semantic_score)
