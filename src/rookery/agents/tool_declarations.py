"""
The tools of the MCP server `agents`: their descriptions, published arguments and texts.

A model chooses a tool by its description, so each one states when to use it. The modules of `agents.api` attach each tool to its
operation. `schemas` publishes fewer forms of an argument than the operation accepts, because a model needs only one.
"""

from __future__ import annotations

from collections.abc import Mapping

from rookery.kernel.http.operation_tools import ServerDeclaration, drop_empty, is_empty
from rookery.kernel.http.operations import JsonSchema, ToolDeclaration
from rookery.kernel.http.result_budgets import ResultBudget
from rookery.kernel.working_context import WorkingContext, add_org_and_project

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


def _add_space_without_plan(parameters: dict[str, object], context: WorkingContext) -> None:
    """Add the org and project of the caller's session to a new session, unless it is on a plan, which has its own."""
    if "plan" not in parameters:
        add_org_and_project(parameters, context)


_PLAN, _PHASE = "Slug or id.", "Id, or position from 1."
_TTL = "Lease; default 900."
_OWN_SESSION = "Its end releases its tasks."
_CLAIM: Mapping[str, str] = {"claim_token": "", "session_id": "Or claim_token."}
_PAGE: Mapping[str, str] = {"cursor": "", "per_page": ""}
_PAGE_SCHEMAS: Mapping[str, JsonSchema] = {"per_page": _INTEGER}
_SPACE: Mapping[str, str] = {"org": "Default: all.", "project": "Default: all."}
_OWN_SPACE: Mapping[str, str] = {"org": "Default: your session's.", "project": "Default: your session's."}
_AGENT: Mapping[str, str] = {"agent_id": "Default: yours.", "goal": "", "context": ""}
_BOOT_BUDGET = ResultBudget(
    lists=("boot.tasks", *(f"boot.memories.{scope}" for scope in ("agent", "shared", "project", "session"))), min_tokens=500
)
_TASK_ID: Mapping[str, str] = {"task_id": "task"}

_CHANGED_TASK: Mapping[str, str] = {
    "name": "",
    "description": "",
    "priority": "0 is most urgent.",
    "notes": "",
    "depends_on": "",
    "acceptance_criteria": "",
}
_NEW_TASK: Mapping[str, str] = {**_CHANGED_TASK, "key": ""}
_TASK_SCHEMAS: Mapping[str, JsonSchema] = {"acceptance_criteria": _TEXTS}
_DEPENDS_ON: JsonSchema = {"type": "array", "items": {"anyOf": [_TEXT, _INTEGER]}}
_PHASE_TASK: JsonSchema = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "priority": {"type": "integer", "minimum": 0, "maximum": 4, "description": _CHANGED_TASK["priority"]},
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
    description="Start a session. Call this first: it returns the plan, ready tasks, the last hand-off, and memories. "
    "Then call task_claim_next.",
    effect="creates",
    arguments={
        "agent_type": "Such as claude-code.",
        "plan": _PLAN,
        "org": "Only without a plan; default: your session's.",
        "project": "Only without a plan; default: your session's.",
        **_AGENT,
        "takeover": "End your open session on the plan.",
        "max_tokens": "",
    },
    add_context=_add_space_without_plan,
    budget=_BOOT_BUDGET,
)
SESSION_RESUME = ToolDeclaration(
    name="session_resume",
    description="Continue an ended, abandoned or paused session in a new one, from its hand-off and checkpoint.",
    effect="creates",
    arguments={"session_id": "", "agent_type": "", **_AGENT, "takeover": "", "max_tokens": ""},
    budget=_BOOT_BUDGET,
)
SESSION_LIST = ToolDeclaration(
    name="session_list",
    description="List sessions, newest first: which agent works on which plan.",
    effect="reads",
    arguments={"status": "", "agent_id": "Only this agent.", "plan": "", **_SPACE, **_PAGE},
    schemas=_PAGE_SCHEMAS,
    items="sessions",
)
SESSION_SHOW = ToolDeclaration(
    name="session_show", description="Get a session with its hand-off.", effect="reads", arguments={"session_id": ""}
)
SESSION_EVENTS = ToolDeclaration(
    name="session_events",
    description="List a session's events.",
    effect="reads",
    arguments={"session_id": "", "after": "A seq.", "type": "", **_PAGE},
    schemas=_PAGE_SCHEMAS,
    items="events",
)
SESSION_LOG = ToolDeclaration(
    name="session_log",
    description="Log an event: a decision, result, error, question.",
    effect="creates",
    arguments={
        "session_id": "",
        "type": "Default note.",
        "message": "",
        "data": "",
        "task_id": "",
        "tokens": "{input, output, model}",
    },
    schemas={"type": _choice("note", "action", "decision", "question", "answer", "artifact", "error"), "tokens": {"type": "object"}},
    required=("message",),
)
SESSION_CHECKPOINT = ToolDeclaration(
    name="session_checkpoint",
    description="Save the state of your work after each costly step, for the next session.",
    effect="creates",
    arguments={"session_id": "", "state": "Done steps, findings, next step, files.", "message": "", "task_id": ""},
    fixed={"type": "checkpoint"},
    required=("state",),
)
SESSION_HEARTBEAT = ToolDeclaration(
    name="session_heartbeat",
    description="Keep your session open during long work.",
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
        "acknowledge_handoff": "",
    },
    schemas={"handoff": {"anyOf": [_TEXT, _OBJECT]}},
)
SESSION_HANDOFF = ToolDeclaration(
    name="session_handoff",
    description="End your session with a hand-off for the next session on the plan. This releases your tasks.",
    effect="updates",
    arguments={"session_id": "", "handoff": ""},
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
        "promote": "Its memories to the project.",
    },
    schemas={"status": _choice("completed", "failed"), "promote": _BOOLEAN},
)

