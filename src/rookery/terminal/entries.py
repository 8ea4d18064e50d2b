"""The entries of the table of commands. The module imports nothing, because `rookery --help` reads the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """
    A command or a group of commands.

    Attributes:
        help: The help text. It is declared here, so that `rookery --help` imports no command.
        target: `module:attribute`, a function or a `typer.Typer`. It is imported when the command runs.
        position: The position in `rookery --help`.
    """

    name: str
    help: str
    target: str
    position: int
