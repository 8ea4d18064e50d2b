"""Requests that are running when their session ends."""

from __future__ import annotations

import json
import logging

import pytest
from starlette.types import Message

from tests.conftest import Instance
from tests.tools.gateway.clients import Json
from tests.tools.gateway.test_client_sessions import ACCEPT, make_opening

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

CANCELLED: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
LIST: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@pytest.mark.parametrize(("message", "end_at", "statuses"), [(CANCELLED, "http.response.start", [202]), (LIST, "http.request", [404])])
async def test_a_session_that_ends_during_a_request_is_no_error(
    instance: Instance, caplog: pytest.LogCaptureFixture, message: Json, end_at: str, statuses: list[int]
) -> None:
    """The client gets one answer, and the log no traceback. The session ends after the 202, or while the message is being read."""
    opened = await instance.agent.post("/mcp", make_opening(), **ACCEPT)
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], **ACCEPT}
    sent: list[Message] = []
    has_ended = False

    async def end_session() -> None:
        nonlocal has_ended
        if not has_ended:
            has_ended = True
            assert (await instance.agent.send("DELETE", "/mcp", **session)).status_code == 200

    async def receive() -> Message:
        if end_at == "http.request":
            await end_session()
        return {"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}

    async def send(part: Message) -> None:
        sent.append(part)
        if part["type"] == end_at:
            await end_session()

    headers = {**session, "Host": "localhost", "Authorization": f"Bearer {instance.agent.key}", "Content-Type": "application/json"}
    scope = {
        "type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "client": ("127.0.0.1", 1),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    with caplog.at_level(logging.WARNING):
        await instance.transport.app(scope, receive, send)

    assert has_ended
    assert [part["status"] for part in sent if part["type"] == "http.response.start"] == statuses
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