TASK_READY = ToolDeclaration(
    name="task_ready",
    description="List tasks that can be claimed now, best first. To get work, call task_claim_next.",
    effect="reads",
    arguments={"plan": "", **_PAGE},
    fixed={"state": "ready"},
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
    description="Claim the best ready task: the normal way to get work. Without a task, see reason; plan_done: all is finished.",
    effect="creates",
    arguments={
        "plan": "Default: the session's plan; any: all active plans.",
        "session_id": _OWN_SESSION,
        "ttl_s": _TTL,
        "wait_s": "",
    },
    schemas={"wait_s": {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_S}},
)
TASK_CLAIM = ToolDeclaration(
    name="task_claim",
    description="Claim a specific task. To get any work, use task_claim_next.",
    effect="creates",
    arguments={"task_id": "", "session_id": "", "ttl_s": ""},
    renames=_TASK_ID,
)
TASK_HEARTBEAT = ToolDeclaration(
    name="task_heartbeat",
    description="Extend the lease of your task before it expires.",
    effect="updates",
    arguments={"task_id": "", **_CLAIM, "ttl_s": ""},
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
    arguments={"plan": "", "phase": "", **_NEW_TASK},
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
        "claim_token": "",
        "force": "",
    },
    renames=_TASK_ID,
    schemas=_TASK_SCHEMAS,
)

PLAN_LIST = ToolDeclaration(
    name="plan_list",
    description="List plans with their progress, newest first. Check before plan_create.",
    effect="reads",
    arguments={"status": "", **_SPACE, "q": "", **_PAGE},
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
        **_OWN_SPACE,
        "phases": "key: short name for use in depends_on.",
        "tasks": "For a plan without phases.",
    },
    add_context=add_org_and_project,
    schemas={"phases": _PHASES, "tasks": {"type": "array", "items": {"anyOf": [_TEXT, _OBJECT]}}},
)
PLAN_STATUS = ToolDeclaration(
    name="plan_status",
    description="Start, pause, complete or archive a plan. An archived plan is read-only until plan_restore.",
    effect="updates",
    arguments={"plan": "", "status": "", "reason": "", "force": "Despite open phases."},
)
PLAN_RESTORE = ToolDeclaration(name="plan_restore", description="Restore an archived plan.", effect="updates", arguments={"plan": ""})
TEMPLATES = ToolDeclaration(
    name="templates",
    description="List plan templates, such as bug fix and release, with their variables.",
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
        "template": "",
        "variables": "",
        "version": "",
        "title": "",
        "slug": "",
        "status": "",
        **_OWN_SPACE,
    },
    add_context=add_org_and_project,
)
PHASE_STATUS = ToolDeclaration(
    name="phase_status",
    description="Start, complete, skip, hold or reopen a phase.",
    effect="updates",
    arguments={"plan": "", "phase": _PHASE, "status": "", "reason": "", "force": "Despite open tasks."},
)
PHASE_CHECKPOINT = ToolDeclaration(
    name="phase_checkpoint",
    description="Add a progress note to a phase.",
    effect="creates",
    arguments={"plan": "", "phase": "", "note": "", "context": ""},
)


def compact_output(tool: str, output: Mapping[str, object]) -> Mapping[str, object]:
    """
    Return *output* as a model reads it: without null and without empty texts, lists and objects.

    Empty lists at the top level stay: `"tasks": []` is a result.
    """
    del tool
    filled = {name: drop_empty(value) for name, value in output.items()}
    return {name: value for name, value in filled.items() if not is_empty(value) or value == []}
