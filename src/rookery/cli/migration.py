"""`rookery migrate`."""

from __future__ import annotations

import typer

from rookery import migrations
from rookery.access.commands.command_context import get_settings
from rookery.cli.store import prepare_folder


def migrate(context: typer.Context) -> None:
    """Migrate the record store to the schema of this version. `serve` does this at its start."""
    chosen = get_settings(context)
    prepare_folder(chosen)
    changed = migrations.migrate(chosen.database_url.reveal(), data_dir=chosen.data_dir)
    print("migrated" if changed else "up to date")  # noqa: T201 - the output of the command
