"""The key behind a server request of the older protocol, which does not name it."""

from __future__ import annotations

import asyncio
import contextlib

import mcp_types as types
import pytest
from mcp.client.context import ClientRequestContext

from rookery.engines.upstreams.call_router import CallRouter
from rookery.tools.models import JsonObject
from rookery.tools.ports import RequestOptions
from tests.conftest import eventually
from tests.tools.makers import make_caller


def _asking(key: str, heard: list[str]) -> RequestOptions:
    async def on_request(method: str, params: JsonObject) -> JsonObject:
        heard.append(f"{key} {method}")
        return {"roots": []}

    async def on_log(notice: JsonObject) -> None:
        heard.append(f"{key} {notice['data']}")

    return RequestOptions(caller=make_caller(key_id=key), on_request=on_request, on_log=on_log)


async def test_a_question_never_reaches_another_key() -> None:
    """D-36, D-32: it belongs to the key being served; once two keys have used the session, it is rejected with the reason."""
    line, heard = CallRouter("caller"), list[str]()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - nobody looks at it

    with line.serve_call(_asking("a", heard)):
        alone = await line.list_roots(context)
        await line.forward_log({"level": "info", "data": "mine"})
        with line.serve_call(_asking("b", heard)):
            both = await line.list_roots(context)
            await line.forward_log({"level": "info", "data": "whose?"})
    idle = await line.list_roots(context)

    assert isinstance(alone, types.ListRootsResult)
    assert isinstance(both, types.ErrorData)
    assert "several keys" in both.message
    assert isinstance(idle, types.ErrorData)
    assert heard == ["a roots/list", "a mine"]


@pytest.mark.parametrize("end", [None, asyncio.CancelledError])
async def test_what_a_call_left_behind_comes_to_no_other_key(end: type[BaseException] | None) -> None:
    """Issue 14: a server may ask and log long after the call that made it, answered or left; no other key hears of it; D-36, D-32."""
    line, heard = CallRouter("caller"), list[str]()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - nobody looks at it

    with contextlib.suppress(asyncio.CancelledError), line.serve_call(_asking("a", heard)):
        if end is not None:
            raise end
    with line.serve_call(_asking("b", heard)):
        asked = await line.list_roots(context)
        await line.forward_log({"level": "info", "data": "of a's call"})

    assert isinstance(asked, types.ErrorData)
    assert heard == []


async def test_a_server_that_asks_without_end_is_told_to_stop() -> None:
    """D-36: each waiting question costs memory here; beyond 32 the server gets an error."""
    line, gate = CallRouter("caller"), asyncio.Event()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - nobody looks at it

    async def on_request(method: str, params: JsonObject) -> JsonObject:
        await gate.wait()
        return {"roots": []}

    with line.serve_call(RequestOptions(caller=make_caller(), on_request=on_request)):
        asked = [asyncio.ensure_future(line.list_roots(context)) for _ in range(100)]
        await eventually(lambda: sum(each.done() for each in asked) == 68)
        gate.set()
        answers = await asyncio.gather(*asked)

    assert sum(isinstance(each, types.ListRootsResult) for each in answers) == 32


async def test_who_hears_of_a_resource_is_told_until_the_session_ends() -> None:
    """D-36: one subscription upstream for all who hear of a resource; its end is told, so that it can be begun again."""
    line, heard = CallRouter(), list[str | None]()

    assert line.subscribe("memo://a", heard.append)
    assert not line.subscribe("memo://a", print)
    assert not line.unsubscribe("memo://a", print)
    assert line.notify_updated("memo://a")
    assert not line.notify_updated("memo://b")
    line.end_subscriptions()
    assert not line.notify_updated("memo://a")

    assert heard == ["memo://a", None]
