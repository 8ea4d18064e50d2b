"""
SQLite connections, writers, and files of derived data: WAL, one writer per file in each process, shared commits, erasure of deleted data.

Measured: one commit per row gives 4,800 rows/s with synchronous FULL, shared commits give 25,000 and more.

Freed space in the database file is overwritten at once (`secure_delete`, see `sqlite.connect`). The log beside it still holds old pages
until it restarts and they happen to be overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar, cast
from urllib.parse import quote

from rookery.kernel.errors import EngineUnavailable

T = TypeVar("T")

_WAL_RETRY_DELAY_S = 0.002

Synchronous = Literal["FULL", "NORMAL", "OFF"]

_MAX_BATCH_SIZE = 256
"""Maximum work items per commit, so that the first one waits only a few milliseconds."""

_SYNCHRONOUS_NORMAL = 1
"""The number of `synchronous=NORMAL`. In WAL mode a commit is atomic but does not wait for the disk."""

_LEAST_FREE_BYTES = 64 * 1024
"""Space needed to open a database: 32 KiB for the index of its log, and as much for the log itself."""

_MAX_IDLE_READERS = 8
_REOPEN_TIMEOUT_S = 30.0

_CLOSE_TIMEOUT_S = 10.0
_CHECK_LOCK_TIMEOUT_S = 5.0
_BEGIN_TIMEOUT_S = 30.0
LOCK_POLL_MS = 1
"""Pause between two attempts to take the lock of a file while a writer of another process has it."""
_SHORT_WAIT_S = 1.0
_LONG_POLL_S = 0.01
"""The pause after `_SHORT_WAIT_S`: a migration or a move has the lock for many seconds."""


def connect(
    path: Path | str, *, read_only: bool = False, synchronous: Synchronous = "FULL", busy_timeout_s: float = 10.0
) -> sqlite3.Connection:
    """
    Open *path* in WAL mode without implicit transactions. Any thread may use the connection, one at a time.

    Raises:
        sqlite3.Error: The file cannot be opened, or is not a database.
    """
    if not read_only:
        _create_private(path)
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=512)
    try:
        if not read_only:
            _use_wal(connection, time.monotonic() + busy_timeout_s)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA secure_delete=ON")  # overwrites deleted data; the default of Debian's SQLite
        connection.execute("PRAGMA temp_store=MEMORY")
        if read_only:
            connection.execute("PRAGMA query_only=ON")
    except UnicodeDecodeError as error:  # the driver's message contains bytes of a damaged schema
        connection.close()
        raise sqlite3.OperationalError("the database disk image is malformed") from error
    except sqlite3.OperationalError as error:
        connection.close()
        if _is_disk_full(error, path):
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode, full.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
            raise full from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _is_disk_full(error: sqlite3.OperationalError, path: Path | str) -> bool:
    """Return whether *error* is caused by a full disk. SQLite reports a missing log or index as an I/O error."""
    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_IOERR or str(path) == ":memory:":
        return False
    with contextlib.suppress(OSError):
        return shutil.disk_usage(Path(path).parent).free < _LEAST_FREE_BYTES
    return False


def _create_private(path: Path | str) -> None:
    """Create a missing file with mode 0600. SQLite gives its log and index the same mode."""
    if str(path) != ":memory:":
        with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be created
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to WAL and retry while other connections open a new file, because SQLite's busy timeout does not cover this statement."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_WAL_RETRY_DELAY_S)
        else:
            return


def find_damage(path: Path, *, deep: bool) -> str | None:
    """Return the first problem of a database: of its schema, or of all pages if *deep*. None if it has no problem or is busy."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_CHECK_LOCK_TIMEOUT_S)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not deep:
                return None
            (status,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return None if status == "ok" else str(status)
    except sqlite3.OperationalError as error:
        is_busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        return None if is_busy else str(error)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


class _WorkItem:
    """The work of one caller and the future for its result: an asyncio future with its loop, or a thread's future."""

    __slots__ = ("error", "future", "is_synced", "loop", "on_commit", "result", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], object],
        *,
        loop: asyncio.AbstractEventLoop | None,
        future: asyncio.Future[object] | Future[object],
        on_commit: Callable[[], None] | None,
        is_synced: bool = True,
    ) -> None:
        self.work = work
        self.is_synced = is_synced
        self.loop = loop
        self.future = future
        self.on_commit = on_commit
        self.result: object = None
        self.error: BaseException | None = None

    def resolve(self) -> None:
        if self.error is None and self.on_commit is not None:
            self.on_commit()
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class SqliteWriter:
    """
    The thread that writes a file in this process. Work that is queued at the same time shares one commit.

    In a shared commit each item runs in a savepoint, so that only an item that raises is rolled back. Other processes may write the
    same file; SQLite's lock and busy timeout order the writers.
    """

    def __init__(self, connection_factory: Callable[[], sqlite3.Connection], *, name: str) -> None:
        self._connection_factory = connection_factory
        self._name = name
        self._queue: queue.SimpleQueue[_WorkItem | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    async def submit(
        self, work: Callable[[sqlite3.Connection], T], *, on_commit: Callable[[], None] | None = None, is_synced: bool = True
    ) -> T:
        """
        Run *work* on the writer's thread and return its result once the commit is on the disk.

        An exception in *work* rolls it back and is raised here. Cancelling the caller does not stop the work, which is committed as a
        whole or not at all. After a commit, *on_commit* is called on the loop before the caller continues.

        Args:
            is_synced: False if a power failure may undo the work; a crash of the process never does. A commit that contains only
                such work does not wait for the disk.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._enqueue(_WorkItem(work, loop=loop, future=future, on_commit=on_commit, is_synced=is_synced))
        return cast("T", await future)

    def submit_and_wait(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the same as `submit`, for a caller in another thread."""
        future: Future[object] = Future()
        self._enqueue(_WorkItem(work, loop=None, future=future, on_commit=None))
        return cast("T", future.result())

    def close(self) -> None:
        """Finish the queued work and stop the thread. A second call does nothing."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(_CLOSE_TIMEOUT_S)

    def _enqueue(self, piece: _WorkItem) -> None:
        with self._lock:
            if self._is_closed:
                msg = f"the writer of {self._name} is closed"
                raise sqlite3.ProgrammingError(msg)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_forever, name=f"sqlite-{self._name}", daemon=True)
                self._thread.start()
            self._queue.put(piece)

    def _run_forever(self) -> None:
        file: _WriterConnection | None = None
        try:
            while True:
                pieces, last = self._take_batch()
                if pieces:
                    try:
                        file = file or _WriterConnection(self._connection_factory())
                        file.commit_batch(pieces)
                    except BaseException as error:  # noqa: BLE001 - every waiting caller must get the error
                        for piece in pieces:
                            piece.error = piece.error or error
                    _resolve_batch(pieces)
                if last:
                    return
                if file is not None and self._queue.empty():
                    file.expect_synced_batch()
        finally:
            if file is not None:
                file.close()

    def _take_batch(self) -> tuple[list[_WorkItem], bool]:
        first = self._queue.get()
        if first is None:
            return [], True
        pieces = [first]
        while len(pieces) < _MAX_BATCH_SIZE:
            try:
                piece = self._queue.get_nowait()
            except queue.Empty:
                break
            if piece is None:
                return pieces, True
            pieces.append(piece)
        return pieces, False


class _WriterConnection:
    """The connection of a writer, on its thread. It executes few statements, because each one releases the GIL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self._synchronous_level,) = cast("tuple[int]", connection.execute("PRAGMA synchronous").fetchone())
        self._current_level = self._synchronous_level
        (_, _, path) = cast("tuple[int, str, str]", connection.execute("PRAGMA database_list").fetchone())
        self._wal_path = f"{path}-wal"
        # SQLite's own waits grow to 100 ms, in which the writers of other processes take the lock again and again.
        connection.execute(f"PRAGMA busy_timeout={LOCK_POLL_MS}")

    def close(self) -> None:
        self._connection.close()

    def commit_batch(self, pieces: list[_WorkItem]) -> None:
        connection, is_synced = self._connection, any(piece.is_synced for piece in pieces)
        self._set_synchronous_level(self._synchronous_level if is_synced else min(self._synchronous_level, _SYNCHRONOUS_NORMAL))
        before = connection.total_changes
        _begin_immediate(connection)
        try:
            if len(pieces) == 1:
                pieces[0].result = pieces[0].work(connection)
            else:
                for piece in pieces:
                    _run_in_savepoint(connection, piece)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        if is_synced and self._synchronous_level > _SYNCHRONOUS_NORMAL and connection.total_changes == before:
            self._sync_wal()

    def expect_synced_batch(self) -> None:
        """Set the level of a synced commit ahead of the next one, while nobody waits. If that fails, the next commit sets it."""
        with contextlib.suppress(sqlite3.Error):
            self._set_synchronous_level(self._synchronous_level)

    def _set_synchronous_level(self, level: int) -> None:
        """Set PRAGMA synchronous to *level* if it differs from the current one."""
        if level != self._current_level:
            self._connection.execute(f"PRAGMA synchronous={level}")
            self._current_level = level

    def _sync_wal(self) -> None:
        """
        Flush earlier commits to the disk.

        SQLite does not flush a commit without changes. But work may have found its data in place because of an unflushed commit of any
        process. Its caller relies on that data as if the work had written it.
        """
        try:
            descriptor = os.open(self._wal_path, os.O_RDWR)
        except FileNotFoundError:
            return  # everything is in the database file itself
        except OSError as error:
            raise sqlite3.OperationalError(f"disk I/O error: {error.strerror}") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise sqlite3.OperationalError(f"disk I/O error: {error.strerror}") from error
        finally:
            os.close(descriptor)


