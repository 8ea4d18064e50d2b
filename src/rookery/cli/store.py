"""The preparation of the data folder and the record store, before anything opens them."""

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
    Create the data folder and migrate the record store. Fast if both are up to date.

    Raises:
        WrongSettings: The folder cannot be created, a restore into it is incomplete, or the store belongs to a newer Rookery.
        EngineUnavailable: The record store is unavailable.
    """
    prepare_folder(settings)
    if (settings.data_dir / RESTORE_FOLDER).exists():
        raise WrongSettings(f"A restore into {settings.data_dir} is incomplete. Run the restore again; it starts from the beginning.")
    migrate(settings.database_url.reveal(), data_dir=settings.data_dir)


def prepare_folder(settings: Settings) -> None:
    """Create the data folder or restrict its mode, and log a warning for each problem found."""
    for line in make_private(settings.data_dir, known_names=KNOWN_NAMES):
        _log.warning("data_folder", message=line)
