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

MIN_SUCCEEDED = 60
"""Of 500 requests; some 110 to 160 are. A single status such as 201 may be missing: ids, which are random, decide what is hit."""

_STREAMS = ("/stream", "/mcp", "/mcp/{serverId}")
"""Operations that answer without end: a client in this process cannot leave them by a time-out."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_damaged_request_is_answered_by_a_failure_of_the_server(instance: Instance, seed: int) -> None:
    """Issue 14 (attack 4): mutated bodies, paths and queries over all operations; D-10: never a 500."""
    instance.rookery.agents.notifier.close()  # a request that waits for a task is answered at once
    described = build_document(build_route_table(instance.rookery).endpoints, public_url=lambda _: "http://localhost")
    paths = cast("dict[str, object]", described["paths"])
    ending = {path: item for path, item in paths.items() if not path.endswith(_STREAMS)}
    own = frozenset(ids_of((await instance.admin.get("/api/v1/whoami")).json()))
    generator = RequestGenerator({**described, "paths": ending}, Random(seed), protected=own, ids=["brain", "agents"])

    report = await fuzz(instance.admin.http, generator, requests=500, seconds=12, clients=1)

    assert report.failures == {}
    assert report.statuses.keys() >= {200, 400, 404, 422}
    assert report.statuses[200] + report.statuses[201] >= MIN_SUCCEEDED


@pytest.mark.parametrize(("size", "failed"), [(100, 1), (MAX_DISCARDED_BYTES + 1, 0)])
async def test_a_connection_that_ends_without_an_answer_is_a_failure(size: int, failed: int) -> None:
    """Issue 14 (attack 4): unless the body is larger than what the server reads of a body that it refuses; D-16."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.transport.abort()

    request = GeneratedRequest(method="POST", template="/a", path="/a", headers={}, content=b"x" * size)
    report = FuzzReport()
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        async with httpx2.AsyncClient(base_url=f"http://{host}:{port}") as client:
            await send(client, RequestGenerator({"paths": {}}, Random(1)), request, report)

    assert (report.failed, report.unanswered) == (failed, {"POST /a": 1})


def test_only_failures_of_tools_themselves_are_no_failures_of_the_server() -> None:
    """Issue 14 (attack 4): the fuzzer counts `internal_error`, and a 500 without a body of ours."""
    assert is_own_failure(500, b'{"error": "internal_error", "message": "x"}')
    assert is_own_failure(500, b"Internal Server Error")
    assert is_own_failure(500, b"[]")
    assert not is_own_failure(500, b'{"success": false, "error": "it fell", "code": "tool_execution_error"}')
    assert not is_own_failure(503, b'{"error": "server_unavailable", "message": "x"}')
    assert not is_own_failure(httpx2.codes.NOT_FOUND, b"{}")
