"""
The e-mail channel: mails through the operator's SMTP server.

Answers of servers are about the sender, the mailbox, or this mail (RFC 5321, RFC 3463, RFC 7505). Servers use the same codes for different
things, so the words count too: `550 5.1.1` stands for an unknown mailbox, and at some sites for "no outside mail". Exim sends no enhanced
codes at all.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import cast

from aiosmtplib import SMTPException, SMTPResponse, SMTPServerDisconnected

from rookery.engines.notification_channels.dkim import DkimSigner
from rookery.engines.notification_channels.mail_text import render_mail
from rookery.engines.notification_channels.smtp_address import MailAddress, SmtpServer, parse_mail_address
from rookery.engines.notification_channels.smtp_pool import CONNECTION_ERRORS, ServerRefused, SmtpConnection, SmtpPool, SmtpTimeouts
from rookery.kernel.clock import Clock
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelType, NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ports import BeginSend, begin_freely

_ENHANCED_CODE = re.compile(r"\s*([245])\.(\d{1,3})\.(\d{1,3})\b")
_GONE = frozenset({(1, 1), (1, 2), (1, 6), (1, 10)})
"""Subject and detail of an address that does not exist."""

_SENDER_QUOTAS = frozenset({(4, 5), (5, 3)})
"""A congested or limited mail system, and too many recipients: the sender's quota."""

_SYSTEM, _POLICY = 3, 7
_MAILBOX = 2

_LIMIT = re.compile(
    r"rate[- ]?limit|throttl|too (?:many|fast|much|frequent)|slow(?:ing)? down|unusual rate"
    r"|\b(?:send\w*|daily|hourly|day|hour|minute|outgoing|outbound|messages?|e?mails?|recipients?|users?|accounts?|connections?|ip)\b"
    r"[\w' -]{0,40}?\b(?:rates?|limit\w*|quota\w*)\b"
    r"|\b(?:rate|limit|quota)\b[\w' -]{0,30}?\b(?:exceed\w*|reached|hit)\b|\bexceed\w*\b[\w' -]{0,40}?\b(?:rate|limit|quota)\b"
    r"|sender rate",
    re.IGNORECASE,
)
_OF_MAILBOX_OR_SIZE = re.compile(
    r"mailbox|inbox|\bsize\b|too (?:big|large|long)|\bfull\b|storage|disk|recipient'?s? (?:account|quota|is over)", re.IGNORECASE
)
_OF_RECIPIENT = re.compile(r"recipient address|<[^<>\s]*@", re.IGNORECASE)
_GREYLISTED = re.compile(r"gr[ea]y[- ]?list", re.IGNORECASE)
_POLICY_WORDS = re.compile(
    r"polic|outside|external|not (?:allowed|permitted|authori[sz]ed)|prohibit|denied|relay|block|administrat|reputation|spam"
    r"|restrict|banned",
    re.IGNORECASE,
)
_UNKNOWN_MAILBOX = re.compile(
    r"un-?routeable address|no such (?:user|recipient|mailbox|address|account|person|local user)|no mailbox"
    r"|(?:unknown|invalid|nonexistent|non-existent) (?:or illegal )?(?:user|recipient|mailbox|address|local part|account)"
    r"|(?:user|recipient|mailbox|address|account)\b[^.;]{0,60}?\b(?:unknown|not found|(?:does not|doesn'?t) exist|not known|not exist)",
    re.IGNORECASE,
)

_FLUSH_INTERVAL_S = 0.005
_MAX_REPLY_CHARS = 200
_LINE_ENDS = re.compile(rb"(?m)^\.")
_ADDRESS = re.compile(r"\S+@\S+")


def is_about_sender(code: int, text: str) -> bool:
    """Return whether a refusal is about the sender or the server itself, and would be the same for other recipients."""
    subject, detail = _read_enhanced_code(text)
    if code == 421 or (subject, detail) in _SENDER_QUOTAS:
        return True
    if _GREYLISTED.search(text) is not None or subject == _MAILBOX:
        return False
    if code < 500 and subject in {_SYSTEM, _POLICY} and _OF_RECIPIENT.search(text) is None:
        return True
    return _LIMIT.search(text) is not None and _OF_MAILBOX_OR_SIZE.search(text) is None


def is_gone(text: str) -> bool:
    """Return whether the enhanced code of a permanent refusal says that the address does not exist, and its words do not deny it."""
    return _read_enhanced_code(text) in _GONE and _POLICY_WORDS.search(text) is None


def is_unknown_mailbox(code: int, text: str) -> bool:
    """Return whether a recipient was refused without an enhanced code, by the usual words for a mailbox that does not exist."""
    has_code = _ENHANCED_CODE.match(text) is not None
    return code == 550 and not has_code and _UNKNOWN_MAILBOX.search(text) is not None and _POLICY_WORDS.search(text) is None


