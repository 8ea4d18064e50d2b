"""
The project of a folder: what `.rookery.toml` says, else the name of the Git repository (D-93).

Worktrees of a repository share its common directory, and so their project. Git itself is not started: its files are read.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

PROJECT_FILE = ".rookery.toml"
"""A file in a repository or a folder with `project`, `org` and `hooks = false`, each optional."""

_MAX_FILE_BYTES = 64 * 1024
_REMOTE = re.compile(r'^\s*\[\s*remote\s+"origin"\s*\]\s*$')
_SECTION = re.compile(r"^\s*\[")
_URL = re.compile(r"^\s*url\s*=\s*\"?([^\s\"]+)\"?\s*$")
_URL_HOST = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
"""The scheme and the host of a URL, with the credentials that some remotes have. They are never part of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProject:
    """
    The project of a folder.

    Attributes:
        branch: The branch that is checked out; None outside of a repository and for a detached HEAD.
        commit: The subject of the last commit or other move of HEAD.
        is_recorded: False if `.rookery.toml` has `hooks = false`.
    """

    project: str
    org: str | None = None
    branch: str | None = None
    commit: str | None = None
    is_recorded: bool = True


def find_project(folder: Path) -> LocalProject | None:
    """
    Return the project of *folder*, or None if it is in no Git repository and no folder above it has a `.rookery.toml`.

    The nearest `.rookery.toml` counts, up to the top of the worktree, then the one beside the common directory. Without a name in it, the
    project is the last part of the URL of the remote `origin`, else the name of the folder with the common directory.

    Raises:
        OSError, ValueError: A file cannot be read.
    """
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    git_dir = None if top is None else _find_git_dir(top)
    common_dir = None if git_dir is None else _find_common_dir(git_dir)
    values = _read_project_file(folder, top, common_dir)
    name = _to_line(values.get("project")) or (None if common_dir is None else _to_line(_name_repository(common_dir)))
    if name is None:
        return None
    return LocalProject(
        project=name,
        org=_to_line(values.get("org")),
        branch=None if git_dir is None else _to_line(_read_branch(git_dir)),
        commit=None if git_dir is None else _to_line(_read_last_subject(git_dir)),
        is_recorded=values.get("hooks") is not False,
    )


def _find_git_dir(top: Path) -> Path:
    """Return the Git directory of a worktree. In a linked worktree and in a submodule, `.git` is a file that names it."""
    entry = top / ".git"
    if entry.is_dir():
        return entry
    return (top / _read(entry).removeprefix("gitdir:").strip()).resolve()


def _find_common_dir(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    return (git_dir / _read(pointer).strip()).resolve() if pointer.exists() else git_dir


def _read_project_file(folder: Path, top: Path | None, common_dir: Path | None) -> dict[str, object]:
    folders = [folder, *folder.parents]
    if top is not None:
        folders = [*folders[: folders.index(top) + 1], *([] if common_dir is None else [common_dir.parent])]
    path = next((parent / PROJECT_FILE for parent in folders if (parent / PROJECT_FILE).is_file()), None)
    return {} if path is None else tomllib.loads(_read(path))


def _name_repository(common_dir: Path) -> str | None:
    """Return the name of the repository: of its remote `origin`, else of its folder."""
    config = common_dir / "config"
    is_origin = False
    for line in _read(config).splitlines() if config.exists() else ():
        if _SECTION.match(line):
            is_origin = _REMOTE.match(line) is not None
        elif is_origin and (url := _URL.match(line)):
            path = _URL_HOST.sub("", url[1]).partition("?")[0]
            name = re.split(r"[/:\\]", path.rstrip("/"))[-1].removesuffix(".git")
            if name not in {"", ".", ".."}:
                return name
    folder = common_dir.parent if common_dir.name == ".git" else common_dir
    return folder.name.removesuffix(".git") or None


def _read_branch(git_dir: Path) -> str | None:
    head = git_dir / "HEAD"
    reference = _read(head).strip() if head.exists() else ""
    return reference.removeprefix("ref: refs/heads/") if reference.startswith("ref: refs/heads/") else None


def _read_last_subject(git_dir: Path) -> str | None:
    """Return the subject of the last commit from the log of HEAD, without `commit: ` before it."""
    log = git_dir / "logs" / "HEAD"
    if not log.exists():
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode("utf-8", errors="replace").rstrip("\n").splitlines()
    action, _, subject = (lines[-1].partition("\t")[2] if lines else "").partition(": ")
    return subject if action.startswith("commit") and subject else None


def _to_line(value: object) -> str | None:
    """Return a text that the route takes, with a space for each character that cannot be printed. None: there is no text."""
    if not isinstance(value, str):
        return None
    return "".join(character if character.isprintable() else " " for character in value).strip() or None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES).decode("utf-8-sig", errors="replace")  # editors of Windows write a byte order mark
