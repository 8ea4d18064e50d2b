"""
A client of a running server for `rookery connect`: MCP as a coding agent speaks it, hooks, and the creation of a key.

Every request has a time limit and a limit on the size of its answer. The key is sent to no other address: redirects are errors.
"""

from __future__ import annotations

import ipaddress
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, NoReturn, cast
from urllib.parse import urlsplit

from rookery.connect.errors import ServerUnusable
from rookery.kernel.secret import Secret
from rookery.tools.discovery.client_guides import CatalogueSize, measure_catalogue

_TIMEOUT_S = 10.0
"""Longest wait for the next bytes of an answer."""

_MAX_ANSWER_S = 60.0
_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MAX_MESSAGE_CHARS = 500
_PROTOCOL_VERSION = "2025-11-25"
_MAX_PAGES = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the server: its status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, object]:
        """The JSON object of the body; empty if it is no object."""
        try:
            value = cast("object", json.loads(self.body))
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, object]", value) if isinstance(value, dict) else {}

    @property
    def message(self) -> str:
        """The message of an error, or else the status."""
        error = self.fields.get("error")
        nested = _find_message(cast("dict[str, object]", error)) if isinstance(error, dict) else None
        return _find_message(self.fields) or nested or f"HTTP status {self.status}"


class ServerClient:
    """
    A client with one key.

    Args:
        url: The scheme and host of the server, with the path prefix of a proxy.
    """

    def __init__(self, url: str, key: Secret) -> None:
        self._url, self._key = url.rstrip("/"), key
        host = urlsplit(url).hostname or ""
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if _is_local(host):  # a proxy could not reach it
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def measure_tools(self, mcp_url: str) -> CatalogueSize:
        """
        Begin a session at *mcp_url* as a client does, list the tools and end it. Return the size of the list.

        Raises:
            ServerUnusable: The server cannot be reached, rejects the key, or does not answer in the protocol.
        """
        hello = {"protocolVersion": _PROTOCOL_VERSION, "capabilities": {}, "clientInfo": {"name": "rookery-connect", "version": "1"}}
        result, answer_headers = self._call_mcp(mcp_url, 1, "initialize", hello, {})
        session = {name: value for name, value in answer_headers.items() if name.lower() == "mcp-session-id"}
        headers = {**session, "MCP-Protocol-Version": str(result.get("protocolVersion", _PROTOCOL_VERSION))}
        try:
            self._post(mcp_url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
            tools, cursor = list[object](), None
            for number in range(_MAX_PAGES):
                page, _ = self._call_mcp(mcp_url, number + 2, "tools/list", {} if cursor is None else {"cursor": cursor}, headers)
                listed = page.get("tools")
                tools += cast("list[object]", listed) if isinstance(listed, list) else []
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str):
                    break
            return measure_catalogue(tools)
        finally:
            if session:
                self._send("DELETE", mcp_url, None, headers)

    def post(self, path: str, body: Mapping[str, object]) -> Answer:
        """
        Send *body* to a route of the HTTP API and return the answer, whatever its status.

        Raises:
            ServerUnusable: The server cannot be reached.
        """
        return self._post(self._url + path, body, {})

    def _call_mcp(
        self, url: str, number: int, method: str, params: Mapping[str, object], headers: Mapping[str, str]
    ) -> tuple[dict[str, object], Mapping[str, str]]:
        """Return the result of a request of the protocol, and the headers of the answer."""
        answer = self._post(url, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, headers)
        if answer.status != 200:
            _raise_unusable(answer)
        message = _read_message(answer, number)
        result = message.get("result")
        if isinstance(result, dict):
            return cast("dict[str, object]", result), answer.headers
        error = message.get("error")
        text = _find_message(cast("dict[str, object]", error)) if isinstance(error, dict) else None
        raise ServerUnusable("unexpected_answer", f"{method} failed: {text}" if text else f"{url} does not answer as an MCP server")

    def _post(self, url: str, body: Mapping[str, object], headers: Mapping[str, str]) -> Answer:
        content = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return self._send("POST", url, json.dumps(body).encode(), {**content, **headers})

    def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        fields = {"Authorization": f"Bearer {self._key.reveal()}", "User-Agent": "rookery-connect", **headers}
        request = urllib.request.Request(url, data=body, headers=fields, method=method)  # noqa: S310 - the scheme is checked
        try:
            return self._read_answer(request)
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerUnusable("unreachable", f"{_without_query(url)} cannot be reached: {reason}") from error

    def _read_answer(self, request: urllib.request.Request) -> Answer:
        """Send *request* and return the answer, also one with the status of an error, whose body has the same limits."""
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                return Answer(response.status, dict(response.headers.items()), _read_body(response))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers.items()), _read_body(cast("HTTPResponse", error)))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes redirects errors, so that the key goes to no other host."""

    def redirect_request(  # noqa: PLR0917 - the library's signature
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Return None: the redirect is not followed."""


def _read_body(response: HTTPResponse) -> bytes:
    """
    Return the body of an answer.

    Raises:
        TimeoutError: It takes longer than `_MAX_ANSWER_S`.
        ValueError: It is larger than `_MAX_ANSWER_BYTES`.
    """
    deadline, parts, size = time.monotonic() + _MAX_ANSWER_S, list[bytes](), 0
    while part := response.read1(65_536):
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER_BYTES:
            msg = f"the answer is larger than {_MAX_ANSWER_BYTES} bytes"
            raise ValueError(msg)
        if time.monotonic() > deadline:
            msg = f"the answer takes longer than {_MAX_ANSWER_S:.0f} s"
            raise TimeoutError(msg)
    return b"".join(parts)


def _find_message(fields: Mapping[str, object]) -> str | None:
    """Return the start of the message in an error, or None."""
    text = fields.get("message")
    return text[:_MAX_MESSAGE_CHARS] if isinstance(text, str) else None


def _raise_unusable(answer: Answer) -> NoReturn:
    if answer.status == 401:
        raise ServerUnusable("key_refused", answer.message)
    if answer.status == 403:
        raise ServerUnusable("key_lacks_scope", answer.message)
    raise ServerUnusable("unexpected_answer", f"HTTP status {answer.status}: {answer.message}")


def _read_message(answer: Answer, number: int) -> dict[str, object]:
    """Return the message with the id *number* of an answer, which is JSON or a stream of events."""
    if "text/event-stream" not in next((value for name, value in answer.headers.items() if name.lower() == "content-type"), ""):
        return answer.fields
    for line in answer.body.decode("utf-8", "replace").splitlines():
        if line.startswith("data:"):
            event = Answer(200, {}, line.removeprefix("data:").encode()).fields
            if event.get("id") == number:
                return event
    return {}


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_query(url: str) -> str:
    return url.partition("?")[0]
