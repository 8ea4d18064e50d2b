"""The server in this process, alone or as one of several: bind a socket, serve until a signal, shut down."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import FrameType
from typing import Literal, cast

import structlog
import uvicorn
import uvloop
from uvicorn.server import ServerState

from rookery.access.networks import canonical_address, client_network, contains, parse_networks, parse_proxies
from rookery.app import GroupApplication, create_app
from rookery.kernel import process_resources
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import read_config_file
from rookery.kernel.errors import WrongSettings
from rookery.kernel.http.connection import HttpConnection
from rookery.kernel.http.connection_limit import ConnectionLimiter, ConnectionLimits, raise_file_limit
from rookery.kernel.http.tls import TlsServer
from rookery.kernel.running_server import remove_server_file, write_server_file
from rookery.kernel.server_supervisor import SupervisedProcess
from rookery.wiring import Rookery

_log = structlog.stdlib.get_logger("rookery.serving")

_SHUTDOWN_TIMEOUT_S = 5
_LISTEN_BACKLOG = 2048
_MAX_UNSENT_BYTES = 128 * 1024
_KEEP_ALIVE_TIMEOUT_S = 75
_MAX_GROUP_CONNECTIONS = 100_000
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1")


def open_listening_socket(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens on *host* and *port*; port 0 picks a free port.

    Raises:
        WrongSettings: The port is in use, or the host is not an address of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # Accepted sockets inherit this. Otherwise the kernel buffers 4 MB of an unread response per connection, and reports
            # progress so seldom that a slow reader cannot be distinguished from one that does not read.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        listening.listen(_LISTEN_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a port is a number from 0 to 65535"
        raise WrongSettings(f"Cannot listen on {host}:{port}: {reason}. Choose another with ROOKERY_PORT or --port.") from error
    return listening


def run_server(rookery: Rookery, listening: socket.socket, process: SupervisedProcess | None = None) -> None:
    """
    Serve *rookery* on *listening* until a signal stops the server. Requests in progress get `_SHUTDOWN_TIMEOUT_S` to finish.

    Args:
        process: The process of a supervisor, which it stops with and reports to. None: this process is the whole server.
    """
    settings = rookery.settings
    limits = ConnectionLimits(max_connections=_limit_connections(settings.max_connections))
    limiter = ConnectionLimiter(limits, get_owner=make_owner_lookup(settings.trusted_proxies))
    config = _build_config(create_app(rookery), partial(HttpConnection, limiter=limiter), lifespan="on")
    tls = _load_tls_context(settings)
    for ending in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal again after a clean exit. It must not change the exit status.
        signal.signal(ending, _ignore_signal)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = _Server(config) if tls is None else _TlsServer(config, limiter, tls)
        server.on_exit = rookery.close_streams
        if process is None:
            server.on_start = lambda: announce_server(settings)
        else:
            server.group_link = _GroupLink(GroupApplication(rookery), process)
        try:
            runner.run(server.serve(sockets=[listening]))
        finally:
            if process is None:
                remove_server_file(settings.data_dir)
    if not server.started:
        raise WrongSettings("The server did not start. The log above has the reason.")
    _log.info("stopped")


def _build_config(
    app: Callable[..., Awaitable[None]], connection: Callable[..., HttpConnection], *, lifespan: Literal["on", "off"]
) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", connection),
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_config=None,
        log_level=max(logging.WARNING, logging.getLogger().level),  # hides uvicorn's informational lines
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_TIMEOUT_S,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
    )
    config.load()
    return config


def announce_server(settings: Settings) -> None:
    """Write the server's address to the data folder. Without the file, commands show the address of their own settings."""
    try:
        write_server_file(settings.data_dir, settings.listening_url)
    except OSError as error:
        _log.warning("server.address_not_written", folder=str(settings.data_dir), reason=error.strerror)


def make_owner_lookup(trusted_proxies: Sequence[str]) -> Callable[[str], str | None]:
    """
    Return a function that maps an address to its client, which may have half of all connections.

    The function returns None for addresses that serve many clients: those of trusted proxies, and loopback addresses, which a local
    proxy or the operator's programs use.
    """
    shared = (*parse_networks(_LOOPBACK_NETWORKS), *parse_proxies(trusted_proxies))

    def owner(address: str) -> str | None:
        canonical = canonical_address(address)
        return None if canonical is None or contains(shared, canonical) else client_network(canonical)

    return owner


