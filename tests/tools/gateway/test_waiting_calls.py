"""Limits on the calls that wait for input from their clients."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from rookery.tools.gateway.input_requests import MAX_WAITING_CALLS_PER_KEY, MAX_WAITING_CALLS_PER_WORKSPACE
from rookery.tools.gateway.limits import MIN_AGE_S, EvictionRefused, select_of_largest
from tests.processes import Server, run_server
from tests.tools.gateway.clients import Json, post_later

ROOT = Path(__file__).resolve().parents[3]
CALL: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}


async def _ask(server: Server, key: str) -> str:
    """Call a tool that asks; return `input_required`, or the reason of the failure."""
    response = await post_later(server, "tools/call", CALL, "/mcp/older", key=key, elicitation={})
    result = cast("Json", response.get("result") or {})
    return str(result.get("resultType")) if "requestState" in result else json.dumps(response)


async def test_waiting_calls_of_a_workspace_lock_out_no_other_and_no_key_of_it(tmp_path: Path) -> None:
    """A key that has none gets a place at once at the limit of its workspace; one that has the most is refused."""
    entry = {"command": sys.executable, "args": ["-m", "tests.conformance.everything", "--older-era"], "cwd": str(ROOT)}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"older": {**entry, "isolation": "per_key"}}}))
    with run_server(tmp_path) as server:
        count = MAX_WAITING_CALLS_PER_WORKSPACE // MAX_WAITING_CALLS_PER_KEY + 1
        permissions = {"permissions": ["mcp:read", "mcp:write"]}
        *keys, newcomer = (
            str(server.client.post("/api/v1/agent-keys", json={"name": f"key-{number}", **permissions}).json()["key"])
            for number in range(count + 1)
        )
        asked = [await _ask(server, key) for key in keys for _ in range(MAX_WAITING_CALLS_PER_KEY)][:MAX_WAITING_CALLS_PER_WORKSPACE]
        of_newcomer = [await _ask(server, newcomer) for _ in range(3)]
        of_largest = await _ask(server, keys[0])

    assert Counter(asked) == {"input_required": MAX_WAITING_CALLS_PER_WORKSPACE}
    assert set(of_newcomer) == {"input_required"}
    assert "Too many calls wait for input from their clients. Try again in" in of_largest


def test_the_owner_with_the_most_gives_way() -> None:
    """At once to an owner that has fewer, so that one workspace locks out no other; to an equal one after a minute."""
    owners = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c1": "c", "c2": "c"}
    started_at = {"a1": 105.0, "a2": 104.0, "a3": 103.0, "b1": 100.0, "c1": 101.0, "c2": 102.0}

    assert select_of_largest(owners, "new", started_at, 106.0) == "a3"
    assert select_of_largest(owners, "b", started_at, 106.0) == "a3"
    for equal in ("a", "c"):
        with pytest.raises(EvictionRefused):
            select_of_largest(owners, equal, started_at, 106.0)
        assert select_of_largest(owners, equal, started_at, 103.0 + MIN_AGE_S) == "a3"
