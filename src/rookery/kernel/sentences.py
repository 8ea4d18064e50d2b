"""Sentences of messages: texts of other programs, and numbers with their nouns (`1 subscriber`, `2 subscribers`)."""

from __future__ import annotations


def end_sentence(text: str) -> str:
    """Return *text* with a full stop, unless it ends a sentence already."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def choose_noun(count: float, noun: str, plural: str | None = None) -> str:
    """Return *noun* if *count* is one, else *plural*, which adds an `s` by default."""
    return noun if count == 1 else plural or f"{noun}s"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return *count*, with commas between thousands, and its noun."""
    return f"{count:,} {choose_noun(count, noun, plural)}"
