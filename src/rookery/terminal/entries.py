"""The entries of the table of commands. The module imports nothing, because `rookery --help` reads the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CommandSection = Literal[
    "Start here", "Memory", "Tools", "Plans, content and scores", "Keys and workspaces", "Webhooks and notifications", "Operate"
]
"""The sections of `rookery --help`."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """
    A command or a group of commands.

    Attributes:
        help: The help text. It is declared here, so that `rookery --help` imports no command.
        target: `module:attribute`, a function or a `typer.Typer`. It is imported when the command runs.
        position: The position in `rookery --help`. A section stands where its first command does.
        section: The section of `rookery --help`.
    """

    name: str
    help: str
    target: str
    position: int
    section: CommandSection
