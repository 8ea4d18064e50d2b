"""Posts over guarded connections: what is certain after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import GuardedHttpClient, PostFailed
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.webhooks.receiver import Receiver, Reply, ResponseMode, run_receiver

LOCAL_GUARD = EgressGuard(allow=["127.0.0.0/8"])


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that accepts everything."""
    async with run_receiver() as receiver:
        yield receiver


@pytest.fixture
async def http() -> AsyncIterator[GuardedHttpClient]:
    """The client."""
    client = GuardedHttpClient(LOCAL_GUARD, timeout_s=HANG_S)
    yield client
    await client.close()


@pytest.fixture
async def hasty_http() -> AsyncIterator[GuardedHttpClient]:
    """The client, with a short timeout."""
    client = GuardedHttpClient(LOCAL_GUARD, timeout_s=0.5)
    yield client
    await client.close()


async def fail_to_post(http: GuardedHttpClient, url: str) -> PostFailed:
    """Return the failure of a post."""
    with pytest.raises(PostFailed) as failure:
        await http.post(url, {}, b"{}")
    return failure.value


async def test_a_refused_connection_certainly_brought_nothing(http: GuardedHttpClient) -> None:
    """A failure before the request was written may be retried."""
    async with run_receiver() as closed_receiver:
        url = closed_receiver.url
    failure = await fail_to_post(http, url)

    assert (failure.may_have_arrived, failure.is_forbidden) == (False, False)


async def test_a_server_that_does_not_finish_the_handshake_certainly_got_nothing(receiver: Receiver, hasty_http: GuardedHttpClient) -> None:
    """The time-out is during the TLS handshake, since the receiver speaks plain HTTP and waits."""
    failure = await fail_to_post(hasty_http, receiver.url.replace("http:", "https:"))

    assert (failure.may_have_arrived, receiver.received) == (False, [])


@pytest.mark.parametrize("mode", ["silence", "no http"])
async def test_a_request_without_a_response_may_have_arrived(mode: ResponseMode, receiver: Receiver, hasty_http: GuardedHttpClient) -> None:
    """After the request was written, the outcome is unknown."""
    receiver.reply = lambda _: Reply(mode=mode)
    failure = await fail_to_post(hasty_http, receiver.url)

    assert (failure.may_have_arrived, len(receiver.received)) == (True, 1)


async def test_a_stale_connection_is_not_used_twice(receiver: Receiver, http: GuardedHttpClient) -> None:
    """A receiver that closes a kept-alive connection may have read the request first."""
    await http.post(receiver.url, {}, b"1")
    receiver.closes_on_next_request = True
    await http.post(receiver.url, {}, b"2")
    failure = await fail_to_post(http, receiver.url)
    assert failure.may_have_arrived

    assert (await http.post(receiver.url, {}, b"4")).status == 200
    assert [request.body for request in receiver.received] == [b"1", b"2", b"4"]


@pytest.mark.parametrize("url", ["http://10.0.0.7/", "http://169.254.169.254/latest", "ftp://127.0.0.1/", "http:///x", "http://\udc80/"])
async def test_a_forbidden_url_is_marked(url: str, http: GuardedHttpClient) -> None:
    """A repetition fails in the same way."""
    failure = await fail_to_post(http, url)

    assert (failure.may_have_arrived, failure.is_forbidden) == (False, True)


async def test_a_name_without_an_address_may_have_one_later() -> None:
    """An unavailable DNS server is not the fault of the URL."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError

    http = GuardedHttpClient(EgressGuard(resolve=resolve), timeout_s=0.5)
    failure = await fail_to_post(http, "http://gone.example/")
    await http.close()

    assert (failure.may_have_arrived, failure.is_forbidden) == (False, False)


async def test_a_cancelled_post_leaves_no_connection(receiver: Receiver, http: GuardedHttpClient) -> None:
    """A cancelled request closes its connection, and later ones use others."""
    receiver.gate = asyncio.Event()
    posting = asyncio.create_task(http.post(receiver.url, {}, b"{}"))
    await eventually(lambda: receiver.waiting)
    posting.cancel()
    await asyncio.gather(posting, return_exceptions=True)
    receiver.gate.set()

    assert (await http.post(receiver.url, {}, b"2")).status == 200
    assert receiver.connections == 2
