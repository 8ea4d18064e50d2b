"""What receivers do to those who call them, and what we make of it (D-81, D-82)."""

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
from tests.webhooks.receiver import Receiver, Reply, Way, receiver

HERE = EgressGuard(allow=["127.0.0.0/8"])


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    """A receiver of the test's own."""
    async with receiver() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[HttpWebhookClient]:
    """The engine, with less patience than it has in earnest."""
    engine = HttpWebhookClient(HERE, timeout_s=2)
    yield engine
    await engine.close()


async def test_what_is_posted_arrives_as_it_is(there: Receiver, http: HttpWebhookClient) -> None:
    """D-81: the body byte for byte, and over one connection as long as there is more."""
    bodies = [b'{"a": 1}', "{'…'}".encode(), b"", bytes(range(256)) * 2000]
    for body in bodies:
        answer = await http.post(there.url, {"webhook-id": "evt_1"}, body)
        assert (answer.status, answer.excerpt) == (200, "thanks")

    assert [each.body for each in there.received] == bodies
    assert there.received[0].headers["content-type"] == "application/json"
    assert there.connections == 1


async def test_a_connection_that_its_server_closed_meanwhile_costs_no_attempt(there: Receiver, http: HttpWebhookClient) -> None:
    """D-81: it would be a minute; whether the end is seen before the next request or only by it."""
    for number in range(3):
        assert (await http.post(there.url, {}, b"%d" % number)).status == 200
        await there.hang_up()
    assert there.connections == 3

    there.hang_up_at_next = True
    await http.post(there.url, {}, b"3")
    assert (await http.post(there.url, {}, b"4")).status == 200
    assert [each.body for each in there.received] == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_idle_connection_is_closed_though_nothing_more_is_sent(there: Receiver) -> None:
    """House rule: what is opened is closed; an endpoint that is told no more keeps none."""
    http = HttpWebhookClient(HERE, idle_timeout_s=0.2)
    try:
        await asyncio.gather(*(http.post(there.url, {}, b"{}") for _ in range(8)))
        assert there.open > 0
        await eventually(lambda: there.open == 0)
    finally:
        await http.close()


async def test_a_certificate_that_nobody_vouches_for_is_said_and_nothing_is_sent(tmp_path: Path, http: HttpWebhookClient) -> None:
    """D-82: deliveries to https go only to whom the certificate names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "cert.pem"))
    async with receiver(tls=context) as there:
        with pytest.raises(ReceiverUnreachable, match="The receiver's certificate is not valid: self-signed"):
            await http.post(there.url.replace("http:", "https:"), {}, b"{}")
    assert there.received == []


@pytest.mark.parametrize("way", ["huge", "endless"])
async def test_an_answer_without_end_is_cut_while_it_is_read(way: Way, there: Receiver, http: HttpWebhookClient) -> None:
    """D-81: at 10,000 characters; what follows is not even waited for."""
    there.reply = lambda _: Reply(way=way, body=b"")
    answer = await http.post(there.url, {}, b"{}")

    assert (answer.status, answer.excerpt) == (200, "x" * MAX_EXCERPT_CHARS)


async def test_an_answer_that_drips_ends_with_our_patience(there: Receiver) -> None:
    """D-81: ten seconds in all, the reading included; the status was there, and is the verdict."""
    there.reply = lambda _: Reply(way="drips", body=b"")
    http = HttpWebhookClient(HERE, timeout_s=0.5)
    try:
        answer = await http.post(there.url, {}, b"{}")
    finally:
        await http.close()

    assert answer.status == 200
    assert 0 < len(answer.excerpt) < 1000


async def test_an_answer_that_breaks_off_counts_by_its_status(there: Receiver, http: HttpWebhookClient) -> None:
    """D-81: 2xx is success."""
    there.reply = lambda _: Reply(way="broken", body=b"half of it")
    answer = await http.post(there.url, {}, b"{}")

    assert (answer.status, answer.excerpt) == (200, "half of it")


async def test_characters_and_not_bytes_are_counted_and_what_is_no_text_does_no_harm(there: Receiver, http: HttpWebhookClient) -> None:
    """D-81: and PostgreSQL takes no zero character."""
    there.reply = lambda _: Reply(body="ä".encode() * 20_000)
    assert (await http.post(there.url, {}, b"{}")).excerpt == "ä" * MAX_EXCERPT_CHARS

    there.reply = lambda _: Reply(body=b"a\x00\xff\xfeb")
    assert (await http.post(there.url, {}, b"{}")).excerpt == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize(("way", "says"), [("silence", "did not answer within"), ("no http", "did not answer in HTTP")])
async def test_a_receiver_without_an_answer_is_unreachable(way: Way, says: str, there: Receiver) -> None:
    """D-81: why, in words, for the log."""
    there.reply = lambda _: Reply(way=way)
    http = HttpWebhookClient(HERE, timeout_s=0.5)
    try:
        with pytest.raises(ReceiverUnreachable, match=says):
            await http.post(there.url, {}, b"{}")
    finally:
        await http.close()


async def test_nobody_there_is_said(http: HttpWebhookClient) -> None:
    """D-81: as above."""
    async with receiver() as gone:
        url = gone.url
    with pytest.raises(ReceiverUnreachable, match="could not be opened"):
        await http.post(url, {}, b"{}")


async def test_a_redirect_is_an_answer_and_is_not_followed(there: Receiver, http: HttpWebhookClient) -> None:
    """D-81, D-82: it would lead past the guard's verdict at the creation."""
    there.reply = lambda _: Reply(status=307, headers={"location": there.url + "/elsewhere"})
    answer = await http.post(there.url, {}, b"{}")

    assert (answer.status, len(there.received)) == (307, 1)


async def test_a_name_that_means_another_address_later_is_refused_later(there: Receiver) -> None:
    """D-82: the guard's verdict is asked for at each connection, whatever it was when the endpoint was made."""
    answers: list[Sequence[str]] = [["127.0.0.1"], ["127.0.0.1"], ["10.0.0.7"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    guard = EgressGuard(allow=["127.0.0.0/8"], resolve=resolve)
    url = f"http://hooks.example:{there.port}/hook"
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

    assert len(there.received) == 1
    assert "10.0.0.7" not in refused.value.message


async def test_many_post_at_once_through_what_is_loaded_with_the_first(there: Receiver) -> None:
    """Issue 7: a start loads no HTTP client."""
    engine = webhook_client.open(HERE)
    try:
        answers = await asyncio.gather(*(engine.post(there.url, {}, str(number).encode()) for number in range(50)))
    finally:
        await engine.close()
        await engine.close()

    assert [each.status for each in answers] == [200] * 50
    assert sorted(int(each.body) for each in there.received) == list(range(50))
