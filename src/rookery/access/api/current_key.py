"""Information about the calling key: its fields and its rate limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rookery.access import serializers
from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.errors import Unauthorised
from rookery.access.guard import Guard
from rookery.access.models import Caller
from rookery.access.rate_limits import SECOND_US
from rookery.access.schemas import RateLimitResponse, WhoResponse
from rookery.access.scopes import ADDRESSES_SCOPE
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Operation

_operation = partial(Operation, method="GET", required_scope=None, rate_limited=False, tags=("Keys",))


@dataclass(frozen=True, slots=True)
class CurrentKeyOperations:
    guard: Guard
    api_keys: ApiKeys
    agent_keys: AgentKeys
    workspaces: Workspaces
    clock: Clock

    def operations(self) -> list[Operation]:
        """Return the operations under the platform's prefix."""
        return [
            self.rate_limit_operation(),
            _operation(path="/whoami", handler=self.get_current_key, response_model=WhoResponse, operation_id="get_current_key",
                       summary="Show the key that sends the request"),
        ]  # fmt: skip

    def rate_limit_operation(self) -> Operation:
        """Return the operation that exists under both prefixes."""
        return _operation(path="/rate-limit", handler=self.get_rate_limit, response_model=RateLimitResponse, operation_id="get_rate_limit",
                          summary="Show the key's rate limit")  # fmt: skip

    async def get_rate_limit(self, caller: Caller) -> RateLimitResponse:
        """Return the limit of the key that sends the request, how much of it is used, and when the window ends."""
        status = await self.guard.get_rate_limit_status(caller)
        if status is None:
            raise Unauthorised
        return RateLimitResponse(
            limit=status.limit,
            remaining=status.remaining,
            reset_in_seconds=status.reset_in_s,
            reset=status.reset,
            used=min(status.used, status.limit),
            window_seconds=status.rate_limit.window_us // SECOND_US,
            local=status.is_local,
        )

    async def get_current_key(self, caller: Caller) -> Mapping[str, object]:
        """Return the key that sends the request and what it may do. Its IP list is included only with the scope `audit:read`."""
        keyring = self.api_keys if caller.key_kind == "api" else self.agent_keys
        try:
            key = await keyring.get(caller.public_workspace_id, caller.key_id)
            workspace = await self.workspaces.get(caller.public_workspace_id)
        except NotFound as error:  # The key was deleted after the guard admitted the request.
            raise Unauthorised from error
        fields = serializers.serialize_key(key, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE))
        return {"kind": caller.key_kind, "workspace_name": workspace.name, **fields}
