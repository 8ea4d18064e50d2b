"""
The identity of a Git repository: the same for all clones of it, and different for two repositories of the same name.

Git itself is not started: its files are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from rookery.coding_agents.git_config import GitEntry, read_git_config, read_text, replace_url

_ID_CHARS = 32
_MAX_FILE_BYTES = 64 * 1024
_MAX_LOCAL_REMOTES = 3
"""Local clones of local clones that are followed to the first repository."""

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP_FORM = re.compile(r"^(?:[^/@:]*@)?([^/:@]{2,}|\[[^\]]+\]):(?!//)(.*)$")
"""`git@host:path`. A host of one letter would be a drive of Windows."""

_AZURE_HOST = "dev.azure.com"
_HOSTS_WITH_GROUPS = ("gitlab", "github", "bitbucket.org", "codeberg", "gitea", "forgejo", "sr.ht")
"""Parts of hosts whose first part of a path is an owner, also if it is called scm."""

_SSH_HOST_PREFIXES = ("ssh.", "altssh.")
"""Hosts that services offer for SSH on the port of HTTPS, such as ssh.github.com."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """
    A Git repository.

    Attributes:
        name: The last part of the path of the remote, or else the name of the folder.
        full_name: The whole path of the remote, such as `acme/web`. None without a remote on a host.
        remote_ids: Hashes of the URLs of its remotes, without credentials, scheme and port. The first identifies the repository; the
            next is that of a fork. Empty without remotes.
        folder_id: A hash of the machine and folder.
    """

    name: str
    full_name: str | None = None
    remote_ids: tuple[str, ...] = ()
    folder_id: str


@dataclass(frozen=True, slots=True)
class _Remote:
    """A remote on a host. *path* is the same for HTTPS and SSH, without `.git`."""

    host: str
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def address(self) -> str:
        """The host and path in the form that all URLs of a repository share."""
        return f"{self.host}/{self.path.lower()}"


def find_repository(common_dir: Path) -> Repository | None:
    """
    Return the repository with the Git directory *common_dir*, or None if its folder has no name.

    Its remote is `upstream` if that has the name of `origin`, because a fork shares the memory of the repository that it was made from.
    Otherwise it is `origin`, or else the first remote. The remote of a local clone is followed to the remote of the original.

    Raises:
        OSError: A file cannot be read.
    """
    return _find_repository(common_dir, _MAX_LOCAL_REMOTES)


def identify_folder(folder: Path) -> str:
    """Return the id of a folder that is in no repository."""
    return _digest(f"folder:{socket.gethostname().partition('.')[0].lower()}:{os.path.realpath(folder)}")


def _find_repository(common_dir: Path, depth: int) -> Repository | None:
    folder = common_dir.parent if common_dir.name == ".git" else common_dir
    folder_id = identify_folder(folder)
    urls = _choose_remotes(_read_remotes(common_dir))
    remotes = [remote for remote in map(_parse_remote, urls) if remote is not None]
    if remotes:
        ids = tuple(dict.fromkeys(_digest(f"remote:{remote.address}") for remote in remotes))
        return Repository(name=remotes[0].name, full_name=remotes[0].path, remote_ids=ids, folder_id=folder_id)
    name = next((name for name in map(_name_path, urls) if name), None) or folder.name.removesuffix(".git")
    if not name:
        return None
    original_dir = _find_local_remote(urls[0], folder) if urls and depth else None
    original = None if original_dir is None else _find_repository(original_dir, depth - 1)
    if original is None:
        return Repository(name=name, folder_id=folder_id)
    remote_ids = original.remote_ids or (original.folder_id,)
    return Repository(name=original.name, full_name=original.full_name, remote_ids=remote_ids, folder_id=folder_id)


def _read_remotes(common_dir: Path) -> dict[str, str]:
    """Return the first URL of each remote by its name, with the beginnings replaced that the configuration replaces."""
    entries = read_git_config(common_dir / "config", git_dir=common_dir)
    urls = [entry for entry in entries if entry.section == "remote" and entry.name == "url" and entry.value]
    if not urls:
        return {}
    replacements = [*_read_global_config(common_dir), *entries]
    remotes = dict[str, str]()
    for entry in urls:
        remotes.setdefault(entry.subsection, replace_url(entry.value, replacements))
    return remotes


def _read_global_config(common_dir: Path) -> list[GitEntry]:
    """Return the entries of the user's configuration, or none if it cannot be read."""
    xdg_folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    entries = list[GitEntry]()
    for name in (f"{xdg_folder}/git/config", "~/.gitconfig"):
        with contextlib.suppress(OSError, RuntimeError):
            entries += read_git_config(Path(name).expanduser(), git_dir=common_dir)
    return entries


