"""The command of usage."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "usage",
        "Show what keys, agents, models and tools used, and what it cost.",
        "rookery.usage.commands.usage:usage",
        138,
        "Plans, content and scores",
    ),
)
