"""Results of read-only tools, kept for as long as the operator says (`cache_s`, D-34)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rookery.tools.calling.asked import Asked
from rookery.tools.calling.results import Failed, Result
from rookery.tools.models import BuiltIn, Isolation, Server
from rookery.tools.servers.headers import forwarded
from rookery.tools.tool import Tool

_MOST_BYTES = 64 * 1024 * 1024
"""Of all results together."""
_LARGEST = 1024 * 1024
"""A larger result is not kept: a few of them would push out all others."""
_OF_ONE_MESSAGE = frozenset({"traceparent", "tracestate", "baggage", "io.modelcontextprotocol/logLevel"})
"""What in a message's `_meta` says nothing about its result."""
_OVERHEAD = 500
"""Bytes that an entry takes beside its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A result, and how many seconds ago the upstream gave it."""

    result: Result
    age_s: float
    was_there: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    result: Result
    server: Server
    tool: Tool
    at: float

    @property
    def size(self) -> int:
        return len(self.result.content) + _OVERHEAD


class Cache:
    """The results of this process; those not asked for the longest go first. Who asks at the same moment asks once."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, most_bytes: int = _MOST_BYTES, largest: int = _LARGEST) -> None:
        self._monotonic = monotonic
        self._most_bytes = most_bytes
        self._largest = largest
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._asking: dict[Hashable, asyncio.Future[Result | Failed | None]] = {}

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._bytes

    async def result(self, asked: Asked, tool: Tool, ask: Callable[[], Awaitable[Result]]) -> Kept:
        """
        Return the result of a call that `ttl_of` lets keep: the kept one, that of the same call under way, or by *ask*.

        Raises:
            Failed: What *ask* raised, for us or for whom we waited; a failure is never kept.
        """
        key, ttl_s = _key(asked), ttl_of(asked.server, tool)
        if not asked.manner.fresh:
            kept = self._kept(key, tool, ttl_s)
            if kept is not None:
                return kept
            under_way = self._asking.get(key)
            if under_way is not None:
                outcome = await asyncio.shield(under_way)
                if isinstance(outcome, Failed):
                    raise Failed(outcome.code, outcome.error, outcome.result)
                if outcome is not None:
                    return Kept(result=outcome, age_s=0.0, was_there=True)
                # Whoever asked was refused, or left: that is no answer for us.
        return Kept(result=await self._asked(key, asked.server, tool, ask), age_s=0.0, was_there=False)

    async def _asked(self, key: Hashable, server: Server, tool: Tool, ask: Callable[[], Awaitable[Result]]) -> Result:
        future: asyncio.Future[Result | Failed | None] = asyncio.get_running_loop().create_future()
        self._asking[key] = future
        outcome: Result | Failed | None = None
        try:
            outcome = await ask()
        except Failed as failed:
            outcome = failed
            raise
        else:
            if _is_for_all(outcome):
                self._keep(key, _Entry(outcome, server, tool, self._monotonic()))
            return outcome
        finally:
            future.set_result(outcome if isinstance(outcome, Failed) or (outcome is not None and _is_for_all(outcome)) else None)
            if self._asking.get(key) is future:
                del self._asking[key]

    def _kept(self, key: Hashable, tool: Tool, ttl_s: float) -> Kept | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_s = self._monotonic() - entry.at
        if entry.tool is not tool or age_s >= ttl_s:  # the tool is another one since: its server told so, or its entry changed
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return Kept(result=entry.result, age_s=age_s, was_there=True)

    def _keep(self, key: Hashable, entry: _Entry) -> None:
        self._drop(key)
        if entry.size > self._largest:
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _is_for_all(result: Result) -> bool:
    """Tell whether others who ask the same may have it."""
    return not result.asks and not result.is_personal


def ttl_of(server: Server, tool: Tool) -> float:
    """Return for how many seconds the tool's results may be kept; 0: not at all, as of every tool that changes something."""
    if not server.rules.cache_s or not tool.is_read_only or isinstance(server.target, BuiltIn):
        return 0.0
    return next((ttl for glob, ttl in server.rules.cache_s.items() if fnmatchcase(tool.name, glob)), 0.0)


def may_be_kept(asked: Asked, tool: Tool) -> bool:
    """Tell whether the call's result may be kept and taken from what is kept; one that answers the tool's questions may not."""
    is_first = asked.manner.input_responses is None and asked.manner.request_state is None
    return is_first and ttl_of(asked.server, tool) > 0


def _key(asked: Asked) -> Hashable:
    """
    Return what makes two calls the same: also who asks, as far as the upstream could tell them apart.

    An entry of the file that changed is another server: entries hold on to theirs, so that no other can have its id.
    """
    server, caller = asked.server, asked.caller
    match server.isolation:
        case Isolation.SHARED:
            who: Hashable = None
        case Isolation.PER_WORKSPACE:
            who = caller.workspace_id
        case Isolation.PER_KEY:
            who = caller.key_id
        case Isolation.PER_SESSION:
            who = (caller.workspace_id, caller.key_id, asked.manner.session_id)
    headers = tuple(sorted(forwarded(server, asked.manner.headers).items()))
    meta = {name: value for name, value in (asked.manner.meta or {}).items() if name not in _OF_ONE_MESSAGE}
    return server.key, id(server), who, headers, asked.tool, json.dumps([asked.arguments, meta], sort_keys=True, default=dict)
