"""Patterns over the words of a sentence, found by their first word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Slot(NamedTuple):
    """
    A place of a pattern.

    Attributes:
        words: The words that fill it. Empty: any word.
        at_least: Minimum words: 0 for an optional place, 1 for others.
        at_most: Maximum words; more than 1 only for a gap.
    """

    words: frozenset[str]
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Cue:
    """
    A sign of a kind of behaviour.

    Attributes:
        kind: The behaviour.
        weight: The strength of the sign, from 0 to 3.
        reason: The explanation for readers.
        slots: The words that it consists of.
        allows_negation: A negation right before the words does not cancel it.
    """

    kind: str
    weight: float
    reason: str
    slots: tuple[Slot, ...]
    allows_negation: bool


class CueMatch(NamedTuple):
    """A cue and the numbers of its first and last word."""

    cue: Cue
    first: int
    last: int


def parse_slots(pattern: str, groups: Mapping[str, Iterable[str]]) -> tuple[Slot, ...]:
    """
    Return the slots of *pattern*, whose parts are separated by spaces.

        word      this word
        a|b       one of several words
        word?     an optional word
        ~3        a gap of at most three words
        {group}   a word of *groups*; also within alternatives
    """
    slots = list[Slot]()
    for part in pattern.split():
        if part.startswith("~"):
            slots.append(Slot(frozenset(), 0, int(part[1:])))
            continue
        is_optional = part.endswith("?") and part != "?"
        words = set[str]()
        for word in part.removesuffix("?").split("|") if is_optional else part.split("|"):
            words.update(groups[word[1:-1]] if word.startswith("{") else (word,))
        slots.append(Slot(frozenset(words), 0 if is_optional else 1, 1))
    return tuple(slots)


class CueIndex:
    """Cues by their first words."""

    def __init__(self, cues: Iterable[Cue]) -> None:
        self._cues_by_word: dict[str, list[Cue]] = {}
        for cue in cues:
            first = cue.slots[0]
            if not first.words or first.at_least == 0:
                msg = f"a pattern must begin with a word: {cue}"
                raise ValueError(msg)
            for word in first.words:
                self._cues_by_word.setdefault(word, []).append(cue)

    def find(self, words: Sequence[str]) -> list[CueMatch]:
        """Return the cues in *words*. Of several that overlap, only the strongest is returned."""
        matches = list[CueMatch]()
        cues_by_word = self._cues_by_word
        for position, word in enumerate(words):
            for cue in cues_by_word.get(word, ()):
                last = _match(cue.slots, 1, words, position + 1)
                if last is not None and (cue.allows_negation or not _is_negated(words, position)):
                    matches.append(CueMatch(cue, position, last - 1))
        return _drop_overlaps(matches) if len(matches) > 1 else matches


def _match(slots: Sequence[Slot], number: int, words: Sequence[str], position: int) -> int | None:
    """Return the position after the words that fill the slots from *number* on, or None."""
    if number == len(slots):
        return position
    choices, at_least, at_most = slots[number]
    if not choices:
        for skipped in range(min(at_most, len(words) - position) + 1):
            end = _match(slots, number + 1, words, position + skipped)
            if end is not None:
                return end
        return None
    if position < len(words) and words[position] in choices:
        end = _match(slots, number + 1, words, position + 1)
        if end is not None:
            return end
    return _match(slots, number + 1, words, position) if at_least == 0 else None


_NEGATIONS = frozenset(("not", "never", "hardly", "neither", "nor", "without"))
_REACH_OF_NEGATION = 2
"""Number of words before a cue in which a negation cancels it."""


def _is_negated(words: Sequence[str], position: int) -> bool:
    return any(word in _NEGATIONS for word in words[max(0, position - _REACH_OF_NEGATION) : position])


def _drop_overlaps(matches: Sequence[CueMatch]) -> list[CueMatch]:
    remaining, used = list[CueMatch](), set[int]()
    for match in sorted(matches, key=lambda match: (-match.cue.weight, match.first - match.last, match.first)):
        positions = range(match.first, match.last + 1)
        if used.isdisjoint(positions):
            used.update(positions)
            remaining.append(match)
    return sorted(remaining, key=lambda match: match.first)
