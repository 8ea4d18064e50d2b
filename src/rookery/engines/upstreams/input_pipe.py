"""The pipe to the standard input of a server's process."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import termios
from io import FileIO

import anyio


class InputPipe(asyncio.BaseProtocol):
    """
    The end of the pipe that Rookery writes to.

    It is made here, since a transport of asyncio's own does not show what the process has left unread.

    Attributes:
        writable: Set unless the pipe is full.
    """

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self._transport: asyncio.WriteTransport | None = None
        self._observed: int | None = None
        self._sent_bytes = 0

    def attach(self, transport: asyncio.WriteTransport, observed: int) -> None:
        """Write to *transport*. *observed* is another descriptor of its pipe, which survives the end of the transport."""
        self._transport = transport
        self._observed = observed

    # Methods that asyncio calls.

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.writable.set()

    # Methods that the process calls.

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that wait for room in the pipe."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """
        Send *data*.

        Raises:
            ClosedResourceError: One of the ends is closed. No byte of *data* was read.
        """
        if self._transport is None or self._transport.is_closing():
            raise anyio.ClosedResourceError
        self._transport.write(data)
        self._sent_bytes += len(data)
        if self._transport.is_closing():
            raise anyio.ClosedResourceError

    def may_have_been_read(self) -> bool:
        """Return False if everything that was sent is still in the pipe, also after the process has ended. True if that is unknown."""
        if self._observed is None:
            return True
        unread = array.array("i", [0])
        try:
            fcntl.ioctl(self._observed, termios.FIONREAD, unread)
        except OSError:
            return True
        return unread[0] < self._sent_bytes

    def stop_observing(self) -> None:
        """Close the second descriptor, which keeps the pipe open."""
        if self._observed is not None:
            os.close(self._observed)
            self._observed = None

    def close(self) -> None:
        """Close the pipe once everything is sent, which requests the process to exit."""
        self.stop_observing()
        if self._transport is not None:
            self._transport.close()


async def open_input_pipe() -> tuple[InputPipe, FileIO]:
    """Return a new pipe, and the end that becomes the standard input of a process. The caller closes both."""
    with contextlib.ExitStack() as files:
        read_end, write_end = (FileIO(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        files.enter_context(read_end)
        files.enter_context(write_end)
        pipe = InputPipe()
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: pipe, write_end)
        pipe.attach(transport, os.dup(write_end.fileno()))
        files.pop_all()  # the transport closes its end
    return pipe, read_end
