"""Running the server in this process: bind, say what it is, serve until told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop

from rookery.app import create_app
from rookery.kernel.config import Settings
from rookery.kernel.errors import WrongSettings
from rookery.wiring import Rookery

_GRACE_S = 5
_BACKLOG = 2048
_KEEP_ALIVE_S = 75


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens on *host* and *port*; 0 is any free port.

    Raises:
        WrongSettings: Somebody listens there already, or the host is not ours.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        raise WrongSettings(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with ROOKERY_PORT or --port.") from error
    return listening


def run(rookery: Rookery, listening: socket.socket) -> None:
    """Serve *rookery* on *listening* until a signal ends it; requests in work have some seconds to finish."""
    settings = rookery.settings
    config = uvicorn.Config(
        create_app(rookery),
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    for ending in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal again once it has ended well; that must not make it look like a death.
        signal.signal(ending, _has_ended)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = uvicorn.Server(config)
        runner.run(server.serve(sockets=[listening]))
    if not server.started:
        raise WrongSettings("The server did not start; the log above says why.")


def _has_ended(signum: int, frame: FrameType | None) -> None:
    del signum, frame


def write_starter_servers(settings: Settings) -> None:
    """Give a first run a tool server to call, if its program is installed and nobody wrote a servers.json yet."""
    path = settings.servers_file
    if path.exists() or not _has_module("mcp_server_time"):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_STARTER.replace("PYTHON", sys.executable.replace("\\", "\\\\")), encoding="utf-8")


def _has_module(name: str) -> bool:
    return any((Path(folder) / name / "__init__.py").is_file() for folder in sys.path)


_STARTER = """{
  "mcpServers": {
    "time": {
      "command": "PYTHON",
      "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
      "name": "Time",
      "tagline": "The time anywhere, and from one zone to another"
    }
  }
}
"""
