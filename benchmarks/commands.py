"""
CPU time of short commands: user and system time of the whole process, the median of ten runs.

`python -m benchmarks.commands` takes them in a data folder of its own; `--command "keys list"` takes one command.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = ("--version", "--help", "keys list", "servers list", "connect claude-code")


def cpu_s(folder: Path, command: str) -> float:
    """Return the CPU seconds of one run of a command; it must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *command.split()]
    subprocess.run(arguments, check=True, capture_output=True, env=_environment(folder))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment(folder: Path) -> dict[str, str]:
    """Return our environment with compiled modules kept, as in an installation, and none of our settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_") and name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", action="append", help="a command to take instead; may be repeated")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as name:
        folder = Path(name)
        cpu_s(folder, "init")
        for command in options.command or COMMANDS:
            cpu_s(folder, command)  # compiles what it imports
            taken = [cpu_s(folder, command) for _ in range(options.runs)]
            print(f"{command:24} median {statistics.median(taken):.2f} s, best {min(taken):.2f} s")


if __name__ == "__main__":
    main()
