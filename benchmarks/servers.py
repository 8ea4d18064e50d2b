"""A server for a benchmark, with its own process, folder and port; stopped by its process id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

_START_S = 60.0
_STOP_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running server."""

    url: str
    api_key: str
    agent_key: str
    workspace_id: int
    pid: int
    started_s: float

    def rss_mb(self) -> float:
        """Return the resident memory of the server's process alone, in MB (10^6 bytes)."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError(self.pid)


@contextmanager
def run_server(folder: Path, tree: Path | None = None, /, **settings: str) -> Generator[Running]:
    """
    Run a server on *folder* until the block ends.

    Args:
        tree: The source tree to run; None: this one.
        settings: Names without ROOKERY_, in lower case.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree / "src")
    environment |= {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
    keys_file = folder / "keys.json"
    base = [sys.executable, "-m", "rookery", "--data-dir", str(folder)]
    if not keys_file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        initialized = subprocess.run([*base, "init", "--json"], env=environment, capture_output=True, check=True, timeout=_START_S)
        keys_file.write_bytes(initialized.stdout)
    keys = json.loads(keys_file.read_text(encoding="utf-8"))
    log = (folder / "server.log").open("ab")
    started = time.perf_counter()
    process = subprocess.Popen([*base, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        url = next(word.rstrip(",;") for word in line.split() if word.startswith("http"))
        _wait(url, started)
        yield Running(
            url=url,
            api_key=keys["api_key"],
            agent_key=keys["agent_key"],
            workspace_id=keys["workspace_id"],
            pid=process.pid,
            started_s=time.perf_counter() - started,
        )
    finally:
        stop_process(process)
        log.close()


def stop_process(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Terminate *process*, and kill it after a time-out."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)


def _wait(url: str, begun: float) -> None:
    while True:
        try:
            with urlopen(f"{url}/healthz", timeout=1):  # noqa: S310 - our own server's address
                return
        except OSError:
            if time.perf_counter() - begun > _START_S:
                raise
            time.sleep(0.005)
