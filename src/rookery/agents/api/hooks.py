"""The operation that serves the hooks of coding agents."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.errors import UnknownHook
from rookery.agents.hooks.agent_hooks import AgentHooks, HookMetrics
from rookery.agents.hooks.payloads import build_answer, read_call
from rookery.agents.models.agent_hooks import HookOutcome
from rookery.agents.schemas.agent_hooks import HookBody, HookQuery, HookResponse, to_hook_response
from rookery.coding_agents.hook_declarations import CLIENTS, EVENTS, MAX_EVENT_BYTES, REQUIRED_SCOPE, HookEvent
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class HookApi:
    """
    The operation on the events of coding agents. *is_on* is the setting of the operator.

    Attributes:
        deadline_s: Seconds that the check of the key may take.
    """

    hooks: AgentHooks
    metrics: HookMetrics
    is_on: bool
    deadline_s: float

    def operations(self) -> list[Operation]:
        """Return the operation."""
        return [
            Operation(
                method="POST",
                path="/hooks/{client}/{event}",
                handler=self.post_hook,
                required_scope=REQUIRED_SCOPE,
                response_model=HookResponse,
                operation_id="send_hook_event",
                summary="Send an event of a coding agent",
                description=f"Clients: {', '.join(CLIENTS)}. Events: {', '.join(EVENTS)}.",
                tags=("Sessions",),
                errors=(NotFound,),
                body_optional=True,
                max_body_bytes=MAX_EVENT_BYTES,
                allowed_on_full_disk=True,
                outage_body={},
                outage_after_s=self.deadline_s,
                replaces_unstorable=True,
            )
        ]

    async def post_hook(self, caller: Caller, body: HookBody, query: HookQuery, client: str, event: str) -> HookResponse:
        """
        Record an event of a coding agent, and return the text for its conversation.

        The answer is in the schema of the client. It is an empty object if there is nothing to add, and if the server fails or takes too
        long. NUL and half a surrogate pair in a text are replaced by U+FFFD. Memories need `brain:read`, ready tasks `plans.read`, and the
        hand-off note `sessions.read`; a key without them gets the other parts.
        """
        if client not in CLIENTS:
            raise UnknownHook("client", client, CLIENTS)
        if event not in EVENTS:
            raise UnknownHook("event", event, EVENTS)
        if not self.is_on:
            return HookResponse()
        known_event: HookEvent = event
        call = read_call(client, known_event, body.to_payload())
        if call is None:
            self.metrics.record(client, known_event, HookOutcome.IGNORED)
            return HookResponse()
        result = await self.hooks.handle(caller, call, query.to_project())
        self.metrics.record(client, known_event, result.outcome)
        return to_hook_response(build_answer(client, known_event, result.text))
