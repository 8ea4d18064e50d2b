"""
SQLite as Rookery uses it: WAL, one writer per file in each process, commits shared.

Measured (notes on engines, section 4): one commit per row gives 4,800 rows/s with synchronous FULL, shared commits 25,000 and more.
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
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import quote

T = TypeVar("T")

_WAL_RETRY_DELAY_S = 0.002

Synchronous = Literal["FULL", "NORMAL", "OFF"]

_MAX_BATCH_SIZE = 256
"""At most so many pieces of work share a commit, so that the first waits a few milliseconds at most."""

_SYNCHRONOUS_NORMAL = 1
"""The number of `synchronous=NORMAL`: in WAL mode a commit waits for no disk, and still all of it is there or none."""

_LEAST_FREE_BYTES = 64 * 1024
"""What a database needs to be opened: 32 KiB of index of its log, and as much for the log itself."""

_CLOSE_TIMEOUT_S = 10.0
_CHECK_LOCK_TIMEOUT_S = 5.0
_BEGIN_TIMEOUT_S = 30.0


def connect(
    path: Path | str, *, read_only: bool = False, synchronous: Synchronous = "FULL", busy_timeout_s: float = 10.0
) -> sqlite3.Connection:
    """
    Open *path* in WAL mode without implicit transactions; usable from any thread, by one at a time.

    Raises:
        sqlite3.Error: The file cannot be opened, or is no database.
    """
    if not read_only:
        _create_private(path)
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=512)
    try:
        if not read_only:
            _use_wal(connection, time.monotonic() + busy_timeout_s)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA secure_delete=ON")  # what is deleted is to be gone; as Debian's SQLite has it anyway
        connection.execute("PRAGMA temp_store=MEMORY")
        if read_only:
            connection.execute("PRAGMA query_only=ON")
    except UnicodeDecodeError as error:  # the driver's own message has bytes of a damaged schema
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
    """Tell whether *error* is that of a disk without room for the file's log or index, which SQLite reports as an I/O error."""
    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_IOERR or str(path) == ":memory:":
        return False
    with contextlib.suppress(OSError):
        return shutil.disk_usage(Path(path).parent).free < _LEAST_FREE_BYTES
    return False


def _create_private(path: Path | str) -> None:
    """Create the file, readable by its owner alone, if it is missing; SQLite gives its log and index the same mode."""
    if str(path) != ":memory:":
        with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be created
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to WAL; when several open a new file at once SQLite does not wait for that one statement, so we do."""
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
    """Return what is wrong with a database, as far as its schema tells, or, if *deep*, all of its pages."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_CHECK_LOCK_TIMEOUT_S)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not deep:
                return None
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return None if said == "ok" else str(said)
    except sqlite3.OperationalError as error:
        is_busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        return None if is_busy else str(error)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


class _WorkItem:
    """One caller's work, and where its outcome goes: an asyncio future on its own loop, or a thread's future."""

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
    The one thread of this process that writes a file; pieces of work queued meanwhile share one commit.

    Where several do, each runs in a savepoint of its own: one that raises is undone alone. Other processes may write the
    same file; SQLite's lock and busy timeout order us.
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
        Run *work* on the writer's thread and return its result once its commit is on the disk.

        What *work* raises is raised here, and undone there. A caller that is cancelled meanwhile does not stop the
        work: it is committed or not as a whole, and *on_commit* is called on the loop if it was, before the caller
        goes on.

        Args:
            is_synced: False of work that may be lost when the power fails, though not when a process does: where all that
                shares a commit is so, the disk is not waited for.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._enqueue(_WorkItem(work, loop=loop, future=future, on_commit=on_commit, is_synced=is_synced))
        return cast("T", await future)

    def submit_and_wait(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do as `submit`, for a caller in a thread of its own."""
        future: Future[object] = Future()
        self._enqueue(_WorkItem(work, loop=None, future=future, on_commit=None))
        return cast("T", future.result())

    def close(self) -> None:
        """Finish what is queued and end the thread; twice does no harm."""
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
                    except BaseException as error:  # noqa: BLE001 - whatever it was, each waiting caller must hear of it
                        for piece in pieces:
                            piece.error = piece.error or error
                    _resolve_batch(pieces)
                if last:
                    return
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
    """A writer's connection, on its thread. What it executes hands the interpreter's lock over each time, so that is little."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self._synchronous_level,) = cast("tuple[int]", connection.execute("PRAGMA synchronous").fetchone())
        self._current_level = self._synchronous_level
        (_, _, path) = cast("tuple[int, str, str]", connection.execute("PRAGMA database_list").fetchone())
        self._wal_path = f"{path}-wal"

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

    def _set_synchronous_level(self, level: int) -> None:
        """Let commits wait for the disk as *level* says; asked only where that changes anything."""
        if level != self._current_level:
            self._connection.execute(f"PRAGMA synchronous={level}")
            self._current_level = level

    def _sync_wal(self) -> None:
        """
        Wait until what was committed before is on the disk.

        SQLite waits for nothing where a commit has nothing to write. But work that found everything there already, by a commit
        that was not waited for, of whichever process, says as much as work that wrote it: its caller relies on it.
        """
        try:
            descriptor = os.open(self._wal_path, os.O_RDWR)
        except FileNotFoundError:
            return  # all of it is in the database itself
        except OSError as error:
            raise sqlite3.OperationalError(f"disk I/O error: {error.strerror}") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise sqlite3.OperationalError(f"disk I/O error: {error.strerror}") from error
        finally:
            os.close(descriptor)


def _begin_immediate(connection: sqlite3.Connection) -> None:
    """Take the write lock; another process that holds it longer than the busy timeout is waited for again, up to a bound."""
    deadline = time.monotonic() + _BEGIN_TIMEOUT_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise
            if time.monotonic() > deadline:
                raise
        else:
            return


def _run_in_savepoint(connection: sqlite3.Connection, piece: _WorkItem) -> None:
    connection.execute("SAVEPOINT piece")
    try:
        piece.result = piece.work(connection)
    except BaseException as error:
        piece.error = error
        if not connection.in_transaction:
            # A full disk makes SQLite roll back the whole transaction by itself: then all pieces fail, and by the same error.
            raise
        connection.execute("ROLLBACK TO piece")
    connection.execute("RELEASE piece")


def _resolve_batch(pieces: list[_WorkItem]) -> None:
    """Tell each caller; callers of one loop together, since waking a loop is dear (about 10 µs)."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_WorkItem]] = {}
    for piece in pieces:
        if piece.loop is None:
            piece.resolve()
        else:
            by_loop.setdefault(piece.loop, []).append(piece)
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve_items, theirs)


def _resolve_items(pieces: list[_WorkItem]) -> None:
    for piece in pieces:
        piece.resolve()
