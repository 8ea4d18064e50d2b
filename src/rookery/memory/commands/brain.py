"""The command group `brain`: maintenance of the shared memory."""

from __future__ import annotations

import typer

from rookery.memory.commands import indexes, maintenance, training

app = typer.Typer(help="Maintain the shared memory.", no_args_is_help=True)

indexes.register(app)
maintenance.register(app)
training.register(app)
