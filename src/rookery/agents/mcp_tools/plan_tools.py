"""The tools of plans, templates and tasks: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.shapes import AgentsTool, Schema, adds, choice, fields, flag, free, listed, number, reads, sets, text, value
from rookery.agents.schemas.plans import MAX_TTL_S

READ, PLAN, WORK, SHELF, USE = "plans.read", "plans.write", "phases.write", "templates.read", "templates.instantiate"

LONGEST_WAIT_S = 25
"""A call that waits longer may be cut off by what is between, which takes the task and loses the answer."""

_PLAN = text("Slug or id.")
_PHASE = text("Id, or position from 1.")
_TASK = text()
_TOKEN = text("From the claim.")
_PROOF = text("The session of the claim: enough without claim_token.")
_SESSION = text("Your session; its tasks are freed when it ends.")
_TTL = number(1, MAX_TTL_S, "Lease in seconds; 900 by default.")
_ORG, _PROJECT = text(), text()
_NAME, _PROSE = text(), text()
_AFTER = listed({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "Those that come first.")
_CRITERIA = listed(text())
_PRIORITY = number(0, 4, "0 is most urgent; 2 by default.")
_REASON = text()
_PAGE: Schema = {"page": {"type": "integer"}, "per_page": {"type": "integer"}}

_TASK_FIELDS: Schema = {
    "name": _NAME,
    "description": _PROSE,
    "priority": _PRIORITY,
    "notes": _PROSE,
    "key": text(),
    "depends_on": _AFTER,
    "acceptance_criteria": _CRITERIA,
}
_PHASES = listed(
    fields(
        ["name"],
        {
            "name": _NAME,
            "description": _PROSE,
            "key": text(),
            "depends_on": _AFTER,
            "acceptance_criteria": _CRITERIA,
            "tasks": listed({"anyOf": [fields(["name"], _TASK_FIELDS), text()]}, "Each as an object, or only its name."),
        },
    ),
    "key: a short name for depends_on of others.",
)

PLANS: Sequence[AgentsTool] = (
    reads(
        "plan_list",
        READ,
        "List plans, newest first, with their progress. Look here before you make one.",
        [],
        {
            "status": choice(["draft", "active", "paused", "completed", "archived"]),
            "org": _ORG,
            "project": _PROJECT,
            "q": text("Words of title or description."),
            **_PAGE,
        },
    ),
    reads(
        "plan_show",
        READ,
        "Show a plan with its phases and tasks: done, ready, blocked, and by whom.",
        ["plan"],
        {"plan": _PLAN},
    ),
    adds(
        "plan_create",
        PLAN,
        "Make a plan with phases and tasks. Keep tasks small, with acceptance criteria; without depends_on they run in parallel. "
        "If a template fits, use plan_from_template.",
        ["title"],
        {
            "title": _NAME,
            "description": _PROSE,
            "slug": text(),
            "status": choice(["draft", "active"], "active: work may begin; draft by default."),
            "org": _ORG,
            "project": _PROJECT,
            "metadata": free(),
            "phases": _PHASES,
            "tasks": listed({"anyOf": [text(), {"type": "object"}]}, "In place of phases: tasks of a single phase."),
        },
    ),
    sets(
        "plan_status",
        PLAN,
        "Start, pause, complete or archive a plan. An archived plan is read-only until plan_restore.",
        ["plan", "status"],
        {
            "plan": _PLAN,
            "status": choice(["draft", "active", "paused", "completed", "archived"]),
            "reason": _REASON,
            "force": flag("Complete it with open phases."),
        },
    ),
    sets("plan_restore", PLAN, "Restore an archived plan.", ["plan"], {"plan": _PLAN}),
    reads(
        "templates",
        SHELF,
        "List templates of plans (bug fix, feature, refactor, release and others) with their variables.",
        [],
        {"q": text(), "category": text(), **_PAGE},
    ),
    reads("template_show", SHELF, "Show a template with its phases and tasks.", ["slug"], {"slug": text()}),
    adds(
        "plan_from_template",
        USE,
        "Make a plan from a template, with values for its variables.",
        ["template"],
        {
            "template": text("Slug."),
            "variables": free("Name and value of each."),
            "version": text(),
            "title": text(),
            "slug": text(),
            "status": choice(["draft", "active"]),
            "org": _ORG,
            "project": _PROJECT,
        },
    ),
    sets(
        "phase_status",
        WORK,
        "Start, complete, skip, hold or reopen a phase.",
        ["plan", "phase", "status"],
        {
            "plan": _PLAN,
            "phase": _PHASE,
            "status": choice(["pending", "in_progress", "completed", "skipped", "on_hold"]),
            "reason": _REASON,
            "force": flag("With open tasks or before other phases."),
        },
    ),
    adds(
        "phase_checkpoint",
        WORK,
        "Write a note on the progress of a phase.",
        ["plan", "phase", "note"],
        {"plan": _PLAN, "phase": _PHASE, "note": text(), "context": free()},
    ),
)

TASKS: Sequence[AgentsTool] = (
    reads(
        "task_ready",
        READ,
        "List tasks that can be claimed now, best first. To get work, call task_claim_next.",
        [],
        {"plan": _PLAN, **_PAGE},
    ),
    reads("task_show", READ, "Show a task: what to do, its criteria, dependencies and holder.", ["task_id"], {"task_id": _TASK}),
    adds(
        "task_claim_next",
        WORK,
        "Claim the best ready task: the normal way to get work. If there is none, reason says why; plan_done: you are finished.",
        [],
        {
            "plan": text("By default the session's plan; any: every active plan."),
            "session_id": _SESSION,
            "ttl_s": _TTL,
            "wait_s": number(0, LONGEST_WAIT_S, "Wait for one to become ready."),
        },
    ),
    adds(
        "task_claim",
        WORK,
        "Claim one particular task.",
        ["task_id"],
        {"task_id": _TASK, "session_id": _SESSION, "ttl_s": _TTL},
    ),
    sets(
        "task_heartbeat",
        WORK,
        "Renew the lease of your task before it ends.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "ttl_s": _TTL},
    ),
    adds(
        "task_complete",
        WORK,
        "Complete your task, once its acceptance criteria hold; with claim_next you get the next one.",
        ["task_id"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _PROOF,
            "result": value(),
            "notes": _PROSE,
            "claim_next": flag(),
        },
    ),
    adds(
        "task_fail",
        WORK,
        "Report that your task cannot be done. To let somebody else try, use task_release.",
        ["task_id", "error"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "error": text("Why, and what you tried."), "result": value()},
    ),
    adds(
        "task_release",
        WORK,
        "Give your task back for somebody else.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "reason": _REASON},
    ),
    adds(
        "task_add",
        WORK,
        "Add a task to a phase, such as work found on the way.",
        ["plan", "phase", "name"],
        {"plan": _PLAN, "phase": _PHASE, **_TASK_FIELDS, "metadata": free()},
    ),
    sets(
        "task_update",
        WORK,
        "Change a task as its planner. If you hold it, use task_complete, task_fail or task_release.",
        ["task_id"],
        {
            "task_id": _TASK,
            **{name: schema for name, schema in _TASK_FIELDS.items() if name != "key"},
            "status": choice(["pending", "in_progress", "completed", "skipped", "failed", "on_hold"]),
            "reason": _REASON,
            "claim_token": _TOKEN,
            "force": flag("Although somebody works on it."),
            "metadata": free(),
        },
    ),
)
