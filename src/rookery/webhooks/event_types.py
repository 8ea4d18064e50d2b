"""
The types of webhook events (D-80), and matching them with subscriptions. No I/O.

Events of campaigns and of generated content are planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rookery.kernel.suggestions import suggest
from rookery.webhooks.models import WebhookEventType

ALL_EVENTS = "*"
TEST_EVENT = "webhook.test"
DISABLED_EVENT = "webhook.disabled"

_MEMORY_DATA, _PLAN_DATA, _TASK_DATA = "the memory", "the plan, without its phases", "the task"
_PHASE_DATA = "the phase, without its tasks and the content of its checkpoints"
_TOMBSTONE = "the id of the memory and its place in its lineage, without its content"
_SESSION_DATA, _KEY_DATA = "the session", "the key, without its secret and addresses; an agent key as in /api/v1/agent-keys"
_MEMORY_ROUTE, _PLAN_ROUTE, _PHASE_ROUTE = (
    "/v1/brain/memories/{memory_id}",
    "/api/agent/plans/{plan}",
    "/api/agent/plans/{plan}/phases/{phase}",
)
_TASK_ROUTE, _SESSION_ROUTE = "/api/agent/tasks/{task}", "/api/agent/sessions/{session_id}"
_CALLS_ROUTE, _SERVER_ROUTE = "/api/agent/tools/calls", "/api/v1/mcp/servers/{server_id}"
_KEY_ROUTE, _WEBHOOK_ROUTE = "/api/v1/api-keys/{key_id}", "/api/v1/webhooks/{webhook_id}"


def _event_type(name: str, description: str, data: str, resource: str | None = None, *, in_wildcard: bool = True) -> WebhookEventType:
    return WebhookEventType(name=name, description=description, data_description=data, resource=resource, in_wildcard=in_wildcard)


EVENT_TYPES: Sequence[WebhookEventType] = (
    _event_type("memory.stored", "A memory was stored.", _MEMORY_DATA, _MEMORY_ROUTE),
    _event_type("memory.superseded", "A memory was replaced by `superseded_by` and deleted from every store.", _TOMBSTONE),
    _event_type("memory.deleted", "A memory was deleted from every store.", _TOMBSTONE),
    _event_type("memory.archived", "A memory was archived: it is kept, but recall skips it.", _MEMORY_DATA, _MEMORY_ROUTE),
    _event_type("memory.restored", "An archived memory was restored.", _MEMORY_DATA, _MEMORY_ROUTE),
    _event_type("memory.reindexed", "A re-index ended.", "the scope of the re-index, the number of memories, and the seconds it took"),
    _event_type(
        "tool.called",
        "A tool call ended, successfully or not. Wildcards do not include it; subscribe by name.",
        "the call, as in the list of calls",
        _CALLS_ROUTE,
        in_wildcard=False,
    ),
    _event_type("tool.failed", "A tool call failed.", "the call, as in the list of calls", _CALLS_ROUTE),
    _event_type("server.online", "A tool server is reachable.", "the server", _SERVER_ROUTE),
    _event_type("server.offline", "A tool server is unreachable.", "the server", _SERVER_ROUTE),
    _event_type("plan.created", "A plan was created.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.updated", "Fields of a plan were changed.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.started", "Work on a plan started.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.paused", "A plan was paused.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.resumed", "A paused plan was resumed.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.completed", "A plan was completed.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.reopened", "A completed plan was reopened.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.archived", "A plan was archived.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.restored", "An archived plan was restored.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("phase.created", "A phase was added to a plan.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.updated", "Fields of a phase were changed.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.started", "Work on a phase started.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.completed", "A phase was completed.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.skipped", "A phase was skipped.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.held", "A phase was put on hold.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.reset", "A phase was reset to pending.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.reopened", "A completed phase was reopened.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.checkpoint", "A checkpoint was added to a phase.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.deleted", "A phase was deleted.", _PHASE_DATA),
    _event_type("task.created", "A task was added to a phase.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.updated", "Fields of a task were changed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.claimed", "An agent claimed a task.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.released", "An agent released a task.", _TASK_DATA, _TASK_ROUTE),
    _event_type(
        "task.lease_expired", "The lease of a claimed task expired. The task is pending again, or failed.", _TASK_DATA, _TASK_ROUTE
    ),
    _event_type("task.started", "Work on a task started without a claim.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.completed", "A task was completed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.failed", "A task failed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.skipped", "A task was skipped.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.held", "A task was put on hold.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.reset", "A task was reset to pending.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.reopened", "A completed task was reopened and is pending again.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.deleted", "A task was deleted.", _TASK_DATA),
    _event_type("session.started", "A session started.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("session.noted", "An event was added to a session, or the session was paused or resumed.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("session.ended", "A session ended.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("key.created", "An API key or agent key was created.", _KEY_DATA, _KEY_ROUTE),
    _event_type(
        "key.rotated", "A key was rotated. It ends with its grace period; `key.created` reports its successor.", _KEY_DATA, _KEY_ROUTE
    ),
    _event_type("key.revoked", "A key was revoked or deleted.", _KEY_DATA, _KEY_ROUTE),
    _event_type("key.expired", "A key expired.", _KEY_DATA, _KEY_ROUTE),
    _event_type(
        DISABLED_EVENT, "Another webhook of the workspace was disabled; `disabled_reason` has the reason.", "that webhook", _WEBHOOK_ROUTE
    ),
    _event_type(
        TEST_EVENT, "A test was requested. It is sent only to that webhook, regardless of its events.", "a sentence", in_wildcard=False
    ),
)
"""All types in the order of lists."""

EVENT_TYPES_BY_NAME: Mapping[str, WebhookEventType] = {event_type.name: event_type for event_type in EVENT_TYPES}


_SCOPE_BY_RESOURCE: Mapping[str, str] = {
    "memory": "brain:read",
    "tool": "tools.read",
    "server": "mcp:read",
    "plan": "plans.read",
    "phase": "plans.read",
    "task": "plans.read",
    "session": "sessions.read",
    "key": "keys:read",
    "webhook": "webhooks:read",
}


def list_scopes(patterns: Iterable[str]) -> list[str]:
    """Return the scopes needed to read the resources of the events that match *patterns*. Subscribing needs the same scopes."""
    pattern_list = list(patterns)
    return list(
        dict.fromkeys(
            _SCOPE_BY_RESOURCE[type_name.partition(".")[0]] for type_name in EVENT_TYPES_BY_NAME if is_subscribed(pattern_list, type_name)
        )
    )


def has_content(type: str) -> bool:
    """Return whether the data of *type* has content that is sent only on request (D-81)."""
    return type.startswith("memory.")


def is_subscribed(patterns: Iterable[str], type: str) -> bool:
    """Return whether *patterns* match *type*. A type that is not in the catalogue matches nothing."""
    event_type = EVENT_TYPES_BY_NAME.get(type)
    if event_type is None:
        return False
    group = f"{type.partition('.')[0]}.*"
    return any(pattern == type or (event_type.in_wildcard and pattern in {ALL_EVENTS, group}) for pattern in patterns)


def find_pattern_error(pattern: str) -> str | None:
    """Return the error in a pattern, with a suggestion; None if the pattern matches at least one event."""
    if pattern in EVENT_TYPES_BY_NAME or any(is_subscribed([pattern], type_name) for type_name in EVENT_TYPES_BY_NAME):
        return None
    groups = dict.fromkeys(f"{type_name.partition('.')[0]}.*" for type_name in EVENT_TYPES_BY_NAME)
    suggestion = suggest(pattern, [*EVENT_TYPES_BY_NAME, *groups])
    return f"{pattern[:100]!r} matches no event{suggestion or '.'} GET /api/v1/events lists all names."
