"""
The command line.

The module of a command is imported when the command runs. A table holds the names and help texts, so that `rookery --help` is fast.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption

from rookery.cli.parameters import convert_on_demand
from rookery.domains import load_commands, load_events
from rookery.kernel import process_resources
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.terminal.entries import CommandEntry

if TYPE_CHECKING:
    from rookery.kernel.events import EventType
    from rookery.wiring import Rookery

__all__ = ["COMMANDS", "CommandContext", "add_commands", "app", "load_command", "main", "split_group"]

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
_COLON_GROUPS = ("brain",)
"""Groups whose commands are also written with a colon, such as `brain:reindex`."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The object that every command receives as `typer.Context.obj`: the settings, and functions that open services."""

    settings: Settings

    def open(self, *, create: bool = False) -> AbstractAsyncContextManager[Rookery]:
        """
        Migrate the store and open the whole platform for one command, without jobs and tool servers.

        Args:
            create: Create the store if it does not exist; otherwise that is an error.
        """
        from rookery.cli.platform import build_prepared
        from rookery.cli.store import require_data

        if not create:
            require_data(self.settings)
        return build_prepared(self.settings).open_for_command()

    def open_part(self, part: str, *, create: bool = False) -> AbstractAsyncContextManager[Any]:
        """Migrate the store and open only the services of one of `PARTS`, which starts faster."""
        from rookery.cli.store import require_data

        if not create:
            require_data(self.settings)
        return cast("AbstractAsyncContextManager[Any]", _load(PARTS[part])(self.settings))

    def list_event_types(self) -> Sequence[EventType]:
        """Return the types of webhook events that the domains declare."""
        return [event_type for event in load_events() for event_type in event.types]


PARTS = {
    "keys": "rookery.cli.parts:open_keys_for_changes",
    "keys-read-only": "rookery.cli.parts:open_keys_for_reading",
    "memory": "rookery.cli.parts:open_memory",
    "scoring": "rookery.cli.parts:open_scoring",
    "notifications": "rookery.cli.parts:open_notifications",
    "templates": "rookery.cli.parts:open_templates",
    "webhooks": "rookery.cli.parts:open_webhooks",
}
"""The functions that open a part of the platform for one command."""

_OWN_COMMANDS = (
    CommandEntry(
        "serve",
        "Start the server. The first start creates a workspace and two keys, and shows the keys once.",
        "rookery.cli.server:serve",
        0,
        "Start here",
    ),
    CommandEntry(
        "init",
        "Create the first workspace and its keys, as the first `serve` does. If they exist, nothing changes.",
        "rookery.cli.server:init",
        10,
        "Start here",
    ),
    CommandEntry(
        "doctor",
        "Check the installation and print advice for each problem. The exit code is 1 if there is a problem.",
        "rookery.cli.diagnosis:doctor",
        20,
        "Start here",
    ),
    CommandEntry(
        "connect",
        "Show the configuration that connects a client to this server, write it, check it or remove it.",
        "rookery.connect.commands:connect",
        30,
        "Start here",
    ),
    CommandEntry(
        "worker",
        "Run jobs, webhooks and periodic tasks without HTTP, beside servers on the same data. Several workers may run.",
        "rookery.cli.server:worker",
        200,
        "Operate",
    ),
    CommandEntry(
        "migrate",
        "Migrate the record store to the schema of this version. `serve` does this at its start.",
        "rookery.cli.store:migrate",
        210,
        "Operate",
    ),
    CommandEntry(
        "hook",
        "Send an event of a coding agent to the server, and print the answer. `rookery connect` writes the hooks that call it.",
        "rookery.cli.hook:hook",
        31,
        "Start here",
    ),
    CommandEntry("secrets", "Manage the key that encrypts confidential values.", "rookery.cli.secrets:app", 220, "Operate"),
    CommandEntry(
        "version",
        "Show the version, as `rookery --version` does. With --json, also show the version of Python.",
        "rookery.cli.version:version",
        230,
        "Operate",
    ),
    CommandEntry("backup", "Save everything in one file, while the server runs.", "rookery.backup.commands:backup", 180, "Operate"),
    CommandEntry(
        "restore",
        "Restore a backup into an empty folder. The whole backup is checked before anything is written.",
        "rookery.backup.commands:restore",
        190,
        "Operate",
    ),
    CommandEntry(
        "move-engine", "Move the records, the vectors or the full texts to another engine.", "rookery.cli.move_engine:app", 195, "Operate"
    ),
)

COMMANDS = sorted(
    (*_OWN_COMMANDS, *load_commands()),
    key=lambda entry: entry.position,
)
"""The commands in the order of `rookery --help`."""

_COMMANDS_BY_NAME = {entry.name: entry for entry in COMMANDS}


class LazyGroup(TyperGroup):
    """The group of all commands. It lists them from the table and imports only the one that runs."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - Typer's arguments, passed on unchanged
        super().__init__(**attributes)
        for entry in COMMANDS:
            self.add_command(TyperCommand(entry.name, help=entry.help, rich_help_panel=entry.section))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer exports no name for these types
        """Return the name, the command, which is imported here, and the remaining arguments."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, None if listed is None else load_command(listed.name or ""), rest


