"""Lines of a file, one at a time, whatever their length, and how far a reading came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Bytes; more than any memory has, so that a file of one endless line is not read into memory."""


BOM = b"\xef\xbb\xbf"
"""What some editors begin a file with; it says nothing."""


@dataclass(slots=True)
class ReadProgress:
    """How many of how many lines, entries or files were read; a total of 0 is not known."""

    done: int = 0
    total: int = 0


def iter_lines(stream: BinaryIO, progress: ReadProgress, *, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Return the lines that have something in them, after *start* others, each with its number; None: one that is too long."""
    number = start
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        line = line.removeprefix(BOM) if number == 1 else line
        progress.done = number
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        elif line.strip():
            yield number, line


def truncate(text: str, max_chars: int) -> str:
    """Return at most *max_chars* characters of *text*."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
