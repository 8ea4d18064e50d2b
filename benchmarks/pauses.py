"""
Response times while a large store is indexed: `python -m benchmarks.pauses --n 200000`.

A store is filled as by `benchmarks.large_store`, its caches (lists of vectors, words) are thrown away, and a server is started on it.
One client then recalls without a pause, by meaning and by both in turns, one sends a cheap GET every 5 ms, one remembers now and then,
each from a process of its own, while the caches are built; after a quiet phase, while another process adds an eighth as many memories,
and while it deletes three tenths of them, so that all is built anew. For each phase: how long the GET waited at the longest, which is
how long the event loop stood still, and the recalls; and what went on at the longest ones, seen from outside.

`--spy PATH` asks py-spy (`pip install py-spy`) what the server's threads do whenever a GET waits for more than 60 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event as Stop
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.large_store import fill
from benchmarks.pauses_clients import RequestSample, forget, grow, probe, run_client
from benchmarks.pauses_events import ServerObserver
from benchmarks.servers import Running, run_server

_POLL_INTERVAL_S = 0.02
_QUIET_S = 4.0
_PHASE_TIMEOUT_S = 1800.0
_PAUSE_S = 0.1
_WORST, _TOLD = 5, 2
_KINDS = ("GET", "semantic", "hybrid", "remember")
_processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some time in which one thing went on."""

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """One that took long: when in its phase, what happened around it, and what py-spy said."""

    ms: float
    on_core_ms: float
    queued_ms: float
    at_s: float
    beside: list[str]
    threads: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """
    Figures of one kind of request in one phase.

    Attributes:
        own_longest_ms: The longest time without waiting for a CPU core, which depends on the machine's load.
        client_late_ms: The longest delay of the client itself.
    """

    n: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    over_100_ms: int
    own_longest_ms: float
    client_late_ms: float
    said: dict[str, int]
    worst: list[Worst]


