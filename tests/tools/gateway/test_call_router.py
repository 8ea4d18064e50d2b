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


def _make_options(key: str, messages: list[str]) -> RequestOptions:
    async def on_request(method: str, params: JsonObject) -> JsonObject:
        messages.append(f"{key} {method}")
        return {"roots": []}

    async def on_log(notice: JsonObject) -> None:
        messages.append(f"{key} {notice['data']}")

    return RequestOptions(caller=make_caller(key_id=key), on_request=on_request, on_log=on_log)


async def test_a_server_request_never_reaches_another_key() -> None:
    """It goes to the key being served; with two keys in the session it is rejected with the reason."""
    router, messages = CallRouter("caller"), list[str]()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - unused

    with router.serve_call(_make_options("a", messages)):
        alone = await router.list_roots(context)
        await router.forward_log({"level": "info", "data": "mine"})
        with router.serve_call(_make_options("b", messages)):
            both = await router.list_roots(context)
            await router.forward_log({"level": "info", "data": "whose?"})
    idle = await router.list_roots(context)

    assert isinstance(alone, types.ListRootsResult)
    assert isinstance(both, types.ErrorData)
    assert "several keys" in both.message
    assert isinstance(idle, types.ErrorData)
    assert messages == ["a roots/list", "a mine"]


@pytest.mark.parametrize("end", [None, asyncio.CancelledError])
async def test_late_messages_of_a_call_reach_no_other_key(end: type[BaseException] | None) -> None:
    """Requests and logs that a server sends after its call has ended reach no other key."""
    router, messages = CallRouter("caller"), list[str]()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - unused

    with contextlib.suppress(asyncio.CancelledError), router.serve_call(_make_options("a", messages)):
        if end is not None:
            raise end
    with router.serve_call(_make_options("b", messages)):
        roots = await router.list_roots(context)
        await router.forward_log({"level": "info", "data": "of a's call"})

    assert isinstance(roots, types.ErrorData)
    assert messages == []


async def test_pending_server_requests_are_limited() -> None:
    """Each pending request costs memory; beyond 32 the server gets an error."""
    router, gate = CallRouter("caller"), asyncio.Event()
    context = ClientRequestContext(session=None, request_id=1)  # pyright: ignore[reportArgumentType] - unused

    async def on_request(method: str, params: JsonObject) -> JsonObject:
        await gate.wait()
        return {"roots": []}

    with router.serve_call(RequestOptions(caller=make_caller(), on_request=on_request)):
        requests = [asyncio.ensure_future(router.list_roots(context)) for _ in range(100)]
        await eventually(lambda: sum(request.done() for request in requests) == 68)
        gate.set()
        responses = await asyncio.gather(*requests)

    assert sum(isinstance(response, types.ListRootsResult) for response in responses) == 32


async def test_subscribers_are_notified_until_the_session_ends() -> None:
    """All subscribers of a resource share one upstream subscription; its end is announced, so that they can subscribe again."""
    router, messages = CallRouter(), list[str | None]()

    assert router.subscribe("memo://a", messages.append)
    assert not router.subscribe("memo://a", print)
    assert not router.unsubscribe("memo://a", print)
    assert router.notify_updated("memo://a")
    assert not router.notify_updated("memo://b")
    router.end_subscriptions()
    assert not router.notify_updated("memo://a")

    assert messages == ["memo://a", None]
