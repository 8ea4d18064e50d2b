"""Search for tools by meaning and by words, among those that the caller may see."""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

from rookery.access.models import Caller
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.tokenization import STOP_WORDS, stem
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.models import JsonObject, Server, ServerFeatures
from rookery.tools.ports import TextSimilarity
from rookery.tools.servers.registry import ServerRegistry

MAX_QUERY_WORDS = 32
"""Limit on the distinct words of a query."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
"""A word. Names join words by `_`, `-`, capitals and digits: get_currentTime2 is get current time 2."""

_FIELD_WEIGHTS = {"name": 3.0, "title": 3.0, "description": 1.5, "arguments": 0.1, "server": 0.2}
"""Weight of a word by field. Tuned on the first half of benchmarks/tool_search, as are the two constants below."""
_BM25_K1 = 2.0
_BM25_B = 0.4
_AVERAGE_LENGTH = 25.0

_MAX_EMBEDDED_LENGTH = 400
"""About one chunk of the embedder, 128 tokens. The purpose of a tool is at the start of its description."""
_MAX_FIELD_LENGTH = 8_000
_MAX_ARGUMENTS = 64

MAX_RESULTS = 50

SEMANTIC_WEIGHT = 0.8
"""Weight of the semantic score. Tuned on the first half of benchmarks/tool_search."""
_MIN_SCORE = 0.12
"""Tools with a lower combined score are dropped as irrelevant. By words alone, tools without any of the words are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDocument:
    """
    The searchable form of one tool.

    Attributes:
        weights: The weight of each stem.
        embedded_text: The text for the semantic comparison.
        names: All accepted spellings of the tool's name.
    """

    weights: Mapping[str, float]
    embedded_text: str
    names: frozenset[str]


def build_tool_document(server: Server, definition: JsonObject) -> ToolDocument:
    """Return the searchable form of a tool, from its definition and the entry of its server."""
    name = _to_text(definition.get("name"))
    annotations = definition.get("annotations")
    hints = cast("JsonObject", annotations if isinstance(annotations, dict) else {})
    title = _to_text(definition.get("title")) or _to_text(hints.get("title"))
    description = _to_text(definition.get("description"))[:_MAX_FIELD_LENGTH]
    arguments = list(_iter_arguments(definition.get("inputSchema")))
    about = f"{server.name} {server.id} {server.tagline} {server.use_when or ''}"
    fields = {
        "name": name,
        "title": title,
        "description": description,
        "arguments": " ".join(f"{argument} {text}" for argument, text in arguments)[:_MAX_FIELD_LENGTH],
        "server": about,
    }
    weights: defaultdict[str, float] = defaultdict(float)
    for field, text in fields.items():
        stems = _stem_text(text)
        # A word of a long description is less specific to the tool.
        scale = _FIELD_WEIGHTS[field] / (1 - _BM25_B + _BM25_B * max(1.0, len(stems) / _AVERAGE_LENGTH))
        for term in stems:
            weights[term] += scale
    spaced_name = " ".join(_WORD.findall(name)).lower()
    argument_texts = "; ".join(text for _, text in arguments if text)
    meaning = f"{title or spaced_name}. {description[:_MAX_EMBEDDED_LENGTH]}. {argument_texts}"[: _MAX_EMBEDDED_LENGTH + 100]
    folded_name = name.casefold()
    spellings = frozenset({folded_name, spaced_name, f"{server.id}/{name}".casefold(), f"{server.id}__{name}".casefold()})
    return ToolDocument(weights=dict(weights), embedded_text=meaning, names=spellings)


def score_by_words(query: str, documents: Sequence[ToolDocument]) -> list[float]:
    """
    Return a score from 0 to 1 for each of *documents*: BM25 over weighted fields, in which rare words count more.

    Word frequencies are counted among *documents* alone, so that no result reveals tools that the caller may not see.
    """
    weights, count, max_score = [document.weights for document in documents], len(documents), 0.0
    scores = [0.0] * count
    for term in _stem_query(query):
        matches = [(index, weight) for index, stems in enumerate(weights) if (weight := stems.get(term))]
        rarity = math.log(1 + (count - len(matches) + 0.5) / (len(matches) + 0.5))
        # Words that no tool contains count here too: a match of one word in six is weak evidence.
        max_score += rarity
        for index, weight in matches:
            scores[index] += rarity * weight / (_BM25_K1 + weight)
    return [score / max_score for score in scores] if max_score else scores


def normalize_name(query: str) -> str:
    """Return *query* in the spelling of `ToolDocument.names`."""
    return query.strip().casefold()


def _stem_query(query: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(query)]
    significant = [word for word in words if word not in STOP_WORDS] or words
    return list(dict.fromkeys(stem(word) for word in significant))[:MAX_QUERY_WORDS]


@lru_cache(maxsize=4096)
def _stem_text(text: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in (token.lower() for token in _WORD.findall(text)) if word not in STOP_WORDS)


def _iter_arguments(schema: object) -> Iterable[tuple[str, str]]:
    """Yield the names of a tool's arguments with their descriptions."""
    if not isinstance(schema, dict):
        return
    properties = cast("JsonObject", schema).get("properties")
    if not isinstance(properties, dict):
        return
    for name, about in list(cast("JsonObject", properties).items())[:_MAX_ARGUMENTS]:
        yield name, _to_text(cast("JsonObject", about).get("description")) if isinstance(about, dict) else ""


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else ""


_EXACT_NAME_SCORE, _MAX_SCORE = 1.0, 0.9999
"""A tool whose exact name is the query ranks first, whatever the descriptions of others contain."""


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
