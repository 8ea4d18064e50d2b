"""How the commands on memory show what they do: a bar on the way, what was done to which memory, and the closing report (D-04)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rookery.memory.runs import Item, Report, Watch

_MOST_SHOWN = 20
"""So many memories are listed on a terminal; a pipe, and `--json`, get all."""

_COLUMNS = ("memory", "what", "why")


@dataclass(slots=True, kw_only=True)
class Screen:
    """
    Prints while the command runs, so that a million memories need no more room than one.

    Attributes:
        lists: Whether the single memories are shown, as in a dry run.
        dry_run: Said of the report.
    """

    as_json: bool
    lists: bool
    dry_run: bool
    seen: int = 0
    shown: list[Item] = field(default_factory=list[Item])

    @contextmanager
    def watch(self, what: str) -> Generator[Watch]:
        """Return who is told of the run; the bar is drawn on a terminal only."""
        if self.as_json and self.lists:
            _write('{"items": [')
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            yield Watch(item=self.item, progress=_no_bar)
            return
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield Watch(item=self.item, progress=_bar(progress, what))

    def close(self, report: Report, *, advice: str | None = None) -> None:
        """Print the report; exit code 1 if a memory failed or the run was stopped."""
        says = _fields(report)
        if self.dry_run:
            says |= {"successes": 0, "would_be_done": self.seen, "dry_run": True}
        if self.as_json:
            text = json.dumps(says)
            _write(f"], {text[1:]}\n" if self.lists else text + "\n")
        else:
            self._for_people(report, says, advice)
        if report.failures or report.stopped:
            raise typer.Exit(1)

    def item(self, item: Item) -> None:
        """Show what is, or would be, done to a memory."""
        self.seen += 1
        if not self.lists:
            return
        if self.as_json:
            fields = {"id": item.id, "action": item.action, "why": item.why, **({"into": item.into} if item.into else {})}
            _write((", " if self.seen > 1 else "") + json.dumps(fields, ensure_ascii=False))
        elif not sys.stdout.isatty():
            _write("\t".join((item.id, _what(item), item.why.replace("\t", " ").replace("\n", " "))) + "\n")
        elif len(self.shown) < _MOST_SHOWN:
            self.shown.append(item)

    def _for_people(self, report: Report, says: Mapping[str, object], advice: str | None) -> None:
        if not sys.stdout.isatty():
            counts = "".join(f", {_word(name)} {number}" for name, number in report.counts.items())
            done = f"would be done {self.seen}" if self.dry_run else f"successes {report.successes}, failures {report.failures}"
            start = f"total {report.total}, {done}"
            _write(f"{start}{counts}, duration {report.duration_s:.1f} s\n")
        else:
            self._tables(says)
        if report.stopped:
            _write(f"stopped early: {report.stopped}\n")
        if self.dry_run:
            _write("This was a dry run: nothing was changed.\n")
        elif advice:
            _write(advice + "\n")

    def _tables(self, says: Mapping[str, object]) -> None:
        console = Console()
        if self.shown:
            table = Table(*_COLUMNS)
            for item in self.shown:
                table.add_row(item.id, Text(_what(item)), Text(item.why))
            console.print(table)
            if self.seen > len(self.shown):
                _write(f"These are the first {len(self.shown):,} of {self.seen:,}; a pipe, or --json, gets all.\n")
        closing = Table(show_header=False)
        for name, value in says.items():
            if name not in {"stopped", "dry_run"}:
                closing.add_row(_word(name), f"{value:,}" if isinstance(value, int) else Text(str(value)))
        console.print(closing)


def _fields(report: Report) -> dict[str, object]:
    return {
        "total": report.total,
        "successes": report.successes,
        "failures": report.failures,
        **report.counts,
        "duration_s": round(report.duration_s, 3),
        "stopped": report.stopped,
    }


def _what(item: Item) -> str:
    return f"{item.action} into {item.into}" if item.into else item.action


def _word(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _bar(progress: Progress, what: str) -> Callable[[int, int], None]:
    task = progress.add_task(what, total=None)

    def show(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total or None)

    return show


def _no_bar(done: int, total: int) -> None:
    """Draw nothing."""


def _write(text: str) -> None:
    sys.stdout.write(text)
