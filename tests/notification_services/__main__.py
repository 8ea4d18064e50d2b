"""
Run a real Postfix, send mails to it by the e-mail channel, and record its answers: `make notification-services`.

It needs root and apt, and is no part of CI, which plays the record (`test_recorded_exchanges.py`). The package is unpacked into
`.venv/notification-services` and not installed.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from dataclasses import replace
from pathlib import Path

from rookery.engines.notification_channels.smtp import EmailChannel
from rookery.engines.notification_channels.smtp_address import parse_smtp_address
from rookery.kernel.clock import utc_now
from rookery.notifications.messages import ChannelTarget, ChannelType, SendResult
from tests.engines.channel_contract import MESSAGE
from tests.notification_services.exchanges import Exchange, get_effect, load_exchanges, save_exchanges
from tests.notification_services.postfix import FULL, KNOWN, MAX_SIZE_BYTES, MESSAGES_PER_MINUTE, UNKNOWN, Postfix, install, run_postfix

_INSTALLED = Path(__file__).parents[2] / ".venv" / "notification-services"
_SOURCE = "make notification-services"
_QUOTED = re.compile(r": (\d{3} .*)\.$")


def main() -> int:
    """Record the answers. Return 1 if the server cannot be had, or a mail has another outcome than recorded."""
    reason = install(_INSTALLED)
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with run_postfix(_INSTALLED) as postfix:
        found = asyncio.run(_record(postfix))
    for exchange in found:
        print(f"{exchange.service}: {exchange.when}: {exchange.answer}: {exchange.outcome}{', the host waits' * exchange.concerns_host}")
    before = {exchange.when: exchange.expected for exchange in load_exchanges() if exchange.source == _SOURCE}
    changed = [exchange for exchange in found if before.get(exchange.when, exchange.expected) != exchange.expected]
    save_exchanges([*found, *(exchange for exchange in load_exchanges() if exchange.source != _SOURCE)])
    return 1 if changed else 0


async def _record(postfix: Postfix) -> list[Exchange]:
    server = parse_smtp_address(f"smtp://127.0.0.1:{postfix.port}?from=news@example.net&tls=none&connections=1")
    channel = EmailChannel(server, utc_now, tls=ssl.create_default_context())
    try:
        too_large = "x" * (2 * MAX_SIZE_BYTES)
        exchanges = [
            _to_exchange(postfix, "RCPT", await _send(channel, UNKNOWN)),
            _to_exchange(postfix, "RCPT of a full mailbox", await _send(channel, FULL)),
            _to_exchange(postfix, "DATA of a large mail", await _send(channel, KNOWN, body=too_large)),
        ]
        results = [await _send(channel, KNOWN) for _ in range(MESSAGES_PER_MINUTE)]
        return [*exchanges, _to_exchange(postfix, f"MAIL over {MESSAGES_PER_MINUTE} a minute", results[-1])]
    finally:
        await channel.close()


async def _send(channel: EmailChannel, address: str, *, body: str = "Text") -> SendResult:
    return await channel.send(replace(MESSAGE, target=ChannelTarget(type=ChannelType.EMAIL, address=address), body=body))


def _to_exchange(postfix: Postfix, when: str, result: SendResult) -> Exchange:
    match = _QUOTED.search(result.reason or "")
    outcome, concerns_host = get_effect(result)
    return Exchange(
        service=f"Postfix {postfix.version}",
        source=_SOURCE,
        channel=ChannelType.EMAIL.value,
        when=when,
        answer=match[1] if match else "",
        outcome=outcome,
        concerns_host=concerns_host,
    )


if __name__ == "__main__":
    sys.exit(main())
