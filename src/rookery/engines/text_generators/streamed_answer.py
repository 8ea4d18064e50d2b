"""
An answer that arrives as server-sent events.

The parser of server-sent events works on bytes (WHATWG HTML, 9.2.6).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from rookery.content.chat import Completion, Delta
from rookery.content.errors import ProviderError, ProviderResponseInvalid, ProviderUnavailable, StreamInterrupted
from rookery.engines.text_generators.answers import AcceptedRequest, is_cut
from rookery.engines.text_generators.failures import MAX_EXCERPT_CHARS, ProviderFailure, excerpt, parse_failure
from rookery.engines.text_generators.http_client import BodyReadError, ProviderResponse, build_error
from rookery.engines.text_generators.reasoning import ReasoningSplitter, SplitAnswer, split_at_lone_closing
from rookery.engines.text_generators.replies import ChatReply, ErrorReplyError, InvalidReplyError, parse_chunk
from rookery.engines.text_generators.usage import ReportedUsage
from rookery.kernel.secret import Secret

_BOM = b"\xef\xbb\xbf"

_MAX_EVENT_BYTES = 1024 * 1024
_UNKNOWN_ERROR_STATUS = 500
_DONE = b"[DONE]"


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


class StreamedAnswer:
    """
    The pieces of an answer and of its reasoning, and the completion after the last one.

    The answer is complete when the provider has named its finish reason, or has sent `[DONE]`, which some providers omit.

    Args:
        begins_in_reasoning: The model's answers are known to begin in a block of reasoning whose start is in the template of its prompt.
    """

    def __init__(
        self,
        response: ProviderResponse,
        accepted: AcceptedRequest,
        key: Secret | None,
        *,
        max_bytes: int,
        begins_in_reasoning: bool = False,
    ) -> None:
        self._response = response
        self._accepted = accepted
        self._key = key
        self._max_chars = max_bytes
        self._parser = ServerSentEventParser(max_event_bytes=_MAX_EVENT_BYTES)
        self._splitter = ReasoningSplitter(
            expects_json=accepted.request.response_schema is not None, begins_in_reasoning=begins_in_reasoning
        )
        self._pieces: list[str] = []
        self._reasoning: list[str] = []
        self._chars = self._answer_chars = 0
        self._refusal = ""
        self._finish_reason: str | None = None
        self._usage: ReportedUsage | None = None
        self._model: str | None = None
        self._start = b""
        self._is_done = False

    async def read(self) -> AsyncGenerator[Delta]:
        """Yield the pieces until the end of the answer. Raises a `ProviderError`."""
        while not self._is_done:
            try:
                part = await self._response.read()
            except BodyReadError as error:
                if self._finish_reason is not None:
                    break  # the answer itself is complete
                raise self._build_error(str(error)) from None
            self._start += part[: MAX_EXCERPT_CHARS - len(self._start)]
            events = self._parse(part)
            for event in events:
                if (delta := self._add(event)) is not None:
                    yield delta
                if self._is_done:
                    break
            if not part and not self._is_done:
                if self._finish_reason is None:
                    raise self._build_end_error()
                break
        rest = self._add_parts(self._splitter.finish(is_cut=is_cut(self._finish_reason)))
        if rest is not None:
            yield rest

    def _parse(self, part: bytes) -> list[ServerSentEvent]:
        try:
            return self._parser.feed(part) if part else self._parser.finish()
        except EventTooLargeError:
            raise self._build_error("an event of the stream is too large", is_invalid=True) from None

    def build_completion(self, answer: SplitAnswer) -> Completion:
        """Return the completion of *answer*, as `split` returns it. Raises `ProviderResponseInvalid` if the answer is empty."""
        return self._accepted.build_completion(self._build_reply(), answer)

    def split(self) -> SplitAnswer:
        """Return the answer and its reasoning after the last piece."""
        reasoning = self._splitter.reasoning
        if field := "".join(self._reasoning).strip():
            reasoning = f"{field}\n\n{reasoning}" if reasoning else field
        answer = split_at_lone_closing("".join(self._pieces), reasoning=reasoning)
        return replace(answer, begins_in_reasoning=answer.begins_in_reasoning or self._splitter.had_lone_closing)

    def _add(self, event: ServerSentEvent) -> Delta | None:
        """Store what *event* adds, and return it; None if it adds no text."""
        if event.data.strip() == _DONE:
            self._is_done = True
            return None
        if not event.data.strip():
            return None
        chunk = self._parse_chunk(event)
        if chunk.refusal:
            self._refusal += chunk.refusal[: MAX_EXCERPT_CHARS - len(self._refusal)]
        if chunk.usage is not None:
            self._usage = chunk.usage.merge(self._usage)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._model = chunk.model or self._model
        text, reasoning = chunk.text, chunk.reasoning
        self._chars += len(text) + len(reasoning)
        if self._chars > self._max_chars:
            self._answer_chars += len(text)
            raise self._build_error("the answer is too large", is_invalid=True)
        if reasoning:
            self._reasoning.append(reasoning)
        elif text and self._splitter.is_in_answer:
            self._pieces.append(text)
            self._answer_chars += len(text)
            return Delta(text)
        if not text:
            return Delta("", reasoning) if reasoning else None
        split = self._splitter.feed(text)
        return self._add_parts(Delta(split.text, reasoning + split.reasoning) if reasoning else split)

    def _parse_chunk(self, event: ServerSentEvent) -> ChatReply:
        try:
            return parse_chunk(event.data, self._key)
        except ErrorReplyError as error:
            raise self._build_reported_error(error.failure) from None
        except InvalidReplyError as error:
            if event.type == "error":
                raise self._build_reported_error(parse_failure(_UNKNOWN_ERROR_STATUS, event.data, self._key)) from None
            raise self._build_error(f"a chunk is invalid: {error}", is_invalid=True) from None

    def _add_parts(self, delta: Delta) -> Delta | None:
        if delta.text:
            self._pieces.append(delta.text)
            self._answer_chars += len(delta.text)
        return delta if delta.text or delta.reasoning else None

    def _build_reply(self) -> ChatReply:
        reasoning = [*self._reasoning, self._splitter.reasoning, self._splitter.unfinished]
        return ChatReply(
            text="".join(self._pieces),
            reasoning="".join(reasoning),
            refusal=self._refusal,
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
        )

    def _build_end_error(self) -> ProviderError:
        """Return the error of a body that ended before the answer did."""
        if self._finish_reason is self._usage is self._model is None and not self._pieces:  # no chunk at all
            return ProviderResponseInvalid("it is not a stream of chunks", excerpt=excerpt(self._start, self._key))
        return self._build_error("the provider closed the stream")

    def _build_reported_error(self, failure: ProviderFailure) -> ProviderError:
        if not self._pieces:
            return build_error(failure, self._key)
        return self._build_error(f"the provider reported an error: {failure.message or failure.status}")

    def _build_error(self, reason: str, *, is_invalid: bool = False) -> ProviderError:
        """Return the error for *reason*, which counts the characters of the answer that were passed on."""
        usage = self._accepted.compute_usage(self._build_reply())
        if self._pieces:
            return StreamInterrupted(reason, received_chars=self._answer_chars, usage=usage)
        if is_invalid:
            return ProviderResponseInvalid(reason, excerpt=excerpt(self._start, self._key))
        return ProviderUnavailable(reason, usage=usage)  # the provider may charge for the input
