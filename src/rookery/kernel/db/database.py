"""The interfaces of a record store and of messages between its processes, and the function that opens a store by its URL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from rookery.kernel.db.sqlite import SqliteDatabase
from rookery.kernel.db.transaction import Dialect, Tx
from rookery.kernel.errors import WrongSettings
from rookery.kernel.urls import show_scheme


class MessageChannel(Protocol):
    """A channel to all processes that share a record store. A message may be lost while a process is not connected."""

    async def send(self, message: str) -> None:
        """
        Send *message*, of less than 8,000 bytes, to all listening processes, with this one.

        Raises:
            EngineUnavailable: The store is unavailable.
        """
        ...

    async def listen(self, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> NoReturn:
        """Call *on_message* with each message until cancelled, and *on_connect* after each connection, as messages before it were lost."""
        ...


T = TypeVar("T")

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


class Database(Protocol):
    """
    The record store.

    Work is a plain function of a transaction. It must be fast and free of awaits. PostgreSQL runs it again after a deadlock, so it
    must have no side effects except through the transaction.

    Every method raises what *work* raises, and also `EngineUnavailable("database", …)` and `StorageFull`.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        """
        Run *work* in one transaction and commit it. An exception rolls the transaction back.

        Args:
            is_synced: Wait until the commit is on the disk. False: until the next commit that waits, a power failure may undo the work;
                a crash of the process never does.
        """
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, which only reads, outside the event loop and on one consistent snapshot."""
        ...

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* as `read` does, on the read replica if the store has one and it has all commits of this process.

        Recent commits of other processes may be missing, so this is for lists that users see, and not for decisions.
        """
        ...

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, one or two reads by key, at the least cost. Each statement may see a newer state of the store."""
        ...

    async def close(self) -> None:
        """Finish accepted work and release every connection and thread. A second call does nothing."""
        ...


class _DryRunEnded(Exception):
    """Rolls the transaction of a dry run back."""


async def dry_run(db: Database, work: Callable[[Tx], object]) -> None:
    """Run *work* in a transaction that is rolled back in any case. Raise what *work* raises."""

    def run(tx: Tx) -> None:
        work(tx)
        raise _DryRunEnded

    with contextlib.suppress(_DryRunEnded):
        await db.write(run)


def open_database(url: str, *, data_dir: Path, replica_url: str | None = None, max_replica_lag_s: float = 5.0) -> Database:
    """
    Return the record store at *url*. Nothing is opened before the first use.

    The PostgreSQL driver and the engines of SQLAlchemy (0.4 s of imports) are loaded only if *url* needs them.

    Args:
        url: `embedded:` (records.db in *data_dir*) or `postgresql://…`.
        replica_url: A read replica of the PostgreSQL at *url*.
        max_replica_lag_s: Lag of the replica above which the primary serves all reads.

    Raises:
        WrongSettings: *url* is neither of these, or a replica is not in PostgreSQL.
    """
    if replica_url is not None and not (url.startswith(_POSTGRES_SCHEMES) and replica_url.startswith(_POSTGRES_SCHEMES)):
        msg = "ROOKERY_DATABASE_REPLICA needs a postgresql:// address, and another one in ROOKERY_DATABASE_URL"
        raise WrongSettings(msg)
    if url == "embedded:":
        return SqliteDatabase(data_dir / "records.db")
    if url.startswith(_POSTGRES_SCHEMES):
        from rookery.kernel.db.postgresql import PostgresDatabase
        from rookery.kernel.db.replica import ReplicatedDatabase

        primary = PostgresDatabase(url)
        if replica_url is None:
            return primary
        return ReplicatedDatabase(primary, PostgresDatabase(replica_url, setting="ROOKERY_DATABASE_REPLICA"), max_lag_s=max_replica_lag_s)
    msg = f"ROOKERY_DATABASE_URL: unknown record store{show_scheme(url)}; use embedded: or postgresql://user:password@host/name"
    raise WrongSettings(msg)


async def describe_pooler(url: str, *, setting: str) -> str | None:
    """Return what a pooler in transaction mode before the PostgreSQL at *url* costs; None without a pooler or an answer."""
    if not url.startswith(_POSTGRES_SCHEMES):
        return None
    from rookery.kernel.postgres_address import parse_postgres_address
    from rookery.kernel.postgres_pooler import LOSSES, POOLER, find_transaction_pooler

    return f"{POOLER}: {LOSSES}" if await find_transaction_pooler(parse_postgres_address(url, setting=setting)) else None


def open_channel(url: str, db: Database) -> MessageChannel | None:
    """Return the channel to the other processes that share the record store *db* at *url*, or None if the store has no channel."""
    if db.dialect == "sqlite":
        return None
    from rookery.kernel.db.postgresql_channel import PostgresChannel

    return PostgresChannel(url, db.lookup)
