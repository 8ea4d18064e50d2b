"""The tools of plans, templates and tasks: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.tool_schemas import (
    AgentsTool,
    Schema,
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
    value,
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
"""A call that waits longer may be cut off by what is between, which takes the task and loses the answer."""

_PLAN = text_schema("Slug or id.")
_PHASE = text_schema("Id, or position from 1.")
_TASK = text_schema()
_TOKEN = text_schema("From the claim.")
_CLAIM_SESSION = text_schema("The session of the claim: enough without claim_token.")
_SESSION = text_schema("Your session; its tasks are freed when it ends.")
_TTL = integer_schema(1, MAX_TTL_S, "Lease in seconds; 900 by default.")
_ORG, _PROJECT = text_schema(), text_schema()
_NAME, _TEXT = text_schema(), text_schema()
_DEPENDS_ON = array_schema({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "Those that come first.")
_CRITERIA = array_schema(text_schema())
_PRIORITY = integer_schema(0, 4, "0 is most urgent; 2 by default.")
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
            "tasks": array_schema(
                {"anyOf": [closed_object_schema(["name"], _TASK_FIELDS), text_schema()]}, "Each as an object, or only its name."
            ),
        },
    ),
    "key: a short name for depends_on of others.",
)

PLAN_TOOLS: Sequence[AgentsTool] = (
    read_tool(
        "plan_list",
        READ_SCOPE,
        "List plans, newest first, with their progress. Look here before you make one.",
        [],
        {
            "status": enum_schema(["draft", "active", "paused", "completed", "archived"]),
            "org": _ORG,
            "project": _PROJECT,
            "q": text_schema("Words of title or description."),
            **_PAGE,
        },
    ),
    read_tool(
        "plan_show",
        READ_SCOPE,
        "Show a plan with its phases and tasks: done, ready, blocked, and by whom.",
        ["plan"],
        {"plan": _PLAN},
    ),
    create_tool(
        "plan_create",
        PLAN_WRITE_SCOPE,
        "Make a plan with phases and tasks. Keep tasks small, with acceptance criteria; without depends_on they run in parallel. "
        "If a template fits, use plan_from_template.",
        ["title"],
        {
            "title": _NAME,
            "description": _TEXT,
            "slug": text_schema(),
            "status": enum_schema(["draft", "active"], "active: work may begin; draft by default."),
            "org": _ORG,
            "project": _PROJECT,
            "metadata": object_schema(),
            "phases": _PHASES,
            "tasks": array_schema({"anyOf": [text_schema(), {"type": "object"}]}, "In place of phases: tasks of a single phase."),
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
            "force": boolean_schema("Complete it with open phases."),
        },
    ),
    update_tool("plan_restore", PLAN_WRITE_SCOPE, "Restore an archived plan.", ["plan"], {"plan": _PLAN}),
    read_tool(
        "templates",
        TEMPLATE_READ_SCOPE,
        "List templates of plans (bug fix, feature, refactor, release and others) with their variables.",
        [],
        {"q": text_schema(), "category": text_schema(), **_PAGE},
    ),
    read_tool("template_show", TEMPLATE_READ_SCOPE, "Show a template with its phases and tasks.", ["slug"], {"slug": text_schema()}),
    create_tool(
        "plan_from_template",
        TEMPLATE_USE_SCOPE,
        "Make a plan from a template, with values for its variables.",
        ["template"],
        {
            "template": text_schema("Slug."),
            "variables": object_schema("Name and value of each."),
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
            "force": boolean_schema("With open tasks or before other phases."),
        },
    ),
    create_tool(
        "phase_checkpoint",
        WORK_SCOPE,
        "Write a note on the progress of a phase.",
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
    read_tool("task_show", READ_SCOPE, "Show a task: what to do, its criteria, dependencies and holder.", ["task_id"], {"task_id": _TASK}),
    create_tool(
        "task_claim_next",
        WORK_SCOPE,
        "Claim the best ready task: the normal way to get work. If there is none, reason says why; plan_done: you are finished.",
        [],
        {
            "plan": text_schema("By default the session's plan; any: every active plan."),
            "session_id": _SESSION,
            "ttl_s": _TTL,
            "wait_s": integer_schema(0, MAX_WAIT_S, "Wait for one to become ready."),
        },
    ),
    create_tool(
        "task_claim",
        WORK_SCOPE,
        "Claim one particular task.",
        ["task_id"],
        {"task_id": _TASK, "session_id": _SESSION, "ttl_s": _TTL},
    ),
    update_tool(
        "task_heartbeat",
        WORK_SCOPE,
        "Renew the lease of your task before it ends.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _CLAIM_SESSION, "ttl_s": _TTL},
    ),
    create_tool(
        "task_complete",
        WORK_SCOPE,
        "Complete your task, once its acceptance criteria hold; with claim_next you get the next one.",
        ["task_id"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _CLAIM_SESSION,
            "result": value(),
            "notes": _TEXT,
            "claim_next": boolean_schema(),
        },
    ),
    create_tool(
        "task_fail",
        WORK_SCOPE,
        "Report that your task cannot be done. To let somebody else try, use task_release.",
        ["task_id", "error"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _CLAIM_SESSION,
            "error": text_schema("Why, and what you tried."),
            "result": value(),
        },
    ),
    create_tool(
        "task_release",
        WORK_SCOPE,
        "Give your task back for somebody else.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _CLAIM_SESSION, "reason": _REASON},
    ),
    create_tool(
        "task_add",
        WORK_SCOPE,
        "Add a task to a phase, such as work found on the way.",
        ["plan", "phase", "name"],
        {"plan": _PLAN, "phase": _PHASE, **_TASK_FIELDS, "metadata": object_schema()},
    ),
    update_tool(
        "task_update",
        WORK_SCOPE,
        "Change a task as its planner. If you hold it, use task_complete, task_fail or task_release.",
        ["task_id"],
        {
            "task_id": _TASK,
            **{name: schema for name, schema in _TASK_FIELDS.items() if name != "key"},
            "status": enum_schema(["pending", "in_progress", "completed", "skipped", "failed", "on_hold"]),
            "reason": _REASON,
            "claim_token": _TOKEN,
            "force": boolean_schema("Although somebody works on it."),
            "metadata": object_schema(),
        },
    ),
)
