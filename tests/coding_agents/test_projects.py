"""The project of a folder, from `.rookery.toml` and from Git's own files (issue 21, D-93)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rookery.coding_agents.projects import PROJECT_FILE, LocalProject, find_project

_GIT = ("git", "-c", "user.name=kim", "-c", "user.email=kim@example.org", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> None:
    """Run Git in *folder*."""
    subprocess.run([*_GIT, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit on the branch fix/login."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "checkout", "-q", "-b", "fix/login")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-q", "-m", "Read the key: from a file\n\nBody.")
    return folder


@pytest.mark.parametrize(
    "url", ["https://github.com/acme/web.git", "git@github.com:acme/web.git", "ssh://git@host:22/acme/web/", "/srv/git/web.git"]
)
def test_a_repository_is_named_after_its_remote(repository: Path, url: str) -> None:
    """Issue 21: project = git common directory and remote. Without a remote, it is the folder of the common directory."""
    assert find_project(repository / "sub" / "deep") == LocalProject(
        project="checkout", branch="fix/login", commit="Read the key: from a file"
    )
    git(repository, "remote", "add", "upstream", "https://example.org/other/name.git")
    git(repository, "remote", "add", "origin", url)
    assert (find_project(repository) or LocalProject(project="")).project == "web"


@pytest.mark.parametrize(
    "url", ["https://kim:secret-token@example.org", "https://kim:secret-token@example.org/?a=b", "https://example.org/.."]
)
def test_a_remote_without_a_path_names_nothing(repository: Path, url: str) -> None:
    """A name is sent to the server and is seen by other agents, so it never has the credentials of a remote."""
    git(repository, "remote", "add", "origin", url)
    assert (find_project(repository) or LocalProject(project="")).project == "checkout"


def test_a_remote_in_quotes_is_read_as_git_reads_it(repository: Path) -> None:
    """`git config` allows quotes around a value, and line ends of Windows."""
    with (repository / ".git" / "config").open("ab") as config:
        config.write(b'[remote "origin"]\r\n\turl = "https://example.org/acme/web.git"\r\n')
    assert (find_project(repository) or LocalProject(project="")).project == "web"


def test_a_file_of_windows_is_read(repository: Path) -> None:
    """Notepad writes a byte order mark and CRLF. A name of blanks counts as no name."""
    (repository / PROJECT_FILE).write_bytes(b'\xef\xbb\xbfproject = "  "\r\norg = " acme "\r\nhooks = false\r\n')
    project = find_project(repository)
    assert project is not None
    assert (project.project, project.org, project.is_recorded) == ("checkout", "acme", False)


def test_worktrees_share_the_project_of_their_repository(repository: Path, tmp_path: Path) -> None:
    """Issue 21: a linked worktree is in the project of its common directory, and has its own branch."""
    git(repository, "remote", "add", "origin", "https://github.com/acme/web.git")
    linked = tmp_path / "elsewhere"
    git(repository, "worktree", "add", "-q", "-b", "other", str(linked))
    (repository / PROJECT_FILE).write_text('project = "shop"\norg = "acme"\n')

    project = find_project(linked)
    assert project is not None
    assert (project.project, project.org, project.branch) == ("shop", "acme", "other")


def test_the_file_in_the_repository_decides(repository: Path) -> None:
    """Issue 21: mapped in .rookery.toml. The nearest one counts, and it can switch the hooks of a folder off."""
    (repository / PROJECT_FILE).write_text('project = "shop"\norg = "acme"\n')
    (repository / "sub" / PROJECT_FILE).write_text("hooks = false\n")
    (repository.parent / PROJECT_FILE).write_text('project = "outside"\n')
    top, below = find_project(repository), find_project(repository / "sub" / "deep")
    assert top is not None
    assert below is not None
    assert (top.project, top.org, top.is_recorded) == ("shop", "acme", True)
    assert (below.project, below.is_recorded) == ("checkout", False)


def test_a_folder_without_a_repository_has_a_project_only_by_its_file(tmp_path: Path) -> None:
    """D-93: outside of repositories nothing is guessed, so nothing is recorded."""
    (tmp_path / "notes").mkdir()
    assert find_project(tmp_path / "notes") is None
    (tmp_path / PROJECT_FILE).write_text('project = "notes"\n')
    assert find_project(tmp_path / "notes") == LocalProject(project="notes")
    (tmp_path / PROJECT_FILE).write_text("project =")
    with pytest.raises(ValueError, match="Invalid value"):
        find_project(tmp_path / "notes")


def test_a_repository_without_commits_has_no_subject(tmp_path: Path) -> None:
    """D-93: an empty repository, a detached HEAD and a checkout have no subject or no branch."""
    git(tmp_path, "init", "-q")
    assert find_project(tmp_path) == LocalProject(project=tmp_path.name, branch="main")
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "First")
    git(tmp_path, "checkout", "-q", "--detach")
    assert find_project(tmp_path) == LocalProject(project=tmp_path.name)
