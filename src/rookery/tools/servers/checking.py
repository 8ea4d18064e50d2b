"""Reach one server now, in a session of its own, and say in words what is wrong with it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from rookery.kernel.errors import RookeryError
from rookery.tools.arguments import Arguments
from rookery.tools.errors import ConnectFailed, ServerBusy, UpstreamError
from rookery.tools.models import Command, Facts, JsonObject, Kind, Offer, Server
from rookery.tools.offers import MOST_OF_A_KIND, passed_over
from rookery.tools.ports import Connector
from rookery.tools.supervision.supervised import LOG_LINES
from rookery.tools.tool import runs_as_task_only

PATIENCE_S = 30.0
"""For all of it, unless the entry or its kind of program gives the start longer."""

AT_ONCE = 4
"""Checks of one workspace's servers."""

_LONGEST_NAME = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """
    What became of reaching a server.

    Attributes:
        error: What is wrong, in words; None: it can be used.
        advice: What to do about it.
        warnings: What does not stop it from being used.
        stderr: The last lines that its process wrote to its standard error.
    """

    server_id: str
    error: str | None = None
    advice: str | None = None
    warnings: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)
    offer: Offer = field(default_factory=Offer)
    took_ms: float = 0.0
    stderr: tuple[str, ...] = ()

    @property
    def tools(self) -> list[str]:
        """The names of its tools."""
        return [str(tool.get("name", "")) for tool in self.offer.tools]


class Checker:
    """Checks servers, each in a session that is closed again."""

    def __init__(
        self,
        connectors: Mapping[Kind, Connector],
        *,
        patience_s: float = PATIENCE_S,
        keep: Callable[[Server, Offer], Awaitable[None]] | None = None,
    ) -> None:
        """
        Make it.

        Args:
            keep: Takes what a server offers that answered.
        """
        self._keep = keep
        self._connectors = connectors
        self._patience_s = patience_s
        self._running: Counter[int | None] = Counter()

    async def check(self, server: Server, *, workspace_id: int | None = None) -> Checked:
        """
        Start or reach *server*, list what it offers, and let go of it; what is wrong with it is in the answer.

        Args:
            server: Which.
            workspace_id: Whose login is used, of a server that asks for one; see `Connector.connect`.

        Raises:
            ServerBusy: So many servers of its owner are being checked; each may be a process, or a connection that hangs.
        """
        if server.fault is not None:
            return Checked(server_id=server.id, error=server.fault, advice="Mend its entry.")
        if self._running[server.owner] >= AT_ONCE:
            raise ServerBusy(server.id)
        self._running[server.owner] += 1
        try:
            stderr: deque[str] = deque(maxlen=LOG_LINES)
            checked = await self._check(server, workspace_id, stderr.append)
            return replace(checked, stderr=tuple(stderr))
        finally:
            self._running[server.owner] -= 1
            self._running += Counter()  # forgets those at none

    async def _check(self, server: Server, workspace_id: int | None, on_stderr: Callable[[str], None]) -> Checked:
        started = time.perf_counter()
        patience_s = server.start_limit_s or self._patience_s
        try:
            async with (
                asyncio.timeout(patience_s),
                self._connectors[server.kind].connect(
                    server, on_changed=_nothing, workspace_id=workspace_id or server.owner, on_stderr=on_stderr
                ) as connection,
            ):
                offer = await connection.offer()
                facts = connection.facts
        except ConnectFailed as failed:
            return Checked(server_id=server.id, error=str(failed), advice=_advice(server, failed), took_ms=_ms(started))
        except (UpstreamError, RookeryError) as error:
            said = f"It was reached, but does not tell what it offers: {error}"
            return Checked(server_id=server.id, error=said, took_ms=_ms(started))
        except TimeoutError:
            said = f"It did not answer within {patience_s:g} s."
            return Checked(server_id=server.id, error=said, advice=_advice(server, None), took_ms=_ms(started))
        if self._keep is not None:
            await self._keep(server, offer)
        return Checked(server_id=server.id, warnings=tuple(_warnings(server, offer)), facts=facts, offer=offer, took_ms=_ms(started))


def _advice(server: Server, failed: ConnectFailed | None) -> str:
    if failed is not None and failed.needs_login:
        if server.auth is not None:
            return f"Log in: rookery servers login {server.id}"
        return 'Give it a key in its headers, or, if it speaks OAuth, "auth": "oauth" in its entry and: rookery servers login'
    if isinstance(server.target, Command):
        if shutil.which(server.target.command) is None:
            return "Install it where Rookery runs, or write its whole path."
        return "Run its command in a terminal: a server waits silently for input, and writes nothing but protocol to its standard output."
    return "Look whether the address is right, ends in the right path (often /mcp), and can be reached from this host."


def _warnings(server: Server, offer: Offer) -> list[str]:
    found: list[str] = []
    if not (offer.tools or offer.resources or offer.templates or offer.prompts):
        found.append("it offers nothing at all")
    if passed_over(offer):
        found.append(f"it offers more than {MOST_OF_A_KIND} of one kind; the rest is passed over")
    counted = Counter(str(tool.get("name", "")) for tool in offer.tools)
    found += [f"the tool {name!r} is listed {times} times; the last one counts" for name, times in counted.items() if times > 1]
    for tool in offer.tools:
        found += _faults(tool)
    rules = server.rules
    named = [*(rules.allow or ()), *rules.deny, *rules.timeouts_s, *rules.cache_s]
    plain = [name for name in named if not any(mark in name for mark in "*?[") and name not in counted]
    found += [f"its entry names the tool {name!r}, which it does not have" for name in dict.fromkeys(plain)]
    return found


def _faults(tool: JsonObject) -> list[str]:
    name, schema = str(tool.get("name", "")), tool.get("inputSchema")
    if not 0 < len(name) <= _LONGEST_NAME:
        return [f"the name of the tool {name[:40]!r} is not 1 to {_LONGEST_NAME} characters long"]
    if not isinstance(schema, dict):
        return [f"the tool {name!r} has no inputSchema"]
    if runs_as_task_only(tool):
        return [f"the tool {name!r} is hidden: it runs only as a task (execution.taskSupport is required), which Rookery does not support"]
    fault = Arguments(schema).fault  # pyright: ignore[reportUnknownArgumentType] - an object of JSON
    return [] if fault is None else [f"the inputSchema of {name!r} is no JSON Schema, so its arguments cannot be checked: {fault}"]


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _nothing() -> None:
    """Let a change of what it offers pass."""
