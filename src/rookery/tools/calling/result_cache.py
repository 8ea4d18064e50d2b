"""Cached results of read-only tools, with the time to live that the operator sets (`cache_s`)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from rookery.kernel import globs
from rookery.tools.call_options import select_affecting_meta
from rookery.tools.calling.results import ToolCallFailed, ToolResult
from rookery.tools.calling.tool_call import ToolCall
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.models import BuiltinTarget, Server, SessionIsolation
from rookery.tools.servers.header_forwarding import select_forwarded_headers

_MAX_CACHE_BYTES = 64 * 1024 * 1024
"""Limit on the size of all cached results together."""
_MAX_RESULT_BYTES = 1024 * 1024
"""Limit on one cached result. A few larger ones would evict all others."""
_ENTRY_OVERHEAD_BYTES = 500
"""Memory of an entry in addition to its result, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """A result and its age in seconds."""

    result: ToolResult
    age_s: float
    is_hit: bool


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    result: ToolResult
    server: Server
    tool: CatalogueTool
    stored_at: float

    @property
    def size(self) -> int:
        return len(self.result.content) + _ENTRY_OVERHEAD_BYTES


class ResultCache:
    """An LRU cache of the results of this process. Concurrent identical calls share one upstream call."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        max_bytes: int = _MAX_CACHE_BYTES,
        max_result_bytes: int = _MAX_RESULT_BYTES,
    ) -> None:
        self._monotonic = monotonic
        self._max_bytes = max_bytes
        self._max_result_bytes = max_result_bytes
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._bytes = 0
        self._pending: dict[Hashable, asyncio.Future[ToolResult | ToolCallFailed | None]] = {}

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return self._bytes

    async def get_or_fetch(self, call: ToolCall, tool: CatalogueTool, fetch: Callable[[], Awaitable[ToolResult]]) -> CacheLookup:
        """
        Return the result of a cacheable call: cached, from an identical call in progress, or from *fetch*.

        Raises:
            ToolCallFailed: *fetch* or the identical call failed. Failures are never cached.
        """
        key, ttl_s = _to_cache_key(call), get_ttl_s(call.server, tool)
        if not call.options.no_cache:
            cached = self._find(key, tool, ttl_s)
            if cached is not None:
                return cached
            pending = self._pending.get(key)
            if pending is not None:
                outcome = await asyncio.shield(pending)
                if isinstance(outcome, ToolCallFailed):
                    failure = ToolCallFailed(outcome.code, outcome.error, outcome.result, retry_after_s=outcome.retry_after_s)
                    raise failure from outcome.__cause__
                if outcome is not None:
                    return CacheLookup(result=outcome, age_s=0.0, is_hit=True)
                # The other call was rejected or cancelled, or its result cannot be shared. Make this call separately.
        return CacheLookup(result=await self._fetch(key, call.server, tool, fetch), age_s=0.0, is_hit=False)

    async def _fetch(self, key: Hashable, server: Server, tool: CatalogueTool, fetch: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        future: asyncio.Future[ToolResult | ToolCallFailed | None] = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        outcome: ToolResult | ToolCallFailed | None = None
        try:
            outcome = await fetch()
        except ToolCallFailed as failed:
            outcome = failed
            raise
        else:
            if _is_shareable(outcome):
                self._store(key, _CacheEntry(outcome, server, tool, self._monotonic()))
            return outcome
        finally:
            future.set_result(outcome if isinstance(outcome, ToolCallFailed) or (outcome is not None and _is_shareable(outcome)) else None)
            if self._pending.get(key) is future:
                del self._pending[key]

    def _find(self, key: Hashable, tool: CatalogueTool, ttl_s: float) -> CacheLookup | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_s = self._monotonic() - entry.stored_at
        if entry.tool is not tool or age_s >= ttl_s:  # another tool object means that its definition or the server's entry changed
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return CacheLookup(result=entry.result, age_s=age_s, is_hit=True)

    def _store(self, key: Hashable, entry: _CacheEntry) -> None:
        self._drop(key)
        if entry.size > self._max_result_bytes:
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _is_shareable(result: ToolResult) -> bool:
    """Return whether other callers with the same request may share the result."""
    return not result.requires_input and not result.is_personal


def get_ttl_s(server: Server, tool: CatalogueTool) -> float:
    """Return the time to live of the tool's results in seconds. 0: not cacheable, as for every tool that changes something."""
    if not server.rules.cache_s or not tool.is_read_only or isinstance(server.target, BuiltinTarget):
        return 0.0
    return next((ttl for glob, ttl in server.rules.cache_s.items() if globs.matches(tool.name, glob)), 0.0)


def is_cacheable(call: ToolCall, tool: CatalogueTool) -> bool:
    """Return whether the call's result may be cached. A call that responds to a request for input is not cacheable."""
    is_first = call.options.input_responses is None and call.options.request_state is None
    return is_first and get_ttl_s(call.server, tool) > 0


def _to_cache_key(call: ToolCall) -> Hashable:
    """
    Return the key that identical calls share. It includes the caller, as far as the upstream can distinguish callers.

    A changed entry of the file is a new `Server` object. Cache entries hold a reference to theirs, so that its id() is not reused.
    """
    server, caller = call.server, call.caller
    match server.isolation:
        case SessionIsolation.SHARED:
            session_scope: Hashable = None
        case SessionIsolation.PER_WORKSPACE:
            session_scope = caller.workspace_id
        case SessionIsolation.PER_KEY:
            session_scope = caller.key_id
        case SessionIsolation.PER_SESSION:
            session_scope = (caller.workspace_id, caller.key_id, call.options.session_id)
    headers = tuple(sorted(select_forwarded_headers(server, call.options.headers).items()))
    meta = select_affecting_meta(server, call.options.meta)
    return server.key, id(server), session_scope, headers, call.tool, json.dumps([call.arguments, meta], sort_keys=True, default=dict)
