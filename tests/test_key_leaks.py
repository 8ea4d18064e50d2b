"""The search for keys in the suite's output works: a small suite that leaks keys in every known way fails for each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S
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
def test_prints_the_end_of_it(): print("…" + KEY[-24:])
def test_prints_credentials(): print(base64.b64encode(f"{KEY}:".encode()).decode())
def test_logs(): logging.getLogger("x").warning("key %s", KEY)
def test_fails(): raise ValueError(KEY)
def test_raises_it_in_a_message():
    with pytest.raises(RookeryError): raise RookeryError("no key " + KEY)
def test_raises_it_in_a_detail():
    with pytest.raises(RookeryError): raise RookeryError("no", key=KEY)
def test_captures_its_output(capsys): print(KEY); capsys.readouterr()
def test_runs_a_program_that_writes_to_standard_error():
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", KEY], capture_output=True)
def test_calls_a_command():
    app = typer.Typer()
    app.command()(lambda: print(KEY))
    CliRunner().invoke(app, [])
def test_lets_a_server_log_it(tmp_path):
    (tmp_path / "server.log").write_text("key " + KEY)
    key_leaks.watch_log(tmp_path / "server.log")
def test_lets_a_server_log_an_unknown_one(tmp_path):
    (tmp_path / "server.log").write_text('{"key": "sk_live_' + "a" * 32 + '"}')
    key_leaks.watch_log(tmp_path / "server.log")
def test_lets_a_server_log_its_secret_key(tmp_path):
    (tmp_path / "secret.key").write_text("s3cret" * 8)
    (tmp_path / "server.log").write_text("s3cret" * 8)
    key_leaks.watch_log(tmp_path / "server.log")
@pytest.fixture
def leaking(): yield; print(KEY)
def test_leaks_in_the_teardown(leaking): pass
def test_warns():
    warnings.warn("made " + KEY, UserWarning)
def test_allowed_prefix_and_end(): print(KEY[:11] + "...", KEY[-20:])
def test_allowed_command_that_creates_a_key():
    app = typer.Typer()
    app.command()(lambda words: print(KEY))
    CliRunner().invoke(app, ["keys create"])
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_every_leak_fails_its_test(tmp_path: Path, workers: int) -> None:
    """A key in any line, exception or trace fails the test, with xdist too, and is not printed again."""
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

    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S)

    failed = set(re.findall(r"^(?:FAILED|ERROR) test_leaks.py::(\w+)", process.stdout, re.MULTILINE))
    passed = set(re.findall(r"^PASSED test_leaks.py::(\w+)", process.stdout, re.MULTILINE))
    names = set(re.findall(r"^def (test_\w+)", _LEAKS, re.MULTILINE))
    allowed = {name for name in names if name.startswith("test_allowed_")}
    assert failed == names - allowed, process.stdout
    assert passed == allowed | {"test_warns", "test_leaks_in_the_teardown"}  # a leak after a test fails the run or the teardown
    assert "test_warns: a key is in a warning" in process.stdout
    assert process.returncode == 1


def test_a_secret_and_its_end_are_found() -> None:
    """The whole secret or its last 24 characters are a leak; shorter ends and listed prefixes are not."""
    detector = LeakDetector()
    detector.add_secret("ak_" + "Ab1" * 10 + "zz")
    detector.add_secret("postgresql://nobody:secret@127.0.0.1/a-database-with-a-long-name")
    detector.add_secret("a text with spaces, which is a secret too")

    assert detector.find_leak("x ak_" + "Ab1" * 10 + "zz y") == "'x ak_Ab1Ab1Ab…'"
    assert detector.find_leak("first line\nand " + ("Ab1" * 10 + "zz")[-24:]) == "'and …'"
    assert detector.find_leak("a: a text with spaces, which is a secret too!") == "'a: …'"
    assert [
        detector.find_leak(text)
        for text in (("Ab1" * 10 + "zz")[-23:], "ak_Ab1Ab1Ab...", "postgresql://nobody:secret@127.0.0.1/a-database-with-a-long-name")
    ] == [None] * 3
