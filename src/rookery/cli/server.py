"""`rookery serve` and `rookery init`."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from rookery import serving
from rookery.access import first_run
from rookery.access.commands.terminal import Json, settings_of
from rookery.access.first_run import WORKSPACE, FirstRun
from rookery.cli.platform import prepare
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.wiring import Rookery, build


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one.", show_default=False)] = None,
) -> None:
    """Serve everything; the first time, make a workspace and two keys, and show them once."""
    base = settings_of(context)
    wanted = replace(base, host=host or base.host, port=base.port if port is None else port)
    listening = serving.listen(wanted.host, wanted.port)
    chosen = replace(wanted, port=listening.getsockname()[1])
    made = asyncio.run(_first_run(prepare(chosen), to_serve=True))
    serving.write_starter_servers(chosen)
    _welcome(chosen, made)
    serving.run(build(chosen), listening)


def init(
    context: typer.Context,
    *,
    as_json: Json = False,
) -> None:
    """Make the first workspace and keys, as the first `serve` does; again, it makes none."""
    chosen = settings_of(context)
    made = asyncio.run(_first_run(prepare(chosen)))
    serving.write_starter_servers(chosen)
    if as_json:
        print(json.dumps(first_run.as_json(made)))  # noqa: T201 - the command's answer
    else:
        _show(made, Console())


async def _first_run(rookery: Rookery, *, to_serve: bool = False) -> FirstRun:
    async with rookery.for_command():
        if to_serve:
            await rookery.must_fit()
        return await rookery.first_run()


def _welcome(settings: Settings, made: FirstRun) -> None:
    """Say where the server is; the first time the keys too, on a terminal or into a file that only we may read."""
    console = Console()
    address = settings.address_of("/")
    if made.api_key is None or sys.stdout.isatty():
        console.print(f"Rookery serves on [bold]{address}[/], with its data in {settings.data_dir}", highlight=False, soft_wrap=True)
        if made.api_key is not None:
            console.print()
            _show(made, console)
            _show_requests(address, made.api_key, console)
        return
    path = first_run.write(settings.data_dir, made, url=address)
    console.print(f"Rookery serves on {address}; its first keys are in {path}", highlight=False, soft_wrap=True)
    console.print("Copy the keys, then delete that file. The server deletes it once both keys were used, and after 7 days.", soft_wrap=True)


def _show(made: FirstRun, console: Console) -> None:
    if made.api_key is None or made.agent_key is None:
        console.print(f"workspace  {made.workspace_id or 'none'}", highlight=False)
        console.print("keys       made earlier; `rookery keys create` makes more", highlight=False)
        return
    console.print(f"workspace  [bold]{WORKSPACE}[/], number {made.workspace_id}", highlight=False)
    console.print(f"API key    [bold green]{made.api_key.reveal()}[/]  may do everything", highlight=False, soft_wrap=True)
    console.print(f"agent key  [bold green]{made.agent_key.reveal()}[/]  may do what an agent does", highlight=False, soft_wrap=True)
    console.print("These keys are shown this once: keep them.", style="yellow")


def _show_requests(address: str, api_key: Secret, console: Console) -> None:
    headers = f"-H 'Authorization: Bearer {api_key.reveal()}' -H 'Content-Type: application/json'"
    requests = [
        ("Remember", "/v1/brain/remember", {"type": "decision", "content": "We deploy on Tuesdays, never on Fridays.", "wait_ms": 5000}),
        ("Recall", "/v1/brain/recall", {"query": "When do we ship?", "mode": "hybrid"}),
        ("Call a tool", "/api/v1/mcp/tools/call", {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}),
    ]
    console.print("\nTo try it, in another terminal:\n", highlight=False)
    for title, path, body in requests:
        console.print(f"# {title}", style="dim")
        console.print(f"curl {address}{path} {headers} -d '{json.dumps(body)}'\n", highlight=False, soft_wrap=True, markup=False)
