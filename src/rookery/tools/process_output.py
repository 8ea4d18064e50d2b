"""Output of a server's process besides its protocol messages: the lines that are shown, and the one that names the error."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rookery.tools.error_lines import ErrorLine, ErrorLineSearch, find_error_line

SHOWN_FIRST_LINES, SHOWN_LAST_LINES = 3, 6
"""Lines that are shown to explain a failure. Many programs name the error first and explain their options after it."""
_MAX_LAST_LINES = 40
"""Last lines that are kept. Once the start has succeeded, the error is looked for in these."""


class ProcessOutput:
    """
    The lines that a process wrote to standard error, and those on standard output that are no protocol messages.

    Iterating returns the lines to show: the first and the last ones, and between them the one that names the error of a start. It is
    looked for in all lines of the start, of which only a few are kept.
    """

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_MAX_LAST_LINES)
        self._count = 0
        self._search: ErrorLineSearch | None = ErrorLineSearch()

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the lines to show. Lines between that count those left out are among them."""
        end = self._count - SHOWN_LAST_LINES
        if end <= SHOWN_FIRST_LINES:
            return iter(self._last)
        lines, position = [*self._first], SHOWN_FIRST_LINES
        error_line = self._find_in_start()
        if error_line is not None and position <= error_line.position < end and error_line.text not in self._first:
            excerpt = [error_line.text, *error_line.following][: end - error_line.position]
            lines += [*_count_lines(error_line.position - position), *excerpt]
            position = error_line.position + len(excerpt)
        return iter([*lines, *_count_lines(end - position), *list(self._last)[-SHOWN_LAST_LINES:]])

    def append(self, line: str) -> None:
        """Add a line."""
        self._count += 1
        if len(self._first) < SHOWN_FIRST_LINES:
            self._first.append(line)
        self._last.append(line)
        if self._search is not None:
            self._search.add(line)

    def clear(self) -> None:
        """Forget all lines. A new start begins."""
        self._first.clear()
        self._last.clear()
        self._count = 0
        self._search = ErrorLineSearch()

    def mark_started(self) -> None:
        """Look for errors in the last lines only from now on. Those of a start that succeeded do not explain a later failure."""
        self._search = None

    def find_error_line(self) -> str:
        """Return the line that names the error; see `find_error_line`."""
        if self._search is None:
            return find_error_line(self._last)
        return str(self._search.find() or "")

    def _find_in_start(self) -> ErrorLine | None:
        return None if self._search is None else self._search.find()


def describe_start_timeout(limit_s: float, output: ProcessOutput) -> str:
    """Return the message for a server that did not answer within *limit_s* of its start, with what it wrote meanwhile."""
    line = output.find_error_line()
    message = f"The server did not answer within {limit_s:g} s of its start (`start_timeout_s` in its entry)"
    return f"{message}; it wrote: {line}" if line else f"{message}."


def describe_start(elapsed_s: float, output: ProcessOutput, *, is_process: bool) -> str:
    """Return the note on a server that has not answered yet, *elapsed_s* after its start, with what it wrote meanwhile."""
    line = output.find_error_line()
    message = f"It has been {'starting' if is_process else 'connecting'} for {elapsed_s:.0f} s and has not answered yet"
    return f"{message}; it wrote: {line}" if line else f"{message}."


def _count_lines(count: int) -> list[str]:
    return [f"… {count} lines …"] if count > 0 else []
