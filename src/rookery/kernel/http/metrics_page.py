"""`GET /metrics`: with a key on the server's own port, or without a key on a port of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import structlog
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import WrongSettings
from rookery.kernel.http.operations import Operation
from rookery.kernel.metrics import Metrics

_log = structlog.stdlib.get_logger("rookery.metrics")

_LOOPBACK_HOST = "127.0.0.1"
_RESPONSE_TIMEOUT_S = 10.0
_MAX_HEAD_BYTES = 16 * 1024
_MAX_CONNECTIONS = 20
"""Maximum open connections. A scraper needs one."""


class MetricsRoutes:
    """The metrics of this process for Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def operations(self) -> list[Operation]:
        return [
            Operation(method="GET", path="/metrics", handler=self.get_metrics, required_scope="platform:metrics", ignores_query=True,
                      operation_id="get_metrics", summary="Show metrics for Prometheus", tags=("Operation",),
                      media_types=("text/plain", "application/openmetrics-text")),
        ]  # fmt: skip

    async def get_metrics(self, request: Request) -> Response:
        """Return the metrics of this process in the Prometheus text format, or as OpenMetrics if `Accept` requests it."""
        text, media_type = await self._metrics.scrape(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": media_type})


class MetricsServer:
    """
    A server on 127.0.0.1 that serves only the metrics page and needs no key.

    It requires the loopback's Host header, so that web pages in a browser on this host cannot read it by DNS rebinding.

    Args:
        port: The port; 0 selects a free one.
        shared_socket: A socket that is bound to the port, if several processes share it.
        head_timeout_s: Seconds for the head of a request.
    """

    def __init__(self, metrics: Metrics, port: int, *, shared_socket: socket.socket | None = None, head_timeout_s: float = 5.0) -> None:
        self._metrics = metrics
        self._shared_socket = shared_socket
        self._head_timeout_s = head_timeout_s
        self._requested_port = port
        self._server: asyncio.Server | None = None
        self._connection_count = 0

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._requested_port if self._server is None else self._server.sockets[0].getsockname()[1]

    async def start(self) -> None:
        """
        Start to listen.

        Raises:
            WrongSettings: The port cannot be used.
        """
        listening = open_metrics_socket(self._requested_port) if self._shared_socket is None else self._shared_socket
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=_MAX_HEAD_BYTES)
        _log.info("metrics.listening", url=f"http://{_LOOPBACK_HOST}:{self.port}/metrics")

    async def aclose(self) -> None:
        """Stop listening and close open connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection_count += 1
        try:
            if self._connection_count <= _MAX_CONNECTIONS:
                async with asyncio.timeout(self._head_timeout_s):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                    writer.write(await self._respond(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # an incomplete request gets no response
        except Exception:  # noqa: BLE001 - the top level of a request: logged, and the server goes on
            _log.exception("metrics.failed")
        finally:
            self._connection_count -= 1
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _respond(self, head: str) -> bytes:
        line, *lines = head.split("\r\n")
        method, _, rest = line.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("host", "").rpartition(":")[0] not in {_LOOPBACK_HOST, "localhost"}:
            return _encode_response("421 Misdirected Request", "text/plain", b"This server answers only to the host 127.0.0.1.\n")
        if rest.partition(" ")[0].partition("?")[0] != "/metrics":
            return _encode_response("404 Not Found", "text/plain", b"This server has only the path /metrics.\n")
        if method not in {"GET", "HEAD"}:
            return _encode_response(
                "405 Method Not Allowed", "text/plain", b"This path accepts only GET and HEAD.\n", ("Allow: GET, HEAD",)
            )
        text, media_type = await self._metrics.scrape(headers.get("accept", ""))
        response = _encode_response("200 OK", media_type, text)
        return response if method == "GET" else response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def open_metrics_socket(port: int) -> socket.socket:
    """
    Return a socket that is bound to *port* of 127.0.0.1; port 0 picks a free one.

    Raises:
        WrongSettings: The port cannot be used.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_LOOPBACK_HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        reason = "the port is in use" if port else error.strerror
        raise WrongSettings(f"ROOKERY_METRICS_PORT: cannot listen on {_LOOPBACK_HOST}:{port}: {reason}.") from error
    return bound


def _encode_response(status: str, media_type: str, body: bytes, more: tuple[str, ...] = ()) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        *more,
    )
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
