"""
Write the tables of docs/reference that follow from declarations: `make reference`.

`--check` writes nothing, and fails if a page would change.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import EnumType
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

import rookery
from rookery.access.api.audit import ALL_CHAINS_SCOPE
from rookery.access.scopes import PRESETS, SCOPES
from rookery.app import build_route_table
from rookery.cli import COMMANDS, load_command
from rookery.domains import load_events
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError, WrongSettings
from rookery.kernel.events import EventCatalogue
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.secret import Secret
from rookery.memory.access_filter import ADMIN_SCOPE
from rookery.migrations.errors import MigrationFailed
from rookery.tools.entry_fields import EntryField, list_entry_fields
from rookery.tools.models import FAILURES, OAuthConfig, Root, Roots, ToolRules
from rookery.tools.servers.entries import FIELDS
from rookery.wiring import Rookery, build_platform

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"

Row: TypeAlias = Sequence[str]
_EMPHASIS = re.compile(r"\*(\w+)\*")


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table of a page. Its first cell is that of no other table of the page."""

    page: str
    head: Row
    list_rows: Callable[[Rookery, Sequence[RouteEndpoint]], Iterable[Row]]


def list_commands() -> Iterator[tuple[str, TyperCommand]]:
    """Yield every command with its words and arguments."""
    for entry in COMMANDS:
        yield from _walk(["rookery", entry.name], load_command(entry.name))


def _walk(names: list[str], command: object) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _walk([*names, name], inner)
    elif isinstance(command, TyperCommand):
        arguments = [str(parameter.name).upper() for parameter in command.params if parameter.param_type_name == "argument"]
        yield " ".join([*names, *arguments]), command


