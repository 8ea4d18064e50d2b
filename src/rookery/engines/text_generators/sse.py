"""A parser of server-sent events that works on bytes (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event; *type* is `message` if the server names none."""

    type: str
    data: bytes


class EventTooLargeError(Exception):
    """An event is larger than the limit."""


class ServerSentEventParser:
    """
    An incremental parser. Any split of the bytes gives the same events.

    It works on bytes: characters and line ends may be split anywhere, and only whole data is decoded, by the caller.
    """

    def __init__(self, *, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._skips_line_feed = False
        """True after a carriage return at the end of the input: a line feed that follows belongs to it."""
        self._is_first_line = True
        self._type = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, part: bytes) -> list[ServerSentEvent]:
        """
        Return the events that *part* completes.

        Raises:
            EventTooLargeError: A line or the data of an event exceeds the limit.
        """
        if self._skips_line_feed and part:
            self._skips_line_feed = False
            if part[0] == 0x0A:
                part = part[1:]
        events: list[ServerSentEvent] = []
        start = 0
        while (end := _find_line_end(part, start)) >= 0:
            self._line += part[start:end]
            start = end + 1
            if part[end] == 0x0D:
                if start == len(part):
                    self._skips_line_feed = True
                elif part[start] == 0x0A:
                    start += 1
            self._end_line(events)
        self._line += part[start:]
        if len(self._line) + self._data_bytes > self._max_event_bytes:
            raise EventTooLargeError
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Return the last event of an input that ended without an empty line. The standard drops it, but some servers omit the line."""
        events: list[ServerSentEvent] = []
        if self._line:
            self._end_line(events)
        self._end_line(events)
        return events

    def _end_line(self, events: list[ServerSentEvent]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(ServerSentEvent(self._type or "message", b"\n".join(self._data)))
            self._type, self._data, self._data_bytes = "", [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            if self._data_bytes > self._max_event_bytes:
                raise EventTooLargeError
        elif name == b"event":
            self._type = value.decode(errors="replace")


def _find_line_end(part: bytes, start: int) -> int:
    """Return the position of the next line feed or carriage return, or -1."""
    line_feed = part.find(b"\n", start)
    carriage_return = part.find(b"\r", start, line_feed if line_feed >= 0 else len(part))
    return carriage_return if carriage_return >= 0 else line_feed
