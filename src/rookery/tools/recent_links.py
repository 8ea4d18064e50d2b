"""The links that tool servers recently gave to each key, so that a key can read them back although no list has them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import quote, unquote

from rookery.access.events import KeyChanged
from rookery.access.models import Caller
from rookery.kernel.clock import Clock, from_micros, to_micros, utc_now
from rookery.kernel.db import Database, Tx
from rookery.kernel.write_buffer import WriteBuffer
from rookery.tools.models import Server
from rookery.tools.store import recent_links as store
from rookery.tools.store.recent_links import LINKS, RecentLink

RETENTION = timedelta(days=7)
"""Retention of a link, from the last result that had it."""
MAX_LINKS_PER_KEY = 200
MAX_LINKS_PER_WORKSPACE = 5_000

_MAX_KEYS_IN_MEMORY = 200
_MAX_URI_LENGTH = 1000
_MAX_SERVERS_PER_LINK = 8
_WRITE_DELAY_S = 0.1
_RENEWAL_INTERVAL_MICROS = 10_000_000
"""Time in which a link that is given again is not written again. Many tools return the same links with each call."""
_MAX_BUFFERED_LINKS = 10_000
_URI_CHARACTERS = "%:/?#[]@!$&'()*+,;="
"""Characters of a URI that `quote` would escape."""


class _GivenLink(NamedTuple):
    workspace_id: int
    key_id: str
    uri: str
    server_key: str
    at: int


class _Link(NamedTuple):
    """The servers that gave a link, the latest last, and when it was last buffered."""

    server_keys: tuple[str, ...]
    buffered_at: int


class RecentLinks:
    """
    The servers that gave a link, by key and URI. Beyond its limits, the keys and links that were used least recently are dropped.

    It is kept per key, so that what one key's results name cannot decide which server another key reads from.

    The links of this process are in memory, and those of all processes in the record store. A link is written shortly after the result
    that has it. `aclose` writes the last ones.
    """

    def __init__(self, db: Database, clock: Clock = utc_now) -> None:
        self._db = db
        self._clock = clock
        self._links: OrderedDict[tuple[int, str], OrderedDict[str, _Link]] = OrderedDict()
        self._buffer = WriteBuffer[_GivenLink](
            self._write, name="tools.links", delay_s=_WRITE_DELAY_S, max_rows=_MAX_BUFFERED_LINKS, drops="oldest"
        )
        self.aclose = self._buffer.aclose

    def record(self, caller: Caller, server: Server, uris: Iterable[str]) -> None:
        """Remember that a result of *server* for *caller* named these URIs."""
        owner, at = (caller.workspace_id, caller.key_id), to_micros(self._clock())
        links = self._links.setdefault(owner, OrderedDict())
        self._links.move_to_end(owner)
        for uri in [uri for uri in uris if len(uri) <= _MAX_URI_LENGTH][-MAX_LINKS_PER_KEY:]:
            old = links.pop(uri, _Link((), at))
            server_keys = (*(key for key in old.server_keys if key != server.key), server.key)[-_MAX_SERVERS_PER_LINK:]
            is_due = server.key not in old.server_keys or at - old.buffered_at >= _RENEWAL_INTERVAL_MICROS
            links[uri] = _Link(server_keys, at if is_due else old.buffered_at)
            if is_due:
                self._buffer.add(_GivenLink(*owner, uri, server.key, at))
        while len(links) > MAX_LINKS_PER_KEY:
            links.popitem(last=False)
        while len(self._links) > _MAX_KEYS_IN_MEMORY:
            self._links.popitem(last=False)

    async def find_link(self, caller: Caller, uri: str) -> tuple[str, frozenset[str]] | None:
        """
        Return a link of *caller* and the keys of the servers that gave it, else None. Percent-escapes of *uri* may be decoded.

        A link that another process stored is found if only characters are decoded that a URI cannot contain, such as spaces.

        Raises:
            RookeryError: The store is unavailable.
        """
        links = self._links.get((caller.workspace_id, caller.key_id), OrderedDict())
        link = uri if uri in links else next((other for other in links if unquote(other) == uri), None)
        if link is not None:
            return link, frozenset(links[link].server_keys)
        if len(uri) > _MAX_URI_LENGTH:
            return None
        escaped_uri = quote(uri, safe=_URI_CHARACTERS, errors="surrogatepass")
        digests = {_compute_digest(candidate): candidate for candidate in (uri, escaped_uri)}
        servers = await self._db.lookup(lambda tx: store.find_servers(tx, caller.workspace_id, caller.key_id, list(digests)))
        return next(((candidate, servers[digest]) for digest, candidate in digests.items() if digest in servers), None)

    async def delete_old(self) -> int:
        """Delete the stored links older than `RETENTION`; return the number."""
        before = self._clock() - RETENTION
        return await self._db.write(lambda tx: store.delete_old_links(tx, given_before=before))

    async def _write(self, batch: Sequence[_GivenLink]) -> None:
        times = {(link.workspace_id, link.key_id, _compute_digest(link.uri), link.server_key): link.at for link in batch}
        links = [
            RecentLink(workspace_id=workspace_id, key_id=key_id, digest=digest, server_key=server_key, given_at=from_micros(at))
            for (workspace_id, key_id, digest, server_key), at in sorted(times.items())  # one order, so that processes cannot deadlock
        ]
        limits = {"max_per_key": MAX_LINKS_PER_KEY, "max_per_workspace": MAX_LINKS_PER_WORKSPACE}
        await self._db.write(lambda tx: store.save_links(tx, links, **limits), is_synced=False)


def delete_links_of_ended_key(tx: Tx, event: KeyChanged) -> None:
    """Delete the stored links of a key that was revoked or deleted. A recorder of `KeyChanged`."""
    if event.name == "key.revoked":
        LINKS.delete(tx, event.tenant_id, key_id=event.key_id)


def _compute_digest(uri: str) -> str:
    return hashlib.sha256(uri.encode("utf-8", "surrogatepass")).hexdigest()[:40]