def _begin_immediate(connection: sqlite3.Connection) -> None:
    """Take the write lock. Retry every `LOCK_POLL_MS`, later less often, up to `_BEGIN_TIMEOUT_S`, while another process holds it."""
    started = time.monotonic()
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise
            waited_s = time.monotonic() - started
            if waited_s > _BEGIN_TIMEOUT_S:
                raise
            if waited_s > _SHORT_WAIT_S:
                time.sleep(_LONG_POLL_S)
        else:
            return


def _run_in_savepoint(connection: sqlite3.Connection, piece: _WorkItem) -> None:
    connection.execute("SAVEPOINT piece")
    try:
        piece.result = piece.work(connection)
    except BaseException as error:
        piece.error = error
        if not connection.in_transaction:
            # On a full disk, SQLite rolls back the whole transaction, so all items fail with this error.
            raise
        connection.execute("ROLLBACK TO piece")
    connection.execute("RELEASE piece")


def _resolve_batch(pieces: list[_WorkItem]) -> None:
    """Resolve the future of each caller. Callers of one loop share a wake-up, which costs about 10 µs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_WorkItem]] = {}
    for piece in pieces:
        if piece.loop is None:
            piece.resolve()
        else:
            by_loop.setdefault(piece.loop, []).append(piece)
    for loop, items in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
            loop.call_soon_threadsafe(_resolve_items, items)


def _resolve_items(pieces: list[_WorkItem]) -> None:
    for piece in pieces:
        piece.resolve()


class SqliteFile:
    """
    An open file of derived data, with a writer and a pool of readers. Methods block and raise `sqlite3.Error`.

    Args:
        name: Name of the writer's thread.
        create: Creates the tables if they are missing.
        reader_settings: Statements that each reader executes when it is opened.
    """

    def __init__(
        self, path: Path, *, name: str, create: Callable[[sqlite3.Connection], object], reader_settings: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._reader_settings = reader_settings
        self._idle: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        with contextlib.closing(connect(path)) as connection:
            create(connection)
        self._identity = _get_identity(path)
        self.writer = SqliteWriter(lambda: connect(path), name=name)

    def close(self) -> None:
        """Finish pending writes and close."""
        self._is_closed = True
        self.writer.close()
        while self._idle:
            self._idle.pop().close()

    @property
    def is_in_place(self) -> bool:
        """True if the path still refers to the open file."""
        return _get_identity(self._path) == self._identity

    @contextlib.contextmanager
    def reader(self) -> Generator[sqlite3.Connection]:
        """Yield a connection for one thread."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._path, read_only=True)
            for statement in self._reader_settings:
                connection.execute(statement)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_closed or len(self._idle) >= _MAX_IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)


