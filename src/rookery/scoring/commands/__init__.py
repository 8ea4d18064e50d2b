"""The command of scoring."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "score",
        "Score texts: whether a model wrote them, and how sycophantic they are as answers. Nothing is sent or stored.",
        "rookery.scoring.commands.score:score",
        145,
        "Plans, content and scores",
    ),
)
