"""Background work of a server, observed from outside for `benchmarks.pauses`: child processes, mapped files, caches."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

from rookery.kernel.sqlite import connect

_MAX_DISTANCE_S = 0.3
_MAX_EVENTS = 1000
"""Documents that the cache of words may lack for it to count as caught up: it is brought up to date in lots of 250."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event with its time by the monotonic clock."""

    at_s: float
    what: str


@dataclass(slots=True)
class ServerObserver:
    """
    The events of a server so far, and its current state.

    Attributes:
        events: In order; a lasting one has "began" and "ended".
    """

    folder: Path
    pid: int
    events: list[Event] = field(default_factory=list[Event])
    _seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _words: tuple[int, int] = (0, 0)
    _documents: int = 0
    _counted_s: float = 0.0

    def poll(self) -> None:
        """Record the changes since the last poll."""
        for kind, now, came, went in (
            ("children", _children(self.pid), "began", "ended"),
            ("mapped", _mapped(self.pid), "taken in", "let go"),
            ("files", {path.name for path in self.folder.glob("vectors.lists/*.lists")}, "there", "deleted"),
        ):
            before = self._seen.get(kind, set[str]())
            for name in sorted(before - now):
                self._note(f"{name} {went}")
            for name in sorted(now - before):
                self._note(f"{name} {came}")
            self._seen[kind] = now
        words = _words(self.folder)
        if words != self._words:
            self._note(f"words committed: {words[0]:,} documents in {words[1]} segments")
            self._words = words

    @property
    def is_settled(self) -> bool:
        """Return whether background work is complete: no child builds, the newest lists are loaded, and the cache of words is current."""
        if time.monotonic() - self._counted_s > 1.0:
            self._documents, self._counted_s = _documents(self.folder), time.monotonic()
        lists = sorted(self._seen["files"], key=lambda name: int(name.rpartition("-")[2].partition(".")[0]))
        is_listed = bool(lists) and lists[-1] in self._seen["mapped"] and not self._seen["children"]
        return is_listed and self._words[0] >= self._documents - _MAX_EVENTS

    def around(self, from_s: float, to_s: float) -> list[str]:
        """Return the events between two times, and the work in progress."""
        happened = [
            f"{event.what} ({event.at_s - from_s:+.2f} s)"
            for event in self.events
            if from_s - _MAX_DISTANCE_S <= event.at_s <= to_s + _MAX_DISTANCE_S
        ]
        began = {event.what.removesuffix(" began"): event.at_s for event in self.events if event.what.endswith(" began")}
        ended = {event.what.removesuffix(" ended"): event.at_s for event in self.events if event.what.endswith(" ended")}
        going = [what for what, at_s in began.items() if at_s < from_s and ended.get(what, to_s) >= to_s]
        return [*happened, *(f"while {what}" for what in going)]

    def record(self, what: str) -> None:
        """Record an action of the benchmark."""
        self._note(what)

    def _note(self, what: str) -> None:
        self.events.append(Event(at_s=time.monotonic(), what=what))


def _children(pid: int) -> set[str]:
    """Return the modules of Rookery that run as child processes of a server."""
    modules = set[str]()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text(encoding="ascii").split():
                words = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
                if words[-1].startswith("rookery."):
                    modules.add(f"{words[-1]} ({child})")
    return modules


def _mapped(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
        return {line.partition("/vectors.lists/")[2].partition("/")[0] for line in lines if "/vectors.lists/" in line}
    return set()


def _words(folder: Path) -> tuple[int, int]:
    """Return the numbers of documents and segments in the cache of words."""
    for path in folder.glob("texts.cache/*/meta.json"):
        with contextlib.suppress(OSError, ValueError):
            segments = json.loads(path.read_text(encoding="utf-8"))["segments"]
            deleted = sum((segment["deletes"] or {"num_deleted_docs": 0})["num_deleted_docs"] for segment in segments)
            return sum(segment["max_doc"] for segment in segments) - deleted, len(segments)
    return 0, 0


def _documents(folder: Path) -> int:
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(folder / "texts.db", read_only=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM document").fetchone()[0])
    return 0
