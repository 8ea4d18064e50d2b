"""The routes of access: how a key stands with its rate limit (D-27)."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.errors import Unauthorised
from rookery.access.guard import Guard, caller_of
from rookery.access.limits import SECOND
from rookery.access.schemas import RateLimitAnswer
from rookery.kernel.http import Route, reply


@dataclass(frozen=True)
class AccessApi:
    """Reads a request, asks the guard, shapes the answer."""

    guard: Guard

    def platform_routes(self) -> list[Route]:
        """Return the routes under the platform's prefix."""
        return [self._rate_limit("How much of its rate limit this key has used; spends nothing")]

    def agent_routes(self) -> list[Route]:
        """Return the routes under the agents' prefix."""
        return [self._rate_limit("How much of its rate limit this key has used; spends nothing")]

    async def rate_limit(self, request: Request) -> Response:
        """Answer for the key that asks, of either kind."""
        standing = await self.guard.standing(caller_of(request))
        if standing is None:
            raise Unauthorised
        return reply(
            RateLimitAnswer(
                limit=standing.limit,
                remaining=standing.remaining,
                reset_in_seconds=standing.reset_in_s,
                reset=standing.reset,
                used=min(standing.used, standing.limit),
                window_seconds=standing.plan.window // SECOND,
                local=standing.local,
            )
        )

    def _rate_limit(self, summary: str) -> Route:
        return Route(
            method="GET",
            path="/rate-limit",
            handler=self.rate_limit,
            needs=None,
            spends=False,
            answers=RateLimitAnswer,
            summary=summary,
            tags=("Keys",),
        )
