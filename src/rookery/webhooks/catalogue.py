"""
Every type of event that a webhook may be told of (D-80), and which of them a subscription means. Pure.

Events of campaigns and of generated content come with those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rookery.kernel.suggestions import did_you_mean
from rookery.webhooks.models import EventType

EVERYTHING = "*"
TEST = "webhook.test"
DISABLED = "webhook.disabled"

_MEMORY, _PLAN, _TASK = "the memory", "the plan, without its phases", "the task"
_PHASE = "the phase, without its tasks and what its checkpoints hold"
_GRAVE = "what stays of the memory: its place in its lineage"
_SESSION, _KEY = "the session", "the key, without its secret and addresses; an agent key as /api/v1/agent-keys has it"
_AT_MEMORY, _AT_PLAN, _AT_PHASE = "/v1/brain/memories/{memory_id}", "/api/agent/plans/{plan}", "/api/agent/plans/{plan}/phases/{phase}"
_AT_TASK, _AT_SESSION = "/api/agent/tasks/{task}", "/api/agent/sessions/{session_id}"
_AT_CALLS, _AT_SERVER = "/api/agent/tools/calls", "/api/v1/mcp/servers/{server_id}"
_AT_KEY, _AT_WEBHOOK = "/api/v1/api-keys/{key_id}", "/api/v1/webhooks/{webhook_id}"


def _type(name: str, says: str, data: str, resource: str | None = None, *, in_wildcard: bool = True) -> EventType:
    return EventType(name=name, says=says, data=data, resource=resource, in_wildcard=in_wildcard)


TYPES: Sequence[EventType] = (
    _type("memory.stored", "A memory was stored.", _MEMORY, _AT_MEMORY),
    _type("memory.superseded", "A memory was replaced by another, `superseded_by`, and left every store.", _GRAVE),
    _type("memory.deleted", "A memory was deleted from every store.", _GRAVE),
    _type("memory.archived", "A memory left active recall and is kept.", _MEMORY, _AT_MEMORY),
    _type("memory.restored", "An archived memory came back.", _MEMORY, _AT_MEMORY),
    _type("memory.reindexed", "A re-index ended.", "what was re-indexed, how many, and in how many seconds"),
    _type(
        "tool.called",
        "A tool was called, well or badly; no wildcard means it, it must be named.",
        "the call, as the list of calls has it",
        _AT_CALLS,
        in_wildcard=False,
    ),
    _type("tool.failed", "A tool was called, and the call failed.", "the call, as the list of calls has it", _AT_CALLS),
    _type("server.online", "A tool server answers.", "the server", _AT_SERVER),
    _type("server.offline", "A tool server does not answer.", "the server", _AT_SERVER),
    _type("plan.created", "A plan was made.", _PLAN, _AT_PLAN),
    _type("plan.updated", "Fields of a plan were changed.", _PLAN, _AT_PLAN),
    _type("plan.started", "Work on a plan began.", _PLAN, _AT_PLAN),
    _type("plan.paused", "A plan was paused.", _PLAN, _AT_PLAN),
    _type("plan.resumed", "A paused plan goes on.", _PLAN, _AT_PLAN),
    _type("plan.completed", "A plan was completed.", _PLAN, _AT_PLAN),
    _type("plan.reopened", "A completed plan goes on.", _PLAN, _AT_PLAN),
    _type("plan.archived", "A plan was archived.", _PLAN, _AT_PLAN),
    _type("plan.restored", "An archived plan came back.", _PLAN, _AT_PLAN),
    _type("phase.created", "A phase was added to a plan.", _PHASE, _AT_PHASE),
    _type("phase.updated", "Fields of a phase were changed.", _PHASE, _AT_PHASE),
    _type("phase.started", "Work on a phase began.", _PHASE, _AT_PHASE),
    _type("phase.completed", "A phase was completed.", _PHASE, _AT_PHASE),
    _type("phase.skipped", "A phase was skipped.", _PHASE, _AT_PHASE),
    _type("phase.held", "A phase was put on hold.", _PHASE, _AT_PHASE),
    _type("phase.reset", "A phase is pending again.", _PHASE, _AT_PHASE),
    _type("phase.reopened", "A completed phase goes on.", _PHASE, _AT_PHASE),
    _type("phase.checkpoint", "A checkpoint was added to a phase.", _PHASE, _AT_PHASE),
    _type("phase.deleted", "A phase was deleted.", _PHASE),
    _type("task.created", "A task was added to a phase.", _TASK, _AT_TASK),
    _type("task.updated", "Fields of a task were changed.", _TASK, _AT_TASK),
    _type("task.claimed", "An agent took a task.", _TASK, _AT_TASK),
    _type("task.released", "An agent gave a task back.", _TASK, _AT_TASK),
    _type("task.lease_expired", "Whoever had a task was silent for too long; it is free again, or failed.", _TASK, _AT_TASK),
    _type("task.started", "Work on a task began without a claim.", _TASK, _AT_TASK),
    _type("task.completed", "A task was completed.", _TASK, _AT_TASK),
    _type("task.failed", "A task failed.", _TASK, _AT_TASK),
    _type("task.skipped", "A task was skipped.", _TASK, _AT_TASK),
    _type("task.held", "A task was put on hold.", _TASK, _AT_TASK),
    _type("task.reset", "A task is pending again.", _TASK, _AT_TASK),
    _type("task.reopened", "A completed task is pending again.", _TASK, _AT_TASK),
    _type("task.deleted", "A task was deleted.", _TASK),
    _type("session.started", "An agent began to work.", _SESSION, _AT_SESSION),
    _type("session.noted", "Something happened in a session, or it was paused or goes on.", _SESSION, _AT_SESSION),
    _type("session.ended", "A session came to its end.", _SESSION, _AT_SESSION),
    _type("key.created", "An API key or agent key was made.", _KEY, _AT_KEY),
    _type("key.rotated", "A key was replaced by a new one, which `key.created` tells of, and ends with its grace.", _KEY, _AT_KEY),
    _type("key.revoked", "A key was revoked or deleted.", _KEY, _AT_KEY),
    _type("key.expired", "A key came to the end of its time.", _KEY, _AT_KEY),
    _type(DISABLED, "Another webhook of the workspace was disabled: `disabled_reason` tells why.", "that webhook", _AT_WEBHOOK),
    _type(TEST, "Somebody asked for a test; it goes to that one webhook, whatever it subscribed to.", "a sentence", in_wildcard=False),
)
"""In the order in which they are shown."""

BY_NAME: Mapping[str, EventType] = {each.name: each for each in TYPES}


_READ_BY: Mapping[str, str] = {
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


def scopes_of(patterns: Iterable[str]) -> list[str]:
    """Return the scopes that reading what *patterns* mean needs: who may not read a thing is not told of it either."""
    listed = list(patterns)
    return list(dict.fromkeys(_READ_BY[each.partition(".")[0]] for each in BY_NAME if wants(listed, each)))


def has_content(type: str) -> bool:
    """Tell whether the data of *type* has a content that is sent only to those who ask for it (D-81)."""
    return type.startswith("memory.")


def wants(patterns: Iterable[str], type: str) -> bool:
    """Tell whether who subscribed to *patterns* is told of *type*; a type that the catalogue does not have is never sent."""
    known = BY_NAME.get(type)
    if known is None:
        return False
    group = f"{type.partition('.')[0]}.*"
    return any(each == type or (known.in_wildcard and each in {EVERYTHING, group}) for each in patterns)


def wrong_pattern(pattern: str) -> str | None:
    """Return what is wrong with a pattern, with what may have been meant; None: it means some event."""
    if pattern in BY_NAME or any(wants([pattern], each) for each in BY_NAME):
        return None
    groups = dict.fromkeys(f"{each.partition('.')[0]}.*" for each in BY_NAME)
    meant = did_you_mean(pattern, [*BY_NAME, *groups])
    return f"{pattern[:100]!r} matches no event{meant or '.'} GET /api/v1/events lists all names."
