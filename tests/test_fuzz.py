"""A seeded, bounded run of the fuzzer of `benchmarks/fuzz.py` against a server in this process."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import httpx2
import pytest

from benchmarks.fuzz import FuzzReport, GeneratedRequest, RequestGenerator, fuzz, ids_of, is_own_failure, send
from rookery.app import build_route_table
from rookery.kernel.http.connection import MAX_DISCARDED_BYTES
from rookery.reference.openapi import build_document
from tests.conftest import Instance
from tests.deadlines import HANG_S

MIN_SUCCEEDED = 60
"""Minimum of successful requests of 500; usually 110 to 160 succeed. A status such as 201 may be missing, because ids are random."""

_STREAMS = ("/stream", "/mcp", "/mcp/{serverId}")
"""Operations with endless responses; a client in this process cannot cancel them with a time-out."""


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_mutated_request_causes_a_server_error(instance: Instance, seed: int) -> None:
    """Mutated bodies, paths and queries of all operations never cause a 500."""
    instance.rookery.agents.notifier.close()  # a request that waits for a task returns immediately
    document = build_document(build_route_table(instance.rookery).endpoints, public_url=lambda _: "http://localhost")
    paths = cast("dict[str, object]", document["paths"])
    bounded = {path: item for path, item in paths.items() if not path.endswith(_STREAMS)}
    own = frozenset(ids_of((await instance.admin.get("/api/v1/whoami")).json()))
    generator = RequestGenerator({**document, "paths": bounded}, Random(seed), protected=own, ids=["brain", "agents"])

    report = await fuzz(instance.admin.http, generator, requests=500, seconds=HANG_S, clients=1)

    assert report.failures == {}
    assert report.statuses.keys() >= {200, 400, 404, 422}
    assert report.statuses[200] + report.statuses[201] >= MIN_SUCCEEDED


@pytest.mark.parametrize(("size", "failed"), [(100, 1), (MAX_DISCARDED_BYTES + 1, 0)])
async def test_a_connection_that_ends_without_a_response_is_a_failure(size: int, failed: int) -> None:
    """The exception is a body larger than the part of a rejected body that the server reads."""

    async def close_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.transport.abort()

    request = GeneratedRequest(method="POST", template="/a", path="/a", headers={}, content=b"x" * size)
    report = FuzzReport()
    async with await asyncio.start_server(close_connection, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with httpx2.AsyncClient(base_url=f"http://{host}:{port}") as client:
            await send(client, RequestGenerator({"paths": {}}, Random(1)), request, report)

    assert (report.failed, report.unanswered) == (failed, {"POST /a": 1})


def test_a_failed_tool_is_not_a_failure_of_the_server() -> None:
    """The fuzzer counts `internal_error` and a 500 without the error body of Rookery."""
    assert is_own_failure(500, b'{"error": "internal_error", "message": "x"}')
    assert is_own_failure(500, b"Internal Server Error")
    assert is_own_failure(500, b"[]")
    assert not is_own_failure(500, b'{"success": false, "error": "division by zero", "code": "tool_execution_error"}')
    assert not is_own_failure(503, b'{"error": "server_unavailable", "message": "x"}')
    assert not is_own_failure(httpx2.codes.NOT_FOUND, b"{}")
