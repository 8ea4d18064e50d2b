"""Files that are only for this machine, and that git would commit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

_TIMEOUT_S = 5.0


def list_exposed(files: Iterable[Path]) -> list[Path]:
    """Return those of *files* that `git add .` would add: in a repository, untracked and not ignored. Without git, the list is empty."""
    return [file for file in files if file.exists() and _is_exposed(file)]


def describe_exposed(file: Path) -> str:
    """Return the message about a file that git does not ignore."""
    return f"git does not ignore {file}, which is only for this machine. Add it to .gitignore or .git/info/exclude."


def _is_exposed(file: Path) -> bool:
    # A repository may name a program to run for core.fsmonitor.
    command = [
        "git",
        "-C",
        str(file.parent),
        "-c",
        "core.fsmonitor=false",
        "ls-files",
        "-z",
        "--others",
        "--exclude-standard",
        "--",
        file.name,
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - the name of a file is no option
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and bool(done.stdout)
