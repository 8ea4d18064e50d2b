"""The exit codes of commands, and their errors: one line on standard error."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S

WRONG_USAGE = [
    "keys create --name a --scope foo:bar",
    "keys create --name a --scope brain:read --expires-at 2020-01-01",
    "keys create --name a --scope brain:read --expires-at soon",
    "keys create --name a --scope brain:read --tier gold",
    "keys create --name a --preset king",
    "keys create --name a",
    "keys create",
    "keys list --status zzz",
    "keys list --nonsense",
    "agent-keys create --name a --permission foo.bar",
    "agent-keys create --name a --preset agent --ip 300.0.0.1",
    "webhooks add https://example.org/ --event zzz",
    "webhooks add https://example.org/",
    "workspace create a/b",
    "workspace delete default",
    "connect netscape",
    "brain:prune",
    "restore nope.tar",
    "backup nowhere/x.tar",
    "nonsense",
]
NOT_FOUND = [
    "keys show 0190b3d2-0000-7000-8000-000000000000",
    "keys list --workspace nowhere",
    "agent-keys revoke 0190b3d2-0000-7000-8000-000000000000 --yes",
    "workspace show nowhere",
    "servers remove nowhere --yes",
    "servers check nowhere",
    "servers login nowhere",
    "webhooks show 0190b3d2-0000-7000-8000-000000000000",
    "templates show nowhere",
    "brain:reindex --workspace nowhere",
    "export --out nowhere.jsonl --workspace nowhere",
]
SUCCESSFUL = ["keys list", "workspace list", "servers list", "webhooks events", "audit verify", "version", "keys --help"]

_RUN_ALL = """
import contextlib, io, json, sys
from rookery.cli import main
folder, lines, results = sys.argv[1], json.loads(sys.argv[2]), {}
for line in lines:
    sys.argv = ["rookery", "--data-dir", folder, *line.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            results[line] = (end.code, err.getvalue())
        except Exception as error:
            results[line] = (-1, repr(error))
print(json.dumps(results))
"""
"""Runs all commands in one process, because importing the platform takes most of the time."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit code and standard error of each command."""
    folder = tmp_path_factory.mktemp("data")
    settings = {"ROOKERY_BCRYPT_COST": "4", "ROOKERY_MIN_FREE_DISK_MB": "0", "COLUMNS": "80"}
    subprocess.run(
        [sys.executable, "-m", "rookery", "--data-dir", str(folder), "init"], env=settings, check=True, capture_output=True, timeout=HANG_S
    )
    command = [sys.executable, "-c", _RUN_ALL, str(folder), json.dumps([*WRONG_USAGE, *NOT_FOUND, *SUCCESSFUL])]
    process = subprocess.run(
        command, env=settings, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert process.returncode == 0, process.stderr
    return {line: (code, err) for line, (code, err) in json.loads(process.stdout).items()}


@pytest.mark.parametrize(("line", "code"), [*((line, 2) for line in WRONG_USAGE), *((line, 1) for line in NOT_FOUND)])
def test_a_failed_command_prints_one_line(results: dict[str, tuple[int, str]], line: str, code: int) -> None:
    """Exit code 2 is wrong usage, 1 is a failure or a missing resource."""
    exit_code, err = results[line]

    assert exit_code == code, err
    assert err.startswith("error: "), err
    assert len(err.splitlines()) == 1, err
    assert "Invalid value:" not in err


@pytest.mark.parametrize("line", SUCCESSFUL)
def test_a_successful_command_has_exit_code_0(results: dict[str, tuple[int, str]], line: str) -> None:
    """Exit code 0 is success."""
    assert results[line][0] == 0, results[line][1]


@pytest.mark.parametrize("line", ["version", "--help", "keys --help", "keys list --help"])
def test_output_that_cannot_be_written_is_one_line(line: str) -> None:
    """A full disk is no fault of the program: no traceback, and the code of a failure."""
    command = [sys.executable, "-m", "rookery", *line.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)

    reason = "The output cannot be written: No space left on device. Free some space, and run the command again."
    assert (done.returncode, done.stderr) == (1, f"error: {reason}\n")


@pytest.mark.parametrize("line", ["version", "--help", "keys --help"])
def test_output_that_nobody_reads_is_no_error(line: str) -> None:
    """A closed standard output, and a reader that has left, such as `head`, print no traceback."""
    command = shlex.join([sys.executable, "-m", "rookery", *line.split()])
    closed = subprocess.run(["sh", "-c", f"{command} >&-"], stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
    reader, writer = os.pipe()
    os.close(reader)
    left = subprocess.run(["sh", "-c", command], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
    os.close(writer)

    assert (closed.returncode, closed.stderr, left.stderr) == (0, "", "")
    assert left.returncode in {0, 1}
