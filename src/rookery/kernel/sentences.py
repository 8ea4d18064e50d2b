"""Sentences of messages that are put together from texts of other programs."""

from __future__ import annotations


def end_sentence(text: str) -> str:
    """Return *text* with a full stop, unless it ends a sentence already."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
