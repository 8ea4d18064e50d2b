"""
Counters in a server of Valkey or Redis, which processes of several hosts share.

Each operation is one script, so it is atomic and one round trip. Each count has an id, so a script that may have run can be sent again: the
second run returns the count of the first.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import unquote
from weakref import WeakSet

import redis.asyncio
import redis.exceptions
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.maint_notifications import MaintNotificationsConfig

from rookery.access.ports import CounterFeature, WindowCount
from rookery.kernel.cancellation import timeout_while_responsive
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret

_KEY_PREFIX = "rookery:counts:"

_MAX_CONNECTIONS = 32
_REPLY_TIMEOUT_S = 1.0
"""Time limit of an attempt, with opening a connection or waiting for one."""

_MAX_SLOW_ATTEMPTS = 3
"""Attempts without a reply in time after which an operation fails. The caller then counts locally."""

_RECONNECT_TIME_S = 1.0
"""Time for which an operation connects again while the server refuses connections, as it does during a restart."""

_RECONNECT_INTERVAL_S = 0.05

_READ_ONLY_ERROR = "READONLY"
"""The name of the error of a replica. Servers before 7 have it in the middle of the text if a script got it, which the client overlooks."""

_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})

_DEFAULT_PORT = 6379
_MAX_PORT = 65_535

_TLS_SCHEMES = frozenset({"rediss", "valkeys"})
_ADDRESS = re.compile(
    r"(?P<scheme>rediss?|valkeys?)://(?:(?P<username>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/@?#\[\]]+)(?::(?P<port>\d{1,5}))?(?:/(?P<database>\d{1,4})?)?"
)

_SPEND = """
local earlier = redis.call('GET', KEYS[2])
if earlier then
  return {tonumber(earlier), tonumber(redis.call('HGET', KEYS[1], 'started')) or ARGV[1]}
end
local count = redis.call('HMGET', KEYS[1], 'started', 'used')
local started, used = tonumber(count[1]), tonumber(count[2])
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if started and math.abs(now - started) < window then
  if used <= limit then
    used = used + 1
    redis.call('HSET', KEYS[1], 'used', used)
  end
