"""A seeded, bounded run of the fuzzer of `benchmarks/fuzz.py` against a server in this process."""

from __future__ import annotations

from random import Random
from typing import cast

import httpx2
import pytest

from benchmarks.fuzz import RequestGenerator, fuzz, ids_of, is_own_failure
from rookery.app import mounted_routes
from rookery.reference.openapi import document
from tests.conftest import House

_STREAMS = ("/stream", "/mcp", "/mcp/{serverId}")
"""Operations that answer without end: a client in this process cannot leave them by a time-out."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_damaged_request_is_answered_by_a_failure_of_the_server(house: House, seed: int) -> None:
    """Issue 14 (attack 4): mutated bodies, paths and queries over all operations; D-10: never a 500."""
    house.rookery.agents.bell.close()  # a request that waits for a task is answered at once
    described = document(mounted_routes(house.rookery).endpoints, address=lambda _: "http://localhost")
    paths = cast("dict[str, object]", described["paths"])
    ending = {path: item for path, item in paths.items() if not path.endswith(_STREAMS)}
    own = frozenset(ids_of((await house.admin.get("/api/v1/whoami")).json()))
    generator = RequestGenerator({**described, "paths": ending}, Random(seed), protected=own, ids=["brain", "agents"])

    report = await fuzz(house.admin.http, generator, requests=500, seconds=12, clients=1)

    assert report.failures == {}
    assert report.statuses.keys() >= {200, 201, 400, 404, 422}


def test_only_failures_of_tools_themselves_are_no_failures_of_the_server() -> None:
    """Issue 14 (attack 4): the fuzzer counts `internal_error`, and a 500 without a body of ours."""
    assert is_own_failure(500, b'{"error": "internal_error", "message": "x"}')
    assert is_own_failure(500, b"Internal Server Error")
    assert is_own_failure(500, b"[]")
    assert not is_own_failure(500, b'{"success": false, "error": "it fell", "code": "tool_execution_error"}')
    assert not is_own_failure(503, b'{"error": "server_unavailable", "message": "x"}')
    assert not is_own_failure(httpx2.codes.NOT_FOUND, b"{}")
