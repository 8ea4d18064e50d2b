"""The command line at a terminal: help in sections, completion in real shells, colours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from distribution.docs_site.recording import run_at_terminal
from rookery.cli import COMMANDS
from rookery.terminal.entries import CommandSection
from rookery.terminal.output import format_value
from tests.chat_service import answer, run_chat_service
from tests.deadlines import HANG_S
from tests.processes import get_environment, run_rookery

_COMPLETE = {
    "bash": 'source ~/.bashrc; COMP_WORDS=({0}); COMP_CWORD={1}; _rookery_completion rookery; printf "%s\\n" "${{COMPREPLY[@]}}"',
    # The function of zsh passes its answer to `_arguments`, which works only while zsh completes.
    "zsh": 'compdef() {{}}; _arguments() {{ print -r -- "$@" }}; source ~/.zfunc/_rookery; words=({0}); CURRENT={2}; _rookery_completion',
    "fish": 'complete -C "{0}"',
}
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def _run_shell(shell: str, script: str, home: Path) -> str:
    folder = Path(sys.executable).parent
    variables = {**get_environment(), "HOME": str(home), "PATH": f"{folder}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(home / ".config")}
    command = [shell, *(["-f"] if shell == "zsh" else []), "-c", script]
    return subprocess.run(command, env=variables, cwd=home, capture_output=True, text=True, check=True, timeout=HANG_S).stdout


def _run_at_terminal(*arguments: str, **variables: str) -> str:
    """Return what a command writes to a terminal."""
    environment = {**get_environment(), "TERM": "xterm-256color", **variables}
    return run_at_terminal([sys.executable, "-m", "rookery", *arguments], environment)[1]


def test_the_help_shows_every_command_in_its_section() -> None:
    """The help has sections by task, in the order of what a newcomer needs first."""
    text = run_rookery("--help").stdout
    headings = re.findall(r"╭─ (.+?) ─+╮", text)
    parts = dict(zip(headings, re.split(r"╭─ .+? ─+╮", text)[1:], strict=True))

    assert headings[:3] == ["Options", "Start here", "Memory"]
    assert set(headings) == {"Options", *get_args(CommandSection)}
    assert {entry.name for entry in COMMANDS if not re.search(rf"│ {entry.name} ", parts[entry.section])} == set()


@pytest.mark.parametrize("shell", list(_COMPLETE))
def test_an_installed_completion_completes_in_its_shell(tmp_path: Path, shell: str) -> None:
    """The shell itself loads the file of `--install-completion`, and then completes commands of commands."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    _run_shell(shell, "rookery --install-completion; true", tmp_path)  # without `true`, zsh is replaced by the command, and not found

    for words, expected in (("rookery keys li", "list"), ("rookery serve --por", "--port")):
        count = len(words.split())
        completed = _run_shell(shell, _COMPLETE[shell].format(words, count - 1, count), tmp_path)
        assert re.findall(r"[\w-]+", completed.replace("*: :", ""))[0] == expected, completed


@pytest.mark.parametrize("arguments", [["--help"], ["keys", "--help"], ["servers", "check"], ["doctor"], ["keys", "show", "gone"]])
def test_a_pipe_gets_no_control_sequences(tmp_path: Path, arguments: list[str]) -> None:
    """Colours are off in pipes, for help, results and errors."""
    assert run_rookery("init", data_dir=tmp_path).returncode == 0
    process = run_rookery(*arguments, data_dir=tmp_path)

    assert process.stdout + process.stderr
    assert "\x1b" not in process.stdout + process.stderr


def test_texts_of_others_control_neither_a_terminal_nor_the_lines_of_a_pipe(tmp_path: Path) -> None:
    """Scripts count lines and cut fields, so a name has no tab or line break there; a terminal gets no sequences of it."""
    data_dir, file = tmp_path / "data", tmp_path / "campaign.json"
    assert run_rookery("init", data_dir=data_dir).returncode == 0
    name = "Launch\t1\nnext \x1b]0;owned\x07"
    file.write_text(json.dumps({"name": name, "title": "T", "body": "B", "audience": {}}), encoding="utf-8")
    assert run_rookery("notify", "campaigns", "create", str(file), data_dir=data_dir).returncode == 0
    (line,) = run_rookery("notify", "campaigns", "list", data_dir=data_dir).stdout.splitlines()
    campaign = line.split("\t")[0]
    outputs = [_run_at_terminal("--data-dir", str(data_dir), "notify", "campaigns", *words) for words in (["list"], ["show", campaign])]

    assert line.split("\t")[1] == r"Launch\t1\nnext \x1b]0;owned\x07"
    assert [output for output in outputs if "\x1b]" in output or "\x07" in output] == []
    assert r"next \x1b]0;owned\x07" in outputs[1]


def test_an_answer_of_a_model_does_not_control_the_terminal(tmp_path: Path) -> None:
    """`content generate` streams to a terminal without the sequences of an answer, and to a pipe the answer as it is."""
    text = "one\n\ttwo \x1b]52;c;ZXZpbA==\x07 end"
    assert run_rookery("init", data_dir=tmp_path).returncode == 0
    with run_chat_service() as provider:
        provider.queue.extend([answer(text), answer(text)])
        address = {"ROOKERY_GENERATION": provider.url()}
        shown = _run_at_terminal("--data-dir", str(tmp_path), "content", "generate", "Hello", **address)
        piped = run_rookery("content", "generate", "Hello", data_dir=tmp_path, environment={**get_environment(), **address})

    assert piped.stdout == f"{text}\n"
    assert shown == "one\n\ttwo \\x1b]52;c;ZXZpbA==\\x07 end\n"


def test_a_terminal_gets_colours_unless_no_color_is_set() -> None:
    """no-color.org: NO_COLOR switches off colours at a terminal, and only there they are on."""
    assert _COLOUR.search(_run_at_terminal("--help"))
    assert _COLOUR.search(_run_at_terminal("keys", "--wrong"))
    for arguments in (["--help"], ["keys", "--wrong"], ["doctor"]):
        assert not _COLOUR.search(_run_at_terminal(*arguments, NO_COLOR="1"))


def test_a_narrow_terminal_names_the_columns_that_do_not_fit(tmp_path: Path) -> None:
    """A column such as the cost is not missing without a word."""
    assert run_rookery("init", data_dir=tmp_path).returncode == 0
    narrow = _run_at_terminal("--data-dir", str(tmp_path), "keys", "list", COLUMNS="60", NO_COLOR="1")
    wide = _run_at_terminal("--data-dir", str(tmp_path), "keys", "list", COLUMNS="400", NO_COLOR="1")

    assert re.search(r"Columns that do not fit this terminal: [a-z_, ]+\. Use a wider one, a pipe or --json to get them\.", narrow)
    assert "do not fit" not in wide


@pytest.mark.parametrize(("number", "text"), [(4.3e-05, "0.000043"), (0.12, "0.12"), (2.0, "2.0"), (1e21, "1000000000000000000000")])
def test_a_number_has_no_exponent(number: float, text: str) -> None:
    """Money is not printed like physics."""
    assert format_value(number) == text
