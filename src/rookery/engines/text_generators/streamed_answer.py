"""An answer that arrives as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from rookery.content.chat import Completion, Delta
from rookery.content.errors import ProviderError, ProviderResponseInvalid, ProviderUnavailable, StreamInterrupted
from rookery.engines.text_generators.answers import AcceptedRequest
from rookery.engines.text_generators.http_client import BodyReadError, ProviderResponse, build_error
from rookery.engines.text_generators.replies import (
    MAX_EXCERPT_CHARS,
    ChatReply,
    ErrorReplyError,
    InvalidReplyError,
    ProviderFailure,
    excerpt,
    parse_chunk,
    parse_failure,
)
from rookery.engines.text_generators.sse import EventTooLargeError, ServerSentEvent, ServerSentEventParser
from rookery.kernel.secret import Secret

_MAX_EVENT_BYTES = 1024 * 1024
_UNKNOWN_ERROR_STATUS = 500
_DONE = b"[DONE]"


class StreamedAnswer:
    """
    The pieces of an answer, and the completion after the last one.

    The answer is complete when the provider has named its finish reason, or has sent `[DONE]`, which some providers omit.
    """

    def __init__(self, response: ProviderResponse, accepted: AcceptedRequest, key: Secret | None, *, max_bytes: int) -> None:
        self._response = response
        self._accepted = accepted
        self._key = key
        self._max_chars = max_bytes
        self._parser = ServerSentEventParser(max_event_bytes=_MAX_EVENT_BYTES)
        self._pieces: list[str] = []
        self._chars = 0
        self._refusal = ""
        self._last = ChatReply()
        self._start = b""
        self._is_done = False

    async def read(self) -> AsyncGenerator[Delta]:
        """Yield the pieces until the end of the answer. Raises a `ProviderError`."""
        while not self._is_done:
            try:
                part = await self._response.read()
            except BodyReadError as error:
                if self._last.finish_reason is not None:
                    return  # the answer itself is complete
                raise self._build_error(str(error)) from None
            self._start += part[: MAX_EXCERPT_CHARS - len(self._start)]
            try:
                events = self._parser.feed(part) if part else self._parser.finish()
            except EventTooLargeError:
                raise self._build_error("an event of the stream is too large", is_invalid=True) from None
            for event in events:
                if text := self._add(event):
                    yield Delta(text)
                if self._is_done:
                    return
            if not part:
                if self._last.finish_reason is None:
                    raise self._build_end_error()
                return

    def build_completion(self) -> Completion:
        """Return the completion after the last piece. Raises `ProviderResponseInvalid` if the answer is empty."""
        return self._accepted.build_completion(self._build_reply())

    def _add(self, event: ServerSentEvent) -> str:
        """Store what *event* adds, and return its text."""
        if event.data.strip() == _DONE:
            self._is_done = True
            return ""
        if not event.data.strip():
            return ""
        try:
            chunk = parse_chunk(event.data, self._key)
        except ErrorReplyError as error:
            raise self._build_reported_error(error.failure) from None
        except InvalidReplyError as error:
            if event.type == "error":
                raise self._build_reported_error(parse_failure(_UNKNOWN_ERROR_STATUS, event.data, self._key)) from None
            raise self._build_error(f"a chunk is invalid: {error}", is_invalid=True) from None
        self._refusal += chunk.refusal[: MAX_EXCERPT_CHARS - len(self._refusal)]
        self._last = ChatReply(
            finish_reason=chunk.finish_reason or self._last.finish_reason,
            usage=chunk.usage or self._last.usage,
            model=chunk.model or self._last.model,
        )
        self._chars += len(chunk.text)
        if self._chars > self._max_chars:
            raise self._build_error("the answer is too large", is_invalid=True)
        if chunk.text:
            self._pieces.append(chunk.text)
        return chunk.text

    def _build_reply(self) -> ChatReply:
        return replace(self._last, text="".join(self._pieces), refusal=self._refusal)

    def _build_end_error(self) -> ProviderError:
        """Return the error of a body that ended before the answer did."""
        if self._last == ChatReply() and not self._pieces:  # no chunk at all
            return ProviderResponseInvalid("it is not a stream of chunks", excerpt=excerpt(self._start, self._key))
        return self._build_error("the provider closed the stream")

    def _build_reported_error(self, failure: ProviderFailure) -> ProviderError:
        if not self._pieces:
            return build_error(failure)
        return self._build_error(f"the provider reported an error: {failure.message or failure.status}")

    def _build_error(self, reason: str, *, is_invalid: bool = False) -> ProviderError:
        """Return the error for *reason*, which counts the characters that were passed on."""
        usage = self._accepted.compute_usage(self._build_reply())
        if self._pieces:
            return StreamInterrupted(reason, received_chars=self._chars, usage=usage)
        if is_invalid:
            return ProviderResponseInvalid(reason, excerpt=excerpt(self._start, self._key))
        return ProviderUnavailable(reason, usage=usage)  # the provider may charge for the input
