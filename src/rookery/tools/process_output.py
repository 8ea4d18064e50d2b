"""Output of a server's process besides its protocol messages: the lines that are shown, and the one that names the error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_EXCEPTION = re.compile(
    r"(?:Uncaught |Unhandled exception\. |Exception in thread \".*?\" )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?(?::|$)"
    r"|thread '.*?' (?:\(\d+\) )?panicked at"
)
"""Pattern of the line that names an uncaught exception in Python, JavaScript, Java and .NET, or a panic in Rust."""
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) (?!code|errno|syscall|path|A complete log)\S")
_LABELLED = re.compile(
    r"(?i:(?:[\w./@-]+: )?(?:error|fatal|panic|critical)(?:\[\w+\])?:)|(?:\S+ ){0,3}\[?(?:ERROR|FATAL|CRITICAL)\b"
    r"|(?i:(?:\S+ ){0,3}(?:level=\"?(?:error|fatal)\b|\[(?:error|fatal|critical)\s*\]))|[EF]\d{4} \d\d:\d\d:\d\d"
    r"|\{.*\"(?:level|severity)\"\s*:\s*(?:(?i:\"(?:error|fatal|critical)\")|[56]0\b)|❌|✖"
)
"""Pattern of a line that a program labels as an error, such as "fatal: not a git repository" and "server: error: no key"."""
_ERROR_WORD = re.compile(r"Error|Exception|\berror\b|\bfatal\b", re.IGNORECASE)
_REASON_WORD = re.compile(
    r"\b(?:missing|required|must|cannot|can't|could not|unable|failed|not (?:set|found|provided|a)|no such|invalid)\b", re.IGNORECASE
)
_STACK_LINE = re.compile(r"at |throw |npm (?:error|ERR!) A complete log")
"""Pattern of lines that mention an error without naming it."""
_CAUSE = re.compile(r"(?:\[cause\]|Caused by): (.+?)(?: \{)?$")
"""Pattern of the line with which Node.js and Java name the cause of an error."""
_MAX_STACK_LINES = 15
"""Lines after an error in which its cause is looked for."""
_USAGE_LINE = re.compile(r"-{1,2}\w|(?i:usage\b|options?:|examples?:|flags:)|[A-Z][A-Z0-9_]+=")
"""Pattern of lines that describe how to call a program. Their words are not about this run."""
_FOLLOWING_LINES = 2
"""Lines after an error that may say what to do about it."""

_MAX_LAST_LINES = 40
"""Last lines that are kept. Once the start has succeeded, the error is looked for in these."""


@dataclass(slots=True, eq=False)
class ErrorLine:
    """
    A line that may name the error.

    Attributes:
        position: Its number among all lines, from 0.
        cause: The cause that a later line names.
        following: The two lines after it.
    """

    position: int
    text: str
    cause: str = ""
    following: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return f"{self.text} ({self.cause})" if self.cause and self.cause not in self.text else self.text


class ErrorLineSearch:
    """
    A search for the line that names the error of a program. It keeps one line of each kind, so any number of lines may be added.

    The last line seldom names the error: Node.js ends an uncaught exception with its version, npm with the path of a log, and many programs
    with a description of their options.
    """

    def __init__(self) -> None:
        self._count = 0
        self._best: dict[int, ErrorLine] = {}
        """The line of each kind. The lowest kind names the error best."""

    def add(self, line: str) -> None:
        """Add the next line."""
        position, text = self._count, line.strip()
        self._count += 1
        cause = _CAUSE.match(text)
        for candidate in set(self._best.values()):
            distance = position - candidate.position
            if distance <= _FOLLOWING_LINES:
                candidate.following.append(text)
            if cause is not None and not candidate.cause and distance < _MAX_STACK_LINES:
                candidate.cause = cause[1]
        if not text:
            return
        error_line = ErrorLine(position, text)
        for kind in _list_kinds(text):
            if kind > 0 or kind not in self._best:  # npm names the error first, all others last
                self._best[kind] = error_line

    def find(self) -> ErrorLine | None:
        """Return the line that names the error, or else the last one; None without lines."""
        return self._best[min(self._best)] if self._best else None


def find_error_line(lines: Iterable[str]) -> str:
    """Return the line of *lines* that names the error of a program with its cause, or else the last one; empty without lines."""
    search = ErrorLineSearch()
    for line in lines:
        search.add(line)
    return str(search.find() or "")


def _list_kinds(text: str) -> Iterator[int]:
    if _NPM_ERROR.match(text):
        yield 0
    if _EXCEPTION.match(text):
        yield 1
    if not any(pattern.match(text) for pattern in (_USAGE_LINE, _STACK_LINE, _CAUSE)):
        if _LABELLED.match(text):
            yield 2
        if _ERROR_WORD.search(text):
            yield 3
        if _REASON_WORD.search(text):
            yield 4
        yield 5
    yield 6


SHOWN_FIRST_LINES, SHOWN_LAST_LINES = 3, 6
"""Lines that are shown to explain a failure. Many programs name the error first and explain their options after it."""


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
