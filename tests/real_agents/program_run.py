"""Starts a program in an empty home folder, bounded in time, and ends it with everything it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tests.pinned_packages import NODE
from tests.processes import descendants
from tests.real_agents.launches import HOOK_LOG, Launch

_NOWHERE = "http://127.0.0.1:9"
"""The proxy of programs for all hosts but this one: nothing that they try leaves the machine."""


@dataclass(frozen=True, kw_only=True)
class ProgramOutcome:
    """
    The end of a program.

    Attributes:
        code: Its exit code; None if it was ended because its time was over.
        hooks: The fields that each event of its hooks carried, by the event.
    """

    code: int | None
    output: str
    seconds: float
    hooks: Mapping[str, list[str]]


@contextlib.contextmanager
def make_home() -> Generator[tuple[Path, Path]]:
    """Make an empty home folder with a Git repository in it; yield both, and delete them at the end."""
    home = Path(tempfile.mkdtemp(prefix="real-agents-"))
    project = home / "project"
    try:
        subprocess.run(["git", "init", "-q", str(project)], check=True, timeout=60)
        (project / "note.txt").write_text("caw\n", encoding="utf-8")
        yield home, project
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run_program(launch: Launch, home: Path, variables: Mapping[str, str], *, limit_s: float) -> ProgramOutcome:
    """Write the files of a launch, run its command, and return how it ended."""
    for path, text in launch.files.items():
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for source, copy in launch.copies.items():
        shutil.copy(source, copy)
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            launch.command,
            cwd=home / "project",
            env=_build_environment(home) | dict(launch.variables) | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        started = set[int]()
        while time.monotonic() - start < limit_s:
            started |= set(descendants(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(0.3)
                break
        _end(process, started, home)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return ProgramOutcome(code=code, output=text, seconds=time.monotonic() - start, hooks=_read_hooks(home / HOOK_LOG))


def _build_environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "SHELL", "USER", "LOGNAME") if name in os.environ}
    proxies = {name: _NOWHERE for base in ("http_proxy", "https_proxy", "all_proxy") for name in (base, base.upper())}
    local = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    folders = {"HOME": str(home), "TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home)}
    return {**kept, **proxies, **local, **folders, "PATH": f"{NODE / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", "CI": "1"}


def _end(process: subprocess.Popen[bytes], started: set[int], home: Path) -> None:
    """Kill what is left of a program: its group, and what it started that still has its home folder."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    for pid in started:
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def _read_hooks(log: Path) -> dict[str, list[str]]:
    """Return the fields of the events by their names."""
    events = dict[str, list[str]]()
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        with contextlib.suppress(ValueError):
            event = cast("dict[str, object]", json.loads(line))
            name = str(event.get("hook_event_name", event.get("hookEventName", event.get("hookName", "no name"))))
            events[name] = sorted(set(events.get(name, [])) | event.keys())
    return events
