"""The output of `rookery servers check`: what a slow server writes meanwhile, and the results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from rookery.terminal.output import Fields, print_list, print_notice

if TYPE_CHECKING:
    from rookery.tools.servers.server_check import ServerCheckResult

_COLUMNS = ("id", "ok", "tools", "took_ms", "says", "advice")
_SLOW_CHECK_S = 3.0
"""Time after which a check shows what the server wrote."""


@contextlib.contextmanager
def print_slow_output(server_id: str) -> Generator[Callable[[str], None]]:
    """Yield a function that takes the lines a server writes, and prints them as they come once its check has taken some seconds."""
    waiting: list[str] | None = []

    def take(line: str) -> None:
        if waiting is None:
            print_notice(f"{server_id} | {line}")
        else:
            waiting.append(line)

    def print_waiting() -> None:
        nonlocal waiting
        lines, waiting = waiting or [], None
        print_notice(f"{server_id} has not answered for {_SLOW_CHECK_S:g} s.{' It wrote:' if lines else ''}")
        for line in lines:
            take(line)

    timer = asyncio.get_running_loop().call_later(_SLOW_CHECK_S, print_waiting)
    try:
        yield take
    finally:
        timer.cancel()


def check_to_fields(result: ServerCheckResult) -> Fields:
    """Return a result for the output as JSON."""
    return {
        "id": result.server_id,
        "ok": result.error is None,
        "error": result.error,
        "advice": result.advice,
        "warnings": list(result.warnings),
        "sharing": result.sharing,
        "concurrency": result.concurrency,
        "software": result.info.software or None,
        "era": result.info.protocol_version,
        "tools": list(result.tool_names),
        "hidden_tools": list(result.hidden_tools),
        "resources": len(result.features.resources),
        "prompts": len(result.features.prompts),
        "took_ms": round(result.took_ms),
        "stderr": list(result.stderr),
    }


def print_checked(results: Sequence[ServerCheckResult], *, verbose: bool) -> None:
    """Print results as a list, with notes below it. *verbose*: also the lines that each server wrote."""
    rows = [
        {
            "id": result.server_id,
            "ok": result.error is None,
            "tools": f"{len(result.tool_names)}, {len(result.hidden_tools)} hidden" if result.hidden_tools else len(result.tool_names),
            "took_ms": round(result.took_ms),
            "says": result.error or ", ".join(result.tool_names[:8]) + (" …" if len(result.tool_names) > 8 else ""),
            "advice": result.advice,
        }
        for result in results
    ]
    if rows:
        print_list(rows, _COLUMNS)
    for result in results:
        for warning in result.warnings:
            print_notice(f"{result.server_id}: {warning}")
        for line in result.stderr if verbose else ():
            print_notice(f"{result.server_id} | {line}")
    ids_by_note: dict[str, list[str]] = {}
    for result in results:
        for note in filter(None, (result.sharing, result.concurrency)):
            ids_by_note.setdefault(note, []).append(result.server_id)
    for note, ids in ids_by_note.items():
        print_notice(f"{', '.join(ids)}: {note}")
