"""The group `brain`: maintenance of the shared memory."""

from __future__ import annotations

import typer

from rookery.memory.commands import forgetting, indexes, tidying, training

app = typer.Typer(help="Look after the shared memory.", no_args_is_help=True)

indexes.register(app)
tidying.register(app)
forgetting.register(app)
training.register(app)
