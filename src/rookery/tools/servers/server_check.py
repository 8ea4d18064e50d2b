"""Connection checks of servers, each in a session of its own, with a description of what is wrong."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rookery.kernel.errors import RookeryError
from rookery.tools.arguments import ArgumentValidator
from rookery.tools.catalogue_tool import TASK_REASON, list_tool_names, requires_task
from rookery.tools.errors import ConnectFailed, HandshakeRefused, ServerBusy, StartTimedOut, UpstreamError
from rookery.tools.models import (
    DEFAULT_START_TIMEOUT_S,
    MAX_FEATURES_PER_KIND,
    CommandTarget,
    ConnectionInfo,
    JsonObject,
    Server,
    ServerFeatures,
    ServerKind,
    count_dropped_features,
)
from rookery.tools.ports import Connector, RequestOptions
from rookery.tools.process_output import ProcessOutput, describe_start_timeout
from rookery.tools.servers.header_forwarding import describe_caller_login
from rookery.tools.servers.start_advice import HANDSHAKE_ADVICE, advise_on_start
from rookery.tools.session_sharing import describe_concurrency, describe_sharing, find_sharing_faults

CHECK_TIMEOUT_S = DEFAULT_START_TIMEOUT_S
"""Time-out of a whole check, unless the entry or the kind of program allows a longer start."""

MAX_CONCURRENT_CHECKS = 4
"""Limit on concurrent checks by one workspace, and by the operator."""

_MAX_TOOL_NAME_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCheckResult:
    """
    The result of a check.

    Attributes:
        error: What is wrong; None: the server can be used.
        advice: How to correct it.
        warnings: Problems that do not prevent its use.
        tool_names: The names of its tools that callers see.
        hidden_tools: The names of its tools that Rookery cannot run.
        sharing: The callers that share a session with it, and what they share, in a sentence.
        concurrency: The number of calls that run at once in one session, in a sentence.
        stderr: Lines that its process wrote, besides protocol messages; see `ProcessOutput`.
    """

    server_id: str
    error: str | None = None
    advice: str | None = None
    warnings: tuple[str, ...] = ()
    tool_names: Sequence[str] = ()
    hidden_tools: Sequence[str] = ()
    sharing: str = ""
    concurrency: str = ""
    info: ConnectionInfo = field(default_factory=ConnectionInfo)
    features: ServerFeatures = field(default_factory=ServerFeatures)
    took_ms: float = 0.0
    stderr: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the server can be used."""
        return self.error is None


