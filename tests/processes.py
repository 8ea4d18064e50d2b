"""A server in its own process, as users run it; ended by its process id."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import httpx2
import pytest

from rookery.kernel.egress.transport import get_tls_context
from tests import key_leaks
from tests.deadlines import HANG_S
from tests.fork_server import ForkedProcess


def run_rookery(
    *arguments: str,
    data_dir: Path | None = None,
    environment: Mapping[str, str] | None = None,
    standard_input: bytes = b"",
    umask: int = -1,
) -> subprocess.CompletedProcess[str]:
    """
    Run a command in a process of its own, without a terminal, and return its exit code and output.

    The process is forked from one that has imported the program, which takes a fifth of the time of a new interpreter.

    Args:
        data_dir: The data folder, given before the command; by default none is given.
        environment: All variables; by default those of the tests without settings of Rookery.
        umask: The mask for the modes of new files, or -1 for that of the tests, as in `subprocess.run`.
    """
    words = [*([] if data_dir is None else ["--data-dir", str(data_dir)]), *arguments]
    variables = get_environment() if environment is None else environment
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(standard_input)
        given.seek(0)
        process = ForkedProcess(words, variables, stdin=given.fileno(), stdout=out.fileno(), stderr=err.fileno(), umask=umask)
        try:
            code = process.wait(HANG_S)
        finally:
            process.kill()
            process.wait()
        texts = [_read_from_start(file) for file in (out, err)]
    command = ["rookery", *words]
    key_leaks.DETECTOR.check_command(" ".join(command), *texts)
    return subprocess.CompletedProcess(command, code, *texts)


def _read_from_start(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def get_environment() -> dict[str, str]:
    """Return the environment without settings of Rookery."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}


class Server:
    """
    A running `rookery serve`.

    Args:
        folder: The data folder; the log goes into the folder of this name as this process sees it.
        wrapper: What starts it, before the command itself; it ends in `exec`. It implies a new interpreter.
        is_new_interpreter: Start Python and import the program, as users do, instead of forking from a process that has imported it.
        has_starter_server: Let the first run write its servers.json, whose tool server takes as long to start as the server itself.
        port: The port of an earlier server, whose clients go on; 0: a free one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        wrapper: Sequence[str] = (),
        is_new_interpreter: bool = False,
        has_starter_server: bool = False,
        port: int = 0,
        **settings: str,
    ) -> None:
        self.folder = folder
        environment = get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
        environment |= {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
        folder.mkdir(parents=True, exist_ok=True)
        if not has_starter_server and not (folder / "servers.json").exists():
            (folder / "servers.json").write_text('{"mcpServers": {}}', encoding="utf-8")
        self._log = (folder / "server.log").open("ab")
        key_leaks.watch_log(folder / "server.log")
        arguments = ["--data-dir", str(folder), "serve", "--port", str(port)]
        reader, writer = os.pipe()
        self.stdout = os.fdopen(reader, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if wrapper or is_new_interpreter:
            command = [*wrapper, sys.executable, "-m", "rookery", *arguments]
            self.process = subprocess.Popen(command, env=environment, stdout=writer, stderr=self._log)
        else:
            with Path(os.devnull).open(encoding="utf-8") as nothing:
                self.process = ForkedProcess(arguments, environment, stdin=nothing.fileno(), stdout=writer, stderr=self._log.fileno())
        os.close(writer)
        self.url = self._read_url()
        self.client = httpx2.Client(base_url=self.url, verify=get_tls_context(), timeout=HANG_S)
        self._wait_until_ready()
        keys = json.loads((self.data / "first-run.json").read_text(encoding="utf-8"))
        self.keys: dict[str, str] = keys
        self.client.headers["Authorization"] = f"Bearer {keys['api_key']}"
        self.client.event_hooks["response"].append(_record_keys)

    def _read_url(self) -> str:
        """Return the address in the first line of the output, which is empty if the server ends before it."""
        if not select.select([self.stdout], [], [], HANG_S)[0]:
            self._fail_start()
        return next((word.rstrip(",;") for word in self.stdout.readline().split() if word.startswith("http")), "")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.client.get("/healthz")
            except httpx2.TransportError:
                time.sleep(0.02)
            else:
                return
        self._fail_start()

    def _fail_start(self) -> NoReturn:
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        self._log.close()
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
        return self._wait_for_exit()

    def _wait_for_exit(self) -> int:
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the server did not end within {HANG_S} s:\n{self.log()}")
        finally:
            self.client.close()
            self.stdout.close()
            self._log.close()


def _record_keys(response: httpx2.Response) -> None:
    """Record new keys in a response, so that later output is checked for them."""
    if response.request.method == "POST" and response.is_success:
        response.read()
        key_leaks.DETECTOR.add_keys_from(response.text)


@contextmanager
def run_server(
    folder: Path,
    *,
    wrapper: Sequence[str] = (),
    is_new_interpreter: bool = False,
    has_starter_server: bool = False,
    port: int = 0,
    **settings: str,
) -> Generator[Server]:
    """Run a server on *folder* until the block ends."""
    server = Server(
        folder, wrapper=wrapper, is_new_interpreter=is_new_interpreter, has_starter_server=has_starter_server, port=port, **settings
    )
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
    since_boot, _, namespace = start.partition(".")
    return f"{host}:{pid}:{since_boot}0.{namespace}:{unique}"
