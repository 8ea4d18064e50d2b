"""Reading of a file line by line with bounded memory, and the progress of reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a line; more than any memory has. Longer lines are skipped without loading them into memory."""


BOM = b"\xef\xbb\xbf"
"""The byte order mark, which some editors write at the start of a file."""


@dataclass(slots=True)
class ReadProgress:
    """The number of lines, entries or files read, and their total, 0 if unknown."""

    done: int = 0
    total: int = 0


def iter_lines(stream: BinaryIO, progress: ReadProgress, *, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Yield the non-empty lines with their numbers, which begin after *start*. A line that is too long is yielded as None."""
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
