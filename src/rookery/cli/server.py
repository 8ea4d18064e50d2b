"""`rookery serve`, `rookery init` and `rookery worker`."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import signal
import socket
import sys
from dataclasses import replace
from typing import Annotated

import structlog
import typer
import uvloop
from rich.console import Console

from rookery import serving
from rookery.access import first_run
from rookery.access.first_run import WORKSPACE_NAME, FirstRunResult
from rookery.cli.platform import build_prepared
from rookery.kernel import process_resources
from rookery.kernel.config import Settings
from rookery.kernel.http.metrics_page import open_metrics_socket
from rookery.kernel.process_registry import ProcessRegistry
from rookery.kernel.running_server import remove_server_file
from rookery.kernel.secret import Secret
from rookery.kernel.server_supervisor import ServerSupervisor
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption
from rookery.wiring import Rookery, build_platform


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 picks a free one.", show_default=False)] = None,
    workers: Annotated[
        int | None, typer.Option(help="The number of server processes that share the address.", min=1, max=64, show_default=False)
    ] = None,
) -> None:
    """Start the server. The first start creates a workspace and two keys, and shows the keys once."""
    base = get_settings(context)
    requested = replace(
        base, host=host or base.host, port=base.port if port is None else port, workers=base.workers if workers is None else workers
    )
    listening = serving.open_listening_socket(requested.host, requested.port)
    settings = replace(requested, port=listening.getsockname()[1])
    result = asyncio.run(_first_run(build_prepared(settings), to_serve=True))
    serving.write_starter_servers(settings)
    rookery = build_platform(settings)
    _print_welcome(settings, result, embedding_model=rookery.engines.embedder.description)
    if settings.workers == 1:
        serving.run_server(rookery, listening)
    else:
        _serve_with_workers(settings, listening)


def _serve_with_workers(settings: Settings, listening: socket.socket) -> None:
    """Run the supervisor in this process, and the server in each process that it forks. Both return from this function at their end."""
    supervisor = ServerSupervisor(
        settings.workers,
        on_ready=lambda: serving.announce_server(settings),
        metrics_socket=None if settings.metrics_port is None else open_metrics_socket(settings.metrics_port),
    )
    process_resources.expect_forks()
    sys.stdout.flush()
    process = supervisor.run()
    if process is None:
        remove_server_file(settings.data_dir)
        return
    structlog.contextvars.bind_contextvars(process=process.group.number)
    serving.run_server(build_platform(settings, group=process.group), listening, process)


def init(
    context: typer.Context,
    *,
    as_json: JsonOption = False,
) -> None:
    """Create the first workspace and its keys, as the first `serve` does. If they exist, nothing changes."""
    settings = get_settings(context)
    result = asyncio.run(_first_run(build_prepared(settings)))
    serving.write_starter_servers(settings)
    if as_json:
        print(json.dumps(first_run.to_json(result)))  # noqa: T201 - the output of the command
    else:
        _print_first_keys(result, Console())


async def _first_run(rookery: Rookery, *, to_serve: bool = False) -> FirstRunResult:
    async with rookery.open_for_command():
        if to_serve:
            await rookery.runtime.use(ProcessRegistry).check()
            await rookery.require_matching_dimension()
        return await rookery.create_first_keys()


def _print_welcome(settings: Settings, result: FirstRunResult, *, embedding_model: str) -> None:
    """Print the server's address. On the first run, show the keys on a terminal, or write them to a file that only its owner can read."""
    console = Console()
    is_first = result.api_key is not None
    listening = f"Rookery serves on {settings.listening_url}"
    if not is_first or sys.stdout.isatty():
        console.print(f"{listening}, with its data in {settings.data_dir}", highlight=False, soft_wrap=True, markup=False)
    else:
        path = first_run.write_keys_file(settings.data_dir, result, url=settings.public_url_of("/"))
        console.print(f"{listening}; its first keys are in {path}", highlight=False, soft_wrap=True, markup=False)
        console.print(
            "Copy the keys, then delete that file. The server deletes it when both keys have been used and it is one hour old,"
            " and after 7 days in any case.",
            soft_wrap=True,
        )
    if settings.has_public_urls:
        console.print(f"Clients reach it at {', '.join(_list_public_urls(settings))}", highlight=False, soft_wrap=True, markup=False)
    if not sys.stdout.isatty():
        return
    console.print()
    if result.api_key is not None:
        _print_first_keys(result, console)
        _print_example_requests(settings.public_url_of("/"), result.api_key, console)
    for title, text in [*_first_steps(settings, is_first=is_first), ("Embedding model", embedding_model)]:
        console.print(f"{title:16}{text}", highlight=False, soft_wrap=True, markup=False)
    console.print("Ctrl-C stops the server.", style="dim")


