"""The Apprise channel with its `json://` service and a receiver on this host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import orjson
import pytest

from rookery.engines import notification_channels
from rookery.engines.notification_channels.apprise_urls import AppriseChannel
from rookery.kernel.config import Settings
from rookery.kernel.egress import EgressGuard
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome
from tests.engines.channel_contract import (
    MESSAGE,
    ChannelRig,
    FixedInstallationKeys,
    FixedKeys,
    NotificationChannelContract,
    ReceivedMessage,
    ServiceFault,
)
from tests.engines.engine_contracts import HowTested
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # a service of Apprise imports it

LOCAL_GUARD = EgressGuard(allow=["127.0.0.0/8"])


@dataclass
class AppriseRig:
    """The channel and a receiver."""

    channel: AppriseChannel
    receiver: Receiver
    service: AsyncExitStack
    accepted: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    fault: ServiceFault | None = None
    forbidden_target: ChannelTarget | None = field(
        default_factory=lambda: ChannelTarget(type=ChannelType.APPRISE, address="json://169.254.169.254/x")
    )

    @property
    def target(self) -> ChannelTarget:
        return ChannelTarget(type=ChannelType.APPRISE, address=f"json://127.0.0.1:{self.receiver.port}/hook")

    def received(self) -> Sequence[ReceivedMessage]:
        bodies = [orjson.loads(request.body) for request in self.accepted]
        parts = [(body["title"], *body["message"].rsplit("\n\n", 1)) for body in bodies]
        return [ReceivedMessage(title=title, body=text, url=url) for title, text, url in parts]

    def fail_next(self, fault: ServiceFault) -> None:
        self.fault = fault

    async def stop_service(self) -> None:
        await self.service.aclose()

    def reply(self, request: ReceivedRequest) -> Reply:
        """Answer as the fault demands, once."""
        fault, self.fault = self.fault, None
        if fault is None:
            self.accepted.append(request)
            return Reply()
        return Reply(mode="silence") if fault is ServiceFault.SILENT else Reply(status=422)


@pytest.fixture
async def rig() -> AsyncIterator[AppriseRig]:
    """The channel, with a short timeout, and its receiver."""
    channel = AppriseChannel(LOCAL_GUARD, max_concurrency=4, timeout_s=3)
    async with AsyncExitStack() as service:
        rig = AppriseRig(channel, await service.enter_async_context(run_receiver()), service)
        rig.receiver.reply = rig.reply
        yield rig
        await channel.close()


class TestAppriseChannel(NotificationChannelContract):
    """The contract of channels, as far as Apprise reports reasons."""

    engine = "Apprise"
    tested_on = HowTested.STAND_IN
    tested_with = "an HTTP receiver"

    untested = frozenset(ServiceFault) - {ServiceFault.REJECTED, ServiceFault.SILENT}

    async def test_many_messages_arrive_once_each(self, rig: ChannelRig) -> None:
        """Four threads at a time."""
        results = await asyncio.gather(*(rig.channel.send(replace(MESSAGE, target=rig.target)) for _ in range(4)))

        assert {result.outcome for result in results} == {SendOutcome.SENT}
        assert len(rig.received()) == 4

    async def test_a_service_that_is_down_is_retried(self, rig: ChannelRig) -> None:
        """caronc/apprise 538: Apprise answers only true or false, so this is a failure that can be retried by hand."""
        await rig.stop_service()

        assert (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.REJECTED


@pytest.mark.parametrize("url", ["", "junk", "bad://x", "syslog://", "dbus://", "macosx://", "windows://", "json://"])
async def test_unknown_and_local_services_are_rejected(url: str, rig: AppriseRig) -> None:
    """A subscriber must not act on the desktop or the log of the server."""
    result = await rig.channel.send(replace(MESSAGE, target=ChannelTarget(type=ChannelType.APPRISE, address=url)))

    assert result.outcome is SendOutcome.REJECTED


async def test_it_is_off_unless_the_operator_switches_it_on(rig: AppriseRig) -> None:
    """Apprise connects past the egress guard, so that is the decision of the operator."""
    outcomes = list[SendOutcome]()
    for settings in (Settings(), Settings(apprise=True)):
        channel = notification_channels.open(settings, LOCAL_GUARD, FixedKeys(), FixedInstallationKeys())[ChannelType.APPRISE]
        outcomes.append((await channel.send(replace(MESSAGE, target=rig.target))).outcome)
        await channel.close()

    assert outcomes == [SendOutcome.BLOCKED, SendOutcome.SENT]
    channel = notification_channels.open(Settings(), LOCAL_GUARD, FixedKeys(), FixedInstallationKeys())[ChannelType.APPRISE]
    with pytest.raises(ChannelNotReady, match="ROOKERY_APPRISE"):
        await channel.check()
