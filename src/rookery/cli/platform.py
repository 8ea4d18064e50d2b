"""The whole platform on a prepared data folder and record store."""

from __future__ import annotations

from rookery.cli.store import prepare_store
from rookery.kernel.config import Settings
from rookery.wiring import Rookery, build_platform


def build_prepared(settings: Settings) -> Rookery:
    """
    Return the platform after its data folder and record store have been prepared.

    The URLs of all engines are checked before anything is created.
    """
    rookery = build_platform(settings)
    prepare_store(settings)
    return rookery
