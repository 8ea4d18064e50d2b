"""Faults of receivers and how the webhook client handles them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rookery.engines import webhook_client
from rookery.engines.webhook_client.http import HttpWebhookClient
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import MAX_EXCERPT_CHARS
from rookery.webhooks.errors import ReceiverUnreachable
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.webhooks.receiver import Receiver, Reply, ResponseMode, run_receiver

LOCAL_GUARD = EgressGuard(allow=["127.0.0.0/8"])


@pytest.fixture
async def http() -> AsyncIterator[HttpWebhookClient]:
    """The client, which waits long enough for a slow machine."""
    client = HttpWebhookClient(LOCAL_GUARD, timeout_s=HANG_S)
    yield client
    await client.close()


async def test_a_body_arrives_unchanged(receiver: Receiver, http: HttpWebhookClient) -> None:
    """Several requests use one connection."""
    bodies = [b'{"a": 1}', "{'…'}".encode(), b"", bytes(range(256)) * 2000]
    for body in bodies:
        response = await http.post(receiver.url, {"webhook-id": "evt_1"}, body)
        assert (response.status, response.excerpt) == (200, "thanks")

    assert [request.body for request in receiver.received] == bodies
    assert receiver.received[0].headers["content-type"] == "application/json"
    assert receiver.connections == 1


async def test_a_stale_connection_costs_no_attempt(receiver: Receiver, http: HttpWebhookClient) -> None:
    """A failed attempt would delay the delivery by a minute; the end may be noticed before or with the next request."""
    for number in range(3):
        assert (await http.post(receiver.url, {}, b"%d" % number)).status == 200
        await receiver.close_connections()
    assert receiver.connections == 3

    receiver.closes_on_next_request = True
    await http.post(receiver.url, {}, b"3")
    assert (await http.post(receiver.url, {}, b"4")).status == 200
    assert [request.body for request in receiver.received] == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_idle_connection_is_closed(receiver: Receiver) -> None:
    """A connection closes after `idle_timeout_s` without further requests."""
    http = HttpWebhookClient(LOCAL_GUARD, idle_timeout_s=0.2)
    try:
        await asyncio.gather(*(http.post(receiver.url, {}, b"{}") for _ in range(8)))
        assert receiver.open_connections > 0
        await eventually(lambda: receiver.open_connections == 0)
    finally:
        await http.close()


async def test_nothing_is_sent_to_a_receiver_with_an_invalid_certificate(tmp_path: Path, http: HttpWebhookClient) -> None:
    """Deliveries over https need a valid certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "cert.pem"))
    async with run_receiver(tls=context) as receiver:
        with pytest.raises(ReceiverUnreachable, match="The receiver's certificate is not valid: self-signed"):
            await http.post(receiver.url.replace("http:", "https:"), {}, b"{}")
    assert receiver.received == []


@pytest.mark.parametrize("mode", ["huge", "endless"])
async def test_a_response_without_end_is_cut_while_it_is_read(mode: ResponseMode, receiver: Receiver, http: HttpWebhookClient) -> None:
    """Reading stops at 10,000 characters."""
    receiver.reply = lambda _: Reply(mode=mode, body=b"")
    response = await http.post(receiver.url, {}, b"{}")

    assert (response.status, response.excerpt) == (200, "x" * MAX_EXCERPT_CHARS)


async def test_a_slow_response_is_cut_at_the_timeout(receiver: Receiver) -> None:
    """The timeout includes reading the body; the status still decides."""
    receiver.reply = lambda _: Reply(mode="drips", body=b"")
    http = HttpWebhookClient(LOCAL_GUARD, timeout_s=3)
    try:
        response = await http.post(receiver.url, {}, b"{}")
    finally:
        await http.close()

    assert response.status == 200
    assert 0 < len(response.excerpt) < 1000


async def test_a_response_that_breaks_off_is_judged_by_its_status(receiver: Receiver, http: HttpWebhookClient) -> None:
    """A status of 2xx is a success."""
    receiver.reply = lambda _: Reply(mode="broken", body=b"half of it")
    response = await http.post(receiver.url, {}, b"{}")

    assert (response.status, response.excerpt) == (200, "half of it")


async def test_the_excerpt_is_limited_in_characters_and_replaces_invalid_bytes(receiver: Receiver, http: HttpWebhookClient) -> None:
    """PostgreSQL accepts no NUL character."""
    receiver.reply = lambda _: Reply(body="ä".encode() * 20_000)
    assert (await http.post(receiver.url, {}, b"{}")).excerpt == "ä" * MAX_EXCERPT_CHARS

    receiver.reply = lambda _: Reply(body=b"a\x00\xff\xfeb")
    assert (await http.post(receiver.url, {}, b"{}")).excerpt == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("mode", "timeout_s", "message"), [("silence", 0.5, "did not answer within"), ("no http", HANG_S, "did not answer in HTTP")]
)
async def test_a_receiver_without_a_response_is_unreachable(mode: ResponseMode, timeout_s: float, message: str, receiver: Receiver) -> None:
    """The error has the reason for the log."""
    receiver.reply = lambda _: Reply(mode=mode)
    http = HttpWebhookClient(LOCAL_GUARD, timeout_s=timeout_s)
    try:
        with pytest.raises(ReceiverUnreachable, match=message):
            await http.post(receiver.url, {}, b"{}")
    finally:
        await http.close()


async def test_a_refused_connection_is_reported(http: HttpWebhookClient) -> None:
    """A refused connection is recorded as the reason of the failure."""
    async with run_receiver() as closed_receiver:
        url = closed_receiver.url
    with pytest.raises(ReceiverUnreachable, match="could not be opened"):
        await http.post(url, {}, b"{}")


async def test_a_redirect_is_a_response_and_is_not_followed(receiver: Receiver, http: HttpWebhookClient) -> None:
    """A redirect would bypass the check of the address at creation."""
    receiver.reply = lambda _: Reply(status=307, headers={"location": receiver.url + "/elsewhere"})
    response = await http.post(receiver.url, {}, b"{}")

    assert (response.status, len(receiver.received)) == (307, 1)


async def test_a_name_that_later_resolves_to_a_forbidden_address_is_rejected(receiver: Receiver) -> None:
    """The egress guard checks each connection, not only the creation of the endpoint."""
    resolved: list[Sequence[str]] = [["127.0.0.1"], ["127.0.0.1"], ["10.0.0.7"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return resolved.pop(0)

    guard = EgressGuard(allow=["127.0.0.0/8"], resolve=resolve)
    url = f"http://hooks.example:{receiver.port}/hook"
    await guard.require_allowed_url(url)
    http = HttpWebhookClient(guard)
    try:
        assert (await http.post(url, {}, b"{}")).status == 200
    finally:
        await http.close()
    http = HttpWebhookClient(guard)
    try:
        with pytest.raises(ReceiverUnreachable, match="private") as error:
            await http.post(url, {}, b"{}")
    finally:
        await http.close()

    assert len(receiver.received) == 1
    assert "10.0.0.7" not in error.value.message


async def test_concurrent_first_requests_are_all_answered(receiver: Receiver) -> None:
    """Connections are opened by requests, and closing twice is allowed."""
    client = webhook_client.open(LOCAL_GUARD)
    try:
        responses = await asyncio.gather(*(client.post(receiver.url, {}, str(number).encode()) for number in range(50)))
    finally:
        await client.close()
        await client.close()

    assert [response.status for response in responses] == [200] * 50
    assert sorted(int(request.body) for request in receiver.received) == list(range(50))
