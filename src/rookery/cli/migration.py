"""`rookery migrate`."""

from __future__ import annotations

import typer

from rookery import migrations
from rookery.cli.store import prepare_folder
from rookery.terminal.context import get_settings


def migrate(context: typer.Context) -> None:
    """Migrate the record store to the schema of this version. `serve` does this at its start."""
    settings = get_settings(context)
    prepare_folder(settings)
    changed = migrations.migrate(settings.database_url.reveal(), data_dir=settings.data_dir)
    print("migrated" if changed else "up to date")  # noqa: T201 - the output of the command