F = TypeVar("F", bound=SqliteFile)


class ReopenableFile(Generic[F]):
    """
    A file of derived data that is opened by its first use. All calls come from one event loop.

    Users may delete the file, also while it is in use. The next call then creates an empty one.

    Args:
        open_file: Opens the file. It runs in a thread.
        map_error: Returns the error of the port for an error of SQLite.
        on_deleted: Called when a deleted file is no longer used.
    """

    def __init__(
        self,
        open_file: Callable[[], F],
        *,
        map_error: Callable[[sqlite3.Error], EngineUnavailable],
        on_deleted: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_file = open_file
        self._map_error = map_error
        self._on_deleted = on_deleted
        self._file: F | None = None
        self._open_lock = asyncio.Lock()
        self._user_count = 0
        self._has_no_users = asyncio.Event()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncGenerator[F]:
        """Yield the open file. Convert errors of SQLite."""
        try:
            file = self._file
            if file is None or not file.is_in_place:
                file = await self._open()
            with self.hold():
                yield file
        except sqlite3.Error as error:
            raise self._map_error(error) from error

    @contextlib.contextmanager
    def hold(self) -> Generator[None]:
        """Keep the file open for a task that continues after the `use` that started it."""
        self._user_count += 1
        try:
            yield
        finally:
            self._user_count -= 1
            if self._user_count == 0:
                self._has_no_users.set()

    async def close(self) -> None:
        """Finish pending writes and close the file."""
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.close)

    async def _open(self) -> F:
        async with self._open_lock:
            if self._file is not None and self._file.is_in_place:
                return self._file
            if self._file is not None:
                await self._close_deleted()
            self._file = await asyncio.to_thread(self._open_file)
            return self._file

    async def _close_deleted(self) -> None:
        """Close the deleted file. SQLite must release it before a new file of the same name is opened."""
        try:
            async with asyncio.timeout(_REOPEN_TIMEOUT_S):
                while self._user_count:
                    self._has_no_users.clear()
                    await self._has_no_users.wait()
        except TimeoutError as error:
            raise self._map_error(sqlite3.OperationalError("it was deleted, and queries still use it")) from error
        await self.close()
        self._on_deleted()


