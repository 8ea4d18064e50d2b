"""A real SMTP server for the tests, of aiosmtpd: STARTTLS or TLS, login, received mails in memory, and faults on demand."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.certificates import write_certificate
from tests.listening import run_callbacks, stop_listening

USER, PASSWORD = "mailer@example.org", "p%äss:w@rd"
SmtpCommand = Literal["MAIL", "RCPT", "DATA", "RSET"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMail:
    """A mail that the server confirmed, or would have."""

    sender: str
    recipients: list[str]
    content: bytes
    options: list[str]

    @property
    def message(self) -> EmailMessage:
        """The parsed mail."""
        return message_from_bytes(self.content, policy=policy.default)

    def part(self, subtype: str) -> str:
        """Return the text of the part text/*subtype*."""
        part = self.message.get_body(preferencelist=(subtype,))
        assert part is not None
        return str(part.get_content()).replace("\r\n", "\n")


@dataclass(slots=True)
class SmtpService:
    """
    The running server.

    Attributes:
        mails: The accepted mails, in order.
        replies: The answers to the next commands, instead of 250. `cut` closes the connection, `silence` never answers.
        connections: The number of connections so far.
        open_connections: Those that are open.
        mails_by_connection: The number of mails on each connection.
        max_mails_per_connection: Number of mails after which the server answers 421, as some relays do.
        max_connections: Number of open connections beyond which a further one is refused with 421, as Exim does.
        refused_connections: The number of those so far.
        accepts_login: The right login is accepted.
        certificate: A file to trust.
    """

    port: int = 0
    certificate: Path = field(default_factory=Path)
    mails: list[AcceptedMail] = field(default_factory=list[AcceptedMail])
    replies: dict[SmtpCommand, list[str]] = field(default_factory=dict[SmtpCommand, list[str]])
    connections: int = 0
    open_connections: int = 0
    max_open_connections: int = 0
    mails_by_connection: dict[int, int] = field(default_factory=dict[int, int])
    max_mails_per_connection: int | None = None
    max_connections: int | None = None
    refused_connections: int = 0
    accepts_login: bool = True
    protocols: set[_CountingSmtp] = field(default_factory=set["_CountingSmtp"])

    def reply(self, command: SmtpCommand, *replies: str) -> None:
        """Answer the next commands with *replies*."""
        self.replies.setdefault(command, []).extend(replies)

    def close_connections(self) -> None:
        """Close all connections without a word, as a server that restarts."""
        for protocol in list(self.protocols):
            protocol.abort()

    def trust(self) -> ssl.SSLContext:
        """Return the TLS settings of a client that trusts this server."""
        return ssl.create_default_context(cafile=self.certificate)

    async def handle_MAIL(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802 - aiosmtpd's names
        count = self.mails_by_connection.get(id(session), 0)
        if self.max_mails_per_connection is not None and count >= self.max_mails_per_connection:
            cast("_CountingSmtp", server).abort_soon()
            return "421 4.7.0 Too many mails on this connection"
        self.mails_by_connection[id(session)] = count + 1
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return await self._next("MAIL", server)

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]) -> str:  # noqa: N802
        reply = await self._next("RCPT", server)
        if reply.startswith("2"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        reply = await self._next("DATA", server)
        if reply.startswith("2"):
            self.mails.append(
                AcceptedMail(
                    sender=str(envelope.mail_from),
                    recipients=[str(address) for address in envelope.rcpt_tos],
                    content=cast("bytes", envelope.original_content),
                    options=[str(option) for option in envelope.mail_options],
                )
            )
        return reply

    async def handle_RSET(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        return await self._next("RSET", server)

    async def _next(self, command: SmtpCommand, server: SMTP) -> str:
        reply = self.replies[command].pop(0) if self.replies.get(command) else "250 2.0.0 OK: queued as 4711"
        if reply == "cut":
            cast("_CountingSmtp", server).abort()
        if reply in {"cut", "silence"}:
            await asyncio.Event().wait()
        return reply


class _CountingSmtp(SMTP):
    """The protocol of one connection."""

    service: SmtpService
    asyncio_transport: asyncio.Transport | None = None
    is_refused: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        limit = self.service.max_connections
        if self not in self.service.protocols and limit is not None and self.service.open_connections >= limit:
            self.service.refused_connections += 1
            self.is_refused = True
            refused = cast("asyncio.Transport", transport)
            refused.write(b"421 4.7.0 Too many connections from your host\r\n")
            refused.close()
            return
        if self not in self.service.protocols:  # after STARTTLS, it is called again
            self.service.protocols.add(self)
            self.service.connections += 1
            self.service.open_connections += 1
            self.service.max_open_connections = max(self.service.max_open_connections, self.service.open_connections)
        self.asyncio_transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_refused:
            return
        if self in self.service.protocols:
            self.service.protocols.discard(self)
            self.service.open_connections -= 1
        super().connection_lost(error)

    def abort(self) -> None:
        """Close the connection at once."""
        if self.asyncio_transport is not None:
            self.asyncio_transport.abort()

    def abort_soon(self) -> None:
        """Close the connection after the present answer."""
        asyncio.get_running_loop().call_later(0.05, self.abort)


@asynccontextmanager
async def run_smtp_service(
    folder: Path, *, tls: Literal["none", "starttls", "tls"] = "starttls", login: bool = True, has_smtputf8: bool = True
) -> AsyncGenerator[SmtpService]:
    """Run a server on a free port of 127.0.0.1, with a certificate for that address."""
    service = SmtpService(certificate=write_certificate(folder / "smtp.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(service.certificate)
    settings: dict[str, Any] = {"enable_SMTPUTF8": has_smtputf8, "hostname": "mail.test", "ident": "tests"}
    if login:
        settings |= {"authenticator": partial(_authenticate, service), "auth_required": True, "auth_require_tls": tls == "starttls"}
    if tls == "starttls":
        settings |= {"tls_context": context, "require_starttls": True}

    def build_protocol() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a login without STARTTLS
            protocol = _CountingSmtp(service, loop=asyncio.get_running_loop(), **settings)
        protocol.service = service
        return protocol

    server = await asyncio.get_running_loop().create_server(build_protocol, "127.0.0.1", 0, ssl=context if tls == "tls" else None)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        await stop_listening(server)
        service.close_connections()
        await run_callbacks()


def _authenticate(  # noqa: PLR0917 - the arguments of aiosmtpd
    service: SmtpService, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
) -> AuthResult:
    given = (data.login.decode(), data.password.decode()) if isinstance(data, LoginPassword) else None
    is_right = service.accepts_login and given == (USER, PASSWORD)
    return AuthResult(success=is_right, handled=False)


@asynccontextmanager
async def run_raw_service(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncGenerator[int]:
    """Run a server whose connections *serve* handles; yield its port."""
    tasks = set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0, limit=2000)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await run_callbacks()
