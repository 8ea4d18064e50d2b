"""The recorded answers of real services, played to the channels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rookery.engines.notification_channels.ntfy import NtfyChannel
from rookery.kernel.clock import utc_now
from rookery.kernel.egress import EgressGuard
from rookery.notifications.messages import ChannelTarget, ChannelType
from tests.engines.channel_contract import MESSAGE
from tests.engines.push_service import run_push_service
from tests.engines.smtp_service import SmtpCommand, run_smtp_service
from tests.engines.test_email_channel import RECIPIENT, open_channel
from tests.engines.test_webpush_channel import open_channel as open_push_channel
from tests.notification_services.exchanges import Exchange, get_effect, load_exchanges
from tests.webhooks.receiver import Reply, run_receiver


def _select(channel: str) -> list[Exchange]:
    return [exchange for exchange in load_exchanges() if exchange.channel == channel]


def _name(exchange: Exchange) -> str:
    return f"{exchange.service}, {exchange.when}"


@pytest.mark.parametrize("exchange", _select("email"), ids=_name)
async def test_answers_of_mail_servers_have_their_outcomes(exchange: Exchange, tmp_path: Path) -> None:
    """Postfix sends enhanced codes, Exim none."""
    async with run_smtp_service(tmp_path) as service:
        service.reply(cast("SmtpCommand", exchange.when[:4]), exchange.answer)
        channel = open_channel(service)
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        await channel.close()

    assert get_effect(result) == exchange.expected


@pytest.mark.parametrize("exchange", _select("ntfy"), ids=_name)
async def test_answers_of_ntfy_have_their_outcomes(exchange: Exchange) -> None:
    """Its limits have codes, and no Retry-After."""
    async with run_receiver(lambda _: _to_reply(exchange)) as receiver:
        channel = NtfyChannel(EgressGuard(allow=["127.0.0.0/8"]), utc_now, max_concurrency=1)
        target = ChannelTarget(type=ChannelType.NTFY, address=f"http://127.0.0.1:{receiver.port}/topic")
        result = await channel.send(replace(MESSAGE, target=target))
        await channel.close()

    assert get_effect(result) == exchange.expected


@pytest.mark.parametrize("exchange", _select("webpush"), ids=_name)
async def test_answers_of_push_services_have_their_outcomes(exchange: Exchange) -> None:
    """Windows explains itself in headers."""
    async with run_push_service() as push:
        channel = open_push_channel()
        push.replies.append(_to_reply(exchange))
        result = await channel.send(replace(MESSAGE, target=push.subscribe(await channel.get_public_key())))
        await channel.close()

    assert get_effect(result) == exchange.expected
    assert all(text in (result.reason or "") for name, text in exchange.headers.items() if name == "X-WNS-ERROR-DESCRIPTION")


def test_each_recorded_answer_has_a_version_and_a_source() -> None:
    """A record without them cannot be checked by anybody."""
    assert all(any(letter.isdigit() for letter in exchange.service) and exchange.source for exchange in load_exchanges())


def _to_reply(exchange: Exchange) -> Reply:
    return Reply(status=exchange.status, headers=exchange.headers, body=exchange.answer.encode())
