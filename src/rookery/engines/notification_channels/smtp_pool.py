"""Connections to the SMTP server: TLS, login, reuse, and the limits of the server."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import aiosmtplib
from aiosmtplib import SMTP, SMTPException, SMTPResponseException, SMTPServerDisconnected

from rookery.engines.notification_channels.smtp_address import SmtpServer
from rookery.notifications.messages import SendOutcome, SendResult

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 20.0
LOWER_LIMIT_S = 600.0
"""Seconds for which the pool keeps to the number of connections that the server allowed."""

_QUIT_TIMEOUT_S = 2.0

T = TypeVar("T", bound=BaseException)

CONNECTION_ERRORS = (SMTPServerDisconnected, aiosmtplib.SMTPTimeoutError, aiosmtplib.SMTPConnectError, OSError)


class ServerRefused(Exception):
    """The server accepts no mail on a new connection. `result` is the outcome for the mail that needed it."""

    def __init__(self, result: SendResult) -> None:
        super().__init__(result.reason)
        self.result = result

    @property
    def is_for_now(self) -> bool:
        """The server answered that it may accept another connection later, as one does that limits those of a client."""
        return self.result.outcome is SendOutcome.RETRY and self.result.status is not None


@dataclass(slots=True, kw_only=True)
class SmtpConnection:
    """
    A connection with a login.

    Attributes:
        mail_count: Mails sent on it.
        can_be_reused: Set when the last mail ended in a known state.
    """

    client: SMTP
    mail_count: int = 0
    can_be_reused: bool = False

    @property
    def is_fresh(self) -> bool:
        """True before its first mail. A fault of an older connection may only mean that the server closed it."""
        return self.mail_count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpTimeouts:
    """The time limits of an SMTP session in seconds."""

    connect: float = CONNECT_TIMEOUT_S
    command: float = COMMAND_TIMEOUT_S
    idle: float = IDLE_TIMEOUT_S


class SmtpPool:
    """
    At most `server.connections` connections, each used for at most `server.mails_per_connection` mails.

    If the server refuses a further connection while others are open, these are as many as it allows. The pool opens no more for
    `LOWER_LIMIT_S`, and the mails wait for the open ones.
    """

    def __init__(self, server: SmtpServer, tls: ssl.SSLContext, timeouts: SmtpTimeouts) -> None:
        self._server = server
        self._tls = tls
        self._timeouts = timeouts
        self._slots = asyncio.Condition()
        self._used_slots = 0
        self._lent = 0
        self._opening = 0
        self._lower_limit: tuple[int, float] | None = None
        """The number of connections that the server allows, and the time of the loop until which no more are opened."""

        self._idle: deque[SmtpConnection] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._next_mail_at = 0.0

    @asynccontextmanager
    async def connect(self, *, fresh: bool = False) -> AsyncGenerator[SmtpConnection]:
        """
        Lend a connection. It is kept if the block sets `can_be_reused`, and otherwise closed.

        Args:
            fresh: Open a new one.

        Raises:
            ServerRefused: There is no connection, or the login failed.
        """
        connection = await self._borrow(fresh=fresh)
        connection.can_be_reused = False
        try:
            yield connection
        except BaseException:
            connection.client.close()
            raise
        else:
            if not connection.can_be_reused or not connection.client.is_connected:
                connection.client.close()
            elif connection.mail_count >= self._server.mails_per_connection:
                await quit_politely(connection.client)
            else:
                self._idle.append(connection)
                self._schedule_sweep()
        finally:
            self._lent -= 1
            await self._free_slot()

    async def wait_for_rate(self) -> None:
        """Wait until the rate allows another mail."""
        if self._server.rate is None:
            return
        loop = asyncio.get_running_loop()
        at = max(loop.time(), self._next_mail_at)
        self._next_mail_at = at + 1 / self._server.rate
        if (delay_s := at - loop.time()) > 0:
            await asyncio.sleep(delay_s)

    async def close(self) -> None:
        """Close the idle connections. Idempotent."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        idle, self._idle = list(self._idle), deque()
        await asyncio.gather(*(quit_politely(connection.client) for connection in idle))

    async def _borrow(self, *, fresh: bool) -> SmtpConnection:
        while True:
            async with self._slots:
                await self._slots.wait_for(self._is_slot_free)
                self._used_slots += 1
            try:
                connection = None if fresh else self._take_idle()
                connection = connection or SmtpConnection(client=await self._open())
            except BaseException as error:
                await self._free_slot()
                others = self._lent + self._opening + len(self._idle)
                if not (isinstance(error, ServerRefused) and error.is_for_now and others):
                    raise
                self._lower_limit = others, asyncio.get_running_loop().time() + LOWER_LIMIT_S
                fresh = False
                continue
            self._lent += 1
            return connection

    def _is_slot_free(self) -> bool:
        limit = self._server.connections
        if self._lower_limit is not None:
            lower, until = self._lower_limit
            if asyncio.get_running_loop().time() < until:
                limit = min(limit, lower)
            else:
                self._lower_limit = None
        return self._used_slots < limit

    async def _free_slot(self) -> None:
        self._used_slots -= 1
        async with self._slots:
            self._slots.notify_all()

    def _take_idle(self) -> SmtpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.client.is_connected:
                return connection
            connection.client.close()
        return None

    def _schedule_sweep(self) -> None:
        """Close all idle connections once none was returned for the idle time."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = asyncio.get_running_loop().call_later(self._timeouts.idle, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        while self._idle:
            self._idle.pop().client.close()

    async def _open(self) -> SMTP:
        server = self._server
        client = SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=server.encryption == "tls",
            start_tls=False,
            tls_context=self._tls,
            timeout=self._timeouts.command,
            local_hostname=server.sender.domain,
        )
        self._opening += 1
        try:
            await client.connect(timeout=self._timeouts.connect)
            if server.encryption == "starttls":
                await client.starttls(timeout=self._timeouts.connect)
            await client.ehlo()
            if server.user:
                await client.login(server.user, server.password.reveal())
        except BaseException as error:
            client.close()
            if isinstance(error, (SMTPException, OSError, ValueError)):
                raise ServerRefused(_evaluate_refusal(error, server)) from None
            raise
        finally:
            self._opening -= 1
        return client


async def quit_politely(client: SMTP) -> None:
    """End the session with QUIT, and close the connection in any case."""
    try:
        with suppress(SMTPException, OSError):
            await client.quit(timeout=_QUIT_TIMEOUT_S)
    finally:
        client.close()


def _evaluate_refusal(error: SMTPException | OSError | ValueError, server: SmtpServer) -> SendResult:
    """Return the outcome of a failed connection. Faults of configuration block all mails; others may pass."""
    if (certificate_error := _find_cause(error, ssl.SSLCertVerificationError)) is not None:
        reason = f"The certificate of the SMTP server is not valid: {certificate_error.verify_message}."
        return SendResult(outcome=SendOutcome.BLOCKED, reason=reason)
    if _find_cause(error, ssl.SSLError) is not None:
        expects = "STARTTLS" if server.encryption == "starttls" else "TLS"
        return SendResult(outcome=SendOutcome.BLOCKED, reason=f"The {expects} handshake with the SMTP server failed.")
    if isinstance(error, SMTPResponseException) and error.code > 0:
        is_login = isinstance(error, aiosmtplib.SMTPAuthenticationError)
        what = "refuses the login" if is_login else "refuses the connection"
        reason = f"The SMTP server {what} ({error.code})."
        if 400 <= error.code < 500:
            return SendResult(outcome=SendOutcome.RETRY, status=error.code, reason=reason, concerns_host=True)
        return SendResult(outcome=SendOutcome.BLOCKED, status=error.code, reason=reason)
    if isinstance(error, CONNECTION_ERRORS):
        slow = isinstance(error, TimeoutError)
        reason = "The SMTP server did not answer in time." if slow else "The connection to the SMTP server could not be opened."
        return SendResult(outcome=SendOutcome.RETRY, reason=reason, concerns_host=True)
    if "STARTTLS" in str(error):
        return SendResult(outcome=SendOutcome.BLOCKED, reason="The SMTP server does not offer STARTTLS. Without it, set tls=none.")
    if "AUTH" in str(error) or "authentication" in str(error):
        return SendResult(outcome=SendOutcome.BLOCKED, reason="The SMTP server offers no way to log in that Rookery supports.")
    return SendResult(outcome=SendOutcome.BLOCKED, reason="The SMTP server does not speak SMTP.")


def _find_cause(error: BaseException, kind: type[T]) -> T | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, kind):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
