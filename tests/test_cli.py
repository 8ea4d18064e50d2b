"""The command line as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rookery.cli import COMMANDS, load_command, split_group

HEAVY = {
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy.orm",
    "alembic",
    "numpy",
    "onnxruntime",
    "tokenizers",
    "mcp",
    "httpx2",
    "rookery.wiring",
}
"""What only a server, or a command on memories, needs; each takes 50 ms or more to import."""

READING_KEYS = {
    *("jsonschema_rs", "pydantic", "cryptography", "zstandard", "sqlalchemy.dialects.postgresql"),
    *("rookery.webhooks", "rookery.memory", "rookery.event_mapping", "rookery.backup.creation"),
}
"""
What a command that only reads keys does not need: the conversion of options by pydantic, webhooks, memories, archives, another store.

With it `keys list` took twice the CPU time.
"""

_LIST_MODULES = """
import sys
from rookery.cli import main
sys.argv = ["rookery", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n" + " ".join(sys.modules))
"""


def rookery(*arguments: str, data_dir: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Type a command, off a terminal."""
    folder = [] if data_dir is None else ["--data-dir", str(data_dir)]
    command = [sys.executable, "-m", "rookery", *folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=settings, timeout=60)


def modules_of(data_dir: Path, *arguments: str) -> set[str]:
    """Type a command and return the modules that it imported."""
    command = [sys.executable, "-c", _LIST_MODULES, "--data-dir", str(data_dir), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["brain:reindex", "--stale"], ["brain", "reindex", "--stale"]),
        (["--data-dir", "brain:x", "brain:reindex"], ["--data-dir", "brain:x", "brain", "reindex"]),
        (["brain", "reindex"], ["brain", "reindex"]),
        (["keys", "create", "--scope", "brain:read"], ["keys", "create", "--scope", "brain:read"]),
        (["other:reindex"], ["other:reindex"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_the_specs_spelling_of_a_command_is_known(given: list[str], read: list[str]) -> None:
    """D-04: `rookery brain:reindex` is `rookery brain reindex`; a scope of the same look stays one."""
    assert split_group(given) == read


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    """Issue 14: commands start quickly; D-04: `rookery --help` shows the help of each command without importing it."""
    assert {entry.name: entry.help for entry in COMMANDS} == {entry.name: load_command(entry.name).help for entry in COMMANDS}


def test_what_people_begin_with_stands_first() -> None:
    """Issue 14: the list of commands begins with serve; D-04."""
    names = [entry.name for entry in COMMANDS]

    assert names[:4] == ["serve", "init", "doctor", "connect"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_help_and_version_import_no_library_of_the_server(tmp_path: Path, arguments: list[str]) -> None:
    """Issue 14: commands start quickly; D-04. Typer and Rich are what help needs."""
    imported = modules_of(tmp_path, *arguments)

    assert imported & (HEAVY | {"sqlalchemy", "pydantic", "cryptography", "structlog"}) == set()


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["connect", "claude-code"], {"sqlalchemy", "cryptography", "bcrypt", "jsonschema_rs"}),
        (["servers", "list"], {"sqlalchemy", "cryptography", "bcrypt", "jsonschema_rs"}),
        (["keys", "list"], READING_KEYS),
        (["keys", "list", "--workspace", "default", "--json"], READING_KEYS),
        (["keys", "usage"], READING_KEYS),
        (["keys", "create", "--name", "ci", "--scope", "brain:read"], {"jsonschema_rs", "zstandard"}),
        (["workspace", "list"], READING_KEYS),
        (["audit", "verify"], READING_KEYS),
        (["templates", "list"], {"cryptography", "zstandard", "rookery.memory", "rookery.webhooks", "rookery.tools"}),
        (["webhooks", "list"], {"pydantic", "jsonschema_rs", "zstandard", "rookery.memory", "rookery.agents", "rookery.tools"}),
        (["backup", "--help"], {"pydantic", "bcrypt", "jsonschema_rs"}),
        (["brain:reindex", "--help"], {"cryptography", "bcrypt", "jsonschema_rs"}),
    ],
)
def test_a_command_imports_what_it_needs_and_no_more(tmp_path: Path, arguments: list[str], not_needed: set[str]) -> None:
    """Issue 14: commands start quickly; D-04. Keys need the record store, but not the web framework, the models or the tool servers."""
    assert rookery("init", data_dir=tmp_path).returncode == 0

    assert modules_of(tmp_path, *arguments) & (HEAVY | not_needed) == set()


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["version"]])
def test_the_version_is_shown(arguments: list[str]) -> None:
    """Issue 14: no --version; D-04: the installed package's version, on standard output."""
    done = rookery(*arguments)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"rookery {version('rookery')}\n", "")


