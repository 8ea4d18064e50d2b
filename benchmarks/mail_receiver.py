"""An SMTP server of aiosmtpd on 127.0.0.1 in a process of its own, which accepts every mail and counts it by its recipient."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe

from aiosmtpd.smtp import SMTP, Envelope, Session

_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class MailReceiver:
    """The running server."""

    port: int
    pipe: Pipe

    @property
    def address(self) -> str:
        """The value of ROOKERY_SMTP: without encryption and login, with the default number of connections."""
        return f"smtp://127.0.0.1:{self.port}?from=rookery@example.org&tls=none"

    def read(self) -> Counter[str]:
        """Return the number of mails by recipient since the last call."""
        self.pipe.send("read")
        if not self.pipe.poll(_WITHIN_S):
            raise RuntimeError("the mail server does not answer")
        return Counter(self.pipe.recv())


@contextmanager
def run_mail_receiver() -> Generator[MailReceiver]:
    """Run the server until the block ends."""
    parent_pipe, child_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(child_pipe,), daemon=True)
    process.start()
    try:
        yield MailReceiver(parent_pipe.recv(), parent_pipe)
    finally:
        process.terminate()
        process.join(10)


def _serve(pipe: Pipe) -> None:
    asyncio.run(_serve_forever(pipe))


class _CountingHandler:
    def __init__(self, recipients: list[str]) -> None:
        self._recipients = recipients

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        del server, session
        self._recipients.extend(envelope.rcpt_tos)
        return "250 accepted"


async def _serve_forever(pipe: Pipe) -> None:
    recipients = list[str]()
    factory = partial(SMTP, _CountingHandler(recipients), enable_SMTPUTF8=True)
    listening = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    pipe.send(listening.sockets[0].getsockname()[1])
    while True:
        await asyncio.to_thread(pipe.recv)
        received, recipients[:] = list(recipients), []
        pipe.send(received)
