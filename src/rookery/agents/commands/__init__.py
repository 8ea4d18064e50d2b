"""The commands of plans."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "templates", "List, check and add templates of plans.", "rookery.agents.commands.templates:app", 130, "Plans, content and scores"
    ),
)