def _choose_remotes(remotes: Mapping[str, str]) -> list[str]:
    """Return the URL of the remote that identifies the repository, and then that of its fork, if it is one."""
    origin = remotes.get("origin") or next(iter(remotes.values()), None)
    upstream = remotes.get("upstream")
    if origin is None:
        return []
    is_fork = upstream is not None and (_name_path(upstream) or "").lower() == (_name_path(origin) or "").lower()
    return [upstream, origin] if upstream is not None and is_fork else [origin]


def _parse_remote(url: str) -> _Remote | None:
    """Return the remote of a URL with a host and a path, or None."""
    scheme = _SCHEME.match(url)
    if scheme is not None:
        kind = scheme[1].lower()
        authority, _, path = url[scheme.end() :].partition("?")[0].partition("#")[0].partition("/")
        host = authority.rpartition("@")[2]
        host = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        if kind == "file":
            return None
        path = unquote(path)
    else:
        short = _SCP_FORM.match(url)
        if short is None:
            return None
        kind, host, path = "ssh", short[1].strip("[]"), short[2]
    host = host.lower()
    if "ssh" in kind:
        host = _resolve_ssh_alias(host)
    for prefix in _SSH_HOST_PREFIXES:
        host = host.removeprefix(prefix)
    parts = [part for part in path.replace("\\", "/").removesuffix("/").removesuffix(".git").split("/") if part not in {"", "."}]
    if not host or not parts or ".." in parts:
        return None
    return _unify_azure(host, parts) or _Remote(host, "/".join(_drop_bitbucket_prefix(kind, host, parts)))


def _unify_azure(host: str, parts: list[str]) -> _Remote | None:
    """
    Return the remote of a URL of Azure DevOps, or None for other hosts.

    Its forms are `dev.azure.com/ORG/PROJECT/_git/REPO`, without PROJECT if it has the name of REPO, the older
    `ORG.visualstudio.com/PROJECT/_git/REPO`, perhaps with `DefaultCollection`, and for SSH `v3/ORG/PROJECT/REPO`.
    """
    old_host = host.endswith(".visualstudio.com")
    if host != _AZURE_HOST and not old_host:
        return None
    parts = [unquote(part) for part in parts]
    if parts[0].lower() == "v3":
        parts = parts[1:]
    elif old_host:
        parts = [host.partition(".")[0], *parts]
    parts = [part for part in parts if part.lower() not in {"_git", "_ssh", "_optimized", "_full", "defaultcollection"}]
    if len(parts) == 2:
        parts.append(parts[1])
    return _Remote(_AZURE_HOST, "/".join(parts))


def _drop_bitbucket_prefix(kind: str, host: str, parts: list[str]) -> list[str]:
    """Return the parts of a path without the `scm` that Bitbucket Server has in URLs for HTTP, and only there."""
    is_bitbucket = kind in {"http", "https"} and len(parts) == 3 and parts[0].lower() == "scm"
    return parts[1:] if is_bitbucket and not any(name in host for name in _HOSTS_WITH_GROUPS) else parts


def _resolve_ssh_alias(host: str) -> str:
    """Return the host that the user's configuration of SSH has for a name, such as `github-work`."""
    try:
        lines = read_text(Path("~/.ssh/config").expanduser(), _MAX_FILE_BYTES).splitlines()
    except (OSError, RuntimeError):  # no file, or no home
        return host
    is_match = False
    for line in lines:
        keyword, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "host":
            is_match = host in value.lower().split()
        elif keyword.lower() == "hostname" and is_match and value.strip() and "%" not in value:
            return value.strip().lower()
    return host


def _name_path(url: str) -> str | None:
    """Return the last part of the path of a URL, or None if it has no path."""
    remote = _parse_remote(url)
    if remote is not None:
        return remote.name
    path = re.sub(r"^file://[^/]*", "", url, flags=re.IGNORECASE)
    if _SCHEME.match(path):
        return None
    name = re.split(r"[/:\\]", path.rstrip("/\\"))[-1].removesuffix(".git")
    return None if name in {"", ".", ".."} else name


def _find_local_remote(url: str, folder: Path) -> Path | None:
    """Return the Git directory of a remote in the file system, or None if it is not there."""
    path = Path(os.path.realpath(folder / unquote(re.sub(r"^file://[^/]*", "", url, flags=re.IGNORECASE))))
    candidates = (path / ".git", path, path.with_name(f"{path.name}.git"))
    return next((candidate for candidate in candidates if (candidate / "HEAD").is_file()), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()[:_ID_CHARS]