def _list_public_urls(settings: Settings) -> list[str]:
    return sorted({settings.public_url_of(path) for path in ("/api/v1/mcp", "/mcp", "/")})


def _first_steps(settings: Settings, *, is_first: bool) -> list[tuple[str, str]]:
    """Return the next steps after the start, each with its title."""
    steps = [("Console", f"{settings.public_url_of('/console')}/console (sign in with a key)")] if settings.console else []
    steps += [
        ("Set up a client", f"{settings.public_url_of('/connect')}/connect"),
        ("Tool servers", f"{settings.public_url_of('/servers')}/servers"),
    ]
    if settings.has_api_docs:
        steps.append(("The API", f"{settings.public_url_of('/api/docs')}/api/docs (sign in with a key as the user name)"))
    if not is_first:
        command = [_program_name(), "--data-dir", str(settings.data_dir), "keys", "create", "--name", "NAME", "--scope", "*"]
        steps.append(("Another key", shlex.join(command)))
    return steps


def _program_name() -> str:
    """Return the name to call this program: `rookery` if the shell finds it, otherwise its path."""
    called = sys.argv[0]
    return "rookery" if not called.endswith("rookery") or shutil.which("rookery") == called else called


def _print_first_keys(result: FirstRunResult, console: Console) -> None:
    if result.api_key is None or result.agent_key is None:
        console.print(f"workspace  {result.workspace_id or 'none'}", highlight=False)
        console.print("keys       created earlier; `rookery keys create` creates more", highlight=False)
        return
    console.print(f"workspace  [bold]{WORKSPACE_NAME}[/], number {result.workspace_id}", highlight=False)
    console.print(f"API key    [bold green]{result.api_key.reveal()}[/]  has all scopes", highlight=False, soft_wrap=True)
    console.print(f"agent key  [bold green]{result.agent_key.reveal()}[/]  has the scopes of an agent", highlight=False, soft_wrap=True)
    console.print("These keys are shown only once. Store them now.", style="yellow")


def _print_example_requests(address: str, api_key: Secret, console: Console) -> None:
    headers = f"-H 'Authorization: Bearer {api_key.reveal()}' -H 'Content-Type: application/json'"
    requests = [
        ("Remember", "/v1/brain/remember", {"type": "decision", "content": "We deploy on Tuesdays, never on Fridays.", "wait_ms": 5000}),
        ("Recall", "/v1/brain/recall", {"query": "When do we ship?"}),
        ("Call a tool", "/api/v1/mcp/tools/call", {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}),
    ]
    console.print("\nTo try it, in another terminal:\n", highlight=False)
    for title, path, body in requests:
        console.print(f"# {title}", style="dim")
        console.print(f"curl {address}{path} {headers} -d '{json.dumps(body)}'\n", highlight=False, soft_wrap=True, markup=False)


_log = structlog.stdlib.get_logger("rookery.worker")


def worker(context: typer.Context) -> None:
    """Run jobs, webhooks and periodic tasks without HTTP, beside servers on the same data. Several workers may run."""
    settings = replace(get_settings(context), metrics_port=None)  # the port belongs to the server
    rookery = build_prepared(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_worker(rookery))


async def _run_worker(rookery: Rookery) -> None:
    is_ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, is_ended.set)
    try:
        await rookery.require_matching_dimension()
        await rookery.start_worker()
        process_resources.expect_requests()
        typer.echo(f"Rookery works on {rookery.settings.data_dir}; Ctrl-C stops it.")
        await is_ended.wait()
        _log.info("stopping")
    finally:
        await rookery.close()
    _log.info("stopped")
