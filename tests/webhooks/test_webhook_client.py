"""Faults of receivers and how the webhook client handles them (D-81, D-82)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rookery.engines import webhook_client
from rookery.engines.webhook_client.http import MAX_EXCERPT_CHARS, HttpWebhookClient
from rookery.kernel.egress import EgressGuard
from rookery.webhooks.errors import ReceiverUnreachable
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.webhooks.receiver import Receiver, Reply, ResponseMode, run_receiver

HERE = EgressGuard(allow=["127.0.0.0/8"])


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of the test's own."""
    async with run_receiver() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[HttpWebhookClient]:
    """The engine, with less patience than it has in earnest."""
    engine = HttpWebhookClient(HERE, timeout_s=2)
    yield engine
    await engine.close()


async def test_what_is_posted_arrives_as_it_is(receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81: the body byte for byte, and over one connection as long as there is more."""
    bodies = [b'{"a": 1}', "{'…'}".encode(), b"", bytes(range(256)) * 2000]
    for body in bodies:
        answer = await http.post(receiver.url, {"webhook-id": "evt_1"}, body)
        assert (answer.status, answer.excerpt) == (200, "thanks")

    assert [each.body for each in receiver.received] == bodies
    assert receiver.received[0].headers["content-type"] == "application/json"
    assert receiver.connections == 1


async def test_a_connection_that_its_server_closed_meanwhile_costs_no_attempt(receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81: it would be a minute; whether the end is seen before the next request or only by it."""
    for number in range(3):
        assert (await http.post(receiver.url, {}, b"%d" % number)).status == 200
        await receiver.close_connections()
    assert receiver.connections == 3

    receiver.closes_on_next_request = True
    await http.post(receiver.url, {}, b"3")
    assert (await http.post(receiver.url, {}, b"4")).status == 200
    assert [each.body for each in receiver.received] == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_idle_connection_is_closed_though_nothing_more_is_sent(receiver: Receiver) -> None:
    """House rule: what is opened is closed; an endpoint that is told no more keeps none."""
    http = HttpWebhookClient(HERE, idle_timeout_s=0.2)
    try:
        await asyncio.gather(*(http.post(receiver.url, {}, b"{}") for _ in range(8)))
        assert receiver.open_connections > 0
        await eventually(lambda: receiver.open_connections == 0)
    finally:
        await http.close()


async def test_a_certificate_that_nobody_vouches_for_is_said_and_nothing_is_sent(tmp_path: Path, http: HttpWebhookClient) -> None:
    """D-82: deliveries to https go only to whom the certificate names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "cert.pem"))
    async with run_receiver(tls=context) as receiver:
        with pytest.raises(ReceiverUnreachable, match="The receiver's certificate is not valid: self-signed"):
            await http.post(receiver.url.replace("http:", "https:"), {}, b"{}")
    assert receiver.received == []


@pytest.mark.parametrize("way", ["huge", "endless"])
async def test_an_answer_without_end_is_cut_while_it_is_read(way: ResponseMode, receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81: at 10,000 characters; what follows is not even waited for."""
    receiver.reply = lambda _: Reply(mode=way, body=b"")
    answer = await http.post(receiver.url, {}, b"{}")

    assert (answer.status, answer.excerpt) == (200, "x" * MAX_EXCERPT_CHARS)


async def test_an_answer_that_drips_ends_with_our_patience(receiver: Receiver) -> None:
    """D-81: ten seconds in all, the reading included; the status was there, and is the verdict."""
    receiver.reply = lambda _: Reply(mode="drips", body=b"")
    http = HttpWebhookClient(HERE, timeout_s=0.5)
    try:
        answer = await http.post(receiver.url, {}, b"{}")
    finally:
        await http.close()

    assert answer.status == 200
    assert 0 < len(answer.excerpt) < 1000


async def test_an_answer_that_breaks_off_counts_by_its_status(receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81: 2xx is success."""
    receiver.reply = lambda _: Reply(mode="broken", body=b"half of it")
    answer = await http.post(receiver.url, {}, b"{}")

    assert (answer.status, answer.excerpt) == (200, "half of it")


async def test_characters_and_not_bytes_are_counted_and_what_is_no_text_does_no_harm(receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81: and PostgreSQL takes no zero character."""
    receiver.reply = lambda _: Reply(body="ä".encode() * 20_000)
    assert (await http.post(receiver.url, {}, b"{}")).excerpt == "ä" * MAX_EXCERPT_CHARS

    receiver.reply = lambda _: Reply(body=b"a\x00\xff\xfeb")
    assert (await http.post(receiver.url, {}, b"{}")).excerpt == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize(("way", "says"), [("silence", "did not answer within"), ("no http", "did not answer in HTTP")])
async def test_a_receiver_without_an_answer_is_unreachable(way: ResponseMode, says: str, receiver: Receiver) -> None:
    """D-81: why, in words, for the log."""
    receiver.reply = lambda _: Reply(mode=way)
    http = HttpWebhookClient(HERE, timeout_s=0.5)
    try:
        with pytest.raises(ReceiverUnreachable, match=says):
            await http.post(receiver.url, {}, b"{}")
    finally:
        await http.close()


async def test_nobody_there_is_said(http: HttpWebhookClient) -> None:
    """A refused connection is recorded as the reason of the failure (D-81)."""
    async with run_receiver() as gone:
        url = gone.url
    with pytest.raises(ReceiverUnreachable, match="could not be opened"):
        await http.post(url, {}, b"{}")


async def test_a_redirect_is_an_answer_and_is_not_followed(receiver: Receiver, http: HttpWebhookClient) -> None:
    """D-81, D-82: it would lead past the guard's verdict at the creation."""
    receiver.reply = lambda _: Reply(status=307, headers={"location": receiver.url + "/elsewhere"})
    answer = await http.post(receiver.url, {}, b"{}")

    assert (answer.status, len(receiver.received)) == (307, 1)


async def test_a_name_that_means_another_address_later_is_refused_later(receiver: Receiver) -> None:
    """D-82: the egress guard checks each connection, not only the creation of the endpoint."""
    answers: list[Sequence[str]] = [["127.0.0.1"], ["127.0.0.1"], ["10.0.0.7"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

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
        with pytest.raises(ReceiverUnreachable, match="private") as refused:
            await http.post(url, {}, b"{}")
    finally:
        await http.close()

    assert len(receiver.received) == 1
    assert "10.0.0.7" not in refused.value.message


async def test_many_post_at_once_through_what_is_loaded_with_the_first(receiver: Receiver) -> None:
    """Issue 7: a start loads no HTTP client."""
    engine = webhook_client.open(HERE)
    try:
        answers = await asyncio.gather(*(engine.post(receiver.url, {}, str(number).encode()) for number in range(50)))
    finally:
        await engine.close()
        await engine.close()

    assert [each.status for each in answers] == [200] * 50
    assert sorted(int(each.body) for each in receiver.received) == list(range(50))
