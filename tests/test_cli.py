"""The command line as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rookery.cli import COMMANDS, load_command, split_group
from tests.deadlines import HANG_S
from tests.documentation import all_commands, option_names
from tests.processes import run_rookery

HEAVY = {
    "starlette",
    "uvicorn",
    "sqlalchemy.orm",
    "alembic",
    "numpy",
    "onnxruntime",
    "faiss",
    "tokenizers",
    "mcp",
    "httpx2",
    "rookery.wiring",
}
"""Modules that only a server or a command on memories needs; each takes 50 ms or more to import."""

NOT_FOR_READING_KEYS = {
    *("jsonschema_rs", "pydantic", "cryptography", "zstandard", "sqlalchemy.dialects.postgresql", "rich.traceback"),
    *("rookery.webhooks", "rookery.memory", "rookery.backup.creation"),
}
"""
Modules that a command that only reads keys and workspaces does not need: pydantic, webhooks, memories, archives, another store and rich's
tracebacks. With them `workspace list` takes twice the CPU time.
"""

MODELS = {"pydantic", "cryptography"}
"""Modules that the models and the declaration of an operation import."""

_LIST_MODULES = """
import sys
from rookery.cli import main
sys.argv = ["rookery", *sys.argv[1:]]
try:
    main()
finally:
    print("\\n" + " ".join(sys.modules))
