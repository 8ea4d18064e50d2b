"""Operators' commands on memory: `rookery brain reindex`, also written `brain:reindex`, and so on (spec 4.4, D-52)."""

from __future__ import annotations

import typer

from rookery.memory.commands import forgetting, indexes, moving, tidying, training


def register(app: typer.Typer) -> None:
    """Add the group `brain` to the command line."""
    brain = typer.Typer(name="brain", help="Look after the shared memory.", no_args_is_help=True)
    indexes.register(brain)
    tidying.register(brain)
    forgetting.register(brain)
    training.register(brain)
    app.add_typer(brain)
    moving.register(app)
