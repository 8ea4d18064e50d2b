"""The operator's commands of agent work: `templates` (D-63)."""

from __future__ import annotations

import typer

from rookery.agents.commands import templates


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(templates.app, name="templates")
