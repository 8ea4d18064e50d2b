"""A server in its own process, as users run it; ended by its process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests import key_leaks

_START_TIMEOUT_S = 40.0
_STOP_TIMEOUT_S = 15.0


class Server:
    """
    A running `rookery serve`.

    Args:
        folder: The data folder; the log goes into the folder of this name as this process sees it.
        wrapper: What starts it, before the command itself; it ends in `exec`.
        has_starter_server: Let the first run write its servers.json, whose tool server takes as long to start as the server itself.
    """

    def __init__(self, folder: Path, *, wrapper: Sequence[str] = (), has_starter_server: bool = False, **settings: str) -> None:
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
        environment |= {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
        environment |= {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
        folder.mkdir(parents=True, exist_ok=True)
        if not has_starter_server and not (folder / "servers.json").exists():
            (folder / "servers.json").write_text('{"mcpServers": {}}', encoding="utf-8")
        self._log = (folder / "server.log").open("ab")
        key_leaks.watch_log(folder / "server.log")
        command = [*wrapper, sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        first_line = self.process.stdout.readline()
        self.url = next((word.rstrip(",;") for word in first_line.split() if word.startswith("http")), "")
        self._wait_until_ready()
        keys = json.loads((self.data / "first-run.json").read_text(encoding="utf-8"))
        self.keys: dict[str, str] = keys
        self.client = httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {keys['api_key']}"}, timeout=30)
        self.client.event_hooks["response"].append(_record_keys)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                httpx2.get(f"{self.url}/healthz", timeout=2)
            except httpx2.TransportError:
                time.sleep(0.02)
            else:
                return
        self.process.kill()
        pytest.fail(f"the server did not start:\n{self.log()}")

    @property
    def data(self) -> Path:
        """The data folder as the server sees it, which may have mounts of its own."""
        return Path(f"/proc/{self.process.pid}/root") / self.folder.relative_to("/")

    def log(self) -> str:
        """Return its standard error so far."""
        return (self.folder / "server.log").read_text(encoding="utf-8")

    def children(self) -> list[int]:
        """Return the ids of all processes below it."""
        return descendants(self.process.pid)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self._wait_for_exit()

    def stop(self, signal_number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(signal_number)
        self._wait_for_exit()
        return self.process.returncode

    def _wait_for_exit(self) -> None:
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_TIMEOUT_S)
            pytest.fail(f"the server did not end within {_STOP_TIMEOUT_S} s:\n{self.log()}")
        finally:
            self.client.close()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.close()


def _record_keys(response: httpx2.Response) -> None:
    """Record new keys in a response, so that later output is checked for them."""
    if response.request.method == "POST" and response.is_success:
        response.read()
        key_leaks.DETECTOR.add_keys_from(response.text)


@contextmanager
def run_server(folder: Path, *, wrapper: Sequence[str] = (), has_starter_server: bool = False, **settings: str) -> Generator[Server]:
    """Run a server on *folder* until the block ends."""
    server = Server(folder, wrapper=wrapper, has_starter_server=has_starter_server, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes below *pid*."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    pids, level = list[int](), [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        pids.extend(level)
    return pids


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in {"Z", "X"}


def earlier_worker_id(worker_id: str) -> str:
    """Return the id that a worker of an earlier process with the same pid would have."""
    host, pid, start, unique = worker_id.split(":")
    return f"{host}:{pid}:before-{start}:{unique}"