class ServerChecker:
    """Checks servers. Each check uses its own session, which is closed at the end."""

    def __init__(
        self,
        connectors: Mapping[ServerKind, Connector],
        *,
        timeout_s: float = CHECK_TIMEOUT_S,
        process_count: int = 1,
        on_features: Callable[[Server, ServerFeatures], Awaitable[None]] | None = None,
    ) -> None:
        """
        Create the checker.

        Args:
            process_count: The number of server processes of Rookery on this machine.
            on_features: Receives the features of each server that was listed successfully.
        """
        self._on_features = on_features
        self._connectors = connectors
        self._timeout_s = timeout_s
        self._process_count = process_count
        self._running: Counter[int | None] = Counter()

    async def check(
        self,
        server: Server,
        *,
        workspace_id: int | None = None,
        opener: RequestOptions | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ServerCheckResult:
        """
        Start or connect to *server*, list its features, and close the session. Problems are in the result.

        Args:
            server: The server to check.
            workspace_id: The workspace whose login is used, for a server that requires one; see `Connector.connect`.
            opener: The caller whose headers are forwarded. Without one, a server that requires the login of a caller gets a warning.
            on_output: Receives each line that its process writes, besides protocol messages.

        Raises:
            ServerBusy: The workspace has reached the limit of concurrent checks. Each check may be a process or a hanging connection.
        """
        if server.fault is not None:
            return ServerCheckResult(server_id=server.id, error=server.fault, advice="Correct its entry.")
        checker = workspace_id if server.owner is None else server.owner
        if self._running[checker] >= MAX_CONCURRENT_CHECKS:
            raise ServerBusy(server.id)
        self._running[checker] += 1
        try:
            output = ProcessOutput()

            def add_line(line: str) -> None:
                output.append(line)
                if on_output is not None:
                    on_output(line)

            result = await self._check(server, workspace_id, output, add_line, opener)
            sharing = describe_sharing(server, process_count=self._process_count)
            return replace(result, stderr=tuple(output), sharing=sharing, concurrency=describe_concurrency(server))
        finally:
            self._running[checker] -= 1
            self._running += Counter()  # drops zero counts

    async def _check(
        self,
        server: Server,
        workspace_id: int | None,
        output: ProcessOutput,
        add_line: Callable[[str], None],
        opener: RequestOptions | None,
    ) -> ServerCheckResult:
        started = time.perf_counter()
        timeout_s = server.effective_start_timeout_s or self._timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._connectors[server.kind].connect(
                    server, on_changed=lambda: None, workspace_id=workspace_id or server.owner, on_output=add_line, opener=opener
                ) as connection,
            ):
                features = await connection.list_features(opener)
                info = connection.info
        except (UpstreamError, RookeryError) as error:
            return _describe_failure(server, error, opener, output, _elapsed_ms(started))
        except TimeoutError:
            failed = StartTimedOut(describe_start_timeout(timeout_s, output))
            advice = _advise(server, failed, tuple(output))
            return ServerCheckResult(server_id=server.id, error=str(failed), advice=advice, took_ms=_elapsed_ms(started))
        if "tools" in features.list_errors:
            message = f"It was reached, but its tools could not be listed: {features.list_errors['tools']}"
            return ServerCheckResult(server_id=server.id, error=message, info=info, took_ms=_elapsed_ms(started))
        if self._on_features is not None and not (opener is not None and opener.headers):  # else these are the lists of one caller
            await self._on_features(server, features)
        return ServerCheckResult(
            server_id=server.id,
            warnings=(*_find_warnings(server, features), *find_sharing_faults(server, process_count=self._process_count)),
            tool_names=list_tool_names(server, features),
            hidden_tools=[str(tool.get("name", "")) for tool in features.tools if requires_task(tool)],
            info=info,
            features=features,
            took_ms=_elapsed_ms(started),
        )


def _describe_failure(
    server: Server, error: UpstreamError | RookeryError, opener: RequestOptions | None, output: ProcessOutput, took_ms: float
) -> ServerCheckResult:
    if isinstance(error, UpstreamError) and error.concerns_caller and (opener is None or not opener.headers):
        # Not a failure: the server answered, and its lists are for callers with a login.
        return ServerCheckResult(server_id=server.id, warnings=(describe_caller_login(server),), took_ms=took_ms)
    if isinstance(error, ConnectFailed):
        advice = None if error.concerns_caller else _advise(server, error, tuple(output))
        return ServerCheckResult(server_id=server.id, error=str(error), advice=advice, took_ms=took_ms)
    message = f"It was reached, but its features could not be listed: {error}"
    return ServerCheckResult(server_id=server.id, error=message, took_ms=took_ms)


def _advise(server: Server, failed: ConnectFailed, lines: Sequence[str]) -> str:
    if failed.needs_login:
        if server.auth is not None:
            return f"Log in: rookery servers login {server.id}"
        return 'Add a key to its headers. If it uses OAuth, set "auth": "oauth" in its entry and run: rookery servers login'
    if isinstance(server.target, CommandTarget):
        return advise_on_start(server.target, failed, lines)
    if isinstance(failed, HandshakeRefused):
        return HANDSHAKE_ADVICE
    if failed.is_throttled:
        return "The server is there, but takes no requests now. Check it again later."
    return "Check that the URL is right, ends in the right path (often /mcp), and can be reached from this host."


def _find_warnings(server: Server, features: ServerFeatures) -> list[str]:
    warnings = [f"its {kind} could not be listed: {reason}" for kind, reason in features.list_errors.items()]
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
        return [f"the tool {name!r} is hidden: it {TASK_REASON}"]
    fault = ArgumentValidator(schema).fault  # pyright: ignore[reportUnknownArgumentType] - an object of JSON
    return [] if fault is None else [f"the inputSchema of {name!r} is not a valid JSON Schema, so its arguments cannot be checked: {fault}"]


def _elapsed_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
