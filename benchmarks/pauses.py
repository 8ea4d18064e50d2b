"""
Response times while a large store is indexed: `python -m benchmarks.pauses --n 200000`.

A store is filled as by `benchmarks.large_store`, its caches (lists of vectors, words) are deleted, and a server is started on it.
One client then recalls without a pause, by meaning and by both in turns, one sends a cheap GET every 5 ms, one remembers now and then,
each from a process of its own, while the caches are built; after a quiet phase, while another process adds an eighth as many memories,
and while it deletes three tenths of them, so that all caches are rebuilt. For each phase: the longest wait of the GET, which is the
longest block of the event loop, the times of the recalls, and the background work during the longest ones, observed from outside.

`--spy PATH` runs py-spy (`pip install py-spy`) to sample the server's threads when a GET waits for more than 60 ms.
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
    """A period of the benchmark with one kind of background work."""

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """A slow request: its time in the phase, the events around it, and the sample of py-spy."""

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
    arguments.add_argument("--folder", type=Path, help="folder of the store, which is changed and kept (default: a temporary folder)")
    arguments.add_argument("--quiet", type=float, default=20.0, help="seconds of the quiet phase")
    arguments.add_argument("--only-first", action="store_true", help="skip growing and deleting")
    arguments.add_argument("--spy", help="path of py-spy")
    arguments.add_argument("--out", type=Path, help="output file of the figures")
    options = arguments.parse_args()
    console = Console()
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="rookery-pauses-"))
    try:
        fill(folder, options.n, console)
        for name in ("vectors.lists", "texts.cache"):
            shutil.rmtree(folder / name, ignore_errors=True)
        with run_server(folder) as running:
            watch = ServerObserver(folder, running.pid)
            changes = () if options.only_first else (("grown", grow, options.n // 8), ("deleted", forget, options.n * 3 // 10))
            phases, samples = measure_phases(running, watch, changes, quiet_s=options.quiet, spy=options.spy)
        figures = {
            f"{phase.name}, {phase.to_s - phase.from_s:.0f} s": {
                kind: phase_figures for kind in _KINDS if (phase_figures := _figures(kind, phase, samples, watch)) is not None
            }
            for phase in phases
        }
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    _show(figures, console)
    if options.out is not None:
        events = [(round(event.at_s - phases[0].from_s, 2), event.what) for event in watch.events]
        plain = {phase: {kind: asdict(kind_figures) for kind, kind_figures in kinds.items()} for phase, kinds in figures.items()}
        options.out.write_text(json.dumps({"n": options.n, "phases": plain, "events": events}, indent=1) + "\n", encoding="utf-8")


def measure_phases(
    running: Running,
    watch: ServerObserver,
    changes: Sequence[tuple[str, Callable[[Path, int, int], None], int]],
    *,
    quiet_s: float,
    spy: str | None,
) -> tuple[list[Phase], list[RequestSample]]:
    """Send requests from the start of the server, and return the phases and all samples."""
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
        samples = [sample for receiving, _ in pipes for sample in receiving.recv()]
        for client in clients:
            client.join(10)
    return _numbered(phases), samples


def _until(name: str, watch: ServerObserver, changing: SpawnProcess | None = None) -> Phase:
    """Observe until *changing* has ended and no background work has run for a while."""
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
    return [Phase(name=f"{number} {phase.name}", from_s=phase.from_s, to_s=phase.to_s) for number, phase in enumerate(phases, start=1)]


def _figures(kind: str, phase: Phase, samples: Sequence[RequestSample], watch: ServerObserver) -> Figures | None:
    selected = [sample for sample in samples if sample.kind == kind and phase.from_s <= sample.at_s < phase.to_s]
    if not selected:
        return None
    took_ms = sorted(sample.took_s * 1000 for sample in selected)
    descriptions = Counter(sample.description for sample in selected if kind != "GET" and sample.description)
    return Figures(
        n=len(selected),
        p50_ms=round(took_ms[len(took_ms) // 2], 2),
        p99_ms=round(took_ms[int(len(took_ms) * 0.99)], 1),
        longest_ms=round(took_ms[-1], 1),
        over_100_ms=sum(sample.took_s > _PAUSE_S for sample in selected),
        own_longest_ms=round(max(sample.took_s - sample.queued_s for sample in selected) * 1000, 1),
        client_late_ms=round(max(sample.late_s for sample in selected) * 1000, 1),
        said=dict(descriptions),
        worst=[
            Worst(
                ms=round(sample.took_s * 1000, 1),
                on_core_ms=round(sample.on_core_s * 1000, 1),
                queued_ms=round(sample.queued_s * 1000, 1),
                at_s=round(sample.at_s - phase.from_s, 2),
                beside=watch.around(sample.at_s, sample.at_s + sample.took_s),
                threads=sample.description.splitlines() if kind == "GET" else [],
            )
            for sample in sorted(selected, key=lambda sample: -sample.took_s)[:_WORST]
        ],
    )


def _show(figures: Mapping[str, Mapping[str, Figures]], console: Console) -> None:
    table = Table("phase", "what", "n", "p50 ms", "p99 ms", "longest ms", "over 100 ms", "but for cores", "client late ms", "said")
    for phase, kinds in figures.items():
        for kind, kind_figures in kinds.items():
            numbers = (
                kind_figures.n,
                kind_figures.p50_ms,
                kind_figures.p99_ms,
                kind_figures.longest_ms,
                kind_figures.over_100_ms,
                kind_figures.own_longest_ms,
                kind_figures.client_late_ms,
                kind_figures.said or "",
            )
            table.add_row(phase, kind, *map(str, numbers))
    console.print(table)
    for phase, kinds in figures.items():
        for kind, kind_figures in kinds.items():
            for worst in kind_figures.worst[:_TOLD] if kind != "remember" else ():
                cores = f"{worst.on_core_ms} on a core, {worst.queued_ms} waiting for one"
                console.print(f"{phase}, {kind}: {worst.ms} ms ({cores}) at {worst.at_s} s; {'; '.join(worst.beside)}", soft_wrap=True)
                for line in worst.threads:
                    console.print(f"    {line}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
