"""Lexical scoring of tools: the words of a query against the names and descriptions of tools. No I/O."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from rookery.kernel.tokenization import STOP_WORDS, stem
from rookery.tools.models import JsonObject, Server

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
