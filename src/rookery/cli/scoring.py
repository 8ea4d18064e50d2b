"""The scorer, opened for one command without a data folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.engines import detection
from rookery.kernel.config import Settings
from rookery.scoring.scorer import ContentScorer


@asynccontextmanager
async def open_scoring(settings: Settings) -> AsyncGenerator[ContentScorer]:
    """Open it. No store is opened, and nothing is written."""
    del settings  # no setting changes a score
    scorer = ContentScorer(detection.open)
    try:
        yield scorer
    finally:
        scorer.close()
