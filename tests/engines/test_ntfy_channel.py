"""
The ntfy channel.

A real ntfy server could not be had: its Go module is not on the module hosts that this machine may use. The receiver checks the rules of
`publishMessage` and the errors of ntfy's own `server/types.go` and `server/errors.go`, and rejects every other field.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import cast

import orjson
import pytest

from rookery.engines.notification_channels.ntfy import NtfyChannel
from rookery.kernel.clock import utc_now
from rookery.kernel.egress import EgressGuard
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome
from rookery.notifications.ntfy_address import parse_ntfy_address
from tests.engines.channel_contract import MESSAGE, NotificationChannelContract, ReceivedMessage, ServiceFault
from tests.engines.engine_contracts import HowTested
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

TOKEN = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("topic", "title", "message", "click", "icon", "attach", "filename", "email", "delay"), str),
    "priority": int,
    "tags": list,
    "actions": list,
}


def ntfy_error(code: int, text: str) -> Reply:
    """Return an error as ntfy does: the HTTP status is the start of its code."""
    body = {"code": code, "http": code // 100, "error": text}
    return Reply(status=code // 100, headers={"content-type": "application/json"}, body=orjson.dumps(body))


@dataclass
class NtfyRig:
    """The channel and a strict receiver. The topic `secret` needs the token, or a login."""

    channel: NtfyChannel
    receiver: Receiver
    service: AsyncExitStack
    published: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    fault: ServiceFault | None = None
    forbidden_target: ChannelTarget | None = field(
        default_factory=lambda: ChannelTarget(type=ChannelType.NTFY, address="http://10.0.0.7/news")
    )

    @property
    def target(self) -> ChannelTarget:
        return self.topic("/news")

    def topic(self, path: str, login: str = "") -> ChannelTarget:
        """Return the address of a topic."""
        return ChannelTarget(type=ChannelType.NTFY, address=f"http://{login}127.0.0.1:{self.receiver.port}{path}")

    def received(self) -> Sequence[ReceivedMessage]:
        return [
            ReceivedMessage(title=str(fields["title"]), body=str(fields["message"]), url=cast("str | None", fields.get("click")))
            for fields in self.published
        ]

    def fail_next(self, fault: ServiceFault) -> None:
        self.fault = fault

    async def stop_service(self) -> None:
        await self.service.aclose()

    def reply(self, request: ReceivedRequest) -> Reply:
        """Answer as an ntfy server, or with the fault, once."""
        fault, self.fault = self.fault, None
        faults = {
            ServiceFault.TRY_LATER: ntfy_error(42908, "limit reached: too many messages"),
            ServiceFault.REJECTED: ntfy_error(40014, "invalid request: attachments not allowed"),
            ServiceFault.GONE: ntfy_error(40401, "page not found"),
            ServiceFault.CUT_AFTER: Reply(mode="no http"),
            ServiceFault.SILENT: Reply(mode="silence"),
        }
        return faults[fault] if fault else self._publish(request)

    def _publish(self, request: ReceivedRequest) -> Reply:
        if request.path != "/":
            return ntfy_error(40401, "page not found")
        fields = cast("dict[str, object]", orjson.loads(request.body))
        topic = str(fields.get("topic"))
        if not re.fullmatch(r"[-_A-Za-z0-9]{1,64}", topic):
            return ntfy_error(40009, "invalid request: topic invalid")
        if any(not isinstance(value, _FIELDS.get(name, ())) for name, value in fields.items()):
            return ntfy_error(40017, "invalid request: request body must be message JSON")
        if cast("int", fields.get("priority", 3)) not in range(1, 6):
            return ntfy_error(40007, "invalid priority parameter")
        logins = {f"Bearer {TOKEN}", "Basic " + base64.b64encode("phil:pä:ss".encode()).decode()}
        if topic == "secret" and (login := request.headers.get("authorization")) not in logins:
            return ntfy_error(40101, "unauthorized") if login else ntfy_error(40301, "forbidden")
        self.published.append(fields)
        return Reply(body=orjson.dumps({"id": f"id{len(self.published)}", "event": "message", "topic": topic}))


@pytest.fixture
async def rig() -> AsyncIterator[NtfyRig]:
    """The channel, with a short timeout, and its receiver."""
    channel = NtfyChannel(EgressGuard(allow=["127.0.0.0/8"]), utc_now, max_concurrency=8, timeout_s=2)
    async with AsyncExitStack() as service:
        rig = NtfyRig(channel, await service.enter_async_context(run_receiver()), service)
        rig.receiver.reply = rig.reply
        yield rig
        await channel.close()


class TestNtfyChannel(NotificationChannelContract):
    """The contract of channels."""

    engine = "ntfy"
    tested_on = HowTested.STAND_IN
    tested_with = "an HTTP receiver"

    untested = frozenset({ServiceFault.CUT_BEFORE})  # its receiver reads the whole request


async def test_a_message_has_priority_link_and_unsubscribe_button(rig: NtfyRig) -> None:
    """Fields that are not set are left out, as ntfy expects."""
    message = replace(MESSAGE, unsubscribe_url="https://example.org/u/1")
    results = [
        await rig.channel.send(replace(message, target=rig.topic("/news?priority=high"))),
        await rig.channel.send(replace(MESSAGE, target=rig.target, url=None)),
    ]

    assert [result.provider_id for result in results] == ["id1", "id2"]
    actions = [{"action": "view", "label": "Unsubscribe", "url": "https://example.org/u/1"}]
    common = {"topic": "news", "title": MESSAGE.title, "message": MESSAGE.body}
    assert rig.published == [{**common, "click": MESSAGE.url, "priority": 4, "actions": actions}, common]


@pytest.mark.parametrize("login", [f"{TOKEN}@", f":{TOKEN}@", "phil:p%C3%A4:ss@"])
async def test_a_login_in_the_address_opens_a_topic(login: str, rig: NtfyRig) -> None:
    """An optional token in the address."""
    result = await rig.channel.send(replace(MESSAGE, target=rig.topic("/secret", login)))

    assert result.outcome is SendOutcome.SENT


@pytest.mark.parametrize(("login", "status"), [("", 403), ("tk_wrong@", 401)])
async def test_a_missing_or_wrong_token_is_rejected_for_this_topic(login: str, status: int, rig: NtfyRig) -> None:
    """It is the address that is wrong, so other subscribers are not stopped; the reason has no token."""
    result = await rig.channel.send(replace(MESSAGE, target=rig.topic("/secret", login)))

    assert (result.outcome, result.status) == (SendOutcome.REJECTED, status)
    assert login.strip("@") in ("", "tk_wrong")
    assert "tk_" not in (result.reason or "")


async def test_a_server_that_is_no_ntfy_server_is_rejected(rig: NtfyRig) -> None:
    """A web server that answers 200 to everything has not published the message."""
    rig.receiver.reply = lambda _: Reply(body=b"<!doctype html>")
    result = await rig.channel.send(replace(MESSAGE, target=rig.target))

    assert result.outcome is SendOutcome.REJECTED


@pytest.mark.parametrize(
    "address",
    [
        *("", "ntfy.sh/x", "ftp://ntfy.sh/x", "https://ntfy.sh/", "https://ntfy.sh/a/b", "https:///x", "https://ntfy.sh:99999/x"),
        *("https://ntfy.sh/ä", f"https://ntfy.sh/{'x' * 65}", "https://ntfy.sh/x?priority=9", "https://ntfy.sh/x?delay=1h"),
        *("https://ntfy.sh/x#y", "https://to%0Aken@ntfy.sh/x", "https://to%20ken@ntfy.sh/x"),
    ],
)
async def test_an_invalid_address_is_rejected_without_being_named(address: str, rig: NtfyRig) -> None:
    """The address may contain a token."""
    with pytest.raises(ValueError, match=r"must be|may have|has a token"):
        parse_ntfy_address(address)
    target = ChannelTarget(type=ChannelType.NTFY, address=address)

    assert (await rig.channel.send(replace(MESSAGE, target=target))).outcome is SendOutcome.REJECTED


def test_an_address_is_parsed() -> None:
    """The host may be an IPv6 address."""
    parsed = parse_ntfy_address("https://[::1]:8080/a_b-C?priority=5")

    assert (parsed.server_url, parsed.topic, parsed.priority, parsed.authorization) == ("https://[::1]:8080/", "a_b-C", 5, None)
    assert TOKEN not in repr(parse_ntfy_address(f"https://{TOKEN}@ntfy.sh/x"))


@pytest.mark.parametrize("text", ["x" * 4_095, "x" * 4_096, "ü" * 3_000, "文" * 6_000, "🪶" * 5_000, "\n" * 4_000 + "x", '"' * 4_095])
async def test_a_text_has_at_most_the_bytes_that_ntfy_shows(text: str, rig: NtfyRig) -> None:
    """Ntfy makes a file of 4,096 bytes, and refuses JSON of more than 8,192. A longer text is cut at a character."""
    result = await rig.channel.send(replace(MESSAGE, target=rig.target, body=text))
    request = rig.receiver.received[0]
    message = str(rig.published[0]["message"])

    assert result.outcome is SendOutcome.SENT
    assert (len(message.encode()) <= 4_095, len(request.body) < 8_192) == (True, True)
    assert message == text or (message.endswith("…") and text.startswith(message[:-1]) and len(message.encode()) > 3_900)


async def test_an_empty_text_is_not_shown_as_triggered(rig: NtfyRig) -> None:
    """Ntfy replaces an empty text by "triggered"."""
    await rig.channel.send(replace(MESSAGE, target=rig.target, body=" "))

    assert rig.published[0]["message"] == MESSAGE.title


@pytest.mark.parametrize(("code", "is_daily"), [(42901, False), (42902, True), (42904, False), (42905, True), (42908, True)])
async def test_each_limit_of_ntfy_is_the_senders(code: int, rig: NtfyRig, *, is_daily: bool) -> None:
    """Ntfy sends no Retry-After. Its daily limits begin again at midnight UTC."""
    rig.receiver.reply = lambda _: ntfy_error(code, "limit reached")
    result = await rig.channel.send(replace(MESSAGE, target=rig.target))

    assert (result.outcome, result.concerns_host, result.status) == (SendOutcome.RETRY, True, 429)
    assert (result.resets_in_s is not None and 0 < result.resets_in_s <= 86_460) == is_daily
