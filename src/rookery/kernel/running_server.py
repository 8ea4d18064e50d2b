"""The file in the data folder with the server's address, by which commands find a running server."""

from __future__ import annotations

import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import orjson

from rookery.kernel.data_folder import SERVER_FILE, read_config_file

_PROBE_TIMEOUT_S = 2.0
_MAX_NOTE_BYTES = 4096
_READINESS_TIMEOUT_S = 5.0
_MAX_READINESS_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that responds on this data folder; *url* is its listening address, such as `http://127.0.0.1:8400`."""

    url: str
    pid: int


def write_server_file(folder: Path, url: str) -> None:
    """Write the address and process id of this server. The file of another process is replaced."""
    path = folder / SERVER_FILE
    new = path.with_name(f"{SERVER_FILE}.{os.getpid()}")
    new.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    new.replace(path)


def remove_server_file(folder: Path) -> None:
    """Remove the file if this process wrote it."""
    recorded = _read_server_file(folder)
    if recorded is not None and recorded.pid == os.getpid():
        (folder / SERVER_FILE).unlink(missing_ok=True)


def find_server(folder: Path) -> RunningServer | None:
    """
    Return the server that runs on a data folder, if it responds.

    The file of a killed server is detected by its address, which does not respond. The process id is not enough: it may belong to
    another program by now, and a server in a container has an id of its own.
    """
    recorded = _read_server_file(folder)
    return recorded if recorded is not None and _is_reachable(recorded.url) else None


def fetch_engine_states(server: RunningServer) -> dict[str, str]:
    """
    Return the state of each engine that *server* publishes on /readyz.

    Empty if it does not answer. No key is sent. Over HTTPS the certificate must be valid for the address.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.url}/readyz", timeout=_READINESS_TIMEOUT_S) as response:
            content = response.read(_MAX_READINESS_BYTES)
    except urllib.error.HTTPError as error:  # 503 without the record store
        with error:
            content = error.read(_MAX_READINESS_BYTES)
    except (OSError, ValueError, HTTPException):
        return {}
    try:
        document = cast("object", orjson.loads(content))
    except ValueError:
        return {}
    states = cast("dict[str, object]", document).get("engines") if isinstance(document, dict) else None
    if not isinstance(states, dict):
        return {}
    return {name: state for name, state in cast("dict[str, object]", states).items() if isinstance(state, str)}


def _read_server_file(folder: Path) -> RunningServer | None:
    try:
        note = cast("object", orjson.loads(read_config_file(folder / SERVER_FILE, max_bytes=_MAX_NOTE_BYTES)))
    except (OSError, ValueError):
        return None
    if not isinstance(note, dict):
        return None
    fields = cast("dict[str, object]", note)
    url, pid = fields.get("url"), fields.get("pid")
    return RunningServer(url, pid) if isinstance(url, str) and isinstance(pid, int) else None


def _is_reachable(url: str) -> bool:
    """Return whether Rookery responds at *url*. The certificate is not verified, because nothing secret is sent."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
        with socket.create_connection((host, port), timeout=_PROBE_TIMEOUT_S) as plain_socket:
            connection = _insecure_tls_context().wrap_socket(plain_socket) if parts.scheme == "https" else plain_socket
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head = b""
            while len(head) < len(_HEALTHY_STATUS_LINE) and (part := connection.recv(64)):
                head += part
            return head.startswith(_HEALTHY_STATUS_LINE)
    except (OSError, ValueError):
        return False


def _insecure_tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_HEALTHY_STATUS_LINE = b"HTTP/1.1 200"
