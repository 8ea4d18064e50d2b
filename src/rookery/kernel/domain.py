"""The registration of a domain: everything that the platform does with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rookery.kernel.runtime import PeriodicTask, Purger, Runtime

if TYPE_CHECKING:  # commands that use the services of a domain start faster without the web framework
    from rookery.kernel.http.operation_tools import OperationServer
    from rookery.kernel.http.operations import Operation
    from rookery.kernel.jobs import JobKind
    from rookery.kernel.sealing import SealedColumn

Probe = Callable[[], Awaitable[str]]
"""Returns the state of an engine for `/readyz`: `ok`, or what is wrong."""


class StartDomain(Protocol):
    """Starts what runs in the background, and pushes onto *stack* what stops it."""

    async def __call__(self, stack: AsyncExitStack, *, serves: bool) -> None:
        """Start. *serves*: this process answers HTTP and starts tool servers; otherwise it is a worker."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """
    A domain as it registers itself. `build(runtime)` in its `build` module returns it.

    Attributes:
        operations: The operations under each prefix, in the order of the API description.
        tool_servers: MCP servers whose tools are operations of the domain.
        periodic_tasks: Idempotent tasks. Every process runs them unless `needs_tool_servers` or `is_single` is set.
        probes: The states of the domain's engines for `/readyz`, by name.
        purgers: Delete the data of a deleted workspace.
        sealed_columns: The columns with encrypted values.
        start: Starts background work of the domain.
        close_streams: Ends long-running responses because the server stops. Safe in any thread and in signal handlers.
    """

    operations: Sequence[tuple[str, Sequence[Operation]]] = ()
    tool_servers: Sequence[OperationServer] = ()
    job_kinds: Sequence[JobKind] = ()
    periodic_tasks: Sequence[PeriodicTask] = ()
    probes: Mapping[str, Probe] = field(default_factory=dict[str, Probe])
    purgers: Sequence[Purger] = ()
    sealed_columns: Sequence[SealedColumn] = ()
    start: StartDomain | None = None
    close_streams: Callable[[], None] | None = None


BuildDomain = Callable[[Runtime], Domain]