def _read_enhanced_code(text: str) -> tuple[int, int]:
    """Return the subject and the detail of the enhanced code; zeros without one."""
    match = _ENHANCED_CODE.match(text)
    return (0, 0) if match is None else (int(match[2]), int(match[3]))


class _ConnectionLost(Exception):
    """The connection was lost. `may_be_accepted`: the end of the mail had been sent."""

    def __init__(self, *, may_be_accepted: bool, is_timeout: bool) -> None:
        super().__init__()
        self.may_be_accepted = may_be_accepted
        self.is_timeout = is_timeout


class EmailChannel:
    """
    Sends mails over a pool of connections.

    Args:
        tls: Verifies the server's certificate.
        signer: Signs each mail. None: the server does, or nobody.
    """

    def __init__(
        self,
        server: SmtpServer,
        clock: Clock,
        *,
        tls: ssl.SSLContext,
        signer: DkimSigner | None = None,
        timeouts: SmtpTimeouts | None = None,
    ) -> None:
        self.max_concurrency = server.connections
        self._server = server
        self._clock = clock
        self._signer = signer
        self._timeouts = timeouts or SmtpTimeouts()
        self._pool = SmtpPool(server, tls, self._timeouts)

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        try:
            recipient = parse_mail_address(message.target.address)
        except ValueError as error:
            return SendResult(outcome=SendOutcome.REJECTED, reason=f"The address {error}.")
        now = self._clock()
        mail = render_mail(message, sender=self._server.sender, recipient=recipient, at=now)
        if self._signer is not None:
            mail = self._signer.sign(mail, at=now)
        await self._pool.wait_for_rate()
        try:
            result = await self._send_once(mail, recipient, begin)
            return result if result is not None else await self._send_once(mail, recipient, begin, fresh=True) or _closed_result()
        except ServerRefused as refusal:
            return refusal.result

    async def check(self) -> None:
        """Log in, and ask whether the sender is accepted."""
        try:
            async with self._pool.connect(fresh=True) as connection:
                if not self._server.sender.is_ascii and not connection.client.supports_extension("smtputf8"):
                    raise ChannelNotReady(ChannelType.EMAIL, "the SMTP server does not support the characters of the sender's address.")
                response = await self._begin(connection, utf8=not self._server.sender.is_ascii)
                if response.code >= 300:
                    raise ChannelNotReady(ChannelType.EMAIL, f"the SMTP server refuses the sender {self._server.sender} ({response.code}).")
                await connection.client.rset()
                connection.can_be_reused = True
        except ServerRefused as refusal:
            raise ChannelNotReady(ChannelType.EMAIL, refusal.result.reason or "") from None
        except (SMTPException, OSError):
            raise ChannelNotReady(ChannelType.EMAIL, "The SMTP server closed the connection.") from None

    async def close(self) -> None:
        await self._pool.close()

    async def _send_once(self, mail: bytes, recipient: MailAddress, begin: BeginSend, *, fresh: bool = False) -> SendResult | None:
        """Return the result; None if an older connection was closed before the mail, so that a fresh one should be tried."""
        async with self._pool.connect(fresh=fresh) as connection:
            was_fresh = connection.is_fresh
            connection.mail_count += 1
            try:
                return await self._transfer(connection, mail, recipient, begin, was_fresh=was_fresh)
            except _ConnectionLost as error:
                if error.may_be_accepted:
                    reason = "did not confirm the mail in time" if error.is_timeout else "closed the connection after the mail"
                    return SendResult(outcome=SendOutcome.UNKNOWN, reason=f"The SMTP server {reason}.")
                if not was_fresh and not error.is_timeout:
                    return None
                return _closed_result(is_timeout=error.is_timeout)

    async def _transfer(
        self, connection: SmtpConnection, mail: bytes, recipient: MailAddress, begin: BeginSend, *, was_fresh: bool
    ) -> SendResult | None:
        client, server = connection.client, self._server
        needs_utf8 = not (recipient.is_ascii and server.sender.is_ascii)
        if needs_utf8 and not client.supports_extension("smtputf8"):
            connection.can_be_reused = True
            reason = "The SMTP server does not support the characters of this address (SMTPUTF8)."
            return SendResult(outcome=SendOutcome.REJECTED, reason=reason)
        try:
            response = await self._begin(connection, utf8=needs_utf8)
            if response.code == 421 and not was_fresh:
                return None
            result = _evaluate_sender(response)
            if result is None:
                response = await client.execute_command(b"RCPT", f"TO:<{recipient}>".encode())
                result = _evaluate_recipient(response, server.sender, recipient)
            if result is None:
                response = await client.execute_command(b"DATA")
                result = None if response.code == 354 else _evaluate_mail(response)
                if result is None:
                    result = _evaluate_mail(await self._write_mail(connection, mail, begin))
                    connection.can_be_reused = response.code != 421
                    return result
        except CONNECTION_ERRORS as error:
            raise _ConnectionLost(may_be_accepted=False, is_timeout=isinstance(error, TimeoutError)) from None
        except SMTPException:
            return SendResult(outcome=SendOutcome.RETRY, reason="The SMTP server answered with an invalid line.", concerns_host=True)
        # The refusal holds, even if the server closes the connection after it, as many do after some unknown addresses.
        with suppress(*CONNECTION_ERRORS, SMTPException):
            if response.code != 421:
                await client.rset()
                connection.can_be_reused = True
        return result

    async def _begin(self, connection: SmtpConnection, *, utf8: bool) -> SMTPResponse:
        options = [b"BODY=8BITMIME", b"SMTPUTF8"] if utf8 else []
        return await connection.client.execute_command(b"MAIL", f"FROM:<{self._server.sender}>".encode(), *options)

    async def _write_mail(self, connection: SmtpConnection, mail: bytes, begin: BeginSend) -> SMTPResponse:
        """
        Send the content and its end, and return the answer.

        The end is written when all else has left this process, so that a connection lost before it has certainly brought no mail.
        """
        protocol, transport = connection.client.protocol, cast("asyncio.WriteTransport | None", connection.client.transport)
        if protocol is None or transport is None:
            raise SMTPServerDisconnected("closed")
        protocol.write(_LINE_ENDS.sub(b"..", mail))
        async with asyncio.timeout(self._timeouts.command):
            await asyncio.sleep(0)
            while protocol.is_connected and transport.get_write_buffer_size() > 0:  # noqa: ASYNC110 - transports announce no empty buffer
                await asyncio.sleep(_FLUSH_INTERVAL_S)
        if not protocol.is_connected:
            raise SMTPServerDisconnected("closed")
        begin()
        protocol.write(b".\r\n")
        try:
            return await protocol.read_response(timeout=self._timeouts.command)
        except (*CONNECTION_ERRORS, SMTPException) as error:
            raise _ConnectionLost(may_be_accepted=True, is_timeout=isinstance(error, TimeoutError)) from None


