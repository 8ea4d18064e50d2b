"""The webhook channel against a receiver on this host."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
import pytest
from standardwebhooks import Webhook

from rookery.engines.notification_channels.webhook import WebhookChannel
from rookery.kernel.clock import utc_now
from rookery.kernel.egress import EgressGuard
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome
from tests.certificates import write_certificate
from tests.engines.channel_contract import MESSAGE, SECRETS, FixedKeys, NotificationChannelContract, ReceivedMessage, ServiceFault
from tests.engines.engine_contracts import HowTested
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

FORBIDDEN = "http://169.254.169.254/latest/meta-data"


@dataclass
class WebhookChannelRig:
    """The channel and a receiver."""

    channel: WebhookChannel
    receiver: Receiver
    service: AsyncExitStack
    accepted: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    fault: ServiceFault | None = None
    forbidden_target: ChannelTarget | None = field(default_factory=lambda: ChannelTarget(type=ChannelType.WEBHOOK, address=FORBIDDEN))

    @property
    def target(self) -> ChannelTarget:
        return ChannelTarget(type=ChannelType.WEBHOOK, address=self.receiver.url)

    def received(self) -> Sequence[ReceivedMessage]:
        bodies = [orjson.loads(request.body) for request in self.accepted]
        return [ReceivedMessage(title=body["title"], body=body["body"], url=body["url"]) for body in bodies]

    def fail_next(self, fault: ServiceFault) -> None:
        self.fault = fault

    async def stop_service(self) -> None:
        await self.service.aclose()

    def reply(self, request: ReceivedRequest) -> Reply:
        """Answer as the fault demands, once."""
        fault, self.fault = self.fault, None
        if fault is None:
            self.accepted.append(request)
        replies = {
            ServiceFault.TRY_LATER: Reply(status=503, headers={"retry-after": "7"}),
            ServiceFault.REJECTED: Reply(status=422),
            ServiceFault.GONE: Reply(status=410),
            ServiceFault.CUT_AFTER: Reply(mode="no http"),
            ServiceFault.SILENT: Reply(mode="silence"),
        }
        return replies[fault] if fault else Reply(status=202)


@pytest.fixture
async def rig() -> AsyncIterator[WebhookChannelRig]:
    """The channel, with a short timeout, and its receiver."""
    channel = WebhookChannel(EgressGuard(allow=["127.0.0.0/8"]), FixedKeys(), utc_now, max_concurrency=8, timeout_s=2)
    async with AsyncExitStack() as service:
        rig = WebhookChannelRig(channel, await service.enter_async_context(run_receiver()), service)
        rig.receiver.reply = rig.reply
        yield rig
        await channel.close()


class TestWebhookChannel(NotificationChannelContract):
    """The contract of channels."""

    engine = "webhook"
    tested_on = HowTested.STAND_IN
    tested_with = "an HTTP receiver"

    untested = frozenset({ServiceFault.CUT_BEFORE})  # its receiver reads the whole request


async def test_a_message_is_signed_for_the_library_of_the_standard(rig: WebhookChannelRig) -> None:
    """Both secrets of a grace period verify, by others' code, and the delivery's id is the same at each attempt."""
    for _ in range(2):
        await rig.channel.send(replace(MESSAGE, target=rig.target))

    for request in rig.receiver.received:
        for secret in SECRETS:
            Webhook(secret.reveal()).verify(request.body.decode(), dict(request.headers))
    assert {request.headers["webhook-id"] for request in rig.receiver.received} == {MESSAGE.delivery_id}
    assert len({request.body for request in rig.receiver.received}) == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, SendOutcome.SENT) for status in (200, 202, 204)),
        *((status, SendOutcome.RETRY) for status in (408, 425, 429, 500, 502, 503, 504)),
        *((status, SendOutcome.GONE) for status in (404, 410)),
        *((status, SendOutcome.REJECTED) for status in (301, 307, 400, 401, 403, 413, 422)),
    ],
)
async def test_each_status_has_its_outcome(status: int, outcome: SendOutcome, rig: WebhookChannelRig) -> None:
    """Redirects are never followed, even to an allowed address."""
    headers = {"location": rig.receiver.url, "retry-after": "7"}
    rig.receiver.reply = lambda _: Reply(status=status, headers=headers, body=b"" if status == 204 else b"no")
    result = await rig.channel.send(replace(MESSAGE, target=rig.target))

    assert (result.outcome, result.status, len(rig.receiver.received)) == (outcome, status, 1)
    assert result.retry_after_s == (7 if outcome is SendOutcome.RETRY else None)


async def test_a_lost_secret_blocks_all_messages(rig: WebhookChannelRig) -> None:
    """A common fault stops the campaign and marks no subscriber invalid."""
    channel = WebhookChannel(EgressGuard(), FixedKeys(()), utc_now, max_concurrency=1)
    result = await channel.send(replace(MESSAGE, target=rig.target))

    assert result.outcome is SendOutcome.BLOCKED
    assert "rotate" in (result.reason or "")
    await channel.close()


async def test_a_wrong_certificate_gets_no_message(tmp_path: Path, rig: WebhookChannelRig) -> None:
    """The receiver may correct its certificate, so the message is sent later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "cert.pem"))
    async with run_receiver(tls=context) as receiver:
        target = ChannelTarget(type=ChannelType.WEBHOOK, address=receiver.url.replace("http:", "https:"))
        result = await rig.channel.send(replace(MESSAGE, target=target))

    assert (result.outcome, receiver.received) == (SendOutcome.RETRY, [])
    assert "certificate" in (result.reason or "")


@pytest.mark.parametrize("mode", ["huge", "endless", "drips"])
async def test_a_long_answer_does_not_change_the_outcome(mode: str, rig: WebhookChannelRig) -> None:
    """The status decides, and reading stops at a limit."""
    rig.receiver.reply = lambda _: Reply(mode=mode, body=b"")  # pyright: ignore[reportArgumentType] - a literal of the parameters

    assert (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.SENT
