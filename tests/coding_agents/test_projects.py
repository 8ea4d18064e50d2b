"""The project of a folder, from `.rookery.toml` and from Git's own files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rookery.coding_agents.projects import PROJECT_FILE, LocalProject, find_project

_GIT = ("git", "-c", "user.name=kim", "-c", "user.email=kim@example.org", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> None:
    """Run Git in *folder*."""
    subprocess.run([*_GIT, *arguments], cwd=folder, check=True, capture_output=True)


def get_project(folder: Path) -> LocalProject:
    """Return the project of *folder*, which has one."""
    project = find_project(folder)
    assert project is not None
    return project


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
    """Project = git common directory and remote. Without a remote, it is the folder of the common directory."""
    plain = get_project(repository / "sub" / "deep")
    assert (plain.project, plain.branch, plain.commit) == ("checkout", "fix/login", "Read the key: from a file")
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
    """A linked worktree is in the project of its common directory, and has its own branch."""
    git(repository, "remote", "add", "origin", "https://github.com/acme/web.git")
    linked = tmp_path / "elsewhere"
    git(repository, "worktree", "add", "-q", "-b", "other", str(linked))
    (repository / PROJECT_FILE).write_text('project = "shop"\norg = "acme"\n')

    project = find_project(linked)
    assert project is not None
    assert (project.project, project.org, project.branch) == ("shop", "acme", "other")


def test_the_file_in_the_repository_decides(repository: Path) -> None:
    """Mapped in .rookery.toml. The nearest one counts, and it can switch the hooks of a folder off."""
    (repository / PROJECT_FILE).write_text('project = "shop"\norg = "acme"\n')
    (repository / "sub" / PROJECT_FILE).write_text("hooks = false\n")
    (repository.parent / PROJECT_FILE).write_text('project = "outside"\n')
    top, below = find_project(repository), find_project(repository / "sub" / "deep")
    assert top is not None
    assert below is not None
    assert (top.project, top.org, top.is_recorded) == ("shop", "acme", True)
    assert (below.project, below.is_recorded) == ("checkout", False)


def test_a_folder_without_a_repository_has_a_project_only_by_its_file(tmp_path: Path) -> None:
    """Outside of repositories nothing is guessed, so nothing is recorded."""
    (tmp_path / "notes").mkdir()
    assert find_project(tmp_path / "notes") is None
    (tmp_path / PROJECT_FILE).write_text('project = "notes"\n')
    notes = get_project(tmp_path / "notes")
    assert (notes.project, notes.is_named, notes.repository, notes.branch) == ("notes", True, None, None)
    (tmp_path / PROJECT_FILE).write_text("project =")
    with pytest.raises(ValueError, match="Invalid value"):
        find_project(tmp_path / "notes")


def test_a_repository_without_commits_has_no_subject(tmp_path: Path) -> None:
    """An empty repository, a detached HEAD and a checkout have no subject or no branch."""
    git(tmp_path, "init", "-q")
    empty = get_project(tmp_path)
    assert (empty.project, empty.branch, empty.commit) == (tmp_path.name, "main", None)
    (tmp_path / "a.txt").write_text("a")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "First")
    git(tmp_path, "checkout", "-q", "--detach")
    detached = get_project(tmp_path)
    assert (detached.project, detached.branch, detached.commit) == (tmp_path.name, None, None)


def clone(folder: Path, *remotes: tuple[str, str]) -> LocalProject:
    """Return the project of a new repository with *remotes*, each a name and a URL."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, url in remotes:
        git(folder, "remote", "add", name, url)
    return get_project(folder)


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:acme/api.git",
        "ssh://git@github.com:22/acme/api",
        "ssh://git@ssh.github.com:443/acme/api.git",
        "https://kim:token@github.com/acme/api.git/",
        "https://github.com/Acme/API",
        "git://github.com/acme/api.git",
    ],
)
def test_all_forms_of_a_remote_are_one_repository(tmp_path: Path, url: str) -> None:
    """Another clone gets the memory, whatever the form of its URL."""
    first = clone(tmp_path / "a" / "api", ("origin", "https://github.com/acme/api"))
    other = clone(tmp_path / "b" / "copy", ("origin", url))
    assert first.repository == other.repository
    assert first.folder != other.folder
    assert (other.full_name or "").lower() == "acme/api"
    assert "token" not in repr(other)


