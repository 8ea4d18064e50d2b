"""What operators write, read: times, days, names, allow-lists, files. What cannot be meant is a usage error (exit code 2)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, BinaryIO, NoReturn, TextIO

import typer

from rookery.access.key_fields import UNSET, KeyChanges, Unset
from rookery.access.models import KeyRestrictions
from rookery.access.scopes import PRESETS
from rookery.kernel.clock import parse_iso, utc_now
from rookery.kernel.errors import RookeryError

_DAYS_PATTERN = re.compile(r"([1-9]\d{0,4})d")

ExpiresOption = Annotated[
    str | None, typer.Option("--expires-at", help="When it expires: a time such as 2027-01-31, or 90d.", show_default=False)
]
NeverOption = Annotated[bool, typer.Option("--never", help="Remove the expiry.")]
PresetOption = Annotated[str | None, typer.Option(help=f"What goes together: {', '.join(PRESETS)}.", show_default=False)]
ServersOption = Annotated[list[str] | None, typer.Option("--server", help="Only these tool servers; may be repeated.", show_default=False)]
ToolsOption = Annotated[
    list[str] | None, typer.Option("--tool", help="Only tools that match these server/tool patterns.", show_default=False)
]
OrgsOption = Annotated[list[str] | None, typer.Option("--org", help="Only memories of these orgs.", show_default=False)]
ProjectsOption = Annotated[list[str] | None, typer.Option("--project", help="Only memories of these projects.", show_default=False)]
ToolLimitsOption = Annotated[
    list[str] | None, typer.Option("--tool-limit", help="Calls a minute by pattern: 'web/*=10'.", show_default=False)
]
AllServersOption = Annotated[bool, typer.Option("--all-servers", help="Remove the restriction to tool servers.")]
AllToolsOption = Annotated[bool, typer.Option("--all-tools", help="Remove the restriction to tools.")]
AllOrgsOption = Annotated[bool, typer.Option("--all-orgs", help="Remove the restriction to orgs.")]
AllProjectsOption = Annotated[bool, typer.Option("--all-projects", help="Remove the restriction to projects.")]
NoToolLimitsOption = Annotated[bool, typer.Option("--no-tool-limits", help="Remove the limits on tools.")]
OutputOption = Annotated[
    Path | None, typer.Option(help="Write into this new file (mode 0600) instead of showing; - is standard output.", show_default=False)
]


def raise_usage_error(message: str) -> NoReturn:
    """End the command with exit code 2."""
    raise typer.BadParameter(message)


def parse_expiry(text: str | None) -> datetime | None:
    """Read a time, or a number of days from now."""
    return None if text is None else _parse_time(text, in_future=True)


def parse_new_expiry(text: str | None, *, never: bool) -> datetime | Unset | None:
    """Read what an expiry is to be changed to; neither a time nor *never*: it stays."""
    if text is not None and never:
        raise_usage_error("Say either --expires-at or --never.")
    return None if never else UNSET if text is None else parse_expiry(text)


def parse_time(text: str | None) -> datetime | None:
    """Read a time, or a number of days before now."""
    return None if text is None else _parse_time(text, in_future=False)


def parse_day(text: str | None) -> date | None:
    """Read a day of UTC: a date, or a number of days before today."""
    moment = parse_time(text)
    return None if moment is None else moment.date()


def split_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return names given one by one or with commas between."""
    return tuple(name.strip() for part in given or () for name in part.split(",") if name.strip())


