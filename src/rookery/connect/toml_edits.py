"""Edits of Codex's file: the table of a server is added, changed or removed, and everything else keeps every byte. No I/O."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from rookery.connect.errors import UneditableText

_SECTION = "mcp_servers"
_LONE_NEWLINE = re.compile(r"(?<!\r)\n")
_BLANK_OR_COMMENT = re.compile(r"[ \t]*(#.*)?\r?\n?")

TomlTable = dict[str, object]


class UneditableToml(UneditableText):
    """The text is not TOML, or it cannot take this edit. The message states the reason, and the line and the column of a syntax error."""


def parse_toml(text: str) -> TomlTable:
    """
    Return the content of *text*.

    Raises:
        UneditableToml: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UneditableToml(str(error)) from error
    except RecursionError as error:
        raise UneditableToml("it is nested too deeply") from error


def get_tables(document: Mapping[str, object], section: str = _SECTION) -> dict[str, TomlTable]:
    """Return the tables of *section* by name; empty if there is no such section."""
    tables = document.get(section)
    named_tables = cast("dict[str, object]", tables).items() if isinstance(tables, dict) else ()
    return {name: cast("TomlTable", table) for name, table in named_tables if isinstance(table, dict)}


def set_server(text: str, name: str, fields: Mapping[str, str], *, dropped: Collection[str] = ()) -> str:
    """
    Return *text* with *fields* in the table of the server *name*, at the end of the file if it is new. Other fields of the table stay.

    Args:
        dropped: Fields that the table must not have.

    Raises:
        UneditableToml: The text is not TOML, or the table cannot be written in its place.
    """
    before = parse_toml(text)
    table = get_tables(before).get(name)
    fields_before = {key: value for key, value in (table or {}).items() if key not in dropped}
    expected = {**before, _SECTION: {**_get_section(before), name: {**fields_before, **fields}}}
    if before == expected:
        return text
    if table is None:
        newline = "\r\n" if "\r\n" in text else "\n"
        lines = [
            f"[{_SECTION}.{tomlkit.key(name).as_string()}]",
            *(f"{key} = {tomlkit.item(value).as_string()}" for key, value in fields.items()),
        ]
        separator = "" if not text else newline if text.endswith("\n") else newline * 2
        return _require(text + separator + "".join(line + newline for line in lines), expected)

    def change(document: tomlkit.TOMLDocument) -> None:
        server = cast("dict[str, dict[str, dict[str, str]]]", document)[_SECTION][name]
        for key in dropped:
            server.pop(key, None)
        server.update(fields)

    return _require(_edit(text, change), expected)


def remove_server(text: str, name: str) -> str:
    """
    Return *text* without the table of the server *name*. The section goes with its last table.

    Raises:
        UneditableToml: The text is not TOML, has no such table, or the table cannot be cut out.
    """
    before = parse_toml(text)
    servers = _get_section(before)
    if name not in servers:
        raise UneditableToml(f"it has no table {_SECTION}.{name}")
    rest = {other: table for other, table in servers.items() if other != name}
    expected = {**before, _SECTION: rest} if rest else {key: value for key, value in before.items() if key != _SECTION}

    def change(document: tomlkit.TOMLDocument) -> None:
        tables = cast("dict[str, dict[str, object]]", document)
        del tables[_SECTION][name]
        if not rest:
            del tables[_SECTION]

    cut = next((cut for cut in _iter_cuts(text, name) if _has_content(cut, expected)), None)
    return _require(_edit(text, change), expected) if cut is None else cut


def _get_section(document: TomlTable) -> TomlTable:
    section = document.get(_SECTION, {})
    if not isinstance(section, dict):
        raise UneditableToml(f'its "{_SECTION}" is not a table')
    return cast("TomlTable", section)


def _iter_cuts(text: str, name: str) -> Iterator[str]:
    """
    Yield *text* without the lines of the table of *name* and one blank line before it, for each line that looks like its header.

    Blank lines and comments after its last field stay: they belong to what follows. A line of a multi-line string may look like a header,
    so the caller compares the content.
    """
    header = re.compile(rf"[ \t]*\[{_SECTION}\.{re.escape(tomlkit.key(name).as_string())}\][ \t]*(#.*)?")
    lines = text.splitlines(keepends=True)
    for start in (number for number, line in enumerate(lines) if header.fullmatch(line.rstrip("\r\n"))):
        end = next((number for number, line in enumerate(lines) if number > start and line.lstrip().startswith("[")), len(lines))
        while _BLANK_OR_COMMENT.fullmatch(lines[end - 1]):
            end -= 1
        first = start - 1 if start and not lines[start - 1].strip() else start
        yield "".join(lines[:first] + lines[end:])


def _has_content(text: str, expected: TomlTable) -> bool:
    try:
        return tomllib.loads(text) == expected
    except tomllib.TOMLDecodeError:
        return False


def _edit(text: str, change: Callable[[tomlkit.TOMLDocument], None]) -> str:
    """Return *text* after *change*. New lines end as the others do."""
    try:
        document = tomlkit.parse(text)
        is_kept = document.as_string() == text  # it moves arrays of tables that are not together
        change(document)
        edited = document.as_string()
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UneditableToml(f"this notation cannot be edited ({error})") from error
    if not is_kept:
        raise UneditableToml("this notation cannot be edited without moving other lines")
    is_crlf = "\r\n" in text and not _LONE_NEWLINE.search(text)
    return _LONE_NEWLINE.sub("\r\n", edited) if is_crlf else edited


def _require(text: str, expected: TomlTable) -> str:
    """Return *text* if it has exactly the *expected* content; some notations cannot be edited in place."""
    if not _has_content(text, expected):
        raise UneditableToml("this notation cannot be edited without a change of something else")
    return text