def test_repositories_of_one_name_differ(tmp_path: Path) -> None:
    """Repositories of other owners, other hosts, and without a remote in other folders."""
    urls = ("git@github.com:acme/api.git", "https://github.com/globex/api", "https://gitlab.com/acme/api", "https://github.com/acme/x/api")
    found = [clone(tmp_path / str(number) / "api", ("origin", url)) for number, url in enumerate(urls)]
    assert {project.project for project in found} == {"api"}
    assert len({project.repository for project in found}) == len(urls)
    kim, lee = clone(tmp_path / "kim" / "api"), clone(tmp_path / "lee" / "api")
    assert (kim.repository, lee.repository) == (None, None)
    assert kim.folder != lee.folder
    assert str(tmp_path) not in repr(kim)


def test_a_fork_is_the_repository_of_its_upstream(tmp_path: Path) -> None:
    """A fork shares with the original. A template that is a remote under the name upstream has another name."""
    acme = clone(tmp_path / "acme" / "api", ("origin", "https://github.com/acme/api"))
    kim = clone(tmp_path / "kim" / "api", ("origin", "git@github.com:kim/api.git"))
    fork = clone(tmp_path / "fork" / "api", ("origin", "git@github.com:kim/api.git"), ("upstream", "git@github.com:acme/api.git"))
    made = clone(tmp_path / "made" / "api", ("origin", "git@github.com:kim/api.git"), ("upstream", "git@github.com:acme/starter.git"))
    assert fork.repository == f"{acme.repository},{kim.repository}"
    assert made.repository == kim.repository


def test_a_local_clone_is_the_repository_of_its_original(repository: Path, tmp_path: Path) -> None:
    """`git clone ../checkout` shares with the original, before and after the original has a remote."""
    git(tmp_path, "clone", "-q", str(repository), str(tmp_path / "copy"))
    original, copy = get_project(repository), get_project(tmp_path / "copy")
    assert (copy.project, copy.repository) == ("checkout", original.folder)
    git(repository, "remote", "add", "origin", "git@github.com:acme/web.git")
    original, copy = get_project(repository), get_project(tmp_path / "copy")
    assert (copy.project, copy.repository) == ("web", original.repository)


def test_worktrees_share_a_repository_and_submodules_do_not(repository: Path, tmp_path: Path) -> None:
    """A worktree is the repository; a submodule is one of its own."""
    library = tmp_path / "library"
    clone(library, ("origin", "https://github.com/acme/library"))
    git(library, "commit", "-q", "--allow-empty", "-m", "First")
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "elsewhere"))
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "library")
    top, worktree, submodule = (get_project(path) for path in (repository, tmp_path / "elsewhere", repository / "library"))
    assert (worktree.folder, worktree.project) == (top.folder, "checkout")
    assert (submodule.project, submodule.repository) == ("library", get_project(library).repository)


