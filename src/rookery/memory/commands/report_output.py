"""The output of the memory commands: a progress bar, the action per memory, and the final report."""

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

from rookery.memory.batch_runs import RunAction, RunItem, RunObserver, RunReport

_MAX_LISTED_ITEMS = 20
"""Maximum memories listed on a terminal. A pipe, and `--json`, get all."""

_COLUMNS = ("memory", "action", "reason")

_REPORTING_ACTIONS: frozenset[RunAction] = frozenset({"keep apart", "candidate", "skip", "conflict", "refuse"})
"""The actions that change nothing."""

_CHANGE_COUNTS = frozenset({"archived", "changed", "deleted", "imported", "merged"})
"""The counts of changes. The text of a dry run says that they would be made."""


@dataclass(slots=True, kw_only=True)
class RunReportPrinter:
    """
    A printer of a run's progress and report. It prints while the command runs, so memory use does not depend on the number of memories.

    Attributes:
        lists_items: Print each memory, as in a dry run.
        dry_run: The report is that of a dry run.
    """

    as_json: bool
    lists_items: bool
    dry_run: bool
    item_count: int = 0
    change_count: int = 0
    listed_items: list[RunItem] = field(default_factory=list[RunItem])

    @contextmanager
    def observe(self, title: str) -> Generator[RunObserver]:
        """Return the observer of the run. The progress bar is shown on a terminal only."""
        if self.as_json and self.lists_items:
            _write('{"items": [')
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            yield RunObserver(on_item=self.print_item)
            return
        columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield RunObserver(on_item=self.print_item, on_progress=_progress_callback(progress, title))

    def print_report(self, report: RunReport, *, advice: str | None = None) -> None:
        """Print the report, as text without counts that are 0. Exit with code 1 if a memory failed or the run stopped early."""
        fields = _report_fields(report)
        if self.dry_run:
            fields |= {"successes": 0, "would_be_done": self.change_count, "dry_run": True}
        if self.as_json:
            text = json.dumps(fields)
            _write(f"], {text[1:]}\n" if self.lists_items else text + "\n")
        else:
            self._print_text(report, fields, advice)
        if report.failures or report.stopped:
            raise typer.Exit(1)

    def print_item(self, item: RunItem) -> None:
        """Print the action on a memory, done or proposed."""
        self.item_count += 1
        self.change_count += item.action not in _REPORTING_ACTIONS
        if not self.lists_items:
            return
        if self.as_json:
            others = {"into": item.into, "apart_from": item.apart_from}
            fields = {"id": item.id, "action": item.action, "why": item.why} | {name: other for name, other in others.items() if other}
            _write((", " if self.item_count > 1 else "") + json.dumps(fields, ensure_ascii=False))
        elif not sys.stdout.isatty():
            _write("\t".join((item.id, _format_action(item), item.why.replace("\t", " ").replace("\n", " "))) + "\n")
        elif len(self.listed_items) < _MAX_LISTED_ITEMS:
            self.listed_items.append(item)

    def _print_text(self, report: RunReport, fields: Mapping[str, object], advice: str | None) -> None:
        for warning in report.warnings:
            _write(f"warning: {warning}\n")
        if report.recognised:
            _write(f"recognised: {report.recognised}\n")
        if not sys.stdout.isatty():
            counts = "".join(f", {self._format_name(name)} {number}" for name, number in report.counts.items() if number)
            outcome = f"would be done {self.change_count}" if self.dry_run else f"successes {report.successes}, failures {report.failures}"
            start = f"total {report.total}, {outcome}"
            _write(f"{start}{counts}, duration {report.duration_s:.1f} s\n")
        else:
            self._print_tables(fields)
        if report.stopped:
            _write(f"stopped early: {report.stopped}\n")
        if self.dry_run:
            _write("Dry run: nothing was changed.\n")
        elif advice:
            _write(advice + "\n")

    def _print_tables(self, fields: Mapping[str, object]) -> None:
        console = Console()
        if self.listed_items:
            table = Table(*_COLUMNS)
            for item in self.listed_items:
                table.add_row(item.id, Text(_format_action(item)), Text(item.why))
            console.print(table)
            if self.item_count > len(self.listed_items):
                _write(f"These are the first {len(self.listed_items):,} of {self.item_count:,}; use a pipe or --json to get all.\n")
        closing = Table(show_header=False)
        always = {"total", "would_be_done"} if self.dry_run else {"total", "successes", "failures"}
        for name, value in fields.items():
            if name not in {"stopped", "dry_run", "recognised", "warnings"} and (value != 0 or name in always):
                closing.add_row(self._format_name(name), f"{value:,}" if isinstance(value, int) else Text(str(value)))
        console.print(closing)

    def _format_name(self, name: str) -> str:
        prefix = "would be " if self.dry_run and name in _CHANGE_COUNTS else ""
        return prefix + name.removesuffix("_s").replace("_", " ")


def _report_fields(report: RunReport) -> dict[str, object]:
    return {
        "total": report.total,
        "successes": report.successes,
        "failures": report.failures,
        **report.counts,
        **({"recognised": report.recognised} if report.recognised else {}),
        **({"warnings": list(report.warnings)} if report.warnings else {}),
        "duration_s": round(report.duration_s, 3),
        "stopped": report.stopped,
    }


def _format_action(item: RunItem) -> str:
    if item.apart_from:
        return f"{item.action} from {item.apart_from}"
    return f"{item.action} into {item.into}" if item.into else item.action


def _progress_callback(progress: Progress, title: str) -> Callable[[int, int], None]:
    task = progress.add_task(title, total=None)

    def show(outcome: int, total: int) -> None:
        progress.update(task, completed=outcome, total=total or None)

    return show


def _write(text: str) -> None:
    sys.stdout.write(text)