"""


def list_imported_modules(data_dir: Path, *arguments: str) -> set[str]:
    """Run a command and return the modules that it imported. A domain of which only its list of commands was read does not count."""
    command = [sys.executable, "-c", _LIST_MODULES, "--data-dir", str(data_dir), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    imported = set(process.stdout.splitlines()[-1].split())
    for table in {entry.target.rpartition(".")[0] for entry in COMMANDS if ".commands." in entry.target}:
        domain = table.removesuffix(".commands")
        if {name for name in imported if name.startswith(f"{domain}.")} == {table}:
            imported -= {domain, table}
    return imported


@pytest.mark.parametrize(
    ("arguments", "expected"),
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
def test_the_specified_spelling_of_a_command_is_accepted(arguments: list[str], expected: list[str]) -> None:
    """`rookery brain:reindex` is `rookery brain reindex`; a scope that looks alike is not changed."""
    assert split_group(arguments) == expected


def test_the_table_of_commands_has_the_help_of_the_commands() -> None:
    """`rookery --help` shows the help of each command without importing it."""
    assert {entry.name: entry.help for entry in COMMANDS} == {entry.name: load_command(entry.name).help for entry in COMMANDS}


def test_the_first_commands_of_a_user_are_listed_first() -> None:
    """The list of commands begins with serve."""
    names = [entry.name for entry in COMMANDS]

    assert names[:4] == ["serve", "init", "doctor", "connect"]
    assert len(set(names)) == len(names)


def test_every_option_has_one_name() -> None:
    """A command accepts an option under its documented name only. The name may have one letter as its short form."""
    assert [(command, names) for command, names in option_names() if len([name for name in names if name.startswith("--")]) > 1] == []


@pytest.mark.parametrize("name", ["--top-k", "--output", "--time-zone", "--state", "--grace-hours", "--no-agent"])
def test_every_command_has_the_same_option_for_the_same_thing(name: str) -> None:
    """An option with the meaning of a common one has its name, such as `--limit` or `--out`."""
    assert [command for command, options in all_commands() if name in options] == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_help_and_version_import_no_library_of_the_server(tmp_path: Path, arguments: list[str]) -> None:
    """Help needs only Typer and Rich."""
    imported = list_imported_modules(tmp_path, *arguments)

    assert imported & (HEAVY | {"sqlalchemy", "pydantic", "cryptography", "structlog"}) == set()


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["connect", "claude-code"], {"sqlalchemy", "cryptography", "bcrypt", "jsonschema_rs"}),
        (["servers", "list"], {"sqlalchemy", "cryptography", "bcrypt", "jsonschema_rs"}),
        (["workspace", "list"], NOT_FOR_READING_KEYS),
        (["audit", "verify"], NOT_FOR_READING_KEYS),
        (["templates", "list"], {"cryptography", "zstandard", "rookery.memory", "rookery.webhooks", "rookery.tools"}),
        (["backup", "--help"], {"pydantic", "bcrypt", "jsonschema_rs"}),
        (["brain:reindex", "--help"], {"cryptography", "bcrypt", "jsonschema_rs"}),
    ],
)
def test_a_command_imports_only_what_it_needs(tmp_path: Path, arguments: list[str], not_needed: set[str]) -> None:
    """Commands for workspaces need the record store, but no web framework, models or tool servers."""
    assert run_rookery("init", data_dir=tmp_path).returncode == 0

    assert list_imported_modules(tmp_path, *arguments) & (HEAVY | not_needed) == set()


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["webhooks", "list"], {"jsonschema_rs", "zstandard"}),
        (["keys", "list"], NOT_FOR_READING_KEYS - MODELS),
        (["keys", "list", "--workspace", "default", "--json"], NOT_FOR_READING_KEYS - MODELS),
        (["keys", "usage"], NOT_FOR_READING_KEYS - MODELS),
        (["keys", "create", "--name", "ci", "--scope", "brain:read"], {"jsonschema_rs", "zstandard"}),
    ],
)
def test_a_command_of_an_operation_imports_no_server(tmp_path: Path, arguments: list[str], not_needed: set[str]) -> None:
    """It reads the declaration and the models of its operation, which import pydantic and starlette."""
    assert run_rookery("init", data_dir=tmp_path).returncode == 0

    assert list_imported_modules(tmp_path, *arguments) & (HEAVY - {"starlette"} | not_needed) == set()


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["version"]])
def test_the_version_is_shown(arguments: list[str]) -> None:
    """The version of the installed package is on standard output."""
    process = run_rookery(*arguments)

    assert (process.returncode, process.stdout, process.stderr) == (0, f"rookery {version('rookery')}\n", "")


def test_the_version_is_shown_to_programs() -> None:
    """Commands that print data have --json."""
    assert json.loads(run_rookery("version", "--json").stdout)["version"] == version("rookery")


@pytest.mark.parametrize("arguments", [["remember", "The tea is green."], ["search", "tea"]])
def test_a_command_on_memories_imports_no_tool_servers(tmp_path: Path, arguments: list[str]) -> None:
    """Commands start quickly. Memories need the vector index, but not the web framework, tool servers and maintenance."""
    assert run_rookery("init", data_dir=tmp_path).returncode == 0
    unneeded = HEAVY - {"numpy"} | {"jsonschema_rs", "rookery.tools", "rookery.memory.maintenance", "rookery.memory.transfer"}

    assert list_imported_modules(tmp_path, *arguments) & unneeded == set()


@pytest.mark.parametrize(("typed", "expected"), [("ke", {"keys"}), ("keys li", {"list"}), ("keys list --st", {"--status"})])
def test_a_shell_completes_commands_and_options(typed: str, expected: set[str]) -> None:
    """The installed completion script calls the command itself."""
    words = f"rookery {typed}"
    variables = {"_ROOKERY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    process = run_rookery(environment=variables)

    assert set(process.stdout.split()) == expected


def test_the_completion_of_a_shell_is_shown() -> None:
    """The CLI prints shell completion scripts."""
    variables = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # otherwise it detects the current shell
    process = run_rookery("--show-completion", "bash", environment=variables)

    assert "_ROOKERY_COMPLETE=complete_bash" in process.stdout, process.stderr


def test_no_help_shows_a_type_behind_a_flag() -> None:
    """A flag has no value in help texts."""
    for arguments in (["--help"], ["keys", "--help"], ["keys", "list", "--help"], ["serve", "--help"]):
        assert "<bool>" not in run_rookery(*arguments).stdout


@pytest.mark.parametrize(
    "arguments", ["keys list", "recall x", "brain:reindex", "webhooks list", "templates list", "servers list --workspace 1", "doctor"]
)
def test_a_command_with_a_mistyped_folder_fails_and_creates_nothing(tmp_path: Path, arguments: str) -> None:
    """After a failed restore `doctor` reported no problem, and the databases that it created blocked the next restore."""
    (tmp_path / "photos").mkdir(mode=0o755)
    (tmp_path / "photos" / "cat.jpg").touch()

    process = run_rookery(*arguments.split(), data_dir=tmp_path / "photos")
    missing = run_rookery(*arguments.split(), data_dir=tmp_path / "typo")

    assert (process.returncode, missing.returncode) == (1, 1)
    assert f"{tmp_path / 'photos'} contains no data of Rookery. Check --data-dir and ROOKERY_DATA_DIR." in process.stdout + process.stderr
    assert f"{tmp_path / 'typo'} does not exist. Check --data-dir" in missing.stdout + missing.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["photos", "cat.jpg"]
    assert (tmp_path / "photos").stat().st_mode & 0o777 == 0o755


def test_the_first_workspace_and_a_check_of_servers_create_the_folder(tmp_path: Path) -> None:
    """Commands that are allowed before the first start need no `init`."""
    (tmp_path / "servers.json").write_text('{"mcpServers": {"gone": {"command": "/no/such/program"}}}', encoding="utf-8")

    checked = run_rookery("servers", "check", data_dir=tmp_path)
    created = run_rookery("workspace", "create", "acme", data_dir=tmp_path / "new")

    assert (checked.returncode, "/no/such/program" in checked.stdout, created.returncode) == (1, True, 0)


def test_an_option_of_all_commands_after_one_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    """`rookery serve --data-dir FOLDER` is what a newcomer tries."""
    process = run_rookery("keys", "list", "--data-dir", "x", data_dir=tmp_path)

    assert (process.returncode, process.stderr) == (2, "error: --data-dir stands before the command: rookery --data-dir FOLDER keys list\n")
