"""
Write the tables of docs/reference that follow from declarations: `make reference`.

`--check` writes nothing, and fails if a page would change.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from typer.core import TyperCommand, TyperGroup

from rookery.access.api.audit import ALL_CHAINS_SCOPE
from rookery.access.scopes import PRESETS, SCOPES
from rookery.app import build_route_table
from rookery.cli import COMMANDS, load_command
from rookery.domains import load_events
from rookery.kernel.config import Settings
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.secret import Secret
from rookery.memory.access_filter import ADMIN_SCOPE
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


def _list_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


TABLES = (
    Table("settings.md", ("Variable", "Default", "What it is"), _list_settings),
    Table("commands.md", ("Command", "Options", "What it does"), _list_commands),
    Table("scopes.md", ("Scope", "Allows", "In use"), _list_scopes),
    Table("scopes.md", ("Preset", "Permissions"), _list_presets),
    Table("routes.md", ("Method and path", "Scope", "Status", "What it does"), _list_routes),
    Table("metrics.md", ("Metric", "Kind", "Labels", "What it measures"), _list_metrics),
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
    table = [f"| {' | '.join(line)} |\n" for line in lines]
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
