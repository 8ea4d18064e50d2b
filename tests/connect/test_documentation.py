"""The how-to of coding agents is followed on a running server, and its file is the one that `rookery connect` writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from rookery.coding_agents.hook_declarations import MAX_PROJECT_CHARS
from rookery.connect.hook_entries import HookTarget, build_hooks, find_hooks
from tests.deadlines import HANG_S
from tests.documentation import ANY, ROOT, Example, blocks, commands, text_of
from tests.processes import get_environment, run_server

PAGE = ROOT / "docs" / "how-to" / "coding-agents.md"
SHOWN_FOLDER, SHOWN_URL = "/srv/web", "http://127.0.0.1:8400"
HOOKS, CONNECT = "rookery hook", "rookery connect"


def read_examples(part: str) -> list[Example]:
    """Return the commands of the page that contain *part*."""
    shown = [example for block in blocks(PAGE) if block.language == "console" for example in commands(block)]
    return [example for example in shown if part in example.command]


def matches(shown: str | None, answer: str) -> bool:
    """Return True if *answer* is as the page shows it; `…` stands for any text."""
    parts = (shown or "").strip().split(ANY)
    return re.fullmatch(".*".join(map(re.escape, parts)), answer.strip(), re.DOTALL) is not None


def test_the_steps_lead_to_what_they_show(tmp_path: Path) -> None:
    """A newcomer writes the set-up, exports the key, checks, and sees the record of a first session in the second."""
    home, folder = tmp_path / "home", tmp_path / "web"
    for path in (home, folder):
        path.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=HANG_S)
    with run_server(tmp_path / "data") as server:
        environment = get_environment() | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ROOKERY_DATA_DIR": str(server.folder),
            "ROOKERY_URL": server.url,
        }

        def run(command: str) -> str:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # a terminal shows both
                text=True,
                timeout=HANG_S,
                check=False,
            )
            key = re.search(r"^export ROOKERY_KEY=(\S+)$", done.stdout, re.MULTILINE)
            environment.update({"ROOKERY_KEY": key[1]} if key else {})
            return done.stdout

        for example in read_examples(CONNECT):
            answer = run(example.command).replace(str(folder), SHOWN_FOLDER).replace(server.url, SHOWN_URL)
            assert matches(example.answer, answer), f"{example.where}: {example.command}\n{answer}"

        examples = read_examples(HOOKS)
        first, stop, second = (run(example.command) for example in examples)
        assert ("It is still empty." in first, stop) == (True, "")
        deadline = time.monotonic() + HANG_S
        while not matches(examples[-1].answer, second):  # a hook that is slower than its deadline prints nothing
            assert time.monotonic() < deadline, second
            number = time.monotonic_ns()
            _, _, second = (run(re.sub(r'"(one|two)"', rf'"\1-{number}"', example.command)) for example in examples)


def test_the_file_by_hand_has_the_hooks_that_connect_writes() -> None:
    """The page shows two of them, without the address, which is the default."""
    (block,) = [block for block in blocks(PAGE) if block.language == "json"]
    hooks = build_hooks("claude-code", HookTarget(url=SHOWN_URL))
    hooks["SessionStart"]["args"] = cast("list[str]", hooks["SessionStart"]["args"])[:-2]

    shown = find_hooks(block.text)

    assert [hook.event for hook in shown] == ["SessionStart", "UserPromptSubmit"]
    assert [hook.handler for hook in shown] == [hooks[hook.event] for hook in shown]
    assert json.loads(block.text).keys() == {"hooks"}


def test_the_page_names_the_limits_of_a_project() -> None:
    """A longer name is cut."""
    text = " ".join(text_of(PAGE).split())
    assert f"A project has at most {MAX_PROJECT_CHARS['project']} characters and an org {MAX_PROJECT_CHARS['org']}" in text
