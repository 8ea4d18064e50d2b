"""The operator's commands of tool servers: `servers`, `tools` and `connect` (D-04)."""

from __future__ import annotations

import typer

from rookery.tools.commands import connect, login, servers, stops


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    login.register(servers.app)
    app.add_typer(servers.app, name="servers")
    app.add_typer(stops.app, name="tools")
    app.command()(connect.connect)
