"""The protocol revision that each server negotiated last, in the record store."""

from __future__ import annotations

import structlog

from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database
from rookery.kernel.errors import RookeryError
from rookery.tools.fingerprints import fingerprint_program
from rookery.tools.models import NegotiatedProtocol, Server
from rookery.tools.store import negotiated_protocols as store

_log = structlog.stdlib.get_logger("rookery.tools")


class StoredProtocols:
    """A `NegotiatedProtocols` in the record store. While the store is unavailable, servers are negotiated with as if they were new."""

    def __init__(self, db: Database, *, clock: Clock = utc_now) -> None:
        self._db = db
        self._clock = clock

    async def find(self, server: Server) -> NegotiatedProtocol | None:
        """Return what *server* negotiated last; see `NegotiatedProtocols`."""
        target = fingerprint_program(server)
        try:
            return await self._db.lookup(lambda tx: store.find(tx, server.key, target))
        except RookeryError as error:
            _log.warning("tools.protocol_not_read", server=server.id, error=error.message)
            return None

    async def save(self, server: Server, negotiated: NegotiatedProtocol | None) -> None:
        """Store what *server* negotiated; see `NegotiatedProtocols`."""
        target, now = fingerprint_program(server), self._clock()
        try:
            if negotiated is None:
                await self._db.write(lambda tx: store.delete_negotiated(tx, 0, server.key))
            else:
                await self._db.write(lambda tx: store.save(tx, server.key, target, negotiated, now))
        except RookeryError as error:
            _log.warning("tools.protocol_not_stored", server=server.id, error=error.message)
