"""
The second start of a server: until /readyz answers, its CPU time until then and 2 s later, and its resident memory then.

`python -m benchmarks.start` measures this tree. `--against FOLDER`, which may be repeated, measures the source tree of another folder by
turns with it, each with its own data folder, and prints both. The servers have the tool server of the first run, as a newcomer has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.servers import stop_process

_TIMEOUT_S = 60.0
_SETTLE_S = 2.0
THIS_TREE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a server."""

    ready_s: float
    cpu_s: float
    cpu_later_s: float
    rss_mb: float


def measure_start(data_dir: Path, tree: Path) -> Start:
    """Start the server of the source tree *tree* on *data_dir*, and stop it."""
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), "serve", "--port", "0"]
    started_s = time.perf_counter()
    process = subprocess.Popen(command, env=_environment(tree), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        _wait_until_ready(next(word.rstrip(",;") for word in line.split() if word.startswith("http")), started_s)
        ready_s, cpu_s = time.perf_counter() - started_s, _get_cpu_s(process.pid)
        time.sleep(_SETTLE_S)
        return Start(ready_s=ready_s, cpu_s=cpu_s, cpu_later_s=_get_cpu_s(process.pid), rss_mb=_get_rss_mb(process.pid))
    finally:
        stop_process(process)
        if process.stdout is not None:
            process.stdout.close()


def measure_starts(folder: Path, trees: Mapping[str, Path], *, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of *rounds* second starts of each tree, by turns and each on its own data folder in *folder*."""
    for name, tree in trees.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        measure_start(folder / name, tree)
        measure_start(folder / name, tree)  # with the stored lists of all tool servers, and the compiled modules
    starts: dict[str, list[Start]] = {name: [] for name in trees}
    for number in range(rounds):
        for name, tree in list(trees.items())[:: 1 if number % 2 else -1]:
            starts[name].append(measure_start(folder / name, tree))
    return {
        name: {
            "second_start_s": round(statistics.median(start.ready_s for start in of_tree), 2),
            "fastest_s": round(min(start.ready_s for start in of_tree), 2),
            "cpu_s": round(statistics.median(start.cpu_s for start in of_tree), 2),
            "cpu_2_s_later": round(statistics.median(start.cpu_later_s for start in of_tree), 2),
            "rss_mb": round(statistics.median(start.rss_mb for start in of_tree)),
        }
        for name, of_tree in starts.items()
    }


def _environment(tree: Path) -> dict[str, str]:
    """Return the environment without settings of Rookery, in which the modules of *tree* come first and compiled ones are stored."""
    dropped = {"PYTHONDONTWRITEBYTECODE"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_") and name not in dropped}
    return environment | {"PYTHONPATH": str(tree / "src")}


def _wait_until_ready(url: str, started_s: float) -> None:
    while True:
        try:
            with urlopen(f"{url}/readyz", timeout=_TIMEOUT_S):  # noqa: S310 - our own server's address
                return
        except HTTPError:
            raise
        except OSError:
            if time.perf_counter() - started_s > _TIMEOUT_S:
                raise
            time.sleep(0.005)


def _get_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _get_rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Print the medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, action="append", default=[], help="the folder of another source tree")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    trees = {"this": THIS_TREE, **{f"against-{number}": path.resolve() for number, path in enumerate(options.against)}}
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as name:
        print(json.dumps(measure_starts(Path(name), trees, rounds=options.rounds), indent=2))


if __name__ == "__main__":
    main()
