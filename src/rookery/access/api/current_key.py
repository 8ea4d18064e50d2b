"""Information about the calling key: its fields and its rate limit (D-27)."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access import serializers
from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.errors import Unauthorised
from rookery.access.guard import Guard, get_caller
from rookery.access.rate_limits import SECOND_US
from rookery.access.schemas import RateLimitResponse, WhoResponse
from rookery.access.scopes import ADDRESSES_SCOPE
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Route, json_response


@dataclass(frozen=True, slots=True)
class CurrentKeyRoutes:
    """The routes of the calling key."""

    guard: Guard
    api_keys: ApiKeys
    agent_keys: AgentKeys
    workspaces: Workspaces
    clock: Clock

    def routes(self) -> list[Route]:
        """Return the routes under the platform's prefix."""
        current_key_route = Route(
            method="GET",
            path="/whoami",
            handler=self.get_current_key,
            required_scope=None,
            rate_limited=False,
            response_model=WhoResponse,
            operation_id="get_current_key",
            summary="Show the key that sends the request",
            tags=("Keys",),
        )
        return [self.rate_limit_route(), current_key_route]

    def rate_limit_route(self) -> Route:
        """Return the route that exists under both prefixes."""
        return Route(
            method="GET",
            path="/rate-limit",
            handler=self.get_rate_limit,
            required_scope=None,
            rate_limited=False,
            response_model=RateLimitResponse,
            operation_id="get_rate_limit",
            summary="Show the key's rate limit",
            tags=("Keys",),
        )

    async def get_rate_limit(self, request: Request) -> Response:
        """Return the limit of the key that sends the request, how much of it is used, and when the window ends."""
        status = await self.guard.get_rate_limit_status(get_caller(request))
        if status is None:
            raise Unauthorised
        return json_response(
            RateLimitResponse(
                limit=status.limit,
                remaining=status.remaining,
                reset_in_seconds=status.reset_in_s,
                reset=status.reset,
                used=min(status.used, status.limit),
                window_seconds=status.rate_limit.window_us // SECOND_US,
                local=status.is_local,
            )
        )

    async def get_current_key(self, request: Request) -> Response:
        """Return the key that sends the request and what it may do. Its IP list is included only with the scope `audit:read`."""
        caller = get_caller(request)
        keyring = self.api_keys if caller.key_kind == "api" else self.agent_keys
        try:
            key = await keyring.get(caller.public_workspace_id, caller.key_id)
            workspace = await self.workspaces.get(caller.public_workspace_id)
        except NotFound as error:  # The key was deleted after the guard admitted the request.
            raise Unauthorised from error
        fields = serializers.serialize_key(key, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE))
        return json_response({"kind": caller.key_kind, "workspace_name": workspace.name, **fields})
