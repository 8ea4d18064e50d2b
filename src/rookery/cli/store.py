"""The data folder and the record store, made ready before anything is opened on them."""

from __future__ import annotations

import structlog

from rookery.backup.contents import KNOWN_NAMES
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import RESTORE_FOLDER, make_private
from rookery.kernel.errors import WrongSettings
from rookery.migrations import migrate

_log = structlog.stdlib.get_logger("rookery.cli")


def prepare_store(settings: Settings) -> None:
    """
    Create the data folder and bring the record store up to date; quick when both are there.

    Raises:
        WrongSettings: The folder cannot be made, a restore into it was not finished, or the store belongs to a newer Rookery.
        EngineUnavailable: The record store cannot be reached.
    """
    prepare_folder(settings)
    if (settings.data_dir / RESTORE_FOLDER).exists():
        raise WrongSettings(f"A restore into {settings.data_dir} was not finished: run it again; it begins from the beginning.")
    migrate(settings.database_url.reveal(), data_dir=settings.data_dir)


def prepare_folder(settings: Settings) -> None:
    """Create the data folder, or tighten it; log a line for each thing that the operator should read."""
    for line in make_private(settings.data_dir, known_names=KNOWN_NAMES):
        _log.warning("data_folder", message=line)
