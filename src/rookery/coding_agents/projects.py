"""
The project of a folder: what `.rookery.toml` says, else the name of the Git repository.

Worktrees of a repository share its common directory, and so their project. A submodule is a repository of its own.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from rookery.coding_agents.repositories import find_repository, identify_folder

PROJECT_FILE = ".rookery.toml"
"""A file in a repository or a folder with `project`, `org`, `agent` and `hooks = false`, each optional."""

_MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProject:
    """
    The project of a folder.

    Attributes:
        repository: The ids of the remotes of the repository, separated by commas.
        folder: The id of the folder of the repository, or else of `.rookery.toml`.
        full_name: The name of the repository with its owner, for a server on which another repository has the name *project*.
        is_named: True if `.rookery.toml` names the project.
        branch: The branch that is checked out; None outside of a repository and for a detached HEAD.
        commit: The subject of the last commit or other move of HEAD.
        is_recorded: False if `.rookery.toml` has `hooks = false`.
    """

    project: str
    org: str | None = None
    repository: str | None = None
    folder: str | None = None
    full_name: str | None = None
    is_named: bool = False
    branch: str | None = None
    commit: str | None = None
    is_recorded: bool = True


def find_project(folder: Path) -> LocalProject | None:
    """
    Return the project of *folder*, or None if it is in no Git repository and no folder above it has a `.rookery.toml`.

    The nearest `.rookery.toml` counts, up to the top of the worktree, then the one beside the common directory. Without a name in it, the
    project has the name of the repository (`find_repository`).

    Raises:
        OSError, ValueError: A file cannot be read.
    """
    top, git_dir, common_dir = _find_git_dirs(folder)
    path = _find_project_file(folder, top, common_dir)
    values = {} if path is None else tomllib.loads(_read(path))
    repository = None if common_dir is None else find_repository(common_dir)
    own_name, repository_name = _to_line(values.get("project")), None if repository is None else _to_line(repository.name)
    name = own_name or repository_name
    if name is None:
        return None
    folder_id = None if path is None else identify_folder(path.parent)
    return LocalProject(
        project=name,
        org=_to_line(values.get("org")),
        repository=None if repository is None else ",".join(repository.remote_ids) or None,
        folder=folder_id if repository is None else repository.folder_id,
        full_name=None if repository is None else _to_line(repository.full_name),
        is_named=own_name is not None,
        branch=None if git_dir is None else _to_line(_read_branch(git_dir)),
        commit=None if git_dir is None else _to_line(_read_last_subject(git_dir)),
        is_recorded=values.get("hooks") is not False,
    )


def read_agent_name(folder: Path) -> str | None:
    """
    Return the name of the agent in the `.rookery.toml` of *folder*, or None.

    Raises:
        OSError, ValueError: A file cannot be read.
    """
    top, _, common_dir = _find_git_dirs(folder)
    path = _find_project_file(folder, top, common_dir)
    return None if path is None else _to_line(tomllib.loads(_read(path)).get("agent"))


def _find_git_dirs(folder: Path) -> tuple[Path | None, Path | None, Path | None]:
    """Return the top of the worktree of *folder*, its Git directory, and that of its repository; None for each outside of repositories."""
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    git_dir = None if top is None else _find_git_dir(top)
    return top, git_dir, None if git_dir is None else _find_common_dir(git_dir)


def _find_git_dir(top: Path) -> Path:
    """Return the Git directory of a worktree. In a linked worktree and in a submodule, `.git` is a file that names it."""
    entry = top / ".git"
    if entry.is_dir():
        return entry
    return (top / _read(entry).removeprefix("gitdir:").strip()).resolve()


def _find_common_dir(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    return (git_dir / _read(pointer).strip()).resolve() if pointer.exists() else git_dir


def _find_project_file(folder: Path, top: Path | None, common_dir: Path | None) -> Path | None:
    folders = [folder, *folder.parents]
    if top is not None:
        folders = [*folders[: folders.index(top) + 1], *([] if common_dir is None else [common_dir.parent])]
    return next((parent / PROJECT_FILE for parent in folders if (parent / PROJECT_FILE).is_file()), None)


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
