"""The reason why no connection was opened, with the port, as a text for the person who added the server."""

from __future__ import annotations

import socket

import httpx2

_DEFAULT_PORTS = {"http": 80, "https": 443}


def describe_connection_failure(url: httpx2.URL, error: Exception) -> str:
    """Return the address that was tried and the reason. The HTTP client names neither the port nor that nothing listens on it."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"No connection to {host}:{url.port or _DEFAULT_PORTS.get(url.scheme, '')}: {_find_reason(error)}"


def _find_reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; no program listens on this port."
        if isinstance(cause, socket.gaierror):
            return "the host name has no address."
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.ConnectTimeout):
        return "it did not answer in time."
    return str(error) or type(error).__name__
