"""`rookery serve` and `rookery init`."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
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
    """Say where the server listens; the first time show the keys on a terminal, or else write them into a file for its owner alone."""
    console = Console()
    is_first = made.api_key is not None
    listening = f"Rookery serves on {settings.listening_url}"
    if not is_first or sys.stdout.isatty():
        console.print(f"{listening}, with its data in {settings.data_dir}", highlight=False, soft_wrap=True, markup=False)
    else:
        path = first_run.write(settings.data_dir, made, url=settings.address_of("/"))
        console.print(f"{listening}; its first keys are in {path}", highlight=False, soft_wrap=True, markup=False)
        console.print(
            "Copy the keys, then delete that file. The server deletes it once both keys were used, and after 7 days.", soft_wrap=True
        )
    if settings.has_public_urls:
        console.print(f"Clients reach it at {', '.join(_public_urls(settings))}", highlight=False, soft_wrap=True, markup=False)
    if not sys.stdout.isatty():
        return
    console.print()
    if made.api_key is not None:
        _show(made, console)
        _show_requests(settings.address_of("/"), made.api_key, console)
    for title, text in _first_steps(settings, is_first=is_first):
        console.print(f"{title:16}{text}", highlight=False, soft_wrap=True, markup=False)
    console.print("Ctrl-C stops it.", style="dim")


def _public_urls(settings: Settings) -> list[str]:
    return sorted({settings.address_of(path) for path in ("/api/v1/mcp", "/mcp", "/")})


def _first_steps(settings: Settings, *, is_first: bool) -> list[tuple[str, str]]:
    """Return where to go next, each with its title."""
    steps = [
        ("Set up a client", f"{settings.address_of('/connect')}/connect"),
        ("Tool servers", f"{settings.address_of('/servers')}/servers"),
    ]
    if settings.has_api_docs:
        steps.append(("The API", f"{settings.address_of('/api/docs')}/api/docs (sign in with a key as the user name)"))
    if not is_first:
        command = [_program(), "--data-dir", str(settings.data_dir), "keys", "create", "--name", "NAME", "--scope", "*"]
        steps.append(("Another key", shlex.join(command)))
    return steps


def _program() -> str:
    """Return how this program is called: by its path, unless a shell finds it."""
    called = sys.argv[0]
    return "rookery" if not called.endswith("rookery") or shutil.which("rookery") == called else called


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
