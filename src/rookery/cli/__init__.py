"""
The command line (D-04).

A command's module is imported when the command runs. Until then a table has its name and its help, so that `rookery --help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption

from rookery.cli.parameters import convert_on_demand
from rookery.kernel import garbage
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import RookeryError, ValidationFailed

if TYPE_CHECKING:
    from rookery.cli.keys import KeyServices
    from rookery.wiring import Rookery

__all__ = ["COMMANDS", "CommandContext", "add_commands", "app", "load_command", "main", "split_group"]

_COLON_GROUPS = ("brain",)
"""Groups whose commands the spec writes with a colon, such as `brain:reindex`."""

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command or a group of commands; `load` imports it."""

    name: str
    help: str
    load: Callable[[], typer.Typer | Command]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What every command receives as `typer.Context.obj`: the settings, and ways to open what it works on."""

    settings: Settings

    def open(self) -> AbstractAsyncContextManager[Rookery]:
        """Migrate and open the whole platform for one command: no worker and no tool server runs in it."""
        from rookery.cli.platform import build_prepared

        return build_prepared(self.settings).open_for_command()

    def open_keys(self) -> AbstractAsyncContextManager[KeyServices]:
        """Migrate and open keys, workspaces and the audit log alone, which takes a third of the time."""
        from rookery.cli.key_changes import open_keys_for_changes

        return open_keys_for_changes(self.settings)

    def read_keys(self) -> AbstractAsyncContextManager[KeyServices]:
        """Do as `open_keys`, for a command that changes no key: it needs neither webhooks nor memories."""
        from rookery.cli.keys import open_keys_for_reading

        return open_keys_for_reading(self.settings)


def _serve() -> Command:
    from rookery.cli.server import serve

    return serve


def _init() -> Command:
    from rookery.cli.server import init

    return init


def _doctor() -> Command:
    from rookery.cli.diagnosis import doctor

    return doctor


def _connect() -> Command:
    from rookery.tools.commands.connect import connect

    return connect


def _remember() -> Command:
    from rookery.memory.commands.memories import remember

    return remember


def _recall() -> Command:
    from rookery.memory.commands.memories import recall

    return recall


def _search() -> Command:
    from rookery.memory.commands.memories import search

    return search


def _workspace() -> typer.Typer:
    from rookery.access.commands.workspaces import app as group

    return group


def _keys() -> typer.Typer:
    from rookery.access.commands.keys import app as group

    return group


def _agent_keys() -> typer.Typer:
    from rookery.access.commands.agent_keys import app as group

    return group


def _audit() -> typer.Typer:
    from rookery.access.commands.audit import app as group

    return group


def _servers() -> typer.Typer:
    from rookery.tools.commands.servers import app as group

    return group


def _tools() -> typer.Typer:
    from rookery.tools.commands.stops import app as group

    return group


def _templates() -> typer.Typer:
    from rookery.agents.commands.templates import app as group

    return group


def _webhooks() -> typer.Typer:
    from rookery.webhooks.commands.endpoints import app as group

    return group


def _brain() -> typer.Typer:
    from rookery.memory.commands.brain import app as group

    return group


def _export() -> Command:
    from rookery.memory.commands.transfer import export

    return export


def _import() -> Command:
    from rookery.memory.commands.transfer import import_

    return import_


def _backup() -> Command:
    from rookery.backup.commands import backup

    return backup


def _restore() -> Command:
    from rookery.backup.commands import restore

    return restore


def _worker() -> Command:
    from rookery.cli.worker import worker

    return worker


def _migrate() -> Command:
    from rookery.cli.migration import migrate

    return migrate


def _secrets() -> typer.Typer:
    from rookery.cli.secrets import app as group

    return group


def _version() -> Command:
    from rookery.cli.version import version

    return version


COMMANDS = (
    CommandEntry("serve", "Serve everything; the first time, make a workspace and two keys, and show them once.", _serve),
    CommandEntry("init", "Make the first workspace and keys, as the first `serve` does; again, it makes none.", _init),
    CommandEntry("doctor", "Look for what is wrong, and say what to do; exit code 1 if something does not work.", _doctor),
    CommandEntry(
        "connect",
        "Show how a client is set up for this server, or write it; the key stays in a variable, and goes into no file and no command.",
        _connect,
    ),
    CommandEntry(
        "remember",
        "Store a memory and print its id; it is found by its words at once, and by its meaning once a running server has indexed it.",
        _remember,
    ),
    CommandEntry("recall", "Show the memories that answer a question, best first.", _recall),
    CommandEntry("search", "Show the memories that have these words, best first.", _search),
    CommandEntry("workspace", "Workspaces: the tenants.", _workspace),
    CommandEntry("keys", "API keys.", _keys),
    CommandEntry("agent-keys", "Agent keys.", _agent_keys),
    CommandEntry("audit", "The audit log: every change to keys and workspaces.", _audit),
    CommandEntry("servers", "Tool servers.", _servers),
    CommandEntry("tools", "Stop tools at once, and let them go on.", _tools),
    CommandEntry("templates", "Templates of plans.", _templates),
    CommandEntry("webhooks", "Webhooks: who is told of events, and how that went.", _webhooks),
    CommandEntry("brain", "Look after the shared memory.", _brain),
    CommandEntry(
        "export",
        "Write the memories of a workspace, all of each of them, for `rookery import` or for people to read; safe while the server runs.",
        _export,
    ),
    CommandEntry(
        "import",
        "Store memories that were exported, Markdown notes, agents' instructions or mem0's memories; twice is as once.",
        _import,
    ),
    CommandEntry("backup", "Save everything in one file, while the server runs.", _backup),
    CommandEntry("restore", "Bring a backup back into an empty folder; nothing is written before all of it was checked.", _restore),
    CommandEntry(
        "worker", "Run jobs, webhooks and periodic tasks without serving HTTP, beside servers on the same data; several may run.", _worker
    ),
    CommandEntry("migrate", "Bring the record store to this version's schema; `serve` does it by itself.", _migrate),
    CommandEntry("secrets", "Look after the key that seals secrets.", _secrets),
    CommandEntry("version", "Show the version, as `rookery --version` does; with --json that of Python too.", _version),
)
"""In the order in which `rookery --help` lists them."""

_COMMANDS_BY_NAME = {entry.name: entry for entry in COMMANDS}


class LazyGroup(TyperGroup):
    """The group of all commands, which lists them from the table and imports the one that runs."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - whatever Typer passes on
        super().__init__(**attributes)
        for entry in COMMANDS:
            self.add_command(TyperCommand(entry.name, help=entry.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer exports no name for these types
        """Return the name, the command, which is loaded now, and the arguments left."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, None if listed is None else load_command(listed.name or ""), rest


app = typer.Typer(
    name="rookery",
    cls=LazyGroup,
    help="The shared home of AI agents: tool servers behind one HTTP API, and a shared memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - a flag of the command line
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"rookery {version('rookery')}")
        raise typer.Exit


@app.callback()
def load_settings_callback(
    context: typer.Context,
    *,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.", show_default=False)] = None,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the settings before any command."""
    import structlog

    from rookery.kernel import logs

    overrides = {} if data_dir is None else {"data_dir": str(data_dir)}
    loaded = load_settings(os.environ, overrides=overrides)
    logs.configure_logging(loaded.settings.log_level, sys.stderr, log_format=loaded.settings.log_format)
    logs.log_uncaught_errors()
    for warning in loaded.warnings:
        structlog.stdlib.get_logger("rookery.cli").warning("settings", message=warning)
    context.obj = CommandContext(loaded.settings)


def add_commands(group: typer.Typer, *names: str) -> None:
    """Import the commands of these names, and add them to *group*."""
    for name in names:
        loaded = _COMMANDS_BY_NAME[name].load()
        if isinstance(loaded, typer.Typer):
            group.add_typer(loaded, name=name)
        else:
            group.command(name)(loaded)


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the command or the group of that name and return it."""
    alone = typer.Typer(add_completion=False)
    alone.callback()(_empty_callback)
    add_commands(alone, name)
    return _prepare(typer.main.get_group(alone).commands[name])


def split_group(arguments: Sequence[str], groups: Iterable[str] = _COLON_GROUPS) -> list[str]:
    """Return *arguments* with a command that is written as in the spec, `brain:reindex`, as `brain reindex`, for *groups* (D-04)."""
    changed = list(arguments)
    place = 0
    while place < len(changed) and changed[place].startswith("-"):
        place += 2 if changed[place] == "--data-dir" else 1
    group, colon, name = changed[place].partition(":") if place < len(changed) else ("", "", "")
    if colon and group in groups:
        changed[place : place + 1] = [group, name]
    return changed


def main() -> None:
    """Run the command line; an error is one line on standard error: exit code 2 for wrong usage, 1 for what failed."""
    garbage.expect_imports()
    command = _prepare(typer.main.get_command(app))
    try:
        code = command.main(split_group(sys.argv[1:]), prog_name="rookery", standalone_mode=False)
    except RookeryError as error:
        _fail(error.message, 2 if isinstance(error, ValidationFailed) else 1)
    except typer.TyperException as error:
        _fail(_usage_message(error), error.exit_code)
    except typer.Abort:
        _fail("Aborted.", 1)
    finally:
        garbage.expect_end()
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    """End the process; without a message the help has been shown instead."""
    if message:
        from rich.console import Console
        from rich.markup import escape

        Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _usage_message(error: typer.TyperException) -> str:
    """Return what was wrong with the arguments, in one line, with the command that explains them."""
    if isinstance(error, typer.BadParameter) and error.param is None and error.param_hint is None:
        return error.message  # by a command itself: it says what to do
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # pydantic's words, by which Typer reads values
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {context.command_path} --help"


def _prepare(command: object) -> TyperCommand | TyperGroup:
    """Return a command that Typer made, with our help of flags and our conversion of values."""
    if not isinstance(command, TyperCommand | TyperGroup):
        msg = f"a command is of the unknown class {type(command).__name__}"
        raise TypeError(msg)
    _hide_flag_types(command)
    convert_on_demand(command)
    return command


def _hide_flag_types(command: Any) -> None:  # noqa: ANN401 - Typer exports no name for its base class
    """Have the help of a command, and of those in its group, show no `<bool>` behind flags, which take no value."""
    options = [*command.params, command.get_help_option(typer.Context(command))]
    for option in options:
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    if isinstance(command, TyperGroup) and not isinstance(command, LazyGroup):
        for each in command.commands.values():
            _hide_flag_types(each)


def _empty_callback() -> None:
    """Make a group of a Typer that has one command."""
