"""The operator's commands of access: `workspace`, `keys`, `agent-keys`, `audit` (D-04)."""

from __future__ import annotations

import typer

from rookery.access.commands import agent_keys, audit, keys, workspaces


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(workspaces.app, name="workspace")
    app.add_typer(keys.app, name="keys")
    app.add_typer(agent_keys.app, name="agent-keys")
    app.add_typer(audit.app, name="audit")
