"""
The file with the key of a client that does not have the variables of the shell that starts it.

Codex makes its connections and runs its hooks in a background server, which keeps the environment of its first start. A command in its
configuration prints the headers of each connection. A hook gets the file as an option.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from rookery.connect.client_files import FileEdit, decode, read_file
from rookery.connect.clients import Places
from rookery.tools.discovery.client_guides import KEY_VARIABLE

_NAME = "rookery.key"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")

_TIMEOUT_S = 5.0


def locate_key_file(client: str, places: Places) -> Path | None:
    """Return the file with the key of *client*, or None for a client without one. On Windows Codex has no shell for the command."""
    return places.locate(("codex", _NAME)) if client == "codex" and places.platform != "win32" else None


def to_shell_word(file: Path, home: Path) -> str:
    """Return *file* as a word of a shell. In the home folder it begins with `~/`, so that the files of a project fit each developer."""
    if file.is_relative_to(home) and _PLAIN_PATH.fullmatch(str(file.relative_to(home))):
        return f"~/{file.relative_to(home)}"
    return shlex.quote(str(file))


def to_option(file: Path, home: Path) -> str:
    """Return *file* as an option of `rookery hook`, which reads `~/` as the home folder."""
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def build_headers_command(file: str) -> str:
    """Return the command that prints the authorization header as JSON, with the key of *file*, or else of the variable."""
    key = f'"$(cat {file} 2>/dev/null || printf %s "${KEY_VARIABLE}")"'
    return f'printf \'{{"Authorization": "Bearer %s"}}\' {key}'


def read_key(file: Path) -> str | None:
    """
    Return the key of *file*, or None if it does not exist or is empty.

    Raises:
        ClientFileBroken: The file cannot be read.
    """
    return decode(file, read_file(file)).strip() or None


def add_key(file: Path, key: str) -> FileEdit:
    """Return the change that writes *key* to *file*, which only its owner can read."""
    return FileEdit(file, read_file(file), f"{key}\n".encode(), is_secret=True)


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
