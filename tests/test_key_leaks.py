"""The search for keys in the suite's own output bites: a small suite that leaks in every way it knows fails for each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.key_leaks import LeakDetector

_ROOT = Path(__file__).parent.parent

_LEAKS = """
import base64, logging, subprocess, sys, warnings
import pytest
from typer.testing import CliRunner
import typer
from rookery.access.agent_keys import generate_key
from rookery.kernel.errors import RookeryError
from tests import key_leaks

KEY = generate_key().plaintext.reveal()

def test_prints(): print("made", KEY)
def test_prints_to_standard_error(): print("made", KEY, file=sys.stderr)
def test_prints_its_end(): print("…" + KEY[-24:])
def test_prints_credentials(): print(base64.b64encode(f"{KEY}:".encode()).decode())
def test_logs(): logging.getLogger("x").warning("key %s", KEY)
def test_fails(): raise ValueError(KEY)
def test_says_it_in_an_error_of_ours():
    with pytest.raises(RookeryError): raise RookeryError("no key " + KEY)
def test_says_it_in_a_detail():
    with pytest.raises(RookeryError): raise RookeryError("no", key=KEY)
def test_takes_its_output(capsys): print(KEY); capsys.readouterr()
def test_runs_what_writes_to_standard_error():
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", KEY], capture_output=True)
def test_calls_a_command():
    app = typer.Typer()
    app.command()(lambda: print(KEY))
    CliRunner().invoke(app, [])
def test_lets_a_server_log_it(tmp_path):
    (tmp_path / "server.log").write_text("key " + KEY)
    key_leaks.watch_log(tmp_path / "server.log")
def test_lets_a_server_log_one_that_nobody_here_knows(tmp_path):
    (tmp_path / "server.log").write_text('{"key": "sk_live_' + "a" * 32 + '"}')
    key_leaks.watch_log(tmp_path / "server.log")
def test_lets_a_server_log_its_secret_key(tmp_path):
    (tmp_path / "secret.key").write_text("s3cret" * 8)
    (tmp_path / "server.log").write_text("s3cret" * 8)
    key_leaks.watch_log(tmp_path / "server.log")
@pytest.fixture
def untidy(): yield; print(KEY)
def test_tidies_up_loudly(untidy): pass
def test_warns():
    warnings.warn("made " + KEY, UserWarning)
def test_well_says_only_what_lists_show(): print(KEY[:11] + "...", KEY[-20:])
def test_well_calls_a_command_that_mints():
    app = typer.Typer()
    app.command()(lambda words: print(KEY))
    CliRunner().invoke(app, ["keys create"])
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_leak_fails_its_test(tmp_path: Path, workers: int) -> None:
    """Issue: no key in any line, exception or trace; the suite searches all its own output, with xdist too, and names none."""
    (tmp_path / "test_leaks.py").write_text(_LEAKS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONPATH": str(_ROOT)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rfEp",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.key_leaks",
        "-n",
        str(workers),
        "test_leaks.py",
    ]

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100)

    failed = set(re.findall(r"^(?:FAILED|ERROR) test_leaks.py::(\w+)", done.stdout, re.MULTILINE))
    passed = set(re.findall(r"^PASSED test_leaks.py::(\w+)", done.stdout, re.MULTILINE))
    named = set(re.findall(r"^def (test_\w+)", _LEAKS, re.MULTILINE))
    well = {name for name in named if name.startswith("test_well_")}
    assert failed == named - well, done.stdout
    assert passed == well | {"test_warns", "test_tidies_up_loudly"}  # what comes after a test fails the run, or its teardown
    assert "test_warns: a key is in a warning" in done.stdout
    assert done.returncode == 1


def test_what_is_searched_for_is_a_secret_and_its_end() -> None:
    """Notes on the platform, 6: whole or the last 24 characters; not less, and not what lists show."""
    watch = LeakDetector()
    watch.add_secret("ak_" + "Ab1" * 10 + "zz")
    watch.add_secret("postgresql://nobody:secret@127.0.0.1/a-database-with-a-long-name")
    watch.add_secret("a text with spaces, which is a secret too")

    assert watch.find_leak("x ak_" + "Ab1" * 10 + "zz y") == "'x ak_Ab1Ab1Ab…'"
    assert watch.find_leak("first line\nand " + ("Ab1" * 10 + "zz")[-24:]) == "'and …'"
    assert watch.find_leak("a: a text with spaces, which is a secret too!") == "'a: …'"
    assert [
        watch.find_leak(text)
        for text in (("Ab1" * 10 + "zz")[-23:], "ak_Ab1Ab1Ab...", "postgresql://nobody:secret@127.0.0.1/a-database-with-a-long-name")
    ] == [None] * 3
