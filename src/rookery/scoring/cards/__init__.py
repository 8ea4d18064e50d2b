"""The model cards, which the server serves. They are copies of the pages in `docs/reference`."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

DETECTION_CARD, SYCOPHANCY_CARD = "ai-detection", "sycophancy"
CARDS = (DETECTION_CARD, SYCOPHANCY_CARD)
"""The names of the cards. Their files have the same names and end in `.md`."""


@lru_cache(maxsize=len(CARDS))
def read_card(name: str) -> str:
    """Return the card with this name of `CARDS` as Markdown."""
    return (files("rookery.scoring.cards") / f"{name}.md").read_text(encoding="utf-8")
