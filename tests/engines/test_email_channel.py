"""The e-mail channel against a real SMTP server on this host (RFC 5321, RFC 8058)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest

from rookery.engines import notification_channels
from rookery.engines.notification_channels.smtp import EmailChannel
from rookery.engines.notification_channels.smtp_address import parse_smtp_address
from rookery.engines.notification_channels.smtp_pool import SmtpTimeouts
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome
from rookery.notifications.ports import NotificationChannel
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.engines.channel_contract import (
    FORBIDDEN_ADDRESS,
    MESSAGE,
    FixedInstallationKeys,
    FixedKeys,
    NotificationChannelContract,
    ReceivedMessage,
    ServiceFault,
)
from tests.engines.engine_contracts import HowTested
from tests.engines.smtp_service import PASSWORD, USER, SmtpService, run_raw_service, run_smtp_service
from tests.stopwatch import Stopwatch

LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@"
TIMEOUTS = SmtpTimeouts(connect=5, command=5, idle=5)
RECIPIENT = ChannelTarget(type=ChannelType.EMAIL, address="kim@example.org")


def open_channel(
    service: SmtpService, options: str = "", *, scheme: str = "smtp", login: str = LOGIN, timeouts: SmtpTimeouts = TIMEOUTS
) -> EmailChannel:
    """Return a channel to *service*."""
    server = parse_smtp_address(f"{scheme}://{login}127.0.0.1:{service.port}?from=Rookery <news@example.net>{options}".replace(" ", "%20"))
    return EmailChannel(server, utc_now, tls=service.trust(), timeouts=timeouts)


@dataclass
class EmailRig:
    """The channel and its server."""

    channel: EmailChannel
    service: SmtpService
    stack: AsyncExitStack
    target: ChannelTarget = RECIPIENT
    forbidden_target: ChannelTarget | None = None

    def received(self) -> Sequence[ReceivedMessage]:
        return [
            ReceivedMessage(
                title=str(mail.message["Subject"]),
                body=mail.part("plain").partition("\n\nhttps://")[0],
                url="https://" + mail.part("plain").partition("\n\nhttps://")[2].strip(),
            )
            for mail in self.service.mails
        ]

    def fail_next(self, fault: ServiceFault) -> None:
        match fault:
            case ServiceFault.TRY_LATER:
                self.service.reply("RCPT", "450 4.2.0 Greylisted, see http://example.org")
            case ServiceFault.REJECTED:
                self.service.reply("DATA", "554 5.7.1 Looks like spam from kim@example.org")
            case ServiceFault.GONE:
                self.service.reply("RCPT", "550 5.1.1 No such user <kim@example.org>")
            case ServiceFault.CUT_BEFORE:
                self.service.reply("RCPT", "cut", "cut")
            case ServiceFault.CUT_AFTER:
                self.service.reply("DATA", "cut")
            case ServiceFault.SILENT:
                self.service.reply("DATA", "silence")

    async def stop_service(self) -> None:
        await self.stack.aclose()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[EmailRig]:
    """The channel, with STARTTLS and a login."""
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(run_smtp_service(tmp_path))
        channel = open_channel(service)
        yield EmailRig(channel, service, stack)
        await channel.close()


class TestEmailChannel(NotificationChannelContract):
    """The contract of channels."""

    engine = "e-mail"
    untested = frozenset({FORBIDDEN_ADDRESS})
    tested_on = HowTested.STAND_IN
    tested_with = "an SMTP service of aiosmtpd"


@pytest.mark.parametrize(("tls", "scheme"), [("none", "smtp"), ("starttls", "smtp"), ("tls", "smtps")])
async def test_each_kind_of_encryption_works(tls: str, scheme: str, tmp_path: Path) -> None:
    """SMTP with STARTTLS, TLS and login."""
    async with run_smtp_service(tmp_path, tls=tls) as service:  # pyright: ignore[reportArgumentType] - a literal of the parameters
        channel = open_channel(service, "&tls=none" if tls == "none" else "", scheme=scheme)
        await channel.check()
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        await channel.close()

    assert (result.outcome, result.status, result.provider_id) == (SendOutcome.SENT, 250, "2.0.0 OK: queued as 4711")
    assert (service.mails[0].sender, service.mails[0].recipients) == ("news@example.net", ["kim@example.org"])


async def test_a_wrong_login_blocks_all_mails(tmp_path: Path) -> None:
    """A refused login stops the campaign, and is found by the check; the password is in no message."""
    async with run_smtp_service(tmp_path) as service:
        channel = open_channel(service, login=f"{quote(USER)}:wrong-secret@")
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        with pytest.raises(ChannelNotReady, match=r"refuses the login \(535\)") as error:
            await channel.check()
        await channel.close()

    assert (result.outcome, result.status) == (SendOutcome.BLOCKED, 535)
    assert "wrong-secret" not in f"{result.reason} {error.value.message} {channel!r}"


async def test_a_server_without_starttls_gets_no_login(tmp_path: Path) -> None:
    """A login and mails never travel without encryption unless the operator sets tls=none."""
    async with run_smtp_service(tmp_path, tls="none") as service:
        channel = open_channel(service)
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        await channel.close()

    assert result.outcome is SendOutcome.BLOCKED
    assert "does not offer STARTTLS" in (result.reason or "")
    assert service.mails == []


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_a_certificate_of_another_authority_blocks_all_mails(tls: str, tmp_path: Path) -> None:
    """The server is the same for all addresses, so its certificate is a fault of the configuration."""
    (tmp_path / "other").mkdir()
    async with run_smtp_service(tmp_path, tls=tls) as service, run_smtp_service(tmp_path / "other") as other:  # pyright: ignore[reportArgumentType] - a literal
        server = parse_smtp_address(f"{'smtps' if tls == 'tls' else 'smtp'}://{LOGIN}127.0.0.1:{service.port}?from=news@example.net")
        channel = EmailChannel(server, utc_now, tls=other.trust(), timeouts=TIMEOUTS)
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        with pytest.raises(ChannelNotReady, match="certificate"):
            await channel.check()

    assert result.outcome is SendOutcome.BLOCKED
    assert "certificate" in (result.reason or "")


@pytest.mark.parametrize(
    ("command", "reply", "outcome"),
    [
        ("MAIL", "451 4.3.0 Try again", SendOutcome.RETRY),
        ("MAIL", "553 5.7.1 Sender not owned by user", SendOutcome.BLOCKED),
        ("RCPT", "553 5.7.1 <news@example.net>: Sender address rejected: not owned by user", SendOutcome.BLOCKED),
        ("RCPT", "550 5.7.1 <kim@example.org>: Recipient address rejected: policy", SendOutcome.REJECTED),
        ("RCPT", "530 5.7.0 Authentication required", SendOutcome.BLOCKED),
        ("RCPT", "550 No such user", SendOutcome.GONE),
        ("RCPT", "556 5.1.10 Domain has a null MX", SendOutcome.GONE),
        ("RCPT", "421 4.3.2 Shutting down", SendOutcome.RETRY),
        ("RCPT", "452 4.2.2 Mailbox full", SendOutcome.RETRY),
        ("DATA", "451 4.7.1 Try again", SendOutcome.RETRY),
        ("DATA", "552 5.3.4 Too large", SendOutcome.REJECTED),
        ("DATA", "550 5.1.1 No such user", SendOutcome.GONE),
    ],
)
async def test_each_refusal_has_its_outcome(command: str, reply: str, outcome: SendOutcome, rig: EmailRig) -> None:
    """SMTP codes are told apart, and the next mail uses the same connection if the server allows it."""
    rig.service.reply(command, reply)  # pyright: ignore[reportArgumentType] - a literal of the parameters
    result = await rig.channel.send(replace(MESSAGE, target=RECIPIENT))
    following = await rig.channel.send(replace(MESSAGE, target=RECIPIENT))

    assert (result.outcome, result.status) == (outcome, int(reply[:3]))
    assert "@" not in (result.reason or "")
    assert following.outcome is SendOutcome.SENT
    assert rig.service.connections == (2 if reply.startswith("421") else 1)


@pytest.mark.parametrize(
    ("reply", "outcome", "concerns_host"),
    [
        ("550 5.4.5 Daily user sending limit exceeded", SendOutcome.BLOCKED, False),
        ("550 5.7.1 Message rate limit exceeded for this account", SendOutcome.BLOCKED, False),
        ("554 Sending quota exceeded", SendOutcome.BLOCKED, False),
        ("450 4.7.1 Error: too much mail from 192.0.2.1", SendOutcome.RETRY, True),
        ("451 4.7.500 Server busy. Please try again later", SendOutcome.RETRY, True),
        ("452 4.5.3 Too many recipients", SendOutcome.RETRY, True),
        ("451 Sender rate 12.0 / 1m exceeds the limit", SendOutcome.RETRY, True),
        ("421 4.7.0 Too many errors", SendOutcome.RETRY, True),
        ("450 4.7.1 <kim@example.org>: Recipient address rejected: Greylisted", SendOutcome.RETRY, False),
        ("450 4.2.1 The user you are trying to contact is receiving mail at a rate", SendOutcome.RETRY, False),
        ("552 5.2.2 The mailbox is over its quota limit", SendOutcome.REJECTED, False),
        ("552 5.3.4 Message size exceeds fixed limit", SendOutcome.REJECTED, False),
        ("550 Unrouteable address", SendOutcome.GONE, False),
        ("550 <kim@example.org>: user unknown", SendOutcome.GONE, False),
        ("550 5.1.1 <kim@example.org>: Recipient address rejected: User unknown in local recipient table", SendOutcome.GONE, False),
        ("550 5.1.1 no outside mail", SendOutcome.REJECTED, False),
        ("550 5.1.1 Recipient blocked by policy", SendOutcome.REJECTED, False),
        ("550 unknown user or relay not permitted", SendOutcome.REJECTED, False),
    ],
)
async def test_a_refused_recipient_is_not_a_refused_sender(reply: str, outcome: SendOutcome, rig: EmailRig, *, concerns_host: bool) -> None:
    """A quota of the sender is no fault of the recipient, and the words tell an unknown mailbox from a policy."""
    rig.service.reply("RCPT", reply)
    result = await rig.channel.send(replace(MESSAGE, target=RECIPIENT))

    assert (result.outcome, result.concerns_host) == (outcome, concerns_host)


async def test_a_server_that_allows_fewer_connections_costs_no_mail(tmp_path: Path) -> None:
    """Over the limit of connections of a client, Exim answers 421. The mails wait for the connections that are open."""
    async with run_smtp_service(tmp_path) as service:
        service.max_connections = 2
        channel = open_channel(service, "&connections=6")
        results = await asyncio.gather(*(channel.send(replace(MESSAGE, target=RECIPIENT)) for _ in range(30)))
        refused_connections = service.refused_connections
        more = await asyncio.gather(*(channel.send(replace(MESSAGE, target=RECIPIENT)) for _ in range(30)))
        await channel.close()

    assert {result.outcome for result in [*results, *more]} == {SendOutcome.SENT}
    assert 0 < refused_connections <= 4
    assert service.refused_connections == refused_connections


async def test_a_server_that_refuses_each_connection_is_busy(tmp_path: Path) -> None:
    """Without an open connection, the whole server is to wait."""
    async with run_smtp_service(tmp_path) as service:
        service.max_connections = 0
        channel = open_channel(service)
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))
        await channel.close()

    assert (result.outcome, result.status, result.concerns_host) == (SendOutcome.RETRY, 421, True)


@pytest.mark.parametrize("end", ["cut", "421 4.7.0 Too many errors"])
async def test_a_refusal_holds_if_the_server_ends_the_session_after_it(end: str, rig: EmailRig) -> None:
    """A server that closes the connection after an unknown address has refused it, so the mail is not tried again."""
    await rig.channel.send(replace(MESSAGE, target=RECIPIENT))
    rig.service.reply("RCPT", "550 5.1.1 No such user")
    rig.service.reply("RSET", end)
    result = await rig.channel.send(replace(MESSAGE, target=RECIPIENT))
    following = await rig.channel.send(replace(MESSAGE, target=RECIPIENT))

    assert (result.outcome, result.status) == (SendOutcome.GONE, 550)
    assert following.outcome is SendOutcome.SENT
    assert rig.service.connections == 2


async def test_a_sender_that_is_refused_is_found_by_the_check(rig: EmailRig) -> None:
    """`doctor` checks the server before a campaign does."""
    rig.service.reply("MAIL", "553 5.7.1 Not allowed")

    with pytest.raises(ChannelNotReady, match="refuses the sender"):
        await rig.channel.check()


async def test_connections_are_reused_up_to_their_limits(tmp_path: Path) -> None:
    """Connections and mails per connection are settings."""
    async with run_smtp_service(tmp_path) as service:
        channel = open_channel(service, "&connections=2&mails_per_connection=5")
        results = await asyncio.gather(*(channel.send(replace(MESSAGE, target=RECIPIENT)) for _ in range(20)))
        await channel.close()

    assert {result.outcome for result in results} == {SendOutcome.SENT}
    assert (service.connections, service.max_open_connections) == (4, 2)
    assert set(service.mails_by_connection.values()) == {5}


async def test_a_relay_with_a_limit_of_its_own_loses_no_mail(tmp_path: Path) -> None:
    """Listmonk 1518: a relay allows five mails per connection, and 421 or an end counted as sent."""
    async with run_smtp_service(tmp_path) as service:
        service.max_mails_per_connection = 5
        channel = open_channel(service, "&connections=1")
        results = [await channel.send(replace(MESSAGE, target=RECIPIENT)) for _ in range(12)]
        await channel.close()

    assert {result.outcome for result in results} == {SendOutcome.SENT}
    assert (len(service.mails), service.connections) == (12, 3)


async def test_a_server_that_restarted_costs_no_mail(rig: EmailRig) -> None:
    """A stale connection is replaced at once, since no mail was on its way."""
    await rig.channel.send(replace(MESSAGE, target=RECIPIENT))
    rig.service.close_connections()

    assert (await rig.channel.send(replace(MESSAGE, target=RECIPIENT))).outcome is SendOutcome.SENT
    assert len(rig.service.mails) == 2


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    """Servers limit connections, so unused ones are given back."""
    async with run_smtp_service(tmp_path) as service:
        channel = open_channel(service, timeouts=replace(TIMEOUTS, idle=0.2))
        await channel.send(replace(MESSAGE, target=RECIPIENT))
        await eventually(lambda: service.open_connections == 0)
        assert (await channel.send(replace(MESSAGE, target=RECIPIENT))).outcome is SendOutcome.SENT
        await channel.close()
        await eventually(lambda: service.open_connections == 0)


async def test_the_rate_is_a_limit(tmp_path: Path) -> None:
    """The rate is a setting of the SMTP address."""
    async with run_smtp_service(tmp_path) as service:
        channel = open_channel(service, "&rate=20")
        with Stopwatch() as watch:
            await asyncio.gather(*(channel.send(replace(MESSAGE, target=RECIPIENT)) for _ in range(11)))
        await channel.close()

    assert watch.elapsed_s >= 0.5


def open_unencrypted_channel(port: int, timeouts: SmtpTimeouts) -> EmailChannel:
    """Return a channel to a server without TLS and login."""
    server = parse_smtp_address(f"smtp://127.0.0.1:{port}?from=news@example.net&tls=none")
    return EmailChannel(server, utc_now, tls=ssl.create_default_context(), timeouts=timeouts)


@pytest.mark.parametrize("junk", [b"not smtp\r\n", b"220 " + b"x" * 100_000, b"", b"554 5.7.1 go away\r\n", b"421 later\r\n"])
async def test_a_server_of_another_protocol_ends_in_time(junk: bytes) -> None:
    """Every wait is bounded, and nothing is taken for accepted."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        await reader.read()

    async with run_raw_service(serve) as port, asyncio.timeout(HANG_S):
        channel = open_unencrypted_channel(port, SmtpTimeouts(connect=0.5, command=0.5, idle=1))
        result = await channel.send(replace(MESSAGE, target=RECIPIENT))

    assert result.outcome in {SendOutcome.RETRY, SendOutcome.BLOCKED}


