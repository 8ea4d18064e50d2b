"""The preparation of the data folder and the record store, before anything opens them, and `rookery migrate`."""

from __future__ import annotations

import structlog
import typer

from rookery import migrations
from rookery.backup.contents import KNOWN_NAMES
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import RESTORE_FOLDER, make_private
from rookery.kernel.errors import WrongSettings
from rookery.terminal.context import get_settings

NO_DATA_ADVICE = "Check --data-dir and ROOKERY_DATA_DIR. To create a workspace in this folder, use `rookery init` or `rookery serve`."

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
    migrations.migrate(settings.database_url.reveal(), data_dir=settings.data_dir)


def require_data(settings: Settings) -> None:
    """
    Raise if the data folder has no records, so that a command with a mistyped folder creates nothing.

    Records in another database may exist without a local file, so this checks only embedded ones.

    Raises:
        WrongSettings: The data folder does not exist, or contains no records.
    """
    if has_data(settings):
        return
    folder = settings.data_dir
    state = f"The data folder {folder} contains no data of Rookery" if folder.is_dir() else f"The data folder {folder} does not exist"
    raise WrongSettings(f"{state}. {NO_DATA_ADVICE}")


def has_data(settings: Settings) -> bool:
    """Return whether the data folder contains records, an incomplete restore, or needs neither because the records are elsewhere."""
    if settings.database_url.reveal() != "embedded:":
        return True
    return (settings.data_dir / "records.db").exists() or (settings.data_dir / RESTORE_FOLDER).exists()


def prepare_folder(settings: Settings) -> None:
    """Create the data folder or restrict its mode, and log a warning for each problem found."""
    for line in make_private(settings.data_dir, known_names=KNOWN_NAMES):
        _log.warning("data_folder", message=line)


def migrate(context: typer.Context) -> None:
    """Migrate the record store to the schema of this version. `serve` does this at its start."""
    settings = get_settings(context)
    prepare_folder(settings)
    changed = migrations.migrate(settings.database_url.reveal(), data_dir=settings.data_dir)
    print("migrated" if changed else "up to date")  # noqa: T201 - the output of the command