def test_a_host_of_the_ssh_configuration_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git@github-work:acme/api.git` and the URL for HTTPS are one repository."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host other\n  HostName example.org\nHost github-work\n  User git\n  HostName github.com\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    work = clone(tmp_path / "a" / "api", ("origin", "git@github-work:acme/api.git"))
    assert work.repository == clone(tmp_path / "b" / "api", ("origin", "https://github.com/acme/api")).repository


def identify(tmp_path: Path, *urls: str) -> list[str | None]:
    """Return the repository of a clone of each URL."""
    return [clone(tmp_path / str(number) / "api", ("origin", url)).repository for number, url in enumerate(urls)]


@pytest.mark.parametrize(
    ("urls", "full_name"),
    [
        (
            (
                "https://dev.azure.com/acme/shop/_git/api",
                "https://kim@dev.azure.com/acme/shop/_git/api",
                "git@ssh.dev.azure.com:v3/acme/shop/api",
                "https://acme.visualstudio.com/DefaultCollection/shop/_git/api",
                "acme@vs-ssh.visualstudio.com:v3/acme/shop/api",
            ),
            "acme/shop/api",
        ),
        (("https://dev.azure.com/acme/_git/api", "git@ssh.dev.azure.com:v3/acme/api/api"), "acme/api/api"),
        (("https://dev.azure.com/acme/My%20Shop/_git/api", "git@ssh.dev.azure.com:v3/acme/My%20Shop/api"), "acme/My Shop/api"),
        (("https://git.acme.org/scm/shop/api.git", "ssh://git@git.acme.org:7999/shop/api.git"), "shop/api"),
    ],
)
def test_services_with_other_paths_for_ssh_are_one_repository(tmp_path: Path, urls: tuple[str, ...], full_name: str) -> None:
    """Azure DevOps and Bitbucket Server have other paths for HTTPS than for SSH."""
    assert len(set(identify(tmp_path, *urls))) == 1
    assert get_project(tmp_path / "0" / "api").full_name == full_name


def test_an_owner_with_the_name_of_a_prefix_is_an_owner(tmp_path: Path) -> None:
    """Nothing that belongs to the path is dropped."""
    urls = ("https://gitlab.com/scm/sub/api", "https://gitlab.com/sub/api", "https://github.com/v3/sub/api", "https://github.com/sub/api")
    assert len(set(identify(tmp_path, *urls))) == len(urls)


@pytest.mark.parametrize(
    "config",
    [
        '[remote "origin"] url = https://github.com/acme/api\n',
        '[remote "origin"]\n\turl = https://github.com/acme/api.git # work\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[remote "origin"]\n\turl = "https://github.com/acme/api" ; work\n',
        '[remote "origin"]\n\turl = https://github.com/\\\nacme/api\n',
        "[include]\n\tpath = remotes\n",
        '[url "git@github.com:"]\n\tinsteadOf = gh:\n[remote "origin"]\n\turl = gh:acme/api\n',
        (
            '[url "https://example.org/"]\n\tinsteadOf = gh:\n[url "https://github.com/acme/"]\n\tinsteadOf = gh:acme/\n'
            '[remote "origin"]\n\turl = gh:acme/api\n'
        ),
    ],
)
def test_a_configuration_is_read_as_git_reads_it(tmp_path: Path, config: str) -> None:
    """Each of these has the remote that Git itself names."""
    other = clone(tmp_path / "a" / "api", ("origin", "git@github.com:acme/api.git"))
    folder = tmp_path / "b" / "copy"
    clone(folder)
    (folder / ".git" / "remotes").write_text('[remote "origin"]\n\turl = https://github.com/acme/api\n')
    with (folder / ".git" / "config").open("a") as file:
        file.write(config)
    found = subprocess.run([*_GIT, "ls-remote", "--get-url", "origin"], cwd=folder, check=True, capture_output=True, text=True).stdout

    assert found.strip().removesuffix(".git").endswith("acme/api")
    assert get_project(folder).repository == other.repository


def test_the_configuration_of_the_user_replaces_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a file that is included for a folder only."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(f'[includeIf "gitdir:{tmp_path}/work/"]\n\tpath = .gitconfig-work\n')
    (tmp_path / ".gitconfig-work").write_text('[url "https://github.com/"]\n\tinsteadOf = work:\n')
    other = clone(tmp_path / "a" / "api", ("origin", "https://github.com/acme/api"))

    assert clone(tmp_path / "work" / "api", ("origin", "work:acme/api")).repository == other.repository
    assert clone(tmp_path / "home" / "api", ("origin", "work:acme/api")).repository != other.repository
