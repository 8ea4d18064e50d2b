"""`rookery hook`: the help of the command. `rookery.__main__` runs it without importing this module."""

from __future__ import annotations

from typing import Annotated

import typer

from rookery.coding_agents import hook_command
from rookery.coding_agents.hook_declarations import CLIENTS, EVENTS


def hook(
    event: Annotated[str, typer.Argument(help=f"{', '.join(EVENTS[:-1])} or {EVENTS[-1]}.")],
    *,
    client: Annotated[str, typer.Option(help=f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}.")],
    url: Annotated[str, typer.Option(help="The server; by default ROOKERY_URL, or http://127.0.0.1:8400.")] = "",
    key_variable: Annotated[str, typer.Option(help="The variable with the key.")] = "ROOKERY_KEY",
    key_file: Annotated[str, typer.Option(help="A file with the key, in place of the variable.")] = "",
) -> None:
    """Send an event of a coding agent, whose JSON is on standard input, and print the answer. Always exits with 0."""
    options = {"--client": client, "--url": url, "--key-variable": key_variable, "--key-file": key_file}
    hook_command.main([event, *(word for option in options.items() for word in option)])