def list_options(command: TyperCommand) -> list[str]:
    """Return the names of all options of a command, with those that switch one off."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    return [name for option in options for name in (*option.opts, *option.secondary_opts)]


def _list_settings(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for setting in dataclasses.fields(Settings):
        yield f"`ROOKERY_{setting.name.upper()}`", _format_default(setting), setting.metadata["description"]


def _format_default(setting: dataclasses.Field[object]) -> str:
    value = setting.default
    if setting.name == "data_dir":
        return "the platform's user data folder"
    if value is None or value == ():
        return "none"
    text = value.reveal() if isinstance(value, Secret) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def _list_commands(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for name, command in list_commands():
        yield f"`{name}`", _list_code(list_options(command)), " ".join((command.help or "").split("\n\n")[0].split())


def _list_scopes(_: Rookery, endpoints: Sequence[RouteEndpoint]) -> Iterator[Row]:
    required = {endpoint.route.required_scope for endpoint in endpoints} | {ADMIN_SCOPE, ALL_CHAINS_SCOPE}
    for name, description in SCOPES.items():
        yield f"`{name}`", description, "yes" if name in required else "no"


def _list_presets(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for name, scopes in PRESETS.items():
        yield f"`{name}`", _list_code(scopes)


def _list_routes(_: Rookery, endpoints: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for endpoint in endpoints:
        route = endpoint.route
        key = "none; no key either" if route.public else f"`{route.required_scope}`" if route.required_scope else "any key"
        yield f"`{route.method} {endpoint.path}`", key, str(route.status), route.summary


def _list_metrics(platform: Rookery, _: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for metric in sorted(platform.observability.metrics.list_descriptions(), key=lambda metric: metric.name):
        yield f"`{metric.name}`", metric.kind, _list_code(metric.labels), metric.help_text


def _list_events(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for event in load_events():
        if not event.__subclasses__():
            text = (inspect.getdoc(event) or "").partition("Attributes:")[0]
            yield (
                f"`{event.__name__}`",
                _list_code(field.name for field in dataclasses.fields(cast("Any", event))),
                _EMPHASIS.sub(r"`\1`", " ".join(text.split())),
            )


def _list_webhook_events(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    for event in EventCatalogue(load_events()).types:
        yield f"`{event.name}`", event.description, event.data + (f": `GET {event.resource}`" if event.resource else "")


def _list_errors(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    """Yield each code with the texts of the classes that declare it, by status."""
    for module in pkgutil.walk_packages(rookery.__path__, "rookery."):
        if not module.name.endswith(("__main__", ".env", ".process_guard")):
            importlib.import_module(module.name)
    declarations = [("internal_error", "500", "An error in Rookery. The log has it under the same request id.", "`request_id`")]
    declarations += [(code, "500", meaning, "see [tool calls](#tool-calls)") for code, meaning in FAILURES.items()]
    for error in _iter_subclasses(RookeryError):
        if "code" in vars(error) and error.__module__.startswith("rookery."):  # tests define errors too
            status = "none" if issubclass(error, WrongSettings | MigrationFailed) else str(error.status)
            summary = re.split(r"\n(?:Attributes|Args):", inspect.getdoc(error) or "")[0]
            declarations.append((error.code, status, " ".join(summary.split()), error.fields))
    for code, status in sorted({(code, status) for code, status, *_ in declarations}, key=lambda declared: (declared[1], declared[0])):
        meanings = dict.fromkeys(meaning for declared, _, meaning, _ in declarations if declared == code)
        fields = dict.fromkeys(fields for declared, _, _, fields in declarations if declared == code and fields)
        yield f"`{code}`", status, " ".join(meanings), "; ".join(fields)


def _iter_subclasses(base: type[RookeryError]) -> Iterator[type[RookeryError]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _iter_subclasses(subclass)


def _list_entry_fields(_: Rookery, __: Sequence[RouteEndpoint]) -> Iterator[Row]:
    rules = {f"tools.{name}": field for name, field in list_entry_fields(ToolRules).items()}
    for name, field in ({name: field for name, field in FIELDS.items() if name != "tools"} | rules).items():
        yield f"`{name}`", _describe_values(field), _describe_default(field), field.description


def _describe_values(field: EntryField) -> str:
    """Return the values that a field of a server entry accepts."""
    choices = get_args(field.type) if get_origin(field.type) is Literal else field.type if isinstance(field.type, EnumType) else None
    if choices is not None:
        return ", ".join(f"`{choice}`" for choice in choices)
    numbers = "" if field.minimum is None else f"{field.minimum:,} to {field.maximum:,}"
    texts: dict[object, str] = {
        str: "text",
        bool: "`true`, `false`",
        int: numbers,
        float: numbers,
        datetime: "a date or time",
        tuple[str, ...]: "list of texts",
        frozenset[int]: "list of workspace ids",
        Mapping[str, str]: "object of texts",
        Mapping[str, float]: f"object of patterns with seconds, {numbers}",
        OAuthConfig: f"`oauth`, or an object with {', '.join(f'`{name}`' for name in list_entry_fields(OAuthConfig))}",
        Roots: "`caller`, or a list of file URIs or of objects with " + ", ".join(f"`{name}`" for name in list_entry_fields(Root)),
    }
    return texts[field.type] + (", or null" if field.keeps_null else "")


def _describe_default(field: EntryField) -> str:
    if field.default in (None, "", (), {}):
        return ""
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{str(field.default).lower()}`"


def _list_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


TABLES = (
    Table("settings.md", ("Variable", "Default", "What it is"), _list_settings),
    Table("commands.md", ("Command", "Options", "What it does"), _list_commands),
    Table("scopes.md", ("Scope", "Allows", "In use"), _list_scopes),
    Table("scopes.md", ("Preset", "Permissions"), _list_presets),
    Table("routes.md", ("Method and path", "Scope", "Status", "What it does"), _list_routes),
    Table("metrics.md", ("Metric", "Kind", "Labels", "What it measures"), _list_metrics),
    Table("servers-json.md", ("Field", "Values", "Default", "What it does"), _list_entry_fields),
    Table("errors.md", ("Code", "Status", "When", "Further fields"), _list_errors),
    Table("webhook-events.md", ("Event of a webhook", "When", "What `data` is"), _list_webhook_events),
    Table("events.md", ("Event", "Fields", "What happened"), _list_events),
)


def write_pages() -> Mapping[Path, str]:
    """Return the text of each page with its tables as the declarations have them."""
    with tempfile.TemporaryDirectory() as folder:
        platform = build_platform(Settings(data_dir=Path(folder)))
        endpoints = build_route_table(platform).endpoints
        pages = dict[Path, str]()
        for table in TABLES:
            path = REFERENCE / table.page
            text = pages.get(path) or path.read_text(encoding="utf-8")
            pages[path] = _replace_table(text, table.head, table.list_rows(platform, endpoints))
        return pages


def _replace_table(page: str, head: Row, rows: Iterable[Row]) -> str:
    """
    Return *page* with the rows of the table whose first cell is that of *head*.

    Raises:
        LookupError: The page has no such table.
    """
    match = re.search(rf"^\| {re.escape(head[0])} \|.*\n(?:\|.*\n)+", page, re.MULTILINE)
    if match is None:
        msg = f"no page has a table that begins with {head[0]!r}"
        raise LookupError(msg)
    lines = [head, *rows]
    table = [f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines]
    return page[: match.start()] + "".join([table[0], f"|{'---|' * len(head)}\n", *table[1:]]) + page[match.end() :]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make reference", description="Write the tables of docs/reference.")
    parser.add_argument("--check", action="store_true", help="Write nothing; fail if a page would change.")
    is_check = parser.parse_args().check
    changed = {path: text for path, text in write_pages().items() if text != path.read_text(encoding="utf-8")}
    for path, text in changed.items():
        print(path.relative_to(REFERENCE.parent.parent))
        if not is_check:
            path.write_text(text, encoding="utf-8")
    if changed and is_check:
        sys.exit("These pages differ from the declarations: make reference")


if __name__ == "__main__":
    main()
