"""
CPU time of short commands: user and system time of the whole process, the median of eleven runs.

`python -m benchmarks.commands` measures them in a temporary data folder beside a running server;
`--command "keys list"` measures one command.
The last line is the import of SQLAlchemy, which every command on the record store needs.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

COMMANDS = (
    *("--version", "--help", "keys list", "keys create --help", "keys create --name bench --scope brain:read", "workspace list"),
    *("servers list", "connect claude-code", "webhooks list", "templates list", "remember benchmark", "recall benchmark", "doctor"),
    *("backup --help", "brain:reindex --help"),
)

_START_S = 60


def cpu_s(folder: Path, command: str) -> float:
    """Return the CPU seconds of one run of a command; it must succeed."""
    return _run([sys.executable, "-m", "rookery", "--data-dir", str(folder), *command.split()], folder)


def floor_s(folder: Path) -> float:
    """Return the CPU seconds of a Python that imports SQLAlchemy and does nothing."""
    return _run([sys.executable, "-c", "import asyncio, sqlite3, sqlalchemy, sqlalchemy.dialects.sqlite"], folder)


@contextmanager
def server(folder: Path) -> Generator[None]:
    """Serve the data folder on a free port."""
    arguments = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment(folder)) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not (folder / "listening.json").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    msg = "the server did not start"
                    raise RuntimeError(msg)
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def _run(arguments: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, check=True, capture_output=True, env=_environment(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment without settings of Rookery, and with compiled modules stored, as in an installation."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**environment, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", action="append", help="measure only this command; may be repeated")
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as name:
        folder = Path(name)
        cpu_s(folder, "init")
        with server(folder):
            for command in options.command or COMMANDS:
                cpu_s(folder, command)  # compiles what it imports
                _print(command, [cpu_s(folder, command) for _ in range(options.runs)])
            floor_s(folder)
            _print("(import of SQLAlchemy)", [floor_s(folder) for _ in range(options.runs)])


def _print(name: str, times_s: list[float]) -> None:
    print(f"{name:42} median {statistics.median(times_s):.2f} s, best {min(times_s):.2f} s", flush=True)


if __name__ == "__main__":
    main()
