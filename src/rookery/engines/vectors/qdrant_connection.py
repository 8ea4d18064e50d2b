"""The address of a Qdrant server, and requests to it by its REST interface."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import httpx2
import orjson

from rookery.kernel.clock import parse_retry_after, utc_now
from rookery.kernel.egress.service_client import LOGIN_STATUSES, ResponseTooLarge, ServiceClient, ServiceResponse
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, StorageFull, WrongSettings
from rookery.kernel.secret import Secret
from rookery.kernel.store_address import COUNTS, parse_store_address

ENGINE = "vectors"
DEFAULT_COLLECTION = "rookery_memories"
QUANTIZATIONS = frozenset({"none", "scalar", "binary"})

_DEFAULT_PORT = 6333
_CONNECT_TIMEOUT_S = 3.0
_MAX_CONNECTIONS = 32
_MAX_REASON_CHARS = 300
_MAX_RETRY_AFTER_S = 3600

_DISK_FULL_REASONS = ("no space left", "disk space", "out of disk")

_SCHEMES = frozenset({"qdrant", "qdrant+https", "qdrants"})
_OPTIONS = {"shards": COUNTS, "replicas": COUNTS, "quantization": QUANTIZATIONS, "on_disk": frozenset({"true", "false"})}
_API_KEY = re.compile(r"[!-~]+")
_ADVICE = (
    "use qdrant://:api-key@host:6333/collection or qdrant+https://…, with the options shards, replicas, quantization (none, scalar, "
    "binary) and on_disk (true, false)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QdrantServer:
    """
    A server, the name of collections on it, and the options with which they are created.

    Attributes:
        collection: The name of each collection without its suffix.
        shards: Shards of each collection. None: as many as the server has nodes.
        replicas: Copies of each shard. A write is complete when all available ones have it.
        quantization: One of `QUANTIZATIONS`: the form of the vectors that large workspaces are searched by.
        is_on_disk: The vectors and their index stay on the disk and are read when a search needs them.
    """

    base_url: str
    api_key: Secret | None
    collection: str
    shards: int | None
    replicas: int
    quantization: str
    is_on_disk: bool


class QdrantRejected(Exception):
    """The server rejected a request as wrong."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} ({status})")
        self.status = status
        self.reason = reason


def parse_address(address: str) -> QdrantServer:
    """
    Return the server at *address*.

    Raises:
        WrongSettings: The address is invalid. The message does not contain it, because it may contain an API key.
    """
    parts = parse_store_address(address, schemes=_SCHEMES, default_port=_DEFAULT_PORT, options=_OPTIONS)
    if parts is None or parts.user or (parts.password is not None and _API_KEY.fullmatch(parts.password.reveal()) is None):
        raise WrongSettings(f"ROOKERY_VECTORS: invalid address; {_ADVICE}")
    return QdrantServer(
        base_url=parts.base_url,
        api_key=parts.password,
        collection=parts.name or DEFAULT_COLLECTION,
        shards=int(parts.options["shards"]) if "shards" in parts.options else None,
        replicas=int(parts.options.get("replicas", "1")),
        quantization=parts.options.get("quantization", "none"),
        is_on_disk=parts.options.get("on_disk") == "true",
    )


class QdrantConnection:
    """Requests to a server."""

    def __init__(self, server: QdrantServer, *, verify_ssl: bool) -> None:
        headers = {} if server.api_key is None else {"api-key": server.api_key.reveal()}
        self._base_url = server.base_url
        self._client = ServiceClient(headers, verify_ssl=verify_ssl, connect_timeout_s=_CONNECT_TIMEOUT_S, max_connections=_MAX_CONNECTIONS)

    async def request(
        self, method: str, path: str, body: object = None, *, timeout_s: float, is_repeatable: bool = True, is_write: bool = False
    ) -> dict[str, object]:
        """
        Send a request and return the JSON of the response.

        Args:
            body: An object, sent as JSON. Arrays of numpy are lists of numbers.
            timeout_s: Total time, with the wait for a connection. qdrant-client's is a limit for each phase.
            is_repeatable: Send the request again if the server closed an idle connection at that moment.
            is_write: The request changes points.

        Raises:
            EngineReadOnly: The server forbids the write.
            EngineUnavailable: The server did not answer in time, is overloaded, refused the key, or did not answer in JSON.
            StorageFull: The disk of the server is full.
            QdrantRejected: The server rejected the request as wrong.
        """
        content = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            response = await self._client.fetch(
                method, self._base_url + path, content, headers, timeout_s=timeout_s, is_repeatable=is_repeatable
            )
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self.fail_late(timeout_s) from error
        except httpx2.HTTPError as error:
            advice = "check that it runs, and the host, the port and the protocol in ROOKERY_VECTORS"
            raise self.fail(f"cannot be reached ({type(error).__name__})", advice=advice) from error
        except ResponseTooLarge as error:
            raise self.fail("sent a response that is too large", advice="see its log") from error
        if is_write and response.status == HTTPStatus.FORBIDDEN:
            raise EngineReadOnly(ENGINE, "Qdrant refused the API key (403) for a write; set a key that may write")
        return self._read_response(response)

    def fail(self, text: str, *, advice: str, retry_after_s: int = 5) -> EngineUnavailable:
        """Return the error of the port. It has no address: callers of the API and readers of /readyz see it."""
        return EngineUnavailable(ENGINE, f"Qdrant {text}; {advice}", retry_after_s=retry_after_s)

    def fail_late(self, timeout_s: float) -> EngineUnavailable:
        """Return the error for a request that took too long."""
        return self.fail(f"gave no answer within {timeout_s:g} s", advice="check that it runs and is not overloaded")

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._client.close()

    def _read_response(self, response: ServiceResponse) -> dict[str, object]:
        status = response.status
        if status in LOGIN_STATUSES:
            advice = "set a key that may manage collections: ROOKERY_VECTORS=qdrant://:${QDRANT_KEY}@host:6333"
            raise self.fail(f"refused the API key ({status})", advice=advice)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            retry_after_s = _parse_retry_after(response.headers.get("retry-after"))
            raise self.fail("limits the rate of requests (429)", advice="raise the limit of the collection", retry_after_s=retry_after_s)
        fields = response.parse_fields()
        reason = "" if fields is None else _read_reason(fields)
        is_disk_full = not response.is_success and any(text in reason.lower() for text in _DISK_FULL_REASONS)
        if is_disk_full or status == HTTPStatus.INSUFFICIENT_STORAGE:
            raise StorageFull("The disk of Qdrant is full: free some space, then try again.")
        if fields is None:
            raise self.fail(f"did not answer in JSON ({status})", advice="check that no other program or proxy answers at this address")
        if response.is_success:
            return fields
        if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise self.fail(f"failed ({status}): {reason}", advice="see its log")
        raise QdrantRejected(status, reason)


def _read_reason(fields: Mapping[str, object]) -> str:
    """Return the text of an error response: `{"status": {"error": …}}`."""
    status = fields.get("status")
    error = cast("Mapping[str, object]", status).get("error") if isinstance(status, dict) else status
    return str(error or "no reason given")[:_MAX_REASON_CHARS]


def _parse_retry_after(text: str | None) -> int:
    return max(1, min(_MAX_RETRY_AFTER_S, math.ceil(parse_retry_after(text, utc_now()) or 5)))