def parse_grants(preset: str | None, given: Sequence[str] | None, *, option: str) -> tuple[str, ...]:
    """Return what a preset and an *option* grant together, which must be something."""
    if preset is not None and preset not in PRESETS:
        raise_usage_error(f"There is no preset {preset!r}; there are {', '.join(PRESETS)}.")
    wanted = (*(PRESETS[preset] if preset else ()), *split_names(given))
    if not wanted:
        raise_usage_error(f"Name a --preset, or what to grant with {option}.")
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowListOptions:
    """Allow-lists as options give them; None: not given. An empty one, given as '', allows nothing."""

    servers: Sequence[str] | None
    tools: Sequence[str] | None
    orgs: Sequence[str] | None
    projects: Sequence[str] | None
    limits: Sequence[str] | None

    def to_restrictions(self) -> KeyRestrictions:
        """Read them for a new key: what is not given is not restricted."""
        return KeyRestrictions(
            servers=frozenset(split_names(self.servers)) if self.servers else None,
            tools=split_names(self.tools) if self.tools else None,
            orgs=_parse_full_names(self.orgs) if self.orgs else None,
            projects=_parse_full_names(self.projects) if self.projects else None,
            tool_limits=_parse_tool_limits(self.limits),
        )

    def to_changes(self, base: KeyChanges, *, removed: Mapping[str, bool]) -> KeyChanges:
        """
        Read them for a key that is there: beside what *base* changes. What is not given stays.

        Args:
            removed: By the name of our field, whether that restriction is to be removed.
        """
        given = {"servers": self.servers, "tools": self.tools, "orgs": self.orgs, "projects": self.projects, "limits": self.limits}
        for name, gone in removed.items():
            if gone and given[name]:
                raise_usage_error(f"Say either which {name} it is to have, or that nothing restricts them.")
        new = self.to_restrictions()
        named = {name for name, value in given.items() if value} | {name for name, gone in removed.items() if gone}
        changes = replace(
            base,
            servers=new.servers if "servers" in named else UNSET,
            tools=new.tools if "tools" in named else UNSET,
            orgs=new.orgs if "orgs" in named else UNSET,
            projects=new.projects if "projects" in named else UNSET,
            tool_limits=new.tool_limits if "limits" in named else UNSET,
        )
        if changes == KeyChanges():
            raise_usage_error("Say what to change.")
        return changes


@contextmanager
def open_new_file(path: Path | None, *, keep_partial: bool = False) -> Generator[TextIO | None]:
    """
    Make a file that was not there, for our eyes alone, or lend the standard output for `-`; None for None.

    Args:
        path: Where; a file that is there is never written over.
        keep_partial: Whether what was written stays when something fails then; an empty file never does. Without it half a
            file could be taken for a whole one.
    """
    if path is None or str(path) == "-":
        yield None if path is None else sys.stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise_usage_error(f"Cannot make {path}: {error.strerror}")
    is_whole = False
    try:
        # As it is written: a CSV has line ends of its own.
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        is_whole = True
    except OSError as error:
        raise RookeryError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if not is_whole and not (keep_partial and path.stat().st_size):
            path.unlink(missing_ok=True)


@contextmanager
def open_existing_file(path: Path) -> Generator[BinaryIO]:
    """Open a file to read, or lend the standard input for `-`."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise_usage_error(f"Cannot read {path}: {error.strerror}")
    with file:
        yield file


def read_text_file(path: Path) -> str:
    """Return the text of a file, or of the standard input for `-`."""
    with open_existing_file(path) as file:
        try:
            return file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise_usage_error(f"Cannot read {path}: {error}")


def _parse_time(text: str, *, in_future: bool) -> datetime:
    days = _DAYS_PATTERN.fullmatch(text)
    try:
        if days is not None:
            distance = timedelta(days=int(days[1]))
            return utc_now() + distance if in_future else utc_now() - distance
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise_usage_error(f"{text!r} is neither an ISO 8601 time nor a number of days such as 90d.")


def _parse_full_names(given: Sequence[str]) -> frozenset[str]:
    """Return names that may have commas in them; an empty one is none."""
    return frozenset(name for name in given if name)


def _parse_tool_limits(given: Sequence[str] | None) -> dict[str, int]:
    by_glob: dict[str, int] = {}
    for each in given or ():
        glob, _, number = each.rpartition("=")
        if not glob or not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise_usage_error(f"{each!r} is not of the form 'server/tool=calls a minute'.")
        by_glob[glob] = int(number)
    return by_glob
