"""
Counters in a server of Valkey or Redis, which processes of several hosts share.

Each operation is one script, so it is atomic and one round trip. A script that may have run is not repeated: the request would count
twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from rookery.access.ports import CounterFeature, WindowCount
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret

_KEY_PREFIX = "rookery:counts:"

_MAX_CONNECTIONS = 32
_REQUEST_TIMEOUT_S = 1.0
"""Total time of an operation, with opening a connection or waiting for one. After a failure, the caller counts locally for two seconds."""

_READ_ONLY_ERROR = "READONLY"
"""The name of the error of a replica. Servers before 7 have it in the middle of the text if a script got it, which the client overlooks."""

_DEFAULT_PORT = 6379
_MAX_PORT = 65_535

_TLS_SCHEMES = frozenset({"rediss", "valkeys"})
_ADDRESS = re.compile(
    r"(?P<scheme>rediss?|valkeys?)://(?:(?P<username>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/@?#\[\]]+)(?::(?P<port>\d{1,5}))?(?:/(?P<database>\d{1,4})?)?"
)

_SPEND = """
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
return {used, started}
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

    def make_pool(self) -> redis.asyncio.BlockingConnectionPool:
        """Return an empty pool."""
        verification: dict[str, Any] = {} if self.verify_ssl or not self.is_tls else {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
        return redis.asyncio.BlockingConnectionPool(
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
            **verification,
        )


class ValkeyCounter:
    """A `RateLimitCounter` on a server. Connections are opened by requests, at most `_MAX_CONNECTIONS`."""

    lacks = frozenset[CounterFeature]()

    def __init__(self, server: _Server, *, timeout_s: float = _REQUEST_TIMEOUT_S) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._client: redis.asyncio.Redis | None = None
        self._scripts: tuple[AsyncScript, AsyncScript] | None = None

    @classmethod
    def from_address(cls, address: str, *, verify_ssl: bool = True, timeout_s: float = _REQUEST_TIMEOUT_S) -> ValkeyCounter:
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
        spend, _ = self._open()
        retention_ms = max(1, _RETENTION_FACTOR * window_us // 1000)
        return await self._run(spend, key, now_us, window_us, limit, retention_ms)

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        _, peek = self._open()
        return await self._run(peek, key, now_us, window_us)

    async def close(self) -> None:
        client, self._client, self._scripts = self._client, None, None
        if client is not None:
            await client.aclose()
            await client.connection_pool.disconnect()

    def _open(self) -> tuple[AsyncScript, AsyncScript]:
        if self._scripts is None:
            self._client = redis.asyncio.Redis(connection_pool=self._server.make_pool())
            self._scripts = self._client.register_script(_SPEND), self._client.register_script(_PEEK)
        return self._scripts

    async def _run(self, script: AsyncScript, key: str, *arguments: int) -> WindowCount:
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = cast("list[int | bytes]", await self._send(script, _KEY_PREFIX + key, arguments))
            used, started_at_us = map(int, reply)
        except TimeoutError as error:
            raise EngineUnavailable("counters", f"no reply within {self._timeout_s:g} s", retry_after_s=1) from error
        except (redis.exceptions.RedisError, OSError) as error:
            if isinstance(error, redis.exceptions.ReadOnlyError) or _READ_ONLY_ERROR in str(error):
                await self._close_idle_connections()
                raise EngineUnavailable("counters", "the server is a replica, which accepts only reads", retry_after_s=1) from error
            raise EngineUnavailable("counters", str(error), retry_after_s=1) from error
        except (TypeError, ValueError) as error:
            raise EngineUnavailable("counters", "the reply is not a count", retry_after_s=1) from error
        return WindowCount(used, started_at_us)

    async def _send(self, script: AsyncScript, key: str, arguments: Sequence[int]) -> object:
        """
        Run *script*. If the server closed an idle connection, run it on a new one.

        uvloop raises `RuntimeError` for a write to a connection that was reset. The client does not know it and would use the connection
        again and again. Nothing was sent, so the request is not counted twice.
        """
        try:
            return await script(keys=[key], args=list(arguments))
        except RuntimeError:
            if self._client is None:
                raise EngineUnavailable("counters", "the counter is closed", retry_after_s=1) from None
            await self._close_idle_connections()
        try:
            return await script(keys=[key], args=list(arguments))
        except RuntimeError as error:
            raise EngineUnavailable("counters", "the connection was closed", retry_after_s=1) from error

    async def _close_idle_connections(self) -> None:
        """Let the next requests connect again: after a failover, the name of the server leads to another one."""
        if self._client is not None:
            await self._client.connection_pool.disconnect(inuse_connections=False)
