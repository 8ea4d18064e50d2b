"""The operator's commands of webhooks (D-04)."""

from __future__ import annotations

import typer

from rookery.webhooks.commands import deliveries, endpoints


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    deliveries.register(endpoints.app)
    app.add_typer(endpoints.app, name="webhooks")