def map_file_error(engine: str, path: Path, error: sqlite3.Error) -> EngineUnavailable:
    """Return the error of an engine's port for an error of SQLite. That of a damaged file says how to rebuild it."""
    if type(error) is not sqlite3.DatabaseError and "malformed" not in str(error):
        return EngineUnavailable(engine, f"{path.name}: {error}")
    reason = f"{path} is damaged ({error}): delete it, with its -wal and -shm, and run `rookery brain:reindex`"
    return EngineUnavailable(engine, reason)


def _get_identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - called before each query; Path.stat is three times as slow
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


_RETRY_DELAY_S = 0.005
_BUSY_TIMEOUT_S = 1.0


def truncate_wal(path: Path, *, timeout_s: float = 30.0) -> None:
    """
    Move everything from the log of *path* into the file and truncate the log, while others read and write. Blocks.

    Args:
        timeout_s: Longest wait for readers, which may need old pages.

    Raises:
        sqlite3.Error: A reader kept its snapshot for *timeout_s*, or the file cannot be opened.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(connect(path, busy_timeout_s=_BUSY_TIMEOUT_S)) as connection:
        connection.execute(f"PRAGMA busy_timeout={LOCK_POLL_MS}")
        while True:
            try:
                (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                    raise
                is_busy = 1
            if not is_busy:
                return
            if time.monotonic() >= deadline:
                raise sqlite3.OperationalError(f"{path.name} is read without a pause, so its log still contains deleted data")
            time.sleep(_RETRY_DELAY_S)


@dataclass(frozen=True, slots=True)
class RecordStoreWal:
    """The write-ahead log of an embedded record store."""

    path: Path

    async def erase(self) -> None:
        """Truncate the log; raises `EngineUnavailable` if a reader prevents it."""
        try:
            await asyncio.to_thread(truncate_wal, self.path)
        except sqlite3.Error as error:
            raise EngineUnavailable("database", str(error)) from error
