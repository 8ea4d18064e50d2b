"""The command line: `rookery serve`, `rookery init`, and every domain's commands (D-04)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from rookery import serving
from rookery.access import commands as access_commands
from rookery.access import first_run
from rookery.access.commands import printing, terminal
from rookery.access.first_run import WORKSPACE, FirstRun
from rookery.agents import commands as agent_commands
from rookery.backup import commands as backup_commands
from rookery.backup.stores import KNOWN, RESTORING
from rookery.doctor import Finding, examine, is_well
from rookery.kernel import data_folder, logs
from rookery.kernel.config import Settings, load
from rookery.kernel.errors import RookeryError, WrongSettings
from rookery.kernel.sealing import Inspection, Rotated
from rookery.kernel.secret import Secret
from rookery.memory import commands as memory_commands
from rookery.migrations import migrate
from rookery.tools import commands as tool_commands
from rookery.webhooks import commands as webhook_commands
from rookery.wiring import Rookery, build

_log = structlog.stdlib.get_logger("rookery.cli")

app = typer.Typer(
    name="rookery",
    help="The shared home of AI agents: tool servers behind one HTTP API, and a shared memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
secrets_app = typer.Typer(name="secrets", help="Look after the key that seals secrets.", no_args_is_help=True)
app.add_typer(secrets_app)
access_commands.register(app)
memory_commands.register(app)
tool_commands.register(app)
agent_commands.register(app)
webhook_commands.register(app)
backup_commands.register(app)


@dataclass(frozen=True, slots=True)
class Context:
    """What every command is given: the settings, and the platform on its store."""

    settings: Settings

    def open(self) -> AbstractAsyncContextManager[Rookery]:
        """Migrate and open the platform for one command: no worker and no tool server runs in it."""
        return prepare(self.settings).for_command()


@app.callback()
def settings(
    context: typer.Context,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.", show_default=False)] = None,
) -> None:
    """Read the settings before any command."""
    overrides = {} if data_dir is None else {"data_dir": str(data_dir)}
    loaded = load(os.environ, overrides=overrides)
    logs.configure(loaded.settings.log_level, sys.stderr, form=loaded.settings.log_format)
    logs.watch_process()
    for warning in loaded.warnings:
        _log.warning("settings", message=warning)
    context.obj = Context(loaded.settings)


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one.", show_default=False)] = None,
) -> None:
    """Serve everything; the first time, make a workspace and two keys, and show them once."""
    base: Settings = context.obj.settings
    wanted = replace(base, host=host or base.host, port=base.port if port is None else port)
    listening = serving.listen(wanted.host, wanted.port)
    chosen = replace(wanted, port=listening.getsockname()[1])
    made = asyncio.run(_first_run(prepare(chosen), to_serve=True))
    serving.write_starter_servers(chosen)
    _welcome(chosen, made)
    serving.run(build(chosen), listening)


@app.command()
def init(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Make the first workspace and keys, as the first `serve` does; again, it makes none."""
    chosen: Settings = context.obj.settings
    made = asyncio.run(_first_run(prepare(chosen)))
    serving.write_starter_servers(chosen)
    if as_json:
        print(json.dumps(first_run.as_json(made)))  # noqa: T201 - the command's answer
    else:
        _show(made, Console())


@app.command()
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Look for what is wrong, and say what to do; exit code 1 if something does not work."""
    findings = asyncio.run(_examine(prepare(context.obj.settings)))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))  # noqa: T201 - the command's answer
    else:
        console, colours = Console(), {"ok": "green", "warning": "yellow", "problem": "bold red"}
        for finding in findings:
            console.print(f"[{colours[finding.grade]}]{finding.grade:8}[/] {finding.about}: ", end="", highlight=False)
            console.print(finding.says + (f". {finding.advice}" if finding.advice else ""), highlight=False, markup=False, soft_wrap=True)
    if not is_well(findings):
        raise typer.Exit(1)


@app.command("migrate")
def migrate_command(context: typer.Context) -> None:
    """Bring the record store to this version's schema; `serve` does it by itself."""
    chosen: Settings = context.obj.settings
    _prepare_folder(chosen)
    changed = migrate(chosen.database_url.reveal(), data_dir=chosen.data_dir)
    print("migrated" if changed else "up to date")  # noqa: T201 - the command's answer