app = typer.Typer(
    name="rookery",
    cls=LazyGroup,
    help="The shared home of AI agents: tool servers behind one HTTP API, and a shared memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - a flag of the command line
    if is_requested:
        from importlib.metadata import version

        typer.echo(f"rookery {version('rookery')}")
        raise typer.Exit


@app.callback()
def load_settings_callback(
    context: typer.Context,
    *,
    data_dir: Annotated[Path | None, typer.Option(help="The folder that holds all data.", show_default=False)] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints the version
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Load the settings and configure logging before any command."""
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
    """Import the commands with these names and add them to *group*."""
    for name in names:
        entry = _COMMANDS_BY_NAME[name]
        loaded = _load(entry.target)
        if isinstance(loaded, typer.Typer):
            group.add_typer(loaded, name=name, help=entry.help)
        else:
            group.command(name, help=entry.help)(loaded)


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the command or group with this name and return it."""
    alone = typer.Typer(add_completion=False)
    alone.callback()(_empty_callback)
    add_commands(alone, name)
    return _prepare(typer.main.get_group(alone).commands[name])


def _load(target: str) -> Callable[..., object]:
    """Import a module and return its attribute, for `module:attribute`."""
    _import_structlog()
    module, _, attribute = target.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), attribute))


def _import_structlog() -> None:
    """
    Import structlog as if rich were not installed.

    It would import rich's tracebacks, which Rookery does not use. They take 50 to 70 ms of a command and of the start of a server.
    """
    if "rich" in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules["rich"] = None  # Python then raises ImportError for it
    try:
        importlib.import_module("structlog")
    finally:
        del modules["rich"]


def split_group(arguments: Sequence[str], groups: Iterable[str] = _COLON_GROUPS) -> list[str]:
    """Return *arguments* with `brain:reindex` as `brain reindex`, for each of *groups*."""
    changed = list(arguments)
    place = 0
    while place < len(changed) and changed[place].startswith("-"):
        place += 2 if changed[place] == "--data-dir" else 1
    group, colon, name = changed[place].partition(":") if place < len(changed) else ("", "", "")
    if colon and group in groups:
        changed[place : place + 1] = [group, name]
    return changed


def main() -> None:
    """
    Run the command line. An error prints one line on standard error; the exit code is 2 for wrong usage and 1 for failures.

    Without arguments, it shows the help and the code is 1. Some coding agents drop the arguments of a hook, and stop for a code of 2.
    """
    process_resources.expect_imports()
    command = _prepare(typer.main.get_command(app))
    try:
        code = command.main(split_group(sys.argv[1:]), prog_name="rookery", standalone_mode=False)
        _flush_output()
    except RookeryError as error:
        _fail(error.message, 2 if isinstance(error, ValidationFailed) else 1)
    except typer.TyperException as error:
        _fail(_usage_message(error), error.exit_code if sys.argv[1:] else 1)
    except typer.Abort:
        _fail("Aborted.", 1)
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _FULL_DISK:
            raise
        _drop_output()
        _fail(f"{error.filename or 'The output'} cannot be written: {error.strerror}. Free some space, and run the command again.", 1)
    finally:
        process_resources.expect_end()
    sys.exit(code if isinstance(code, int) else 0)


def _flush_output() -> None:
    """Write what is buffered, so that a failure is seen here. A process whose standard output is closed has none."""
    output = cast("TextIO | None", sys.stdout)
    if output is not None:
        output.flush()


def _drop_output() -> None:
    """Drop what could not be written, so that Python does not try it again at its end and print a traceback."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _fail(message: str, code: int) -> NoReturn:
    """Print the message and exit. Without a message, the help has been printed already."""
    if message:
        from rich.console import Console
        from rich.markup import escape

        Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _usage_message(error: typer.TyperException) -> str:
    """Return the error of the arguments in one line, with the command that shows the help."""
    if isinstance(error, typer.BadParameter) and error.param is None and error.param_hint is None:
        return error.message  # raised by a command itself, with its own advice
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # the prefix is pydantic's
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    if getattr(error, "option_name", None) == "--data-dir":
        return f"--data-dir stands before the command: rookery --data-dir FOLDER {context.command_path.partition(' ')[2]}"
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {context.command_path} --help"


def _prepare(command: object) -> TyperCommand | TyperGroup:
    """Return a command made by Typer, with the changes of this module to flags and conversion."""
    if not isinstance(command, TyperCommand | TyperGroup):
        msg = f"unknown class of command: {type(command).__name__}"
        raise TypeError(msg)
    _hide_flag_types(command)
    convert_on_demand(command)
    return command


def _hide_flag_types(command: Any) -> None:  # noqa: ANN401 - Typer exports no name for its base class
    """Remove `<bool>` from the help of flags, which take no value, in a command and the commands of its group."""
    options = [*command.params, command.get_help_option(typer.Context(command))]
    for option in options:
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    if isinstance(command, TyperGroup) and not isinstance(command, LazyGroup):
        for subcommand in command.commands.values():
            _hide_flag_types(subcommand)


def _empty_callback() -> None:
    """Turn a Typer with one command into a group."""
