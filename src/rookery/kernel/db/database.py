"""What a record store offers, and the choice of one by its address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from rookery.kernel.db.sqlite import SqliteDatabase
from rookery.kernel.db.transaction import Dialect, Tx
from rookery.kernel.errors import WrongSettings

T = TypeVar("T")


class Database(Protocol):
    """
    The record store.

    Work is a plain function of a transaction: fast, without awaits, and harmless to run twice but for what it does
    through the transaction (PostgreSQL repeats it after a deadlock).

    Every method raises what *work* raises, else `EngineUnavailable("database", …)` or `StorageFull`.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run *work* in one transaction and commit it; an exception undoes all of it."""
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, which only reads, off the event loop; it sees one moment of the store."""
        ...

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, one or two reads by key that take microseconds, at the least cost; each statement sees its own moment."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and release every connection and thread; twice does no harm."""
        ...


def open_database(url: str, *, data_dir: Path) -> Database:
    """
    Return the record store at *url*; nothing is opened before its first use.

    PostgreSQL's driver and SQLAlchemy's engines (0.4 s of imports) are loaded only if they are asked for.

    Args:
        url: `embedded:` (records.db in *data_dir*) or `postgresql://…`.

    Raises:
        WrongSettings: Neither.
    """
    if url == "embedded:":
        return SqliteDatabase(data_dir / "records.db")
    if url.startswith(("postgresql://", "postgres://")):
        from rookery.kernel.db.postgresql import PostgresDatabase

        return PostgresDatabase(url)
    scheme = url.partition(":")[0]
    msg = (
        f"ROOKERY_DATABASE_URL: {scheme!r} is not a record store that Rookery knows; use embedded: or postgresql://user:password@host/name"
    )
    raise WrongSettings(msg)