@secrets_app.command("rotate")
def rotate_secrets(
    context: typer.Context,
    *,
    lost: Annotated[bool, typer.Option("--lost", help="The key is gone: delete what only it can open.")] = False,
    yes: terminal.Yes = False,
    dry_run: terminal.DryRun = False,
    as_json: terminal.Json = False,
) -> None:
    """Seal everything by a new secret key, ROOKERY_SECRET_KEY if that is set, and keep nothing of the old one."""
    if dry_run:
        found = asyncio.run(_inspect_secrets(context.obj))
        shown = {
            "key_id": found.state.key_id if found.state else None,
            "sealed": found.sealed,
            "missing": list(found.missing),
            "unreadable": found.unreadable,
            "dry_run": True,
        }
        printing.print_json(shown) if as_json else printing.print_one(shown)
        return
    if lost:
        terminal.confirm("This deletes what only the lost key can open.", yes=yes)
    done = asyncio.run(_rotate_secrets(context.obj, lost=lost))
    if as_json:
        printing.print_json({"key_id": done.key_id, "changed": done.is_changed, "resealed": done.resealed, "deleted": done.forgotten})
    elif done.is_changed:
        deleted = f", {done.forgotten:,} were deleted" if lost else ""
        print(f"The secret key is {done.key_id} now; {done.resealed:,} texts were sealed anew{deleted}.")  # noqa: T201 - the command's answer
    else:
        print(  # noqa: T201 - the command's answer
            "ROOKERY_SECRET_KEY seals everything already. To change it, set a new one, and this one as ROOKERY_SECRET_KEY_PREVIOUS."
        )


def prepare(settings: Settings) -> Rookery:
    """
    Return the platform on a data folder that is there and a record store that is up to date; quick when both are.

    Every engine's address is read before anything is made.
    """
    rookery = build(settings)
    _prepare_folder(settings)
    if (settings.data_dir / RESTORING).exists():
        raise WrongSettings(f"A restore into {settings.data_dir} was not finished: run it again; it begins from the beginning.")
    migrate(settings.database_url.reveal(), data_dir=settings.data_dir)
    return rookery


def _prepare_folder(settings: Settings) -> None:
    """Create the data folder, or tighten it; a line for each thing that the operator should read."""
    for line in data_folder.make_private(settings.data_dir, known=KNOWN):
        _log.warning("data_folder", message=line)


def with_spaces(arguments: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return *arguments* with a command written as the spec does, `brain:reindex`, as `brain reindex`, for *groups* (D-04)."""
    changed = list(arguments)
    place = 0
    while place < len(changed) and changed[place].startswith("-"):
        place += 2 if changed[place] == "--data-dir" else 1
    group, colon, name = changed[place].partition(":") if place < len(changed) else ("", "", "")
    if colon and group in groups:
        changed[place : place + 1] = [group, name]
    return changed


def main() -> None:
    """Run the command line; an error that we can say in words is one line and exit code 1."""
    try:
        app(with_spaces(sys.argv[1:], ["brain"]), standalone_mode=True)
    except RookeryError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(error.message)}", highlight=False, soft_wrap=True)
        sys.exit(1)


async def _examine(rookery: Rookery) -> list[Finding]:
    async with rookery.for_command():
        return await examine(rookery)


async def _inspect_secrets(opens: Context) -> Inspection:
    async with opens.open() as rookery:
        return await rookery.sealing.rotation.inspect()


async def _rotate_secrets(opens: Context, *, lost: bool) -> Rotated:
    async with opens.open() as rookery:
        return await rookery.sealing.rotation.rotate(is_lost=lost)


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
