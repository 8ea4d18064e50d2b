"""Connection checks of servers, each in a session of its own, with a description of what is wrong."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from rookery.kernel.errors import RookeryError
from rookery.tools.arguments import ArgumentValidator
from rookery.tools.catalogue_tool import requires_task
from rookery.tools.errors import ConnectFailed, ServerBusy, UpstreamError
from rookery.tools.models import (
    MAX_FEATURES_PER_KIND,
    CommandTarget,
    ConnectionInfo,
    JsonObject,
    Server,
    ServerFeatures,
    ServerKind,
    count_dropped_features,
)
from rookery.tools.ports import Connector
from rookery.tools.supervision.upstream_session import MAX_STDERR_LINES

CHECK_TIMEOUT_S = 30.0
"""Time-out of a whole check, unless the entry or the kind of program allows a longer start."""

MAX_CONCURRENT_CHECKS = 4
"""Limit on concurrent checks of one workspace's servers."""

_MAX_TOOL_NAME_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCheckResult:
    """
    The result of a check.

    Attributes:
        error: What is wrong; None: the server can be used.
        advice: How to correct it.
        warnings: Problems that do not prevent its use.
        stderr: The last lines that its process wrote to standard error.
    """

    server_id: str
    error: str | None = None
    advice: str | None = None
    warnings: tuple[str, ...] = ()
    info: ConnectionInfo = field(default_factory=ConnectionInfo)
    features: ServerFeatures = field(default_factory=ServerFeatures)
    took_ms: float = 0.0
    stderr: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the server can be used."""
        return self.error is None

    @property
    def tool_names(self) -> list[str]:
        """The names of the server's tools."""
        return [str(tool.get("name", "")) for tool in self.features.tools]


class ServerChecker:
    """Checks servers. Each check uses its own session, which is closed at the end."""

    def __init__(
        self,
        connectors: Mapping[ServerKind, Connector],
        *,
        timeout_s: float = CHECK_TIMEOUT_S,
        on_features: Callable[[Server, ServerFeatures], Awaitable[None]] | None = None,
    ) -> None:
        """
        Create the checker.

        Args:
            on_features: Receives the features of each server that was listed successfully.
        """
        self._on_features = on_features
        self._connectors = connectors
        self._timeout_s = timeout_s
        self._running: Counter[int | None] = Counter()

    async def check(self, server: Server, *, workspace_id: int | None = None) -> ServerCheckResult:
        """
        Start or connect to *server*, list its features, and close the session. Problems are in the result.

        Args:
            server: The server to check.
            workspace_id: The workspace whose login is used, for a server that requires one; see `Connector.connect`.

        Raises:
            ServerBusy: The owner has reached the limit of concurrent checks. Each check may be a process or a hanging connection.
        """
        if server.fault is not None:
            return ServerCheckResult(server_id=server.id, error=server.fault, advice="Correct its entry.")
        if self._running[server.owner] >= MAX_CONCURRENT_CHECKS:
            raise ServerBusy(server.id)
        self._running[server.owner] += 1
        try:
            stderr: deque[str] = deque(maxlen=MAX_STDERR_LINES)
            result = await self._check(server, workspace_id, stderr.append)
            return replace(result, stderr=tuple(stderr))
        finally:
            self._running[server.owner] -= 1
            self._running += Counter()  # drops zero counts

    async def _check(self, server: Server, workspace_id: int | None, on_stderr: Callable[[str], None]) -> ServerCheckResult:
        started = time.perf_counter()
        timeout_s = server.effective_start_timeout_s or self._timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._connectors[server.kind].connect(
                    server, on_changed=lambda: None, workspace_id=workspace_id or server.owner, on_stderr=on_stderr
                ) as connection,
            ):
                features = await connection.list_features()
                info = connection.info
        except ConnectFailed as failed:
            return ServerCheckResult(server_id=server.id, error=str(failed), advice=_advise(server, failed), took_ms=_elapsed_ms(started))
        except (UpstreamError, RookeryError) as error:
            message = f"It was reached, but its features could not be listed: {error}"
            return ServerCheckResult(server_id=server.id, error=message, took_ms=_elapsed_ms(started))
        except TimeoutError:
            message = f"It did not answer within {timeout_s:g} s."
            return ServerCheckResult(server_id=server.id, error=message, advice=_advise(server, None), took_ms=_elapsed_ms(started))
        if self._on_features is not None:
            await self._on_features(server, features)
        return ServerCheckResult(
            server_id=server.id,
            warnings=tuple(_find_warnings(server, features)),
            info=info,
            features=features,
            took_ms=_elapsed_ms(started),
        )


def _advise(server: Server, failed: ConnectFailed | None) -> str:
    if failed is not None and failed.needs_login:
        if server.auth is not None:
            return f"Log in: rookery servers login {server.id}"
        return 'Add a key to its headers. If it uses OAuth, set "auth": "oauth" in its entry and run: rookery servers login'
    if isinstance(server.target, CommandTarget):
        if shutil.which(server.target.command) is None:
            return "Install it on Rookery's host, or use its absolute path."
        return "Run its command in a terminal. A server waits silently for input, and writes only protocol messages to standard output."
    return "Check that the URL is right, ends in the right path (often /mcp), and can be reached from this host."


def _find_warnings(server: Server, features: ServerFeatures) -> list[str]:
    warnings: list[str] = []
    if not (features.tools or features.resources or features.templates or features.prompts):
        warnings.append("it has no tools, resources, templates or prompts")
    if count_dropped_features(features):
        warnings.append(f"it has more than {MAX_FEATURES_PER_KIND} features of one kind; the rest is ignored")
    name_counts = Counter(str(tool.get("name", "")) for tool in features.tools)
    warnings += [f"the tool {name!r} is listed {times} times; the last one is used" for name, times in name_counts.items() if times > 1]
    for tool in features.tools:
        warnings += _find_tool_faults(tool)
    rules = server.rules
    names = [*(rules.allow or ()), *rules.deny, *rules.timeouts_s, *rules.cache_s]
    unknown_names = [name for name in names if not any(mark in name for mark in "*?[") and name not in name_counts]
    warnings += [f"its entry names the tool {name!r}, which does not exist" for name in dict.fromkeys(unknown_names)]
    return warnings


def _find_tool_faults(tool: JsonObject) -> list[str]:
    name, schema = str(tool.get("name", "")), tool.get("inputSchema")
    if not 0 < len(name) <= _MAX_TOOL_NAME_LENGTH:
        return [f"the name of the tool {name[:40]!r} is not 1 to {_MAX_TOOL_NAME_LENGTH} characters long"]
    if not isinstance(schema, dict):
        return [f"the tool {name!r} has no inputSchema"]
    if requires_task(tool):
        return [f"the tool {name!r} is hidden: it runs only as a task (execution.taskSupport is required), which Rookery does not support"]
    fault = ArgumentValidator(schema).fault  # pyright: ignore[reportUnknownArgumentType] - an object of JSON
    return [] if fault is None else [f"the inputSchema of {name!r} is not a valid JSON Schema, so its arguments cannot be checked: {fault}"]


def _elapsed_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
