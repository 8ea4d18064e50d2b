"""The operator's commands for memory maintenance, run like in a shell."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rookery.kernel.config import Settings
from rookery.memory.models import Memory
from rookery.memory.store import maintenance, records
from rookery.memory.store.maintenance import MemorySelection
from rookery.wiring import build_platform as build_rookery
from tests.conftest import OPERATOR, FakeClock
from tests.deadlines import HANG_S
from tests.memory.command_line import Platform
from tests.memory.makers import make_caller, make_memory

PRIVATE = "Ask kim@example.org, or Lee at +49 30 901820."
MEMORY_COUNT = 2_000


@pytest.fixture
def platform(data_dir: Path) -> Platform:
    """Return a platform whose folder has untidy memories in two workspaces."""
    platform = Platform(data_dir)
    asyncio.run(_fill(platform))
    return platform


async def _fill(platform: Platform) -> None:
    async with platform.rig() as rig:
        for content in (PRIVATE, "heron", "heron", "Two  words"):
            await rig.remember(content, project="web" if content != "heron" else "zoo/web", org=None if content == "heron" else "acme")
        await rig.remember("weak", confidence=0.1)
        await rig.remember(PRIVATE, make_caller(workspace_id=2))
        await rig.run_jobs()


def _run(platform: Platform, *arguments: str) -> tuple[int, str]:
    result = platform.run("brain", *arguments)
    return result.exit_code, result.output


def _confirmation(command: list[str]) -> list[str]:
    return ["--yes"] if "--strip-pii" in command else []


COMMANDS = (["clean", "--strip-pii"], ["prune", "--deduplicate"], ["consolidate"], ["backfill-org"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_need_a_workspace_option_if_there_are_two(platform: Platform, command: list[str]) -> None:
    """clean, prune, consolidate and backfill-org need --workspace if a second workspace exists."""
    assert _run(platform, *command, "--dry-run")[0] == 0
    platform.workspace_names[2] = "side"
    assert _run(platform, *command, "--dry-run")[0] == 2
    assert [_run(platform, *command, "--dry-run", "--workspace", name)[0] for name in ("main", "1", "2", "none")] == [0, 0, 0, 1]
    platform.workspace_names[3] = "1"
    assert _run(platform, *command, "--dry-run", "--workspace", "1")[0] == 2
    platform.workspace_names.clear()
    assert _run(platform, *command, "--dry-run")[0] == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_prints_a_report(platform: Platform, command: list[str]) -> None:
    """The report has total, successes, failures and duration; --json prints one document; a dry run lists every item."""
    dry_run = json.loads(_run(platform, *command, "--dry-run", "--json")[1])
    status, printed = _run(platform, *command, *_confirmation(command), "--json")
    report = json.loads(printed)

    assert status == 0
    assert dry_run.pop("dry_run")
    assert len({item["id"] for item in dry_run.pop("items")}) == dry_run.pop("would_be_done") > 0
    assert dry_run.pop("successes") == 0, "a dry run changes nothing"
    assert {**dry_run, "duration_s": 0} == {
        name: 0 if name == "duration_s" else value for name, value in report.items() if name != "successes"
    }
    assert (report["total"], report["failures"], report["stopped"]) == (report["successes"], 0, None)
    assert _run(platform, *command, *_confirmation(command))[1].startswith("total ")


def test_a_dry_run_into_a_pipe_prints_a_line_for_each_memory(platform: Platform) -> None:
    """The columns are separated by tabs, and no personal data is printed."""
    status, printed = _run(platform, "clean", "--strip-pii", "--dry-run")
    lines = printed.splitlines()

    assert (status, lines[0].split("\t")[1:], len(lines)) == (0, ["change", "email, phone"], 3)
    assert "kim" not in printed


def test_a_command_without_an_action_is_wrong_usage(platform: Platform) -> None:
    """A missing criterion or a number out of range exits with 2."""
    assert [_run(platform, *arguments)[0] for arguments in (["clean"], ["prune"], ["prune", "--delete"], ["prune", "--dry-run"])] == [2] * 4
    assert [_run(platform, "prune", "--min-confidence", number)[0] for number in ("1.1", "-1", "much")] == [2] * 3
    assert _run(platform, "consolidate", "--threshold", "2")[0] == 2


@pytest.mark.parametrize(
    ("command", "change"),
    [
        (["prune", "--min-confidence", "0.2"], "archived"),
        (["prune", "--min-confidence", "0.2", "--delete"], "deleted"),
        (["clean", "--strip-pii"], "changed"),
    ],
)
def test_a_dry_run_says_what_would_be_done(platform: Platform, command: list[str], change: str) -> None:
    """The text of a dry run never reports a change as made. The fields of --json keep their names."""
    printed = _run(platform, *command, "--dry-run")[1]
    fields = json.loads(_run(platform, *command, "--dry-run", "--json")[1])

    assert f", would be done 1, would be {change} 1" in printed
    assert re.search(r", (?!would be done|duration)[a-z ]+ 0\b", printed) is None, "counts that are 0 would hide the others"
    assert (fields["would_be_done"], fields[change], fields["successes"]) == (1, 1, 0)


def test_irreversible_commands_need_a_confirmation(platform: Platform) -> None:
    """Off a terminal, commands that destroy data need --yes; clean --strip-pii did not."""
    assert _run(platform, "clean", "--strip-pii")[0] == 2
    assert json.loads(_run(platform, "clean", "--strip-pii", "--dry-run", "--json")[1])["would_be_done"] == 1
    assert json.loads(_run(platform, "clean", "--strip-pii", "--yes", "--json")[1])["changed"] == 1
    assert _run(platform, "clean", "--normalise")[0] == 0
    assert _run(platform, "prune", "--min-confidence", "0.2", "--delete")[0] == 2
    assert json.loads(_run(platform, "prune", "--min-confidence", "0.2", "--delete", "--yes", "--json")[1])["deleted"] == 1


def test_a_terminal_gets_the_first_items_and_a_table(platform: Platform, data_dir: Path) -> None:
    """The terminal shows the first items and a table at the end."""
    asyncio.run(_make_workspace(data_dir))
    asyncio.run(_add(platform, 30))
    printed = _run_on_terminal(data_dir, "brain:clean", "--strip-pii", "--dry-run", "--workspace", "1")

    assert "These are the first 20 of 31; use a pipe or --json to get all." in printed
    assert "would be done" in printed
    assert "Dry run: nothing was changed." in printed
    assert not re.search(r"│ (successes|failures|archived)\b", printed), "counts that are 0 would hide the others"


def test_a_killed_run_can_be_resumed(platform: Platform, data_dir: Path) -> None:
    """--resume continues where the killed run stopped and changes no memory twice."""
    asyncio.run(_make_workspace(data_dir))
    asyncio.run(_add(platform, MEMORY_COUNT))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), "brain:clean", "--strip-pii", "--yes", "--workspace", "1"]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        done_count = asyncio.run(_wait_for_checkpoint(platform, process))
        process.send_signal(signal.SIGKILL)
    contents = asyncio.run(_contents(platform))
    report = json.loads(_run(platform, "clean", "--strip-pii", "--resume", "--yes", "--json")[1])

    assert 0 < done_count < MEMORY_COUNT
    assert 0 < contents.count(PRIVATE) < MEMORY_COUNT
    assert report["total"] == report["successes"] == MEMORY_COUNT + 5
    assert report["changed"] == contents.count(PRIVATE)
    assert asyncio.run(_contents(platform)).count("Ask [email], or Lee at [phone].") == MEMORY_COUNT + 1


async def _add(platform: Platform, count: int) -> None:
    clock = FakeClock()
    memories = [make_memory(clock, content=PRIVATE, org=None, project=None) for _ in range(count)]

    async with platform.rig() as rig:
        for start in range(0, count, 500):
            batch: list[Memory] = memories[start : start + 500]
            await rig.db.write(lambda tx, stretch=batch: [records.add(tx, memory) for memory in stretch])


async def _wait_for_checkpoint(platform: Platform, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + HANG_S
    async with platform.rig() as rig:
        while time.monotonic() < deadline and process.poll() is None:
            checkpoint = await rig.db.read(lambda tx: maintenance.get_checkpoint(tx, "clean 1 strip-pii"))
            if checkpoint is not None:
                return checkpoint.done
            await asyncio.sleep(0.005)
    pytest.fail(f"the command did not begin; it ended with {process.poll()}")


async def _contents(platform: Platform) -> list[str]:
    async with platform.rig() as rig:
        stored = await rig.db.read(
            lambda tx: maintenance.list_memories(tx, MemorySelection(workspace_id=1), after="", limit=2 * MEMORY_COUNT)
        )
        return [memory.content for memory in stored]


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    return {**environment, "COLUMNS": "140"}


async def _make_workspace(data_dir: Path) -> None:
    """Create the first workspace, which has the id 1."""
    platform = build_rookery(Settings(data_dir=data_dir, bcrypt_cost=4))
    async with platform.open_for_command():
        await platform.access.workspaces.create("main", by=OPERATOR)


def _run_on_terminal(data_dir: Path, *arguments: str) -> str:
    """Run a command on a pseudo-terminal and return its output."""
    our_end, terminal_end = pty.openpty()
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), *arguments]
    printed = b""
    with subprocess.Popen(command, env=_environment(), stdin=terminal_end, stdout=terminal_end, stderr=terminal_end):
        os.close(terminal_end)
        try:
            while chunk := os.read(our_end, 65_536):
                printed += chunk
        except OSError:  # the other end of the terminal was closed
            pass
    os.close(our_end)
    return printed.decode()
