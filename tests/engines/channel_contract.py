"""
The contract of notification channels, which every channel is tested against.

A test class inherits `NotificationChannelContract` and returns a `ChannelRig` from its fixture `rig`: the channel with its service, both on
this host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import pytest

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret
from rookery.notifications.messages import ChannelTarget, NotificationMessage, SendOutcome
from rookery.notifications.ports import NotificationChannel
from tests.conftest import eventually
from tests.engines.engine_contracts import EngineContract, needs

MESSAGE = NotificationMessage(
    workspace_id=1,
    campaign_id="campaign-1",
    delivery_id="delivery-1",
    target=ChannelTarget(type="webhook", address="http://127.0.0.1:1/"),  # pyright: ignore[reportArgumentType] - rigs set their own
    title="Grüße 🪶 & <b>more</b>",
    body="Line one\nLine two: ünïcode, 文字",
    url="https://example.org/news?a=1&b=2",
    ttl_s=3600,
)


SECRETS = (Secret("whsec_bmV3ZXN0IHNlY3JldCBvZiB0aGUgd29ya3NwYWNl"), Secret("whsec_cHJldmlvdXMgc2VjcmV0IG9mIHRoZSB3b3Jrc3BhY2U="))


@dataclass(slots=True)
class FixedKeys:
    """Keys that the test chooses."""

    signing_secrets: Sequence[Secret] = SECRETS

    async def get_signing_secrets(self, workspace_id: int) -> Sequence[Secret]:
        if not self.signing_secrets:
            raise EngineUnavailable("secrets", "lost")
        return self.signing_secrets


@dataclass(frozen=True, slots=True)
class FixedInstallationKeys:
    """Keys that the test chooses."""

    vapid: str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"

    async def get_vapid_key(self) -> Secret:
        if not self.vapid:
            raise EngineUnavailable("secrets", "lost")
        return Secret(self.vapid)


class ServiceFault(StrEnum):
    """The ways in which a service fails at the next message."""

    TRY_LATER = "try later"
    REJECTED = "rejected"
    GONE = "gone"
    CUT_BEFORE = "cut before"
    """It closes the connection before it has received the message."""
    CUT_AFTER = "cut after"
    """It closes the connection after it has received the message, without an answer."""
    SILENT = "silent"
    """It receives the message and never answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as the service received it."""

    title: str
    body: str
    url: str | None


class ChannelRig(Protocol):
    """A channel and its service."""

    channel: NotificationChannel
    target: ChannelTarget
    forbidden_target: ChannelTarget | None
    """A target that the egress guard rejects. None: the operator configures the server."""

    def received(self) -> Sequence[ReceivedMessage]:
        """Return the messages that the service accepted, in order."""
        ...

    def fail_next(self, fault: ServiceFault) -> None:
        """Let the next message fail."""
        ...

    async def stop_service(self) -> None:
        """Stop the service, so that connections are refused."""
        ...


FORBIDDEN_ADDRESS = "forbidden address"
"""A target that the egress guard rejects. A channel whose server the operator configures has none."""


class NotificationChannelContract(EngineContract):
    """The tests of the port `NotificationChannel`."""

    port = "NotificationChannel"

    @property
    def faults(self) -> frozenset[ServiceFault]:
        """The faults that the service can have."""
        return frozenset(fault for fault in ServiceFault if fault not in self.untested)

    async def fail(self, rig: ChannelRig, fault: ServiceFault) -> tuple[SendOutcome, str]:
        """Return the outcome and the reason of a message that meets *fault*; skip the test if the service cannot have it."""
        if fault not in self.faults:
            pytest.skip(f"this service has no fault {fault.value!r}")
        rig.fail_next(fault)
        result = await rig.channel.send(replace(MESSAGE, target=rig.target))
        assert result.reason is not None
        assert result.reason.endswith(".")
        assert "\n" not in result.reason
        return result.outcome, result.reason

    async def test_a_message_arrives_once_with_its_text(self, rig: ChannelRig) -> None:
        """Channels are real."""
        result = await rig.channel.send(replace(MESSAGE, target=rig.target))

        assert (result.outcome, result.reason) == (SendOutcome.SENT, None)
        assert list(rig.received()) == [ReceivedMessage(title=MESSAGE.title, body=MESSAGE.body, url=MESSAGE.url)]

    async def test_many_messages_arrive_once_each(self, rig: ChannelRig) -> None:
        """The dispatcher sends up to `max_concurrency` messages at the same time, and more must not break the channel."""
        messages = [
            replace(MESSAGE, target=rig.target, delivery_id=f"delivery-{number}", title=f"Message {number}")
            for number in range(2 * rig.channel.max_concurrency + 5)
        ]
        results = await asyncio.gather(*(rig.channel.send(message) for message in messages))

        assert {result.outcome for result in results} == {SendOutcome.SENT}
        assert sorted(message.title for message in rig.received()) == sorted(message.title for message in messages)

    @pytest.mark.parametrize(
        ("fault", "outcome"),
        [
            (ServiceFault.TRY_LATER, SendOutcome.RETRY),
            (ServiceFault.REJECTED, SendOutcome.REJECTED),
            (ServiceFault.GONE, SendOutcome.GONE),
            (ServiceFault.CUT_AFTER, SendOutcome.UNKNOWN),
            (ServiceFault.SILENT, SendOutcome.UNKNOWN),
        ],
    )
    async def test_each_fault_has_its_outcome(self, fault: ServiceFault, outcome: SendOutcome, rig: ChannelRig) -> None:
        """Try later, failed, gone and unknown are told apart."""
        assert (await self.fail(rig, fault))[0] is outcome

    async def test_a_message_is_sent_after_a_fault(self, rig: ChannelRig) -> None:
        """A fault leaves no broken connection behind that the next message would use."""
        for fault in sorted(self.faults - {ServiceFault.SILENT}):
            await self.fail(rig, fault)
            accepted = len(rig.received())

            result = await rig.channel.send(replace(MESSAGE, target=rig.target))

            assert result.outcome is SendOutcome.SENT, (fault, result.reason)
            assert len(rig.received()) == accepted + 1

    @needs(ServiceFault.CUT_BEFORE)
    async def test_a_cut_before_the_message_is_retried(self, rig: ChannelRig) -> None:
        """It certainly was not accepted."""
        outcome, _ = await self.fail(rig, ServiceFault.CUT_BEFORE)

        assert outcome is SendOutcome.RETRY
        assert not rig.received()

    async def test_a_service_that_is_down_is_retried(self, rig: ChannelRig) -> None:
        """A refused connection is certainly no accepted message."""
        await rig.stop_service()
        result = await rig.channel.send(replace(MESSAGE, target=rig.target))

        assert result.outcome is SendOutcome.RETRY
        assert result.reason is not None

    @needs(FORBIDDEN_ADDRESS)
    async def test_a_forbidden_address_is_rejected(self, rig: ChannelRig) -> None:
        """The guard checks each connection."""
        assert rig.forbidden_target is not None
        result = await rig.channel.send(replace(MESSAGE, target=rig.forbidden_target))

        assert result.outcome is SendOutcome.REJECTED
        assert "egress_allow" in (result.reason or "")

    @needs(ServiceFault.SILENT)
    async def test_a_cancelled_message_leaves_the_channel_working(self, rig: ChannelRig) -> None:
        """The dispatcher cancels sends when the process stops."""
        rig.fail_next(ServiceFault.SILENT)
        sending = asyncio.create_task(rig.channel.send(replace(MESSAGE, target=rig.target)))
        await asyncio.sleep(0)
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending

        async def is_sent() -> bool:
            return (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.SENT

        await eventually(is_sent)

    async def test_it_may_be_closed_twice(self, rig: ChannelRig) -> None:
        """A second close does nothing."""
        await rig.channel.send(replace(MESSAGE, target=rig.target))
        await rig.channel.close()
        await rig.channel.close()
