"""Installs the programs into `.venv/others-memories`, each in its own folder, and only where its lock has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.others_memories.programs import WriterProgram
from tests.pinned_packages import NODE, describe_failure, install_npm, install_python, is_current, run_installer

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".venv" / "others-memories"

_CAN_LOAD_EXTENSIONS = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"
"""A feature that sqlite-vec needs, and that not every Python has."""


def install(program: WriterProgram, folder: Path) -> str:
    """Install a program if it is missing; return the reason if that failed, else an empty text."""
    if program.unavailable:
        return program.unavailable
    lock = HERE / ("package-lock.json" if program.kind == "npm" else f"{program.id}.lock")
    if is_current(lock, folder / program.id):
        return ""
    try:
        if program.kind == "npm":
            install_npm(HERE, folder / program.id, "install")
        else:
            install_python(lock, folder / program.id, _find_python())
    except (subprocess.SubprocessError, OSError) as error:
        return describe_failure(error)
    return ""


def build_command(program: WriterProgram, installed: Path, folder: Path) -> list[str]:
    """Return the command by which a program writes its files into *folder*."""
    script = str(HERE / "writers" / f"write_{program.id.replace('-', '_')}.py")
    if program.kind == "npm":
        server = installed / program.id / "node_modules" / program.package / "dist" / "index.js"
        return [sys.executable, script, str(folder), str(NODE / "bin" / "node"), str(server)]
    return [str(installed / program.id / "bin" / "python"), "-W", "ignore", script, str(folder)]


def _find_python() -> str:
    """Return a Python whose SQLite can load extensions, else this one."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", shutil.which(version)):
        if python is None or not Path(python).exists():
            continue
        try:
            run_installer([python, "-c", _CAN_LOAD_EXTENSIONS], HERE)
        except subprocess.SubprocessError:
            continue
        return python
    return sys.executable
