"""The group `brain`: maintenance of the shared memory."""

from __future__ import annotations

import typer

from rookery.memory.commands import forget, indexes, maintenance, training

app = typer.Typer(help="Look after the shared memory.", no_args_is_help=True)

indexes.register(app)
maintenance.register(app)
forget.register(app)
training.register(app)
