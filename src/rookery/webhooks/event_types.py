"""
Every type of event that a webhook may be told of (D-80), and which of them a subscription means. Pure.

Events of campaigns and of generated content come with those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rookery.kernel.suggestions import suggest
from rookery.webhooks.models import WebhookEventType

ALL_EVENTS = "*"
TEST_EVENT = "webhook.test"
DISABLED_EVENT = "webhook.disabled"

_MEMORY_DATA, _PLAN_DATA, _TASK_DATA = "the memory", "the plan, without its phases", "the task"
_PHASE_DATA = "the phase, without its tasks and what its checkpoints hold"
_TOMBSTONE = "what stays of the memory: its place in its lineage"
_SESSION_DATA, _KEY_DATA = "the session", "the key, without its secret and addresses; an agent key as /api/v1/agent-keys has it"
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
    _event_type("memory.superseded", "A memory was replaced by another, `superseded_by`, and left every store.", _TOMBSTONE),
    _event_type("memory.deleted", "A memory was deleted from every store.", _TOMBSTONE),
    _event_type("memory.archived", "A memory left active recall and is kept.", _MEMORY_DATA, _MEMORY_ROUTE),
    _event_type("memory.restored", "An archived memory came back.", _MEMORY_DATA, _MEMORY_ROUTE),
    _event_type("memory.reindexed", "A re-index ended.", "what was re-indexed, how many, and in how many seconds"),
    _event_type(
        "tool.called",
        "A tool was called, well or badly; no wildcard means it, it must be named.",
        "the call, as the list of calls has it",
        _CALLS_ROUTE,
        in_wildcard=False,
    ),
    _event_type("tool.failed", "A tool was called, and the call failed.", "the call, as the list of calls has it", _CALLS_ROUTE),
    _event_type("server.online", "A tool server answers.", "the server", _SERVER_ROUTE),
    _event_type("server.offline", "A tool server does not answer.", "the server", _SERVER_ROUTE),
    _event_type("plan.created", "A plan was made.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.updated", "Fields of a plan were changed.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.started", "Work on a plan began.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.paused", "A plan was paused.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.resumed", "A paused plan goes on.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.completed", "A plan was completed.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.reopened", "A completed plan goes on.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.archived", "A plan was archived.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("plan.restored", "An archived plan came back.", _PLAN_DATA, _PLAN_ROUTE),
    _event_type("phase.created", "A phase was added to a plan.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.updated", "Fields of a phase were changed.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.started", "Work on a phase began.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.completed", "A phase was completed.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.skipped", "A phase was skipped.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.held", "A phase was put on hold.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.reset", "A phase is pending again.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.reopened", "A completed phase goes on.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.checkpoint", "A checkpoint was added to a phase.", _PHASE_DATA, _PHASE_ROUTE),
    _event_type("phase.deleted", "A phase was deleted.", _PHASE_DATA),
    _event_type("task.created", "A task was added to a phase.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.updated", "Fields of a task were changed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.claimed", "An agent took a task.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.released", "An agent gave a task back.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.lease_expired", "Whoever had a task was silent for too long; it is free again, or failed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.started", "Work on a task began without a claim.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.completed", "A task was completed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.failed", "A task failed.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.skipped", "A task was skipped.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.held", "A task was put on hold.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.reset", "A task is pending again.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.reopened", "A completed task is pending again.", _TASK_DATA, _TASK_ROUTE),
    _event_type("task.deleted", "A task was deleted.", _TASK_DATA),
    _event_type("session.started", "An agent began to work.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("session.noted", "Something happened in a session, or it was paused or goes on.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("session.ended", "A session came to its end.", _SESSION_DATA, _SESSION_ROUTE),
    _event_type("key.created", "An API key or agent key was made.", _KEY_DATA, _KEY_ROUTE),
    _event_type(
        "key.rotated", "A key was replaced by a new one, which `key.created` tells of, and ends with its grace.", _KEY_DATA, _KEY_ROUTE
    ),
    _event_type("key.revoked", "A key was revoked or deleted.", _KEY_DATA, _KEY_ROUTE),
    _event_type("key.expired", "A key came to the end of its time.", _KEY_DATA, _KEY_ROUTE),
    _event_type(
        DISABLED_EVENT, "Another webhook of the workspace was disabled: `disabled_reason` tells why.", "that webhook", _WEBHOOK_ROUTE
    ),
    _event_type(
        TEST_EVENT, "Somebody asked for a test; it goes to that one webhook, whatever it subscribed to.", "a sentence", in_wildcard=False
    ),
)
"""In the order in which they are shown."""

EVENT_TYPES_BY_NAME: Mapping[str, WebhookEventType] = {each.name: each for each in EVENT_TYPES}


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
    """Return the scopes that reading what *patterns* mean needs: who may not read a thing is not told of it either."""
    listed = list(patterns)
    return list(dict.fromkeys(_SCOPE_BY_RESOURCE[each.partition(".")[0]] for each in EVENT_TYPES_BY_NAME if is_subscribed(listed, each)))


def has_content(type: str) -> bool:
    """Tell whether the data of *type* has a content that is sent only to those who ask for it (D-81)."""
    return type.startswith("memory.")


def is_subscribed(patterns: Iterable[str], type: str) -> bool:
    """Tell whether who subscribed to *patterns* is told of *type*; a type that the catalogue does not have is never sent."""
    known = EVENT_TYPES_BY_NAME.get(type)
    if known is None:
        return False
    group = f"{type.partition('.')[0]}.*"
    return any(each == type or (known.in_wildcard and each in {ALL_EVENTS, group}) for each in patterns)


def find_pattern_error(pattern: str) -> str | None:
    """Return what is wrong with a pattern, with what may have been meant; None: it means some event."""
    if pattern in EVENT_TYPES_BY_NAME or any(is_subscribed([pattern], each) for each in EVENT_TYPES_BY_NAME):
        return None
    groups = dict.fromkeys(f"{each.partition('.')[0]}.*" for each in EVENT_TYPES_BY_NAME)
    meant = suggest(pattern, [*EVENT_TYPES_BY_NAME, *groups])
    return f"{pattern[:100]!r} matches no event{meant or '.'} GET /api/v1/events lists all names."