def _closed_result(*, is_timeout: bool = False) -> SendResult:
    reason = "did not answer in time" if is_timeout else "closed the connection before the mail"
    return SendResult(outcome=SendOutcome.RETRY, reason=f"The SMTP server {reason}.", concerns_host=True)


def _evaluate_sender(response: SMTPResponse) -> SendResult | None:
    """Return the result if the sender was refused. It is the same for all mails, so a permanent refusal blocks them."""
    if response.code < 300:
        return None
    reason = f"The SMTP server refuses the sender: {_quote(response)}."
    if response.code < 500:
        return SendResult(outcome=SendOutcome.RETRY, status=response.code, reason=reason, concerns_host=True)
    return SendResult(outcome=SendOutcome.BLOCKED, status=response.code, reason=reason)


def _evaluate_recipient(response: SMTPResponse, sender: MailAddress, recipient: MailAddress) -> SendResult | None:
    """Return the result if the recipient was refused. Many servers judge the sender and the login only at this point."""
    if response.code < 300:
        return None
    names_sender = str(sender) in response.message and str(recipient) not in response.message
    if response.code in {530, 535} or (response.code >= 500 and names_sender):
        return SendResult(
            outcome=SendOutcome.BLOCKED, status=response.code, reason=f"The SMTP server refuses the sender: {_quote(response)}."
        )
    result = _evaluate_mail(response, what="the recipient")
    is_unknown = result.outcome is SendOutcome.REJECTED and is_unknown_mailbox(response.code, response.message)
    return replace(result, outcome=SendOutcome.GONE) if is_unknown else result


def _evaluate_mail(response: SMTPResponse, *, what: str = "the mail") -> SendResult:
    if response.code < 300:
        return SendResult(outcome=SendOutcome.SENT, status=response.code, provider_id=response.message[:_MAX_REPLY_CHARS] or None)
    concerns_sender = is_about_sender(response.code, response.message)
    if response.code < 500:
        outcome = SendOutcome.RETRY
    elif concerns_sender:
        outcome = SendOutcome.BLOCKED
    elif is_gone(response.message):
        outcome = SendOutcome.GONE
    else:
        outcome = SendOutcome.REJECTED
    return SendResult(
        outcome=outcome,
        status=response.code,
        reason=f"The SMTP server refuses {what}: {_quote(response)}.",
        concerns_host=concerns_sender and outcome is SendOutcome.RETRY,
    )


def _quote(response: SMTPResponse) -> str:
    """Return the answer in one line, without addresses."""
    text = " ".join(response.message.split()).encode("utf-8", "replace").decode()
    return f"{response.code} {_ADDRESS.sub('…', text)[:_MAX_REPLY_CHARS]}".strip().rstrip(".")
