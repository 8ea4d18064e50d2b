"""The address of a server of Elasticsearch or OpenSearch, and requests to it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import httpx2
import orjson

from rookery.kernel.egress.service_client import LOGIN_STATUSES, ResponseTooLarge, ServiceClient, ServiceResponse
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret
from rookery.kernel.store_address import COUNTS, parse_store_address

ENGINE = "texts"
DEFAULT_INDEX = "rookery-memories"

_DEFAULT_PORT = 9200
_CONNECT_TIMEOUT_S = 3.0
_MAX_CONNECTIONS = 32
_MAX_REASON_CHARS = 300

_BLOCK_TYPE, _BLOCK_STATUSES = "cluster_block_exception", frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
"""The refusal of a write to an index that accepts only reads. With 503, the whole cluster does not work."""
_MISSING_INDEX_TYPES = frozenset({"index_not_found_exception", "aliases_not_found_exception"})

_SCHEMES = frozenset({"elasticsearch", "elasticsearch+https", "opensearch", "opensearch+https"})
_OPTIONS = {"shards": COUNTS, "replicas": COUNTS | {"0"}}
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
        return self.status == HTTPStatus.NOT_FOUND and self.type in _MISSING_INDEX_TYPES


def parse_address(address: str) -> ElasticServer:
    """
    Return the server at *address*.

    Raises:
        WrongSettings: The address is invalid. The message does not contain it, because it may contain a password.
    """
    parts = parse_store_address(address, schemes=_SCHEMES, default_port=_DEFAULT_PORT, options=_OPTIONS)
    if parts is None or parts.name != parts.name.lower():
        raise WrongSettings(f"ROOKERY_TEXTS: invalid address; {_ADVICE}")
    return ElasticServer(
        base_url=parts.base_url,
        user=parts.user,
        password=parts.password,
        index=parts.name or DEFAULT_INDEX,
        shards=int(parts.options.get("shards", "1")),
        replicas=int(parts.options["replicas"]) if "replicas" in parts.options else None,
    )


class ElasticConnection:
    """Requests to a server."""

    def __init__(self, server: ElasticServer, *, verify_ssl: bool) -> None:
        headers = dict[str, str]()
        if server.user is not None:
            password = "" if server.password is None else server.password.reveal()
            headers["authorization"] = f"Basic {b64encode(f'{server.user}:{password}'.encode()).decode()}"
        self._base_url = server.base_url
        self._client = ServiceClient(headers, verify_ssl=verify_ssl, connect_timeout_s=_CONNECT_TIMEOUT_S, max_connections=_MAX_CONNECTIONS)

    async def request(self, method: str, path: str, body: object = None, *, timeout_s: float) -> dict[str, object]:
        """
        Send a request and return the JSON of the response. It may be sent twice: all requests are idempotent.

        Args:
            body: An object, sent as JSON; bytes, sent as lines of JSON; or None.
            timeout_s: Total time, with the wait for a connection.

        Raises:
            EngineUnavailable: The server did not answer in time, is overloaded, refused the login, or did not answer in JSON.
            EngineReadOnly: The server accepts only reads.
            ElasticRejected: The server rejected the request as wrong.
        """
        content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        headers = {"content-type": "application/x-ndjson" if isinstance(body, bytes) else "application/json"} if content else {}
        try:
            response = await self._client.fetch(method, self._base_url + path, content, headers, timeout_s=timeout_s, is_repeatable=True)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise EngineUnavailable(ENGINE, f"no answer within {timeout_s:g} s") from error
        except httpx2.HTTPError as error:
            raise EngineUnavailable(ENGINE, f"the connection failed ({type(error).__name__})") from error
        except ResponseTooLarge as error:
            raise EngineUnavailable(ENGINE, str(error)) from error
        return _read_response(response)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._client.close()


def _read_response(response: ServiceResponse) -> dict[str, object]:
    status, fields = response.status, response.parse_fields()
    error_type, reason = describe_error(fields.get("error")) if fields is not None and not response.is_success else ("", "")
    require_writable(status, error_type, reason)
    if status in LOGIN_STATUSES:
        raise EngineUnavailable(ENGINE, f"the server refused the login or a right of it ({status})")
    if fields is None:
        raise EngineUnavailable(ENGINE, f"the server did not answer in JSON ({status})")
    if response.is_success:
        return fields
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
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
