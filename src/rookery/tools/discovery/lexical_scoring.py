"""Tools by their words: what a tool is called and told to do, against what is looked for. Pure."""

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
"""So many different words of a question count."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
"""Names join words by `_`, `-`, capitals and digits: get_currentTime2 is get current time 2."""

_FIELD_WEIGHTS = {"name": 3.0, "title": 3.0, "description": 1.5, "arguments": 0.1, "server": 0.2}
"""How much a word counts where it stands; tuned on the first half of benchmarks/tool_search, as are the two below."""
_BM25_K1 = 2.0
_BM25_B = 0.4
_AVERAGE_LENGTH = 25.0

_MAX_EMBEDDED_LENGTH = 400
"""About one chunk of the embedder, 128 tokens; what a tool is for stands at the beginning of its description."""
_MAX_FIELD_LENGTH = 8_000
_MAX_ARGUMENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDocument:
    """
    What is compared of one tool.

    Attributes:
        weights: Of each stem, how much of this tool it is.
        embedded_text: The text that is compared by meaning.
        names: What the tool is called, spelled in every way that somebody may write.
    """

    weights: Mapping[str, float]
    embedded_text: str
    names: frozenset[str]


def build_tool_document(server: Server, definition: JsonObject) -> ToolDocument:
    """Return what is compared of a tool, from its own definition and what the operator says of its server."""
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
        "arguments": " ".join(f"{called} {text}" for called, text in arguments)[:_MAX_FIELD_LENGTH],
        "server": about,
    }
    weights: defaultdict[str, float] = defaultdict(float)
    for called, text in fields.items():
        stems = _stem_text(text)
        # A word of a long description says less of its tool.
        scale = _FIELD_WEIGHTS[called] / (1 - _BM25_B + _BM25_B * max(1.0, len(stems) / _AVERAGE_LENGTH))
        for each in stems:
            weights[each] += scale
    spoken = " ".join(_WORD.findall(name)).lower()
    told = "; ".join(text for _, text in arguments if text)
    meaning = f"{title or spoken}. {description[:_MAX_EMBEDDED_LENGTH]}. {told}"[: _MAX_EMBEDDED_LENGTH + 100]
    folded = name.casefold()
    calls = frozenset({folded, spoken, f"{server.id}/{name}".casefold(), f"{server.id}__{name}".casefold()})
    return ToolDocument(weights=dict(weights), embedded_text=meaning, names=calls)


def score_by_words(query: str, documents: Sequence[ToolDocument]) -> list[float]:
    """
    Return for each of *documents* how much of *query* it has, 0 to 1: rare words count for more (BM25 over weighted fields).

    How rare a word is, is counted among *documents* alone: nobody's answer tells of tools that he may not see.
    """
    weights, count, most = [one.weights for one in documents], len(documents), 0.0
    scores = [0.0] * count
    for each in _stem_query(query):
        found = [(at, weight) for at, of_card in enumerate(weights) if (weight := of_card.get(each))]
        rare = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
        # Words that no tool has count here too: one incidental word of six says little.
        most += rare
        for at, weight in found:
            scores[at] += rare * weight / (_BM25_K1 + weight)
    return [score / most for score in scores] if most else scores


def normalize_name(query: str) -> str:
    """Return *query* as the names in `Card.names` are spelled."""
    return query.strip().casefold()


def _stem_query(query: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(query)]
    telling = [word for word in words if word not in STOP_WORDS] or words
    return list(dict.fromkeys(stem(word) for word in telling))[:MAX_QUERY_WORDS]


@lru_cache(maxsize=4096)
def _stem_text(text: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in (found.lower() for found in _WORD.findall(text)) if word not in STOP_WORDS)


def _iter_arguments(schema: object) -> Iterable[tuple[str, str]]:
    """Yield the names of a tool's arguments with what is said of them."""
    if not isinstance(schema, dict):
        return
    properties = cast("JsonObject", schema).get("properties")
    if not isinstance(properties, dict):
        return
    for name, about in list(cast("JsonObject", properties).items())[:_MAX_ARGUMENTS]:
        yield name, _to_text(cast("JsonObject", about).get("description")) if isinstance(about, dict) else ""


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else ""