else
  started, used = now, 1
  redis.call('HSET', KEYS[1], 'started', ARGV[1], 'used', 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
redis.call('SET', KEYS[2], used, 'PX', ARGV[5])
return {used, started}
"""

_REFUND = """
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {0, 0}
end
local count = redis.call('HMGET', KEYS[1], 'started', 'used')
local started, used = tonumber(count[1]), tonumber(count[2])
if started == tonumber(ARGV[1]) and used > 0 then
  redis.call('HSET', KEYS[1], 'used', math.min(used, tonumber(ARGV[2])) - 1)
end
redis.call('SET', KEYS[2], 0, 'PX', ARGV[3])
return {0, 0}
"""

_PEEK = """
local count = redis.call('HMGET', KEYS[1], 'started', 'used')
local started = tonumber(count[1])
if started and math.abs(tonumber(ARGV[1]) - started) < tonumber(ARGV[2]) then
  return {tonumber(count[2]), started}
end
return {0, ARGV[1]}
"""

_RETENTION_FACTOR = 2
"""Lifetime of a key in windows. The server deletes it by its own clock, which may differ from that of the processes."""

_ID_PREFIX = f"{_KEY_PREFIX}sent:"
_ID_RETENTION_MS = 5_000
"""Lifetime of the id of a count, longer than all attempts of an operation take."""


class _ConnectionPool(redis.asyncio.BlockingConnectionPool):
    """
    A pool whose idle connections can be marked as outdated, without a race with requests that take them: the next use connects again.

    Args:
        options: The arguments of the base class.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType, reportArgumentType] - untyped
        self._outdated: WeakSet[AbstractConnection] = WeakSet()

    def renew_idle(self) -> None:
        """Let each connection that is idle now connect again before its next use."""
        self._outdated.update(self._available_connections)

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        if connection in self._outdated:
            self._outdated.discard(connection)
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """The address of a server."""

    host: str
    port: int
    database: int
    username: str | None
    password: Secret | None
    is_tls: bool
    verify_ssl: bool

    def make_pool(self) -> _ConnectionPool:
        """Return an empty pool."""
        verification: dict[str, Any] = {} if self.verify_ssl or not self.is_tls else {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
        return _ConnectionPool(
            max_connections=_MAX_CONNECTIONS,
            timeout=None,  # the caller limits the time
            connection_class=redis.asyncio.SSLConnection if self.is_tls else redis.asyncio.Connection,
            host=self.host,
            port=self.port,
            db=self.database,
            username=self.username,
            password=None if self.password is None else self.password.reveal(),
            socket_connect_timeout=None,
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            # With notifications of maintenance, the client does not notice that the server has closed an idle connection.
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            **verification,
        )


class _Scripts(NamedTuple):
    """The scripts of a client."""

    spend: AsyncScript
    refund: AsyncScript
    peek: AsyncScript


class ValkeyCounter:
    """
    A `RateLimitCounter` on a server. Connections are opened by requests, at most `_MAX_CONNECTIONS`.

    Args:
        timeout_s: Time limit of an attempt. An operation without a reply is attempted `_MAX_SLOW_ATTEMPTS` times.
    """

    lacks = frozenset[CounterFeature]()

    def __init__(self, server: _Server, *, timeout_s: float = _REPLY_TIMEOUT_S) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._pool: _ConnectionPool | None = None
        self._client: redis.asyncio.Redis | None = None
        self._scripts: _Scripts | None = None
        self._id = secrets.token_hex(8)
        self._numbers = itertools.count()

    @classmethod
    def from_address(cls, address: str, *, verify_ssl: bool = True, timeout_s: float = _REPLY_TIMEOUT_S) -> ValkeyCounter:
        """
        Return the counter at `redis[s]://user:password@host:port/database`; `valkey[s]:` means the same.

        Raises:
            WrongSettings: The address is invalid. The message does not contain it, because it may contain a password.
        """
        match = _ADDRESS.fullmatch(address)
        port = int(match["port"] or _DEFAULT_PORT) if match else 0
        if match is None or not 0 < port <= _MAX_PORT:
            raise WrongSettings("ROOKERY_COUNTERS: invalid address; use redis://user:password@host:6379/0, or rediss: with TLS")
        server = _Server(
            host=match["host"].strip("[]"),
            port=port,
            database=int(match["database"] or 0),
            username=unquote(match["username"] or "") or None,
            password=None if match["password"] is None else Secret(unquote(match["password"])),
            is_tls=match["scheme"] in _TLS_SCHEMES,
            verify_ssl=verify_ssl,
        )
        return cls(server, timeout_s=timeout_s)

    async def spend(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        spend = self._open().spend
        retention_ms = max(1, _RETENTION_FACTOR * window_us // 1000)
        return await self._run(spend, self._make_keys(key), now_us, window_us, limit, retention_ms, min(retention_ms, _ID_RETENTION_MS))

    async def refund(self, key: str, *, limit: int, started_at_us: int) -> None:
        await self._run(self._open().refund, self._make_keys(key), started_at_us, limit, _ID_RETENTION_MS)

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        peek = self._open().peek
        return await self._run(peek, [_name_count(key)], now_us, window_us)

    async def close(self) -> None:
        client, pool = self._client, self._pool
        self._client = self._pool = self._scripts = None
        if client is not None:
            await client.aclose()
        if pool is not None:
            await pool.disconnect()

    def _make_keys(self, key: str) -> list[str]:
        """
        Return the names of a count and of the id of its next change.

        A server in cluster mode runs a script only if its names are in one slot. The part in braces chooses the slot, if there is one.
        """
        name = _name_count(key)
        return [name, f"{_ID_PREFIX}{{{name}}}:{self._id}:{next(self._numbers)}"]

    def _open(self) -> _Scripts:
        if self._scripts is None:
            self._pool = self._server.make_pool()
            self._client = redis.asyncio.Redis(connection_pool=self._pool)
            self._scripts = _Scripts(*map(self._client.register_script, (_SPEND, _REFUND, _PEEK)))
        return self._scripts

    async def _run(self, script: AsyncScript, keys: Sequence[str], *arguments: int) -> WindowCount:
        try:
            reply = cast("list[int | bytes]", await self._send(script, keys, arguments))
            used, started_at_us = map(int, reply)
        except redis.exceptions.RedisError as error:
            if isinstance(error, redis.exceptions.ReadOnlyError) or _READ_ONLY_ERROR in str(error):
                self._renew_idle()  # after a failover, the name of the server leads to another one
                raise EngineUnavailable("counters", "the server is a replica, which accepts only reads", retry_after_s=1) from error
            raise EngineUnavailable("counters", str(error), retry_after_s=1) from error
        except (TypeError, ValueError) as error:
            raise EngineUnavailable("counters", "the reply is not a count", retry_after_s=1) from error
        return WindowCount(used, started_at_us)

    async def _send(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[int]) -> object:
        """
        Run *script*. If its connection is lost or does not answer, run it on a new one.

        All idle connections then connect again at their next use, because what ended one has probably ended the others: a restart of the
        server, or a firewall that forgets idle connections.

        Raises:
            EngineUnavailable: The server refused connections for `_RECONNECT_TIME_S`, or did not reply to any attempt.
        """
        loop = asyncio.get_running_loop()
        refused_until, losses, slow_attempts = loop.time() + _RECONNECT_TIME_S, 0, 0
        while True:
            try:
                async with timeout_while_responsive(self._timeout_s):
                    return await script(keys=list(keys), args=list(arguments))
            except redis.exceptions.AuthenticationError:
                raise
            except TimeoutError as error:
                slow_attempts += 1
                if slow_attempts == _MAX_SLOW_ATTEMPTS:
                    reason = f"no reply within {self._timeout_s:g} s, tried {_MAX_SLOW_ATTEMPTS} times"
                    raise EngineUnavailable("counters", reason, retry_after_s=1) from error
            except (redis.exceptions.ConnectionError, OSError, RuntimeError) as error:  # uvloop raises the last for a reset connection
                losses += 1
                if self._pool is None:
                    raise EngineUnavailable("counters", "the counter is closed", retry_after_s=1) from error
                if losses > 1 and loop.time() >= refused_until:
                    raise EngineUnavailable("counters", str(error) or "the connection was closed", retry_after_s=1) from error
            self._renew_idle()
            if losses > 1:
                await asyncio.sleep(_RECONNECT_INTERVAL_S)

    def _renew_idle(self) -> None:
        if self._pool is not None:
            self._pool.renew_idle()


def _name_count(key: str) -> str:
    """Return the name of the count of *key*. The glob of a tool limit may have braces, which would choose the slot."""
    return _KEY_PREFIX + key.translate(_ESCAPES)
