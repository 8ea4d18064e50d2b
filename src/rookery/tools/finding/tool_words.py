"""Tools by their words: what a tool is called and told to do, against what is looked for. Pure."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from rookery.kernel.words import STOP_WORDS, stem
from rookery.tools.models import JsonObject, Server

MAX_WORDS = 32
"""So many different words of a question count."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
"""Names join words by `_`, `-`, capitals and digits: get_currentTime2 is get current time 2."""

_WEIGHTS = {"name": 3.0, "title": 3.0, "description": 1.5, "arguments": 0.1, "server": 0.2}
"""How much a word counts where it stands; tuned on the first half of benchmarks/tool_search, as are the two below."""
_SATURATION = 2.0
_LENGTH = 0.4
_USUAL_LENGTH = 25.0

_MEANING_CHARS = 400
"""About one chunk of the embedder, 128 tokens; what a tool is for stands at the beginning of its description."""
_MAX_CHARS = 8_000
_MAX_ARGUMENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """
    What is compared of one tool.

    Attributes:
        weights: Of each stem, how much of this tool it is.
        meaning: The text that is compared by meaning.
        calls: What the tool is called, spelled in every way that somebody may write.
    """

    weights: Mapping[str, float]
    meaning: str
    calls: frozenset[str]


def card(server: Server, definition: JsonObject) -> Card:
    """Return what is compared of a tool, from its own definition and what the operator says of its server."""
    name = _text(definition.get("name"))
    annotations = definition.get("annotations")
    hints = cast("JsonObject", annotations if isinstance(annotations, dict) else {})
    title = _text(definition.get("title")) or _text(hints.get("title"))
    description = _text(definition.get("description"))[:_MAX_CHARS]
    arguments = list(_arguments(definition.get("inputSchema")))
    about = f"{server.name} {server.id} {server.tagline} {server.use_when or ''}"
    fields = {
        "name": name,
        "title": title,
        "description": description,
        "arguments": " ".join(f"{called} {text}" for called, text in arguments)[:_MAX_CHARS],
        "server": about,
    }
    weights: defaultdict[str, float] = defaultdict(float)
    for called, text in fields.items():
        stems = _stems(text)
        # A word of a long description says less of its tool.
        scale = _WEIGHTS[called] / (1 - _LENGTH + _LENGTH * max(1.0, len(stems) / _USUAL_LENGTH))
        for each in stems:
            weights[each] += scale
    spoken = " ".join(_WORD.findall(name)).lower()
    told = "; ".join(text for _, text in arguments if text)
    meaning = f"{title or spoken}. {description[:_MEANING_CHARS]}. {told}"[: _MEANING_CHARS + 100]
    folded = name.casefold()
    calls = frozenset({folded, spoken, f"{server.id}/{name}".casefold(), f"{server.id}__{name}".casefold()})
    return Card(weights=dict(weights), meaning=meaning, calls=calls)


def by_words(query: str, cards: Sequence[Card]) -> list[float]:
    """
    Return for each of *cards* how much of *query* it has, 0 to 1: rare words count for more (BM25 over weighted fields).

    How rare a word is, is counted among *cards* alone: nobody's answer tells of tools that he may not see.
    """
    weights, count, most = [one.weights for one in cards], len(cards), 0.0
    scores = [0.0] * count
    for each in _asked(query):
        found = [(at, weight) for at, of_card in enumerate(weights) if (weight := of_card.get(each))]
        rare = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
        # Words that no tool has count here too: one incidental word of six says little.
        most += rare
        for at, weight in found:
            scores[at] += rare * weight / (_SATURATION + weight)
    return [score / most for score in scores] if most else scores


def spelled(query: str) -> str:
    """Return *query* as the names in `Card.calls` are spelled."""
    return query.strip().casefold()


def _asked(query: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(query)]
    telling = [word for word in words if word not in STOP_WORDS] or words
    return list(dict.fromkeys(stem(word) for word in telling))[:MAX_WORDS]


@lru_cache(maxsize=4096)
def _stems(text: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in (found.lower() for found in _WORD.findall(text)) if word not in STOP_WORDS)


def _arguments(schema: object) -> Iterable[tuple[str, str]]:
    """Yield the names of a tool's arguments with what is said of them."""
    if not isinstance(schema, dict):
        return
    properties = cast("JsonObject", schema).get("properties")
    if not isinstance(properties, dict):
        return
    for name, about in list(cast("JsonObject", properties).items())[:_MAX_ARGUMENTS]:
        yield name, _text(cast("JsonObject", about).get("description")) if isinstance(about, dict) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