def test_the_version_is_shown_to_programs() -> None:
    """D-04: what prints data takes --json."""
    assert json.loads(rookery("version", "--json").stdout)["version"] == version("rookery")


@pytest.mark.parametrize("arguments", [["remember", "The tea is green."], ["search", "tea"]])
def test_a_command_on_memories_imports_no_tool_servers(tmp_path: Path, arguments: list[str]) -> None:
    """Issue 14: commands start quickly. Memories need the vector index, but not the web framework, tool servers and maintenance."""
    assert rookery("init", data_dir=tmp_path).returncode == 0
    unneeded = HEAVY - {"numpy"} | {"jsonschema_rs", "rookery.tools", "rookery.memory.maintenance", "rookery.memory.transfer"}

    assert modules_of(tmp_path, *arguments) & unneeded == set()


@pytest.mark.parametrize(("typed", "offered"), [("ke", {"keys"}), ("keys li", {"list"}), ("keys list --st", {"--status"})])
def test_a_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    """Issue 14: no completion; D-04: what `--install-completion` installs asks the command itself."""
    words = f"rookery {typed}"
    done = rookery(_ROOKERY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))

    assert set(done.stdout.split()) == offered


def test_the_completion_of_a_shell_is_shown() -> None:
    """The CLI prints shell completion scripts (issue 14: it had none; D-04)."""
    shown = rookery("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")  # or else it asks which shell runs this

    assert "_ROOKERY_COMPLETE=complete_bash" in shown.stdout, shown.stderr


def test_no_help_shows_a_type_behind_a_flag() -> None:
    """Issue 14: `--help <bool>`; D-04: a flag takes no value."""
    for arguments in (["--help"], ["keys", "--help"], ["keys", "list", "--help"], ["serve", "--help"]):
        assert "<bool>" not in rookery(*arguments).stdout


@pytest.mark.parametrize(
    "arguments", ["keys list", "recall x", "brain:reindex", "webhooks list", "templates list", "servers list --workspace 1", "doctor"]
)
def test_a_command_with_a_mistyped_folder_fails_and_creates_nothing(tmp_path: Path, arguments: str) -> None:
    """Issue 14, D-04: after a failed restore `doctor` reported no problem, and the databases that it created blocked the next restore."""
    (tmp_path / "photos").mkdir(mode=0o755)
    (tmp_path / "photos" / "cat.jpg").touch()

    done = rookery(*arguments.split(), data_dir=tmp_path / "photos")
    missing = rookery(*arguments.split(), data_dir=tmp_path / "typo")

    assert (done.returncode, missing.returncode) == (1, 1)
    assert f"{tmp_path / 'photos'} contains no data of Rookery. Check --data-dir and ROOKERY_DATA_DIR." in done.stdout + done.stderr
    assert f"{tmp_path / 'typo'} does not exist. Check --data-dir" in missing.stdout + missing.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["photos", "cat.jpg"]
    assert (tmp_path / "photos").stat().st_mode & 0o777 == 0o755


def test_the_first_workspace_and_a_check_of_servers_create_the_folder(tmp_path: Path) -> None:
    """D-04: what an operator may do before the first start still needs no `init`."""
    (tmp_path / "servers.json").write_text('{"mcpServers": {"gone": {"command": "/no/such/program"}}}', encoding="utf-8")

    checked = rookery("servers", "check", data_dir=tmp_path)
    created = rookery("workspace", "create", "acme", data_dir=tmp_path / "new")

    assert (checked.returncode, "/no/such/program" in checked.stdout, created.returncode) == (1, True, 0)


def test_an_option_of_all_commands_after_one_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    """Issue 14: `rookery serve --data-dir FOLDER` is what a newcomer tries."""
    done = rookery("keys", "list", "--data-dir", "x", data_dir=tmp_path)

    assert (done.returncode, done.stderr) == (2, "error: --data-dir stands before the command: rookery --data-dir FOLDER keys list\n")
