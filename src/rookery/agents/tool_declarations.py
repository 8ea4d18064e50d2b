"""
The tools of the MCP server `agents` (D-92): their descriptions, published arguments and texts.

A model chooses a tool by its description, so each one states when to use it. The modules of `agents.api` attach each tool to its
operation. `schemas` publishes fewer forms of an argument than the operation accepts, because a model needs only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

from rookery.kernel.http.operation_tools import ServerDeclaration
from rookery.kernel.http.operations import JsonSchema, ToolDeclaration

SERVER = ServerDeclaration(
    id="agents",
    name="Agent work",
    tagline="Plans, tasks and sessions that agents share.",
    description=(
        "Plans with phases and tasks that several agents work on together. Start a session, claim the next ready task, log and "
        "checkpoint what you do, complete it, and hand off when you stop, so that the next session can continue."
    ),
)

MAX_WAIT_S = 25
"""Maximum wait in seconds. A proxy could cut off a longer call after the task was claimed, and the result would be lost."""

_TEXT: JsonSchema = {"type": "string"}
_INTEGER: JsonSchema = {"type": "integer"}
_BOOLEAN: JsonSchema = {"type": "boolean"}
_OBJECT: JsonSchema = {"type": "object"}
_TEXTS: JsonSchema = {"type": "array", "items": _TEXT}


def _choice(*values: str) -> JsonSchema:
    return {"type": "string", "enum": list(values)}


_PLAN, _PHASE = "Slug or id.", "Id, or position from 1."
_TTL = "Lease in seconds; default 900."
_OWN_SESSION = "Your session; its end releases its tasks."
_CLAIM: Mapping[str, str] = {"claim_token": "From the claim.", "session_id": "Session of the claim; replaces claim_token."}
_PAGE: Mapping[str, str] = {"page": "", "per_page": ""}
_PAGE_SCHEMAS: Mapping[str, JsonSchema] = {"per_page": _INTEGER}
_AGENT: Mapping[str, str] = {"agent_id": "Default: the agent of your key.", "goal": "", "context": "Such as the branch."}
_TASK_ID: Mapping[str, str] = {"task_id": "task"}

_CHANGED_TASK: Mapping[str, str] = {
    "name": "",
    "description": "",
    "priority": "0 is most urgent; default 2.",
    "notes": "",
    "depends_on": "Must be done first.",
    "acceptance_criteria": "",
}
_NEW_TASK: Mapping[str, str] = {**_CHANGED_TASK, "key": ""}
_TASK_SCHEMAS: Mapping[str, JsonSchema] = {"acceptance_criteria": _TEXTS}
_DEPENDS_ON: JsonSchema = {"type": "array", "items": {"anyOf": [_TEXT, _INTEGER]}, "description": "Must be done first."}
_PHASE_TASK: JsonSchema = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "priority": {"type": "integer", "minimum": 0, "maximum": 4, "description": _CHANGED_TASK["priority"]},
        "notes": _TEXT,
        "key": _TEXT,
        "depends_on": _DEPENDS_ON,
        "acceptance_criteria": _TEXTS,
    },
    "required": ["name"],
}
_PHASES: JsonSchema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": _TEXT,
            "description": _TEXT,
            "key": _TEXT,
            "depends_on": _DEPENDS_ON,
            "acceptance_criteria": _TEXTS,
            "tasks": {"type": "array", "items": {"anyOf": [_PHASE_TASK, _TEXT]}, "description": "Objects or names."},
        },
        "required": ["name"],
    },
}
_HANDOFF: JsonSchema = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "description": "Current state of the work."},
        "completed": _TEXTS,
        "remaining": _TEXTS,
        "blockers": _TEXTS,
        "decisions": {**_TEXTS, "description": "With reasons; also failed attempts."},
        "next_steps": _TEXTS,
        "refs": {"anyOf": [_TEXTS, _OBJECT], "description": "Branch, commit, files."},
    },
}

SESSION_START = ToolDeclaration(
    name="session_start",
    description="Start a session. Call this first: it returns the plan, ready tasks, the last hand-off and checkpoint, and memories. "
    "Then call task_claim_next with the session_id.",
    effect="creates",
    arguments={
        "agent_type": "Such as claude-code.",
        "plan": _PLAN,
        "org": "Only without a plan.",
        "project": "Only without a plan.",
        **_AGENT,
        "takeover": "End your open session on the plan.",
    },
)
SESSION_RESUME = ToolDeclaration(
    name="session_resume",
    description="Continue an ended, abandoned or paused session in a new one, from its hand-off and checkpoint.",
    effect="creates",
    arguments={"session_id": "", "agent_type": "", **_AGENT, "takeover": "End it first if it is active."},
)
SESSION_LIST = ToolDeclaration(
    name="session_list",
    description="List sessions, newest first, to see which agent works on which plan.",
    effect="reads",
    arguments={"status": "", "agent_id": "", "plan": "", "org": "", "project": "", **_PAGE},
    schemas=_PAGE_SCHEMAS,
    items="sessions",
)
SESSION_SHOW = ToolDeclaration(
    name="session_show", description="Get a session with its hand-off.", effect="reads", arguments={"session_id": ""}
)
SESSION_EVENTS = ToolDeclaration(
    name="session_events",
    description="List the events of a session.",
    effect="reads",
    arguments={"session_id": "", "after": "Events after this seq.", "type": "", "per_page": ""},
    schemas=_PAGE_SCHEMAS,
    items="events",
)
SESSION_LOG = ToolDeclaration(
    name="session_log",
    description="Log an event: a decision with its reason, a result, an error, a question.",
    effect="creates",
    arguments={"session_id": "", "type": "Default note.", "message": "", "data": "", "task_id": ""},
    schemas={"type": _choice("note", "action", "decision", "question", "answer", "artifact", "error")},
    required=("message",),
)
SESSION_CHECKPOINT = ToolDeclaration(
    name="session_checkpoint",
    description="Save the state of your work after each costly step. The next session on the plan gets it.",
    effect="creates",
    arguments={"session_id": "", "state": "Done steps, findings, next step, files.", "message": "", "task_id": ""},
    fixed={"type": "checkpoint"},
    required=("state",),
)
SESSION_HEARTBEAT = ToolDeclaration(
    name="session_heartbeat",
    description="Keep your session open during long work without other calls.",
    effect="updates",
    arguments={"session_id": ""},
)
SESSION_UPDATE = ToolDeclaration(
    name="session_update",
    description="Pause or continue your session, change its goal, write its hand-off early, or acknowledge the one offered.",
    effect="updates",
    arguments={
        "session_id": "",
        "status": "",
        "goal": "",
        "summary": "",
        "context": "",
        "handoff": "As in session_handoff.",
        "acknowledge_handoff": "The hand-off is then no longer offered.",
    },
    schemas={"handoff": {"anyOf": [_TEXT, _OBJECT]}},
)
SESSION_HANDOFF = ToolDeclaration(
    name="session_handoff",
    description="End your session with a hand-off for the next session on the plan. This releases your tasks.",
    effect="updates",
    arguments={"session_id": "", "handoff": "", "summary": ""},
    fixed={"status": "handed_off"},
    schemas={"handoff": _HANDOFF},
    required=("handoff",),
)
SESSION_END = ToolDeclaration(
    name="session_end",
    description="End your session when its work is done or failed. For unfinished work, use session_handoff.",
    effect="updates",
    arguments={
        "session_id": "",
        "status": "Default completed.",
        "summary": "",
        "promote": "Move its session memories to the project.",
    },
    schemas={"status": _choice("completed", "failed"), "promote": _BOOLEAN},
)

TASK_READY = ToolDeclaration(
    name="task_ready",
    description="List tasks that can be claimed now, best first. To get work, call task_claim_next.",
    effect="reads",
    arguments={"plan": _PLAN, **_PAGE},
    fixed={"status": "ready"},
    schemas=_PAGE_SCHEMAS,
    items="tasks",
)
TASK_SHOW = ToolDeclaration(
    name="task_show",
    description="Get a task: description, criteria, dependencies and holder.",
    effect="reads",
    arguments={"task_id": ""},
    renames=_TASK_ID,
)
TASK_CLAIM_NEXT = ToolDeclaration(
    name="task_claim_next",
    description="Claim the best ready task: the normal way to get work. If task is null, see reason; plan_done: all work is finished.",
    effect="creates",
    arguments={
        "plan": "Default: the session's plan; any: all active plans.",
        "session_id": _OWN_SESSION,
        "ttl_s": _TTL,
        "wait_s": "Seconds to wait for a task.",
    },
    schemas={"wait_s": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_S}},
)
TASK_CLAIM = ToolDeclaration(
    name="task_claim",
    description="Claim a specific task. To get any work, use task_claim_next.",
    effect="creates",
    arguments={"task_id": "", "session_id": _OWN_SESSION, "ttl_s": _TTL},
    renames=_TASK_ID,
)
TASK_HEARTBEAT = ToolDeclaration(
    name="task_heartbeat",
    description="Extend the lease of your task before it expires.",
    effect="updates",
    arguments={"task_id": "", **_CLAIM, "ttl_s": _TTL},
    renames=_TASK_ID,
)
TASK_COMPLETE = ToolDeclaration(
    name="task_complete",
    description="Complete your task when its acceptance criteria are met. claim_next also claims the next task.",
    effect="creates",
    arguments={"task_id": "", **_CLAIM, "result": "", "notes": "", "claim_next": ""},
    renames=_TASK_ID,
)
TASK_FAIL = ToolDeclaration(
    name="task_fail",
    description="Mark your task as failed. To let another agent try, use task_release.",
    effect="creates",
    arguments={"task_id": "", **_CLAIM, "error": "The reason, and what you tried.", "result": ""},
    renames=_TASK_ID,
)
TASK_RELEASE = ToolDeclaration(
    name="task_release",
    description="Release your task unfinished, for another agent.",
    effect="creates",
    arguments={"task_id": "", **_CLAIM, "reason": ""},
    renames=_TASK_ID,
)
TASK_ADD = ToolDeclaration(
    name="task_add",
    description="Add a task to a phase, such as work that you discover.",
    effect="creates",
    arguments={"plan": _PLAN, "phase": _PHASE, **_NEW_TASK, "metadata": ""},
    schemas=_TASK_SCHEMAS,
)
TASK_UPDATE = ToolDeclaration(
    name="task_update",
    description="Change a task as its planner. To end your own claim, use task_complete, task_fail or task_release.",
    effect="updates",
    arguments={
        "task_id": "",
        **_CHANGED_TASK,
        "status": "",
        "reason": "",
        "claim_token": "From the claim.",
        "force": "Despite another agent's claim.",
        "metadata": "",
    },
    renames=_TASK_ID,
    schemas=_TASK_SCHEMAS,
)

PLAN_LIST = ToolDeclaration(
    name="plan_list",
    description="List plans with their progress, newest first. Check it before plan_create.",
    effect="reads",
    arguments={"status": "", "org": "", "project": "", "q": "Text in title or description.", **_PAGE},
    schemas=_PAGE_SCHEMAS,
    items="plans",
)
PLAN_SHOW = ToolDeclaration(
    name="plan_show",
    description="Get a plan with its phases and tasks: status, holder, readiness.",
    effect="reads",
    arguments={"plan": _PLAN},
)
PLAN_CREATE = ToolDeclaration(
    name="plan_create",
    description="Create a plan with phases and tasks. Keep tasks small, with acceptance criteria; without depends_on they run in parallel. "
    "If a template fits, use plan_from_template.",
    effect="creates",
    arguments={
        "title": "",
        "description": "",
        "slug": "",
        "status": "active: work can start; default draft.",
        "org": "",
        "project": "",
        "metadata": "",
        "phases": "key: short name for use in depends_on.",
        "tasks": "Instead of phases, for a plan with one phase.",
    },
    schemas={"phases": _PHASES, "tasks": {"type": "array", "items": {"anyOf": [_TEXT, _OBJECT]}}},
)
PLAN_STATUS = ToolDeclaration(
    name="plan_status",
    description="Start, pause, complete or archive a plan. An archived plan is read-only until plan_restore.",
    effect="updates",
    arguments={"plan": _PLAN, "status": "", "reason": "", "force": "Complete despite open phases."},
)
PLAN_RESTORE = ToolDeclaration(name="plan_restore", description="Restore an archived plan.", effect="updates", arguments={"plan": _PLAN})
TEMPLATES = ToolDeclaration(
    name="templates",
    description="List plan templates (bug fix, feature, refactor, release and others) with their variables.",
    effect="reads",
    arguments={"q": "", "category": "", **_PAGE},
    schemas=_PAGE_SCHEMAS,
    items="templates",
)
TEMPLATE_SHOW = ToolDeclaration(
    name="template_show", description="Get a template with its phases and tasks.", effect="reads", arguments={"slug": ""}
)
PLAN_FROM_TEMPLATE = ToolDeclaration(
    name="plan_from_template",
    description="Create a plan from a template with values for its variables.",
    effect="creates",
    arguments={
        "template": "Slug.",
        "variables": "Values by variable name.",
        "version": "",
        "title": "",
        "slug": "",
        "status": "",
        "org": "",
        "project": "",
    },
)
PHASE_STATUS = ToolDeclaration(
    name="phase_status",
    description="Start, complete, skip, hold or reopen a phase.",
    effect="updates",
    arguments={"plan": _PLAN, "phase": _PHASE, "status": "", "reason": "", "force": "Despite open tasks or dependencies."},
)
PHASE_CHECKPOINT = ToolDeclaration(
    name="phase_checkpoint",
    description="Add a progress note to a phase.",
    effect="creates",
    arguments={"plan": _PLAN, "phase": _PHASE, "note": "", "context": ""},
)


def render_text(tool: str, output: Mapping[str, object]) -> str:
    """
    Return the text of a result for a model: the JSON without null and without empty texts, lists and objects.

    Empty lists at the top level stay: `"tasks": []` is a result.
    """
    del tool
    filled = {name: _drop_empty(value) for name, value in output.items()}
    return orjson.dumps({name: value for name, value in filled.items() if isinstance(value, list) or not _is_empty(value)}).decode()


def _drop_empty(value: object) -> object:
    if isinstance(value, Mapping):
        filled = {name: _drop_empty(item) for name, item in cast("Mapping[str, object]", value).items()}
        return {name: item for name, item in filled.items() if not _is_empty(item)}
    if isinstance(value, list):
        return [_drop_empty(item) for item in cast("Sequence[object]", value)]
    return value


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)
