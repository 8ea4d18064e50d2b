"""
Wake-ups of the other processes that share a record store.

A wake-up is a hint that something may have changed, so that a process reads it at once and not at its next poll. It may be lost, late or
repeated, so nothing may depend on it: what is woken up also polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import structlog

from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.db.database import MessageChannel
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import uuid7
from rookery.kernel.logs import LimitedWarning

WakeupListener = Callable[[str | None], None]
"""A plain function that returns quickly. Its argument is the key of what may have changed; None: anything of the topic."""

_SEND_INTERVAL_S = 0.05
"""Wake-ups within this time are one message."""
_SEND_TIMEOUT_S = 5.0
_MAX_KEYS = 30
"""More keys of a topic in one message are replaced by None."""
_MAX_MESSAGE_LENGTH = 7_500

_log = structlog.stdlib.get_logger("rookery.wakeups")


class Wakeups:
    """
    The wake-ups that this process sends and receives.

    Args:
        channel: The channel to the other processes. None: nothing is sent or received.
    """

    def __init__(self, channel: MessageChannel | None = None) -> None:
        self._channel = channel
        self._process_id = uuid7()
        self._listeners: dict[str, list[WakeupListener]] = {}
        self._pending: dict[str, set[str]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self._warning = LimitedWarning(_log, "wakeups.not_sent")

    def subscribe(self, topic: str, listener: WakeupListener) -> None:
        """Call *listener* with the key of each wake-up for *topic* by another process, and with None when some may have been lost."""
        self._listeners.setdefault(topic, []).append(listener)

    def send(self, topic: str, key: str) -> None:
        """Wake up the listeners of *topic* in other processes. Call this on the event loop, after the commit of the change."""
        if self._channel is None or self._is_closing.is_set():
            return
        self._pending.setdefault(topic, set()).add(key)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_pending(self._channel), name="wakeups-send")

    async def run(self) -> None:
        """Receive wake-ups until cancelled."""
        if self._channel is not None:
            await self._channel.listen(self._wake_all, self._receive)

    async def close(self) -> None:
        """Send the last wake-ups. Later ones are not sent."""
        self._is_closing.set()
        if self._sender is not None:
            await asyncio.wait({self._sender}, timeout=_SEND_TIMEOUT_S)
            self._sender.cancel()

    async def _send_pending(self, channel: MessageChannel) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await channel.send(self._encode(pending))
            except TimeoutError:
                self._warning.warn(reason=f"sending took longer than {_SEND_TIMEOUT_S:.0f} s")
            except OUTAGES as error:
                self._warning.warn(reason=error.message)
            await wait_until_set(self._is_closing, timeout_s=_SEND_INTERVAL_S)

    def _encode(self, pending: Mapping[str, set[str]]) -> str:
        keys_by_topic = {topic: sorted(keys) if len(keys) <= _MAX_KEYS else None for topic, keys in pending.items()}
        message = orjson.dumps({"from": self._process_id, "wake": keys_by_topic})
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = orjson.dumps({"from": self._process_id, "wake": dict.fromkeys(pending)})
        return message.decode()

    def _receive(self, message: str) -> None:
        try:
            content: Any = orjson.loads(message)
            if content["from"] == self._process_id:
                return
            keys_by_topic: dict[str, list[str] | None] = dict(content["wake"])
        except (ValueError, TypeError, KeyError):
            return  # a message of another program, or of a version with another format
        for topic, keys in keys_by_topic.items():
            for listener in self._listeners.get(topic, ()):
                for key in [None] if keys is None else keys:
                    listener(key)

    def _wake_all(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners:
                listener(None)
