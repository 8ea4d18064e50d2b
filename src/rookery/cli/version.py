"""`rookery version`."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from rookery.terminal.options import JsonOption
from rookery.terminal.output import print_json


def version(*, as_json: JsonOption = False) -> None:
    """Show the version, as `rookery --version` does. With --json, also show the version of Python."""
    installed = metadata.version("rookery")
    if as_json:
        print_json({"version": installed, "python": platform.python_version()})
    else:
        typer.echo(f"rookery {installed}")
