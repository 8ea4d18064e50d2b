"""Definitions of the tools for plans, templates and tasks. A model reads the descriptions, so each states when to use the tool."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.tool_schemas import (
    AgentsTool,
    Schema,
    any_value_schema,
    array_schema,
    boolean_schema,
    closed_object_schema,
    create_tool,
    enum_schema,
    integer_schema,
    object_schema,
    read_tool,
    text_schema,
    update_tool,
)
from rookery.agents.schemas.plans import MAX_TTL_S

READ_SCOPE, PLAN_WRITE_SCOPE, WORK_SCOPE, TEMPLATE_READ_SCOPE, TEMPLATE_USE_SCOPE = (
    "plans.read",
    "plans.write",
    "phases.write",
    "templates.read",
    "templates.instantiate",
)

MAX_WAIT_S = 25
"""Maximum wait in seconds. A proxy could cut off a longer call after the task was claimed, and the result would be lost."""

_PLAN = text_schema("Slug or id.")
_PHASE = text_schema("Id, or position from 1.")
_TASK = text_schema()
_TOKEN = text_schema("From the claim.")
_CLAIM_SESSION = text_schema("Session of the claim; replaces claim_token.")
_SESSION = text_schema("Your session; its end releases its tasks.")
_TTL = integer_schema(1, MAX_TTL_S, "Lease in seconds; default 900.")
_ORG, _PROJECT = text_schema(), text_schema()
_NAME, _TEXT = text_schema(), text_schema()
_DEPENDS_ON = array_schema({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "Must be done first.")
_CRITERIA = array_schema(text_schema())
_PRIORITY = integer_schema(0, 4, "0 is most urgent; default 2.")
_REASON = text_schema()
_PAGE: Schema = {"page": {"type": "integer"}, "per_page": {"type": "integer"}}

_TASK_FIELDS: Schema = {
    "name": _NAME,
    "description": _TEXT,
    "priority": _PRIORITY,
    "notes": _TEXT,
    "key": text_schema(),
    "depends_on": _DEPENDS_ON,
    "acceptance_criteria": _CRITERIA,
}
_PHASES = array_schema(
    closed_object_schema(
        ["name"],
        {
            "name": _NAME,
            "description": _TEXT,
            "key": text_schema(),
            "depends_on": _DEPENDS_ON,
            "acceptance_criteria": _CRITERIA,
            "tasks": array_schema({"anyOf": [closed_object_schema(["name"], _TASK_FIELDS), text_schema()]}, "Objects or names."),
        },
    ),
    "key: short name for use in depends_on.",
)

PLAN_TOOLS: Sequence[AgentsTool] = (
    read_tool(
        "plan_list",
        READ_SCOPE,
        "List plans with their progress, newest first. Check it before plan_create.",
        [],
        {
            "status": enum_schema(["draft", "active", "paused", "completed", "archived"]),
            "org": _ORG,
            "project": _PROJECT,
            "q": text_schema("Text in title or description."),
            **_PAGE,
        },
    ),
    read_tool(
        "plan_show",
        READ_SCOPE,
        "Get a plan with its phases and tasks: status, holder, readiness.",
        ["plan"],
        {"plan": _PLAN},
    ),
    create_tool(
        "plan_create",
        PLAN_WRITE_SCOPE,
        "Create a plan with phases and tasks. Keep tasks small, with acceptance criteria; without depends_on they run in parallel. "
        "If a template fits, use plan_from_template.",
        ["title"],
        {
            "title": _NAME,
            "description": _TEXT,
            "slug": text_schema(),
            "status": enum_schema(["draft", "active"], "active: work can start; default draft."),
            "org": _ORG,
            "project": _PROJECT,
            "metadata": object_schema(),
            "phases": _PHASES,
            "tasks": array_schema({"anyOf": [text_schema(), {"type": "object"}]}, "Instead of phases, for a plan with one phase."),
        },
    ),
    update_tool(
        "plan_status",
        PLAN_WRITE_SCOPE,
        "Start, pause, complete or archive a plan. An archived plan is read-only until plan_restore.",
        ["plan", "status"],
        {
            "plan": _PLAN,
            "status": enum_schema(["draft", "active", "paused", "completed", "archived"]),
            "reason": _REASON,
            "force": boolean_schema("Complete despite open phases."),
        },
    ),
    update_tool("plan_restore", PLAN_WRITE_SCOPE, "Restore an archived plan.", ["plan"], {"plan": _PLAN}),
    read_tool(
        "templates",
        TEMPLATE_READ_SCOPE,
        "List plan templates (bug fix, feature, refactor, release and others) with their variables.",
        [],
        {"q": text_schema(), "category": text_schema(), **_PAGE},
    ),
    read_tool("template_show", TEMPLATE_READ_SCOPE, "Get a template with its phases and tasks.", ["slug"], {"slug": text_schema()}),
    create_tool(
        "plan_from_template",
        TEMPLATE_USE_SCOPE,
        "Create a plan from a template with values for its variables.",
        ["template"],
        {
            "template": text_schema("Slug."),
            "variables": object_schema("Values by variable name."),
            "version": text_schema(),
            "title": text_schema(),
            "slug": text_schema(),
            "status": enum_schema(["draft", "active"]),
            "org": _ORG,
            "project": _PROJECT,
        },
    ),
    update_tool(
        "phase_status",
        WORK_SCOPE,
        "Start, complete, skip, hold or reopen a phase.",
        ["plan", "phase", "status"],
        {
            "plan": _PLAN,
            "phase": _PHASE,
            "status": enum_schema(["pending", "in_progress", "completed", "skipped", "on_hold"]),
            "reason": _REASON,
            "force": boolean_schema("Despite open tasks or dependencies."),
        },
    ),
    create_tool(
        "phase_checkpoint",
        WORK_SCOPE,
        "Add a progress note to a phase.",
        ["plan", "phase", "note"],
        {"plan": _PLAN, "phase": _PHASE, "note": text_schema(), "context": object_schema()},
    ),
)

TASK_TOOLS: Sequence[AgentsTool] = (
    read_tool(
        "task_ready",
        READ_SCOPE,
        "List tasks that can be claimed now, best first. To get work, call task_claim_next.",
        [],
        {"plan": _PLAN, **_PAGE},
    ),
    read_tool("task_show", READ_SCOPE, "Get a task: description, criteria, dependencies and holder.", ["task_id"], {"task_id": _TASK}),
    create_tool(
        "task_claim_next",
        WORK_SCOPE,
        "Claim the best ready task: the normal way to get work. If task is null, see reason; plan_done: all work is finished.",
        [],
        {
            "plan": text_schema("Default: the session's plan; any: all active plans."),
            "session_id": _SESSION,
            "ttl_s": _TTL,
            "wait_s": integer_schema(0, MAX_WAIT_S, "Seconds to wait for a task."),
        },
    ),
    create_tool(
        "task_claim",
        WORK_SCOPE,
        "Claim a specific task. To get any work, use task_claim_next.",
        ["task_id"],
        {"task_id": _TASK, "session_id": _SESSION, "ttl_s": _TTL},
    ),
    update_tool(
        "task_heartbeat",
        WORK_SCOPE,
        "Extend the lease of your task before it expires.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _CLAIM_SESSION, "ttl_s": _TTL},
    ),
    create_tool(
        "task_complete",
        WORK_SCOPE,
        "Complete your task when its acceptance criteria are met. claim_next also claims the next task.",
        ["task_id"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _CLAIM_SESSION,
            "result": any_value_schema(),
            "notes": _TEXT,
            "claim_next": boolean_schema(),
        },
    ),
    create_tool(
        "task_fail",
        WORK_SCOPE,
        "Mark your task as failed. To let another agent try, use task_release.",
        ["task_id", "error"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _CLAIM_SESSION,
            "error": text_schema("The reason, and what you tried."),
            "result": any_value_schema(),
        },
    ),
    create_tool(
        "task_release",
        WORK_SCOPE,
        "Release your task unfinished, for another agent.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _CLAIM_SESSION, "reason": _REASON},
    ),
    create_tool(
        "task_add",
        WORK_SCOPE,
        "Add a task to a phase, such as work that you discover.",
        ["plan", "phase", "name"],
        {"plan": _PLAN, "phase": _PHASE, **_TASK_FIELDS, "metadata": object_schema()},
    ),
    update_tool(
        "task_update",
        WORK_SCOPE,
        "Change a task as its planner. To end your own claim, use task_complete, task_fail or task_release.",
        ["task_id"],
        {
            "task_id": _TASK,
            **{name: schema for name, schema in _TASK_FIELDS.items() if name != "key"},
            "status": enum_schema(["pending", "in_progress", "completed", "skipped", "failed", "on_hold"]),
            "reason": _REASON,
            "claim_token": _TOKEN,
            "force": boolean_schema("Despite another agent's claim."),
            "metadata": object_schema(),
        },
    ),
)
