"""The whole platform on a prepared store."""

from __future__ import annotations

from rookery.cli.store import prepare_store
from rookery.kernel.config import Settings
from rookery.wiring import Rookery, build_platform


def build_prepared(settings: Settings) -> Rookery:
    """
    Return the platform on a data folder and a record store that are ready.

    Every engine's address is read before anything is created.
    """
    rookery = build_platform(settings)
    prepare_store(settings)
    return rookery
