"""The extensions that a session announces to its server, in both protocol eras."""

from __future__ import annotations

import json
import sys
from typing import cast

import pytest

from rookery.tools.call_options import CallOptions
from rookery.tools.gateway_names import EXTENSION, select_extensions
from rookery.tools.models import JsonObject
from tests.tools.conftest import Start
from tests.tools.makers import SERVERS, make_caller, text_of

CALLER = make_caller()
SETTINGS: JsonObject = {"mimeTypes": ["text/html;profile=mcp-app"]}
CAPABILITIES: JsonObject = {"extensions": {EXTENSION: SETTINGS, "io.modelcontextprotocol/tasks": {}}, "sampling": {}}
OLDER: JsonObject = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "linking.py"), "apps"]}
LATER: JsonObject = {"command": sys.executable, "args": [str(SERVERS / "declaring.py")]}


@pytest.mark.parametrize(
    ("entry", "isolation", "capabilities", "announced"),
    [
        (OLDER, "per_key", CAPABILITIES, {EXTENSION: SETTINGS}),
        (OLDER, "per_session", CAPABILITIES, {EXTENSION: SETTINGS}),
        (OLDER, "per_workspace", CAPABILITIES, None),
        (OLDER, "per_key", {"sampling": {}}, None),
        (OLDER, "per_key", None, None),
        (LATER, "per_key", {"extensions": {EXTENSION: SETTINGS}}, {EXTENSION: SETTINGS}),
        (LATER, "per_workspace", {"extensions": {EXTENSION: SETTINGS}}, {EXTENSION: SETTINGS}),
        (LATER, "per_key", None, None),
    ],
)
async def test_a_server_sees_the_interfaces_that_the_callers_client_can_show(
    start: Start, entry: JsonObject, isolation: str, capabilities: JsonObject | None, announced: JsonObject | None
) -> None:
    """The handshake announces MCP Apps in sessions of one key; in the later era each request says what its caller's client can do."""
    tools = await start({"it": {**entry, "isolation": isolation}})

    outcome = await tools.runner.call(CALLER, "it", "capabilities", {}, options=CallOptions(capabilities=capabilities))

    seen = cast("JsonObject", json.loads(text_of(json.loads(outcome.result or b""))))
    assert seen.get("extensions") == announced


def test_no_other_extension_is_announced() -> None:
    """Rookery could not handle the results of extensions such as tasks."""
    assert select_extensions(CAPABILITIES) == {EXTENSION: SETTINGS}
    assert select_extensions({"extensions": {EXTENSION: None}}) == {}
    assert select_extensions({"sampling": {}}) == {}
