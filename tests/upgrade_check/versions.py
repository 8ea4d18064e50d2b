"""The two versions of a check: an older commit in a checkout and an environment of its own, and this one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx2

from rookery.migrations import FIRST_COMMIT, FIRST_REVISION
from tests.deadlines import HANG_S
from tests.processes import get_environment
from tests.upgrade_check.receiver import LOOPBACK

LIMIT_S = 4 * HANG_S
"""It only ends what would hang: on a machine with other work, one start took five minutes."""

REPOSITORY = Path(__file__).resolve().parents[2]
_SETTINGS = {
    "ROOKERY_MIN_FREE_DISK_MB": "0",
    "ROOKERY_BCRYPT_COST": "4",
    "ROOKERY_EGRESS_ALLOW": f"{LOOPBACK}/32",
    "ROOKERY_LOG_LEVEL": "warning",
}
SECRET_VARIABLE = "UPGRADE_CHECK_SECRET"
VARIABLE_SECRET = "the-secret-of-the-environment"


@dataclass(frozen=True, slots=True)
class Version:
    """
    An installed version of Rookery.

    Attributes:
        revision: The newest revision of the record store that it supports.
    """

    name: str
    python: Path
    folder: Path

    @property
    def revision(self) -> str:
        """The newest revision of the record store that it supports."""
        versions = self.folder / "src" / "rookery" / "migrations" / "versions"
        return max(path.name[:4] for path in versions.glob("[0-9]*.py"))

    def run(self, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a data folder, and return its exit code and output."""
        return subprocess.run(
            self._command(data, *arguments), env=self._environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def serve(self, data: Path) -> RunningServer:
        """Start its server on a data folder, and wait until it answers."""
        log = data.with_name(f"{data.name} of {self.name}.log")
        with log.open("ab") as errors:
            process = subprocess.Popen(
                self._command(data, "serve", "--port", "0"),
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
        return RunningServer(process, data, log)

    def _command(self, data: Path, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "rookery", "--data-dir", str(data), *arguments]

    def _environment(self) -> dict[str, str]:
        variables = {name: value for name, value in get_environment().items() if name not in {"VIRTUAL_ENV", "COLUMNS"}}
        return {**variables, **_SETTINGS, SECRET_VARIABLE: VARIABLE_SECRET, "PYTHONPATH": str(self.folder / "src")}


class RunningServer:
    """A server of one of the versions, in a process group of its own."""

    def __init__(self, process: subprocess.Popen[str], data: Path, log: Path) -> None:
        self.process = process
        self.log = log
        self.started_at = time.monotonic()
        self.url = self._read_url()
        self._wait_until_up()
        self.start_s = time.monotonic() - self.started_at
        keys = cast("dict[str, str]", json.loads((data / "first-run.json").read_text(encoding="utf-8")))
        self.first_key = keys["api_key"]

    def connect(self, key: str = "") -> httpx2.Client:
        """Return a client with a key, or with the first one."""
        return httpx2.Client(
            base_url=self.url, timeout=LIMIT_S, headers={"Authorization": f"Bearer {key or self.first_key}"}, trust_env=False
        )

    def stop(self) -> int:
        """Stop it as an operator does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self._kill_group()

    def kill(self) -> None:
        """Kill it and what it started, in the middle of its work."""
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read_url(self) -> str:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        url = next((word.rstrip(",;") for word in words if word.startswith("http")), "")
        if not url:
            self._kill_group()
            msg = f"the server did not start:\n{self.log.read_text(encoding='utf-8')[-2000:]}"
            raise RuntimeError(msg)
        return url

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx2.get(f"{self.url}/readyz", timeout=LIMIT_S, trust_env=False).is_success:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.05)
        self._kill_group()
        msg = f"the server did not become ready:\n{self.log.read_text(encoding='utf-8')[-2000:]}"
        raise RuntimeError(msg)


CURRENT = Version("this version", Path(sys.executable), REPOSITORY)


def resolve_commit(name: str) -> str:
    """
    Return the full id of a commit of this repository.

    Raises:
        ValueError: The repository has no such commit, or it is too old to be upgraded.
    """
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        msg = f"'{name}' is no commit of this repository. Name an older one, such as {DEFAULT_COMMIT}; a shallow clone has too few."
        raise ValueError(msg)
    commit = result.stdout.strip()
    command = ["git", "-C", str(REPOSITORY), "ls-tree", "--name-only", f"{commit}:src/rookery/migrations/versions"]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if (revision := max(file[:4] for file in files if file[:4].isdigit())) < FIRST_REVISION:
        msg = f"The stores of {name} have revision {revision}. {FIRST_COMMIT} is the oldest commit whose stores are upgraded."
        raise ValueError(msg)
    return commit


DEFAULT_COMMIT = FIRST_COMMIT


def install_commit(commit: str, folder: Path) -> Version:
    """
    Check a commit out into *folder* and install it there from its own lock, as `make install` of that commit does.

    An installed one is used again.
    """
    checkout = folder / commit[:12]
    version = Version(commit[:8], checkout / ".venv" / "bin" / "python", checkout)
    if (checkout / ".venv" / ".runtime-installed").exists():
        return version
    checkout.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as archive:
        subprocess.run(["git", "-C", str(REPOSITORY), "archive", commit], stdout=archive, check=True)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as files:
            files.extractall(checkout, filter="data")
    variables = {
        name: value for name, value in get_environment().items() if name not in {"PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL"}
    }
    command: Sequence[str] = ["make", "-C", str(checkout), "install", f"PYTHON={_find_python()}"]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if result.returncode:
        msg = f"{commit[:8]} could not be installed: {(result.stderr or result.stdout).strip()[-800:]}"
        raise RuntimeError(msg)
    return version


def _find_python() -> str:
    """Return the Python that this environment was made with."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
