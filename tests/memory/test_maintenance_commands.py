"""The operator's commands that tidy memory, as they are typed (spec 4.4, D-04, D-52)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rookery.cli import add_commands
from rookery.kernel.config import Settings
from rookery.kernel.db import open_database
from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.models import Memory
from rookery.memory.store import maintenance, records, runs
from rookery.memory.store.maintenance import MemorySelection
from rookery.memory.training import Training
from rookery.wiring import build_platform as build_rookery
from tests.conftest import OPERATOR, FakeClock
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig, make_caller, make_memory

PRIVATE = "Ask kim@example.org, or Lee at +49 30 901820."
MANY = 2_000


@dataclass
class _OpenPlatform:
    lifecycle: Reindexer
    maintenance: MaintenanceServices
    training: Training
    known: Mapping[int, str]

    async def workspaces(self) -> Mapping[int, str]:
        """Return what the test wants known."""
        return self.known


@dataclass
class _Platform:
    """The platform object that commands receive."""

    folder: Path
    known: dict[int, str] = field(default_factory=lambda: {1: "main"})

    @asynccontextmanager
    async def rig(self) -> AsyncGenerator[MemoryRig]:
        """Open memory on the folder, as another process than the server would."""
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, FakeClock(), embedder=StemEmbedder())
        try:
            yield rig
        finally:
            await rig.close()
            await db.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[_OpenPlatform]:
        """Return the platform as the commands see it."""
        async with self.rig() as rig:
            yield _OpenPlatform(rig.services.reindexer, rig.services.maintenance, rig.services.training, self.known)


@pytest.fixture
def opens(data_dir: Path) -> _Platform:
    """A folder with a few untidy memories of two workspaces."""
    opens = _Platform(data_dir)
    asyncio.run(_fill(opens))
    return opens


async def _fill(opens: _Platform) -> None:
    async with opens.rig() as rig:
        for content in (PRIVATE, "heron", "heron", "Two  words"):
            await rig.remember(content, project="web" if content != "heron" else "zoo/web", org=None if content == "heron" else "acme")
        await rig.remember("weak", confidence=0.1)
        await rig.remember(PRIVATE, make_caller(workspace_id=2))
        await rig.run_jobs()


def _run(opens: _Platform, *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    add_commands(app, "brain")

    @app.callback()
    def main(context: typer.Context) -> None:
        """Hand over what commands need."""
        context.obj = opens

    result = CliRunner().invoke(app, ["brain", *arguments])
    return result.exit_code, result.output


def _yes(command: list[str]) -> list[str]:
    return ["--yes"] if "--strip-pii" in command else []


COMMANDS = (["clean", "--strip-pii"], ["prune", "--deduplicate"], ["consolidate"], ["backfill-org"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_the_workspace_must_be_named_once_there_are_two(opens: _Platform, command: list[str]) -> None:
    """D-52: clean, prune, consolidate, backfill-org need --workspace once a second workspace exists."""
    assert _run(opens, *command, "--dry-run")[0] == 0
    opens.known[2] = "side"
    assert _run(opens, *command, "--dry-run")[0] == 2
    assert [_run(opens, *command, "--dry-run", "--workspace", name)[0] for name in ("main", "1", "2", "none")] == [0, 0, 0, 1]
    opens.known[3] = "1"
    assert _run(opens, *command, "--dry-run", "--workspace", "1")[0] == 2
    opens.known.clear()
    assert _run(opens, *command, "--dry-run")[0] == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_ends_with_its_report(opens: _Platform, command: list[str]) -> None:
    """Issue: a closing report with total, successes, failures, duration; --json is one document; a dry run has every item."""
    told = json.loads(_run(opens, *command, "--dry-run", "--json")[1])
    status, printed = _run(opens, *command, *_yes(command), "--json")
    done = json.loads(printed)

    assert status == 0
    assert told.pop("dry_run")
    assert len({item["id"] for item in told.pop("items")}) == told.pop("would_be_done") > 0
    assert told.pop("successes") == 0, "nothing was done"
    assert {**told, "duration_s": 0} == {name: 0 if name == "duration_s" else value for name, value in done.items() if name != "successes"}
    assert (done["total"], done["failures"], done["stopped"]) == (done["successes"], 0, None)
    assert _run(opens, *command, *_yes(command))[1].startswith("total ")


def test_a_dry_run_into_a_pipe_is_a_line_a_memory(opens: _Platform) -> None:
    """D-04: in a pipe, lines with tabs between; nothing of what was found is shown."""
    status, printed = _run(opens, "clean", "--strip-pii", "--dry-run")
    lines = printed.splitlines()

    assert (status, lines[0].split("\t")[1:], len(lines)) == (0, ["change", "email, phone"], 3)
    assert "kim" not in printed


def test_a_command_without_anything_to_do_is_wrong_usage(opens: _Platform) -> None:
    """D-52: none → exit 2; numbers out of their range too."""
    assert [_run(opens, *each)[0] for each in (["clean"], ["prune"], ["prune", "--delete"], ["prune", "--dry-run"])] == [2] * 4
    assert [_run(opens, "prune", "--min-confidence", number)[0] for number in ("1.1", "-1", "much")] == [2] * 3
    assert _run(opens, "consolidate", "--threshold", "2")[0] == 2


def test_what_cannot_be_undone_needs_a_yes(opens: _Platform) -> None:
    """Issue 14: clean --strip-pii overwrote texts without a question; D-04: what destroys asks, and off a terminal needs --yes."""
    assert _run(opens, "clean", "--strip-pii")[0] == 2
    assert json.loads(_run(opens, "clean", "--strip-pii", "--dry-run", "--json")[1])["would_be_done"] == 1
    assert json.loads(_run(opens, "clean", "--strip-pii", "--yes", "--json")[1])["changed"] == 1
    assert _run(opens, "clean", "--normalise")[0] == 0
    assert _run(opens, "prune", "--min-confidence", "0.2", "--delete")[0] == 2
    assert json.loads(_run(opens, "prune", "--min-confidence", "0.2", "--delete", "--yes", "--json")[1])["deleted"] == 1


def test_a_terminal_is_shown_the_first_items_and_a_table(opens: _Platform, data_dir: Path) -> None:
    """D-04, issue: a table at the end, the first N on the terminal."""
    asyncio.run(_make_workspace(data_dir))
    asyncio.run(_add(opens, 30))
    printed = _on_a_terminal(data_dir, "brain:clean", "--strip-pii", "--dry-run", "--workspace", "1")

    assert "These are the first 20 of 31; use a pipe or --json to get all." in printed
    assert "successes" in printed
    assert "Dry run: nothing was changed." in printed


def test_a_run_that_is_killed_goes_on(opens: _Platform, data_dir: Path) -> None:
    """Issue: killed in the middle and run again: nothing lost, nothing twice; --resume begins where it was."""
    asyncio.run(_make_workspace(data_dir))
    asyncio.run(_add(opens, MANY))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), "brain:clean", "--strip-pii", "--yes", "--workspace", "1"]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        done = asyncio.run(_wait_until_begun(opens, process))
        process.send_signal(signal.SIGKILL)
    between = asyncio.run(_contents(opens))
    report = json.loads(_run(opens, "clean", "--strip-pii", "--resume", "--yes", "--json")[1])

    assert 0 < done < MANY
    assert 0 < between.count(PRIVATE) < MANY
    assert report["total"] == report["successes"] == MANY + 5
    assert report["changed"] == between.count(PRIVATE)
    assert asyncio.run(_contents(opens)).count("Ask [email], or Lee at [phone].") == MANY + 1


async def _add(opens: _Platform, number: int) -> None:
    clock = FakeClock()
    memories = [make_memory(clock, content=PRIVATE, org=None, project=None) for _ in range(number)]

    async with opens.rig() as rig:
        for start in range(0, number, 500):
            stretch: list[Memory] = memories[start : start + 500]
            await rig.db.write(lambda tx, stretch=stretch: [records.add(tx, memory) for memory in stretch])


async def _wait_until_begun(opens: _Platform, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 40
    async with opens.rig() as rig:
        while time.monotonic() < deadline and process.poll() is None:
            mark = await rig.db.read(lambda tx: runs.get_checkpoint(tx, "clean 1 strip-pii"))
            if mark is not None:
                return mark.done
            await asyncio.sleep(0.005)
    pytest.fail(f"the command did not begin; it ended with {process.poll()}")


async def _contents(opens: _Platform) -> list[str]:
    async with opens.rig() as rig:
        found = await rig.db.read(lambda tx: maintenance.list_memories(tx, MemorySelection(workspace_id=1), after="", limit=2 * MANY))
        return [memory.content for memory in found]


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    return {**inherited, "COLUMNS": "140"}


async def _make_workspace(data_dir: Path) -> None:
    """Make the first workspace, whose number is 1."""
    rookery = build_rookery(Settings(data_dir=data_dir, bcrypt_cost=4))
    async with rookery.open_for_command():
        await rookery.access.workspaces.create("main", by=OPERATOR)


def _on_a_terminal(data_dir: Path, *arguments: str) -> str:
    """Run a command as on a terminal, and return what is seen on it."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data_dir), *arguments]
    printed = b""
    with subprocess.Popen(command, env=_environment(), stdin=its, stdout=its, stderr=its):
        os.close(its)
        try:
            while piece := os.read(ours, 65_536):
                printed += piece
        except OSError:  # the other end was closed: that is how a terminal ends
            pass
    os.close(ours)
    return printed.decode()