def main() -> None:
    """Fill, measure and print."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("--n", type=int, default=200_000)
    arguments.add_argument("--folder", type=Path, help="where the store is, and stays; it is changed. A temporary folder else")
    arguments.add_argument("--quiet", type=float, default=20.0, help="seconds of the quiet phase")
    arguments.add_argument("--only-first", action="store_true", help="leave out growing and deleting")
    arguments.add_argument("--spy", help="where py-spy is")
    arguments.add_argument("--out", type=Path, help="a file for the figures")
    given = arguments.parse_args()
    console = Console()
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="rookery-pauses-"))
    try:
        fill(folder, given.n, console)
        for name in ("vectors.lists", "texts.cache"):
            shutil.rmtree(folder / name, ignore_errors=True)
        with run_server(folder) as running:
            watch = ServerObserver(folder, running.pid)
            changes = () if given.only_first else (("grown", grow, given.n // 8), ("deleted", forget, given.n * 3 // 10))
            phases, asked = measure_phases(running, watch, changes, quiet_s=given.quiet, spy=given.spy)
        figures = {
            f"{phase.name}, {phase.to_s - phase.from_s:.0f} s": {
                kind: found for kind in _KINDS if (found := _figures(kind, phase, asked, watch)) is not None
            }
            for phase in phases
        }
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    _show(figures, console)
    if given.out is not None:
        events = [(round(each.at_s - phases[0].from_s, 2), each.what) for each in watch.events]
        plain = {phase: {kind: asdict(each) for kind, each in kinds.items()} for phase, kinds in figures.items()}
        given.out.write_text(json.dumps({"n": given.n, "phases": plain, "events": events}, indent=1) + "\n", encoding="utf-8")


def measure_phases(
    running: Running,
    watch: ServerObserver,
    changes: Sequence[tuple[str, Callable[[Path, int, int], None], int]],
    *,
    quiet_s: float,
    spy: str | None,
) -> tuple[list[Phase], list[RequestSample]]:
    """Ask from the first moment on, and return the phases and all that was asked."""
    stop: Stop = _processes.Event()
    pipes = [_processes.Pipe(duplex=False) for _ in range(2)]
    clients = [
        _processes.Process(target=probe, args=(running.url, running.pid, spy, stop, pipes[0][1])),
        _processes.Process(target=run_client, args=(running.url, running.api_key, stop, pipes[1][1])),
    ]
    for client in clients:
        client.start()
    phases = list[Phase]()
    try:
        phases.append(_until("built", watch))
        for name, change, number in changes:
            phases.append(_quiet(watch, quiet_s))
            changing = _processes.Process(target=change, args=(watch.folder, running.workspace_id, number))
            changing.start()
            phases.append(_until(name, watch, changing))
        phases.append(_quiet(watch, quiet_s))
    finally:
        stop.set()
        asked = [each for receiving, _ in pipes for each in receiving.recv()]
        for client in clients:
            client.join(10)
    return _numbered(phases), asked


def _until(name: str, watch: ServerObserver, changing: SpawnProcess | None = None) -> Phase:
    """Look on until *changing* has ended and nothing has been going on for a while."""
    from_s = settled_s = time.monotonic()
    if changing is not None:
        watch.record(f"the process of phase {name} began")
    while time.monotonic() - from_s < _PHASE_TIMEOUT_S:
        watch.poll()
        if changing is not None and changing.exitcode is not None:
            if changing.exitcode != 0:
                raise RuntimeError(f"{name}: exit code {changing.exitcode}")
            watch.record(f"the process of phase {name} ended")
            changing = None
        if changing is not None or not watch.is_settled:
            settled_s = time.monotonic()
        if time.monotonic() - settled_s > _QUIET_S:
            break
        time.sleep(_POLL_INTERVAL_S)
    return Phase(name=name, from_s=from_s, to_s=time.monotonic())


def _quiet(watch: ServerObserver, quiet_s: float) -> Phase:
    from_s = time.monotonic()
    while time.monotonic() - from_s < quiet_s:
        watch.poll()
        time.sleep(_POLL_INTERVAL_S)
    return Phase(name="quiet", from_s=from_s, to_s=time.monotonic())


def _numbered(phases: list[Phase]) -> list[Phase]:
    return [Phase(name=f"{number} {each.name}", from_s=each.from_s, to_s=each.to_s) for number, each in enumerate(phases, start=1)]


def _figures(kind: str, phase: Phase, asked: Sequence[RequestSample], watch: ServerObserver) -> Figures | None:
    those = [each for each in asked if each.kind == kind and phase.from_s <= each.at_s < phase.to_s]
    if not those:
        return None
    took_ms = sorted(each.took_s * 1000 for each in those)
    said = Counter(each.description for each in those if kind != "GET" and each.description)
    return Figures(
        n=len(those),
        p50_ms=round(took_ms[len(took_ms) // 2], 2),
        p99_ms=round(took_ms[int(len(took_ms) * 0.99)], 1),
        longest_ms=round(took_ms[-1], 1),
        over_100_ms=sum(each.took_s > _PAUSE_S for each in those),
        own_longest_ms=round(max(each.took_s - each.queued_s for each in those) * 1000, 1),
        client_late_ms=round(max(each.late_s for each in those) * 1000, 1),
        said=dict(said),
        worst=[
            Worst(
                ms=round(each.took_s * 1000, 1),
                on_core_ms=round(each.on_core_s * 1000, 1),
                queued_ms=round(each.queued_s * 1000, 1),
                at_s=round(each.at_s - phase.from_s, 2),
                beside=watch.around(each.at_s, each.at_s + each.took_s),
                threads=each.description.splitlines() if kind == "GET" else [],
            )
            for each in sorted(those, key=lambda each: -each.took_s)[:_WORST]
        ],
    )


def _show(figures: Mapping[str, Mapping[str, Figures]], console: Console) -> None:
    table = Table("phase", "what", "n", "p50 ms", "p99 ms", "longest ms", "over 100 ms", "but for cores", "client late ms", "said")
    for phase, kinds in figures.items():
        for kind, each in kinds.items():
            numbers = (
                each.n,
                each.p50_ms,
                each.p99_ms,
                each.longest_ms,
                each.over_100_ms,
                each.own_longest_ms,
                each.client_late_ms,
                each.said or "",
            )
            table.add_row(phase, kind, *map(str, numbers))
    console.print(table)
    for phase, kinds in figures.items():
        for kind, each in kinds.items():
            for worst in each.worst[:_TOLD] if kind != "remember" else ():
                cores = f"{worst.on_core_ms} on a core, {worst.queued_ms} waiting for one"
                console.print(f"{phase}, {kind}: {worst.ms} ms ({cores}) at {worst.at_s} s; {'; '.join(worst.beside)}", soft_wrap=True)
                for line in worst.threads:
                    console.print(f"    {line}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
