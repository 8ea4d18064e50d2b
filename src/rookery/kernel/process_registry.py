"""
The processes that use a shared record store, so that one with other engines does not start beside them.

Each process has a row with its engines and renews it. Processes of one place, which is a data folder on one machine, may share embedded
engines. All others need engines that hosts share, at the same addresses: otherwise a memory that one process indexes is missing in the
answers of the other, and limits are counted twice. A row that is not renewed is one of a process that was killed, so a newcomer waits
until it expires. SQLite stores are shared only by a folder, and register nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import urlsplit

import structlog
from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, select, update

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Mapper, Tx, metadata
from rookery.kernel.errors import WrongSettings
from rookery.kernel.ids import IdFactory
from rookery.kernel.logs import FailureLog
from rookery.kernel.process_resources import ProcessShare

_log = structlog.stdlib.get_logger("rookery.processes")

LEASE_S = 30.0
"""Seconds after which a process that does not renew its row counts as ended. Rows are renewed three times as often."""

_POLLS_PER_LEASE = 60
_GUIDE = "See docs/how-to/many-processes.md."
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")

ProcessKind = Literal["server", "worker"]

processes = Table(
    "processes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("place", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("engines", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLocation:
    """
    The location of an engine of a process.

    Attributes:
        setting: The setting with its address, such as ROOKERY_VECTORS.
        address: The address without user, password and parameters, as it is shown.
        is_shared_by_hosts: Processes of several hosts may use it. False: it is in the data folder.
    """

    setting: str
    address: str
    is_shared_by_hosts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredProcess:
    """
    A process that uses the record store.

    Attributes:
        place: The identity of its data folder on its machine, as a hash.
        engines: The addresses of its engines by their settings.
        until: The end of its registration, unless it renews it.
    """

    id: str
    kind: ProcessKind
    host: str
    pid: int
    place: str
    folder: str
    url: str
    engines: Mapping[str, str]
    started_at: datetime
    until: datetime

    def __str__(self) -> str:
        """Return the process as messages name it."""
        where = f" at {self.url}" if self.kind == "server" else ""
        return f"the {self.kind}{where}, process {self.pid} of host {self.host} with the data folder {self.folder}"


_PROCESSES = Mapper(RegisteredProcess, processes)
_SELECT_LIVE = select(processes).where(processes.c.until > bindparam("now")).order_by(processes.c.started_at, processes.c.id)
_RENEW = update(processes).where(processes.c.id == bindparam("own_id")).values(until=bindparam("ends_at"))
_REMOVE = delete(processes).where(processes.c.id == bindparam("own_id"))
_REMOVE_EXPIRED = delete(processes).where(processes.c.until <= bindparam("now"))


def strip_address(address: str) -> str:
    """Return *address* without user, password and parameters, so that it can be stored, compared and shown."""
    parts = urlsplit(address)
    if not parts.netloc:
        return address.partition("?")[0]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def describe_place(folder: Path) -> str:
    """Return the identity of a folder on this machine. It is the same in containers that share the folder as a volume."""
    try:
        machine = _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    status = folder.stat()
    return hashlib.sha256(f"{machine}:{status.st_dev}:{status.st_ino}".encode()).hexdigest()[:32]


class ProcessRegistry:
    """
    The registration of this process.

    Args:
        folder: The data folder, which exists when `register` is called.
        engines: The engines that all processes must share.
        lease_s: Seconds without renewal after which a process counts as ended.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock,
        ids: IdFactory,
        *,
        folder: Path,
        url: str,
        engines: Sequence[EngineLocation],
        lease_s: float = LEASE_S,
    ) -> None:
        self._db = db
        self._clock = clock
        self._id = ids()
        self._folder = folder
        self._url = url
        self._engines = engines
        self._lease = timedelta(seconds=lease_s)
        self._own: RegisteredProcess | None = None
        self._servers: Sequence[str] = ()
        """The ids of the servers in the order of their starts, as of the last renewal."""
        self._renewal: asyncio.Task[None] | None = None

    async def list_live(self) -> list[RegisteredProcess]:
        """Return the processes that use the record store, without those of a SQLite store."""
        now = to_micros(self._clock())
        return await self._db.read(lambda tx: [_PROCESSES.from_row(row) for row in tx.fetch_all(_SELECT_LIVE, {"now": now})])

    @property
    def server_share(self) -> ProcessShare | None:
        """The place of this process among the servers of all hosts, as of the last renewal; None if it is not registered as one."""
        return ProcessShare(self._servers.index(self._id) + 1, len(self._servers)) if self._id in self._servers else None

    async def register(self, kind: ProcessKind) -> None:
        """
        Register this process and keep it registered until `close`.

        Raises:
            WrongSettings: A running process that registered before has other engines, or engines that this process cannot share.
        """
        if self._db.dialect == "sqlite":
            return
        await self._insert(kind)
        self._renewal = asyncio.create_task(self._renew_forever(kind), name="process-registration")
        try:
            await self._require_same_engines()
            await self._read_servers()
        except BaseException:
            await self.close()
            raise

    async def check(self) -> None:
        """
        Check the engines as `register` does, and register nothing.

        Raises:
            WrongSettings: See `register`.
        """
        if self._db.dialect != "sqlite":
            await self._require_same_engines()

    async def close(self) -> None:
        """Remove the registration. If the record store is unavailable, it expires."""
        renewal, self._renewal = self._renewal, None
        if renewal is None:
            return
        renewal.cancel()
        await asyncio.wait({renewal})
        with contextlib.suppress(Exception):
            await self._db.write(lambda tx: tx.execute(_REMOVE, {"own_id": self._id}))

    async def _insert(self, kind: ProcessKind) -> None:
        now = self._clock()
        own = RegisteredProcess(
            id=self._id,
            kind=kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            place=describe_place(self._folder),
            folder=str(self._folder),
            url=self._url,
            engines={engine.setting: engine.address for engine in self._engines},
            started_at=now if self._own is None else self._own.started_at,
            until=now + self._lease,
        )

        def replace(tx: Tx) -> None:
            tx.execute(_REMOVE_EXPIRED, {"now": to_micros(now)})
            tx.execute(_REMOVE, {"own_id": self._id})
            _PROCESSES.insert(tx, own)

        await self._db.write(replace)
        self._own = own

    async def _read_servers(self) -> None:
        self._servers = [process.id for process in await self.list_live() if process.kind == "server"]

    async def _require_same_engines(self) -> None:
        """Wait for conflicting processes to expire, and raise as soon as one renews its registration."""
        first_seen: dict[str, datetime] = {}
        is_waiting = False
        place = describe_place(self._folder)
        while True:
            conflicts = [(other, reason) for other in await self._list_earlier() if (reason := self._find_conflict(other, place))]
            for other, reason in conflicts:
                if first_seen.setdefault(other.id, other.until) != other.until:
                    raise WrongSettings(f"Another process uses this record store: {other}. {reason} {_GUIDE}")
            if not conflicts:
                return
            if not is_waiting:
                others = [str(other) for other, _ in conflicts]
                _log.warning("processes.waiting", others=others, seconds=self._lease.total_seconds(), reason="they may have ended")
                is_waiting = True
            await asyncio.sleep(self._lease.total_seconds() / _POLLS_PER_LEASE)

    async def _list_earlier(self) -> list[RegisteredProcess]:
        """Return the processes that registered before this one. Of two that start together, only the later one waits."""
        live = await self.list_live()
        own = self._own
        return live if own is None else [other for other in live if (other.started_at, other.id) < (own.started_at, own.id)]

    def _find_conflict(self, other: RegisteredProcess, place: str) -> str | None:
        """Return why this process cannot work beside *other*, and what to do; None if it can."""
        for engine in self._engines:
            address = other.engines.get(engine.setting, engine.address)
            if address != engine.address:
                return f"It has {engine.setting}={address}, and this process {engine.address}. Give both the same address, or stop it."
            if not engine.is_shared_by_hosts and other.place != place:
                return (
                    f"{engine.setting}={engine.address} is a file in the data folder, and this process has another one, {self._folder}, "
                    f"or runs on another machine. Let both use one folder of one host, set {engine.setting} to a server, or stop it."
                )
        return None

    async def _renew_forever(self, kind: ProcessKind) -> NoReturn:
        failures = FailureLog(_log, "processes.not_renewed")
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            try:
                until = to_micros(self._clock() + self._lease)
                renewed = await self._db.write(lambda tx, until=until: tx.execute(_RENEW, {"own_id": self._id, "ends_at": until}))
                if not renewed:  # expired while the machine slept or the store was unavailable, and removed by another process
                    await self._insert(kind)
                await self._read_servers()
            except Exception as error:  # noqa: BLE001 - the next renewal retries; until then others may take this process for ended
                failures.report(error)