async def test_a_large_mail_that_is_cut_in_the_middle_is_retried() -> None:
    """A connection lost before the end of DATA brought no mail. Its size is beyond all buffers."""
    cut = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            if line.startswith(b"DATA"):
                writer.write(b"354 go\r\n")
                await reader.readexactly(1000)
                cut.set()
                return
            writer.write(b"250 ok\r\n")

    async with run_raw_service(serve) as port:
        channel = open_unencrypted_channel(port, TIMEOUTS)
        result = await channel.send(replace(MESSAGE, target=RECIPIENT, body="x" * 20_000_000))

    assert cut.is_set()
    assert result.outcome is SendOutcome.RETRY


class TestSettings:
    """The channel as the platform opens it."""

    async def test_without_a_server_all_mails_are_blocked(self) -> None:
        """A campaign stops with what to set, and marks no subscriber invalid."""
        channel = open_engines(Settings())[ChannelType.EMAIL]

        assert (await channel.send(replace(MESSAGE, target=RECIPIENT))).outcome is SendOutcome.BLOCKED
        with pytest.raises(ChannelNotReady, match="ROOKERY_SMTP is not set"):
            await channel.check()

    @pytest.mark.parametrize(
        ("smtp", "dkim_key", "message"),
        [
            ("smtp://mail.example", None, "from is missing"),
            ("smtp://mail.example?from=a@example.net&dkim_selector=m1", None, "belong together"),
            ("smtp://mail.example?from=a@example.net", "key", "belong together"),
            ("smtp://mail.example?from=a@example.net&dkim_selector=m1", "key", "RSA private key"),
        ],
    )
    def test_invalid_settings_refuse_to_start(self, smtp: str, dkim_key: str | None, message: str) -> None:
        """Checked at the start, not with the first mail."""
        with pytest.raises(WrongSettings, match=message):
            open_engines(Settings(smtp=Secret(smtp), dkim_key=None if dkim_key is None else Secret(dkim_key)))

    async def test_certificates_may_be_left_unverified(self, tmp_path: Path) -> None:
        """ROOKERY_VERIFY_SSL is for all engines that are reached by TLS."""
        async with run_smtp_service(tmp_path) as service:
            address = Secret(f"smtp://{LOGIN}127.0.0.1:{service.port}?from=news@example.net")
            outcomes = list[SendOutcome]()
            for verify_ssl in (True, False):
                channel = open_engines(Settings(smtp=address, verify_ssl=verify_ssl))[ChannelType.EMAIL]
                outcomes.append((await channel.send(replace(MESSAGE, target=RECIPIENT))).outcome)
                await channel.close()

        assert outcomes == [SendOutcome.BLOCKED, SendOutcome.SENT]


def open_engines(settings: Settings) -> Mapping[ChannelType, NotificationChannel]:
    """Open the channels as the platform does."""
    return notification_channels.open(settings, EgressGuard(), FixedKeys(), FixedInstallationKeys())
