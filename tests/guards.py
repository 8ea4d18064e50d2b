"""A guard for tests of routes, whose callers are those of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

FindCaller = Callable[[Mapping[bytes, bytes], str | None], Any]
"""Returns the caller of a request by its headers and the scope that its route requires, or raises as a guard does."""

RecordedRequest = tuple[str, str, int]
"""The method, route and status of a request."""


@dataclass(frozen=True, slots=True)
class FakeAdmission:
    """The admission of *caller*. Ended requests are added to *recorded*."""

    caller: Any
    headers: Sequence[tuple[bytes, bytes]]
    recorded: list[RecordedRequest]

    def record(self, *, method: str, route: str, status: int, duration_ms: float, is_upstream_error: bool = False) -> None:
        """Record the request."""
        assert duration_ms >= 0
        assert status >= 400 or not is_upstream_error
        self.recorded.append((method, route, status))


@dataclass(slots=True)
class FakeGuard:
    """
    A guard that admits the callers of *find_caller*.

    Attributes:
        headers: The headers that it adds to each response.
        recorded: The requests that have ended.
    """

    find_caller: FindCaller
    headers: Sequence[tuple[bytes, bytes]] = ()
    recorded: list[RecordedRequest] = field(default_factory=list[RecordedRequest])

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> FakeAdmission:
        """Admit the request, or raise."""
        assert rate_limited is (required_scope is not None)
        headers = dict(cast("list[tuple[bytes, bytes]]", scope["headers"]))
        return FakeAdmission(self.find_caller(headers, required_scope), self.headers, self.recorded)