def _limit_connections(limit: int) -> int:
    possible = raise_file_limit(limit)
    if possible < limit:
        reason = "the limit on open files (`ulimit -Hn`) does not allow more"
        _log.warning("connections.limited", requested=limit, limit=possible, reason=reason)
    return possible


def _load_tls_context(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    try:
        for path in (settings.tls_cert, settings.tls_key):
            if path is not None:
                read_config_file(path)  # a FIFO would block OpenSSL
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # limits the cost of a connection to one handshake
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(settings.tls_cert or "", settings.tls_key)
    except OSError as error:  # includes ssl.SSLError
        raise WrongSettings(f"ROOKERY_TLS_CERT and ROOKERY_TLS_KEY cannot be used: {error.strerror or error}.") from error
    return context


class _Server(uvicorn.Server):
    """uvicorn's server. It logs a signal at once, because requests in progress and tool servers need some time to stop."""

    on_exit: Callable[[], None] | None = None
    """Called on a signal; closes streams that would not end by themselves."""
    on_start: Callable[[], None] | None = None
    """Called once the server accepts requests."""
    group_link: _GroupLink | None = None
    """The link to the other processes of the server."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and exclude all objects created so far from garbage collection."""
        await super().startup(sockets)
        if self.started:
            if self.on_start is not None:
                self.on_start()
            if self.group_link is not None:
                await self.group_link.start(self.server_state, lambda: self.handle_exit(signal.SIGTERM, None))
        process_resources.expect_requests()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting requests, also those of other processes, and finish those in progress."""
        if self.group_link is not None:
            self.group_link.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        _log.info("stopping")
        super().handle_exit(sig, frame)
        if self.on_exit is not None:
            self.on_exit()


class _GroupLink:
    """The Unix socket on which one process of several serves the requests of the others, and its watch on the supervisor."""

    def __init__(self, app: Callable[..., Awaitable[None]], process: SupervisedProcess) -> None:
        # Connections of other processes are as many as those of clients that have a session here.
        self._limiter = ConnectionLimiter(ConnectionLimits(max_connections=_MAX_GROUP_CONNECTIONS))
        self._config = _build_config(app, HttpConnection, lifespan="off")
        self._process = process
        self._server: asyncio.Server | None = None

    async def start(self, state: ServerState, stop: Callable[[], None]) -> None:
        """Serve, report to the supervisor, and call *stop* if the supervisor ends."""
        group, loop = self._process.group, asyncio.get_running_loop()
        path = group.socket_path(group.number)
        path.unlink(missing_ok=True)  # left by the process that this one replaces
        self._server = await loop.create_unix_server(lambda: HttpConnection(self._config, state, {}, limiter=self._limiter), str(path))
        loop.add_reader(self._process.alive_pipe, self._on_supervisor_end, stop)
        self._process.report_ready()

    def close(self) -> None:
        """Stop serving. Requests in progress go on."""
        asyncio.get_running_loop().remove_reader(self._process.alive_pipe)
        if self._server is not None:
            self._server.close()

    def _on_supervisor_end(self, stop: Callable[[], None]) -> None:
        asyncio.get_running_loop().remove_reader(self._process.alive_pipe)
        _log.error("supervisor.ended", reason="the supervisor has exited without a signal to this process")
        stop()


class _TlsServer(_Server, TlsServer):
    """The same server, over TLS."""


def _ignore_signal(signum: int, frame: FrameType | None) -> None:
    del signum, frame


def write_starter_servers(settings: Settings) -> None:
    """Write a servers.json with the tool server `time`, which is a dependency, if the file does not exist."""
    path = settings.servers_file
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # entries often hold tokens
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_STARTER_SERVERS_JSON.replace("PYTHON", sys.executable.replace("\\", "\\\\")))


_STARTER_SERVERS_JSON = """{
  "mcpServers": {
    "time": {
      "command": "PYTHON",
      "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
      "name": "Time",
      "tagline": "The current time in any time zone, and conversion between zones"
    }
  }
}
"""
