"""The tools that fit a need, found by meaning and by word, among those that the caller may see (D-37)."""

from __future__ import annotations

import contextlib
import heapq
from dataclasses import dataclass
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.errors import EngineUnavailable
from rookery.tools.catalogue import Catalogue
from rookery.tools.finding.tool_words import Card, by_words, card, spelled
from rookery.tools.models import Offer, Server
from rookery.tools.ports import Meanings
from rookery.tools.servers.roster import Roster
from rookery.tools.tool import Tool

MAX_FOUND = 50

_BY_NAME, _MOST = 1.0, 0.9999
"""A tool whose very name is asked for fits best, whatever others say of themselves."""

BY_MEANING = 0.8
"""How much meaning counts beside words; tuned on the first half of benchmarks/tool_search."""
_LEAST = 0.12
"""What scores no more by both has nothing to do with what was asked, and is left out; by words alone, what has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """A tool that fits; *score* is 0 to 1, of use only to compare the tools of one answer."""

    server: Server
    tool: Tool
    score: float


class _Cards(NamedTuple):
    """What was made of one server's tools, worth nothing once its entry or its offer is another."""

    server: Server
    offer: Offer
    of: dict[str, Card]


class ToolSearch:
    """Finds tools. Without *meanings*, and while the embedder is not there, words alone decide."""

    def __init__(self, catalogue: Catalogue, roster: Roster, meanings: Meanings | None = None) -> None:
        self._catalogue = catalogue
        self._roster = roster
        self._meanings = meanings
        self._cards: dict[str, _Cards] = {}

    async def find(self, caller: Caller, query: str, limit: int = 10, server: str | None = None) -> list[FoundTool]:
        """
        Return at most *limit* tools that *caller* may see and that fit *query*, the best first; never waits for an upstream.

        Args:
            query: A need in plain language, words, or a tool's name.
            limit: 1 to 50.
            server: Only tools of this server.

        Raises:
            RookeryError: *server* is not there, not for this key, or switched off.
        """
        servers = self._catalogue.servers(caller) if server is None else [self._catalogue.server(caller, server)]
        seen: list[tuple[Server, Tool]] = []
        cards: list[Card] = []
        for each in servers:
            known = self._of(each)
            for tool in self._catalogue.tools(caller, each):
                seen.append((each, tool))
                cards.append(known[tool.name])
        if not seen:
            return []
        words = by_words(query, cards)
        meanings = await self._alike(query, cards)
        called = spelled(query)
        scores = [
            _BY_NAME if called in one.calls else min(mixed(word, meaning), _MOST)
            for one, word, meaning in zip(cards, words, meanings, strict=True)
        ]
        least = [0.0 if meaning is None else _LEAST for meaning in meanings]
        # Of equals the first in the catalogue's order, so that one question has one answer.
        best = heapq.nsmallest(min(limit, MAX_FOUND), range(len(seen)), key=lambda at: (-scores[at], at))
        return [FoundTool(server=seen[at][0], tool=seen[at][1], score=round(scores[at], 4)) for at in best if scores[at] > least[at]]

    async def learn(self) -> None:
        """Have the meanings of all tools ready before somebody asks; quick when nothing is new."""
        servers = [server for server in self._roster.servers.values() if server.enabled]
        for key in self._cards.keys() - {server.key for server in servers}:
            del self._cards[key]
        if self._meanings is not None:
            with contextlib.suppress(EngineUnavailable):  # it is tried again
                await self._meanings.learn([each.meaning for server in servers for each in self._of(server).values()])

    def _of(self, server: Server) -> dict[str, Card]:
        offer = self._catalogue.offer(server)
        known = self._cards.get(server.key)
        if known is None or known.offer is not offer or known.server is not server:
            cards = {name: card(server, definition) for definition in offer.tools if (name := str(definition.get("name", "")))}
            known = self._cards[server.key] = _Cards(server, offer, cards)
        return known.of

    async def _alike(self, query: str, cards: list[Card]) -> list[float | None]:
        if self._meanings is None:
            return [None] * len(cards)
        try:
            return await self._meanings.alike(query, [each.meaning for each in cards])
        except EngineUnavailable:
            return [None] * len(cards)


def mixed(words: float, meaning: float | None, *, by_meaning: float = BY_MEANING) -> float:
    """Return how well a tool fits by its words and its meaning together, 0 to 1; without a meaning by words alone."""
    return words if meaning is None else (1 - by_meaning) * words + by_meaning * max(0.0, meaning)
