"""`rookery version`."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from rookery.access.commands.printing import print_json
from rookery.access.commands.terminal import Json


def version(*, as_json: Json = False) -> None:
    """Show the version, as `rookery --version` does; with --json that of Python too."""
    installed = metadata.version("rookery")
    if as_json:
        print_json({"version": installed, "python": platform.python_version()})
    else:
        typer.echo(f"rookery {installed}")
