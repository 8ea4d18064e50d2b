"""The address of a server of Elasticsearch or OpenSearch, and requests to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qsl, unquote

import httpx2
import orjson

from rookery.kernel.egress.transport import get_tls_context
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret

ENGINE = "texts"
DEFAULT_INDEX = "rookery-memories"

_DEFAULT_PORT = 9200
_CONNECT_TIMEOUT_S = 3.0
_MAX_CONNECTIONS = 32
_MAX_REASON_CHARS = 300
_MAX_SHARDS = 1024

_STATUS_NOT_FOUND, _STATUS_TOO_MANY, _STATUS_SERVER_ERROR = 404, 429, 500
_LOGIN_STATUSES = frozenset({401, 403})
_BLOCK_TYPE, _BLOCK_STATUSES = "cluster_block_exception", frozenset({403, 429})
"""The refusal of a write to an index that accepts only reads. With 503, the whole cluster does not work."""
_MISSING_INDEX_TYPES = frozenset({"index_not_found_exception", "aliases_not_found_exception"})

_ADDRESS = re.compile(
    r"(?:elasticsearch|opensearch)(?P<tls>\+https)?://(?:(?P<user>[^:@/?]*):(?P<password>[^@/?]*)@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/@?#\[\]]+)(?::(?P<port>\d{1,5}))?(?:/(?P<index>[a-z0-9][a-z0-9_.-]{0,199})?)?(?:\?(?P<options>[^#]*))?"
)
_ADVICE = "use elasticsearch://user:password@host:9200/index or opensearch+https://…, with the options shards and replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticServer:
    """
    A server and the name of an index on it.

    Attributes:
        replicas: Copies of each shard. None: one, if there is a second node.
    """

    base_url: str
    user: str | None
    password: Secret | None
    index: str
    shards: int
    replicas: int | None


class ElasticRejected(Exception):
    """The server rejected a request as wrong. *type* is its name for the reason."""

    def __init__(self, status: int, error_type: str, reason: str) -> None:
        super().__init__(f"{error_type or status}: {reason}"[:_MAX_REASON_CHARS])
        self.status = status
        self.type = error_type

    @property
    def is_index_missing(self) -> bool:
        """True if the index, or its alias, does not exist."""
        return self.status == _STATUS_NOT_FOUND and self.type in _MISSING_INDEX_TYPES


def parse_address(address: str) -> ElasticServer:
    """
    Return the server at *address*.

    Raises:
        WrongSettings: The address is invalid. The message does not contain it, because it may contain a password.
    """
    match = _ADDRESS.fullmatch(address)
    options = dict(parse_qsl(match["options"] or "", keep_blank_values=True)) if match else {}
    is_valid = options.keys() <= {"shards", "replicas"} and all(
        value.isascii() and value.isdigit() and int(value) <= _MAX_SHARDS for value in options.values()
    )
    port = int(match["port"] or _DEFAULT_PORT) if match else 0
    if match is None or not is_valid or not 0 < port < 2**16 or options.get("shards") == "0":
        raise WrongSettings(f"ROOKERY_TEXTS: invalid address; {_ADVICE}")
    return ElasticServer(
        base_url=f"http{'s' if match['tls'] else ''}://{match['host']}:{port}",
        user=None if match["user"] is None else unquote(match["user"]),
        password=None if match["password"] is None else Secret(unquote(match["password"])),
        index=match["index"] or DEFAULT_INDEX,
        shards=int(options.get("shards", "1")),
        replicas=int(options["replicas"]) if "replicas" in options else None,
    )


class ElasticConnection:
    """A pool of connections to a server, opened by requests."""

    def __init__(self, server: ElasticServer, *, verify_ssl: bool) -> None:
        self._server = server
        self._verify_ssl = verify_ssl
        self._client: httpx2.AsyncClient | None = None

    async def request(self, method: str, path: str, body: object = None, *, timeout_s: float) -> dict[str, object]:
        """
        Send a request and return the JSON of the response.

        Args:
            body: An object, sent as JSON; bytes, sent as lines of JSON; or None.
            timeout_s: Total time, with the wait for a connection.

        Raises:
            EngineUnavailable: The server did not answer in time, is overloaded, refused the login, or did not answer in JSON.
            EngineReadOnly: The server accepts only reads.
            ElasticRejected: The server rejected the request as wrong.
        """
        content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/x-ndjson" if isinstance(body, bytes) else "application/json"} if content else {}
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._send(method, path, content, headers)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise EngineUnavailable(ENGINE, f"no answer within {timeout_s:g} s") from error
        except httpx2.HTTPError as error:
            raise EngineUnavailable(ENGINE, f"the connection failed ({type(error).__name__})") from error
        return _read_response(response)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> httpx2.Response:
        """Send a request. If the server closed an idle connection at that moment, send it again: all requests are idempotent."""
        client = self._open()
        try:
            return await client.request(method, path, content=content, headers=headers)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            return await client.request(method, path, content=content, headers=headers)

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            server = self._server
            password = "" if server.password is None else server.password.reveal()
            self._client = httpx2.AsyncClient(
                base_url=server.base_url,
                auth=None if server.user is None else httpx2.BasicAuth(server.user, password),
                verify=get_tls_context(verify=self._verify_ssl),
                trust_env=False,
                timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S),
                limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS, keepalive_expiry=30.0),
            )
        return self._client


def _read_response(response: httpx2.Response) -> dict[str, object]:
    status = response.status_code
    try:
        content: object = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        content = None
    if isinstance(content, dict) and not response.is_success:
        require_writable(status, *describe_error(cast("dict[str, object]", content).get("error")))
    if status in _LOGIN_STATUSES:
        raise EngineUnavailable(ENGINE, f"the server refused the login or a right of it ({status})")
    if not isinstance(content, dict):
        raise EngineUnavailable(ENGINE, f"the server did not answer in JSON ({status})")
    fields = cast("dict[str, object]", content)
    if response.is_success:
        return fields
    error_type, reason = describe_error(fields.get("error"))
    if status == _STATUS_TOO_MANY or status >= _STATUS_SERVER_ERROR:
        raise EngineUnavailable(ENGINE, f"{error_type or status}: {reason}"[:_MAX_REASON_CHARS])
    raise ElasticRejected(status, error_type, reason)


def require_writable(status: int, error_type: str, reason: str) -> None:
    """Raise `EngineReadOnly` if an error means that a block on the index, such as that of a nearly full disk, allows no writes."""
    if error_type == _BLOCK_TYPE and status in _BLOCK_STATUSES:
        raise EngineReadOnly(ENGINE, f"{error_type}: {reason}"[:_MAX_REASON_CHARS])


def describe_error(error: object) -> tuple[str, str]:
    """Return the type and the reason of the `error` of a response."""
    if isinstance(error, dict):
        fields = cast("dict[str, object]", error)
        return str(fields.get("type", "")), str(fields.get("reason", ""))
    return "", str(error or "")
