"""The tools of plans, templates and tasks: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.shapes import AgentsTool, Schema, adds, choice, fields, flag, free, listed, number, reads, sets, text

READ, PLAN, WORK, SHELF, USE = "plans.read", "plans.write", "phases.write", "templates.read", "templates.instantiate"

LONGEST_WAIT_S = 25
"""A call that waits longer may be cut off by what is between, which takes the task and loses the answer."""

_PLAN = text(255, "The plan, by slug or id.")
_PHASE = text(255, "The phase, by id or by its position from 1.")
_TASK = text(100, "The task's id.")
_TOKEN = text(100, "The token that claiming the task gave you.")
_PROOF = text(100, "The session that you claimed it in: enough without claim_token.")
_SESSION = text(100, "The session that you work in, so that its tasks are freed when it ends.")
_TTL = number(1, 86_400, "Seconds until the task is free again unless you call task_heartbeat; 900 by default.")
_ORG, _PROJECT = text(100, "The organisation."), text(255, "The project within the org.")
_NAME, _PROSE = text(255), {"type": "string", "maxLength": 50_000}
_AFTER = listed({"type": ["string", "integer"]}, 100, "Keys, names, ids or positions of those that must be done before.")
_CRITERIA = listed({"type": "string", "minLength": 1, "maxLength": 1_000}, 50, "What must be true of finished work.")
_PRIORITY = number(0, 4, "0 is the most urgent, 4 the least; 2 by default.")

_TASK_FIELDS: Schema = {
    "name": _NAME,
    "description": _PROSE,
    "priority": _PRIORITY,
    "notes": _PROSE,
    "key": text(100, "A short word by which others may depend on it."),
    "depends_on": _AFTER,
    "acceptance_criteria": _CRITERIA,
    "metadata": free("Whatever you want to keep with it."),
}
_PHASES = listed(
    fields(
        ["name"],
        {
            "name": _NAME,
            "description": _PROSE,
            "key": text(100, "A short word by which others may depend on it."),
            "depends_on": _AFTER,
            "acceptance_criteria": _CRITERIA,
            "tasks": listed({"anyOf": [fields(["name"], _TASK_FIELDS), text(255)]}, 500, "Each whole, or just its name."),
        },
    ),
    100,
    "What to do, in phases; a phase may wait for others.",
)
_PAGE: Schema = {"page": number(1, 100_000), "per_page": number(1, 100, "15 by default.")}

PLANS: Sequence[AgentsTool] = (
    reads(
        "plan_list",
        READ,
        "List plans, newest first, with how far each is. Do this before you make one: the work may be planned already.",
        [],
        {
            "status": choice(["draft", "active", "paused", "completed", "archived"], "Archived ones are listed by this alone."),
            "org": _ORG,
            "project": _PROJECT,
            "q": text(200, "Words of its title, slug or description."),
            **_PAGE,
        },
    ),
    reads(
        "plan_show",
        READ,
        "Show a plan with its phases and tasks: what is done, what is ready, what is blocked and by what, who works on what.",
        ["plan"],
        {"plan": _PLAN},
    ),
    adds(
        "plan_create",
        PLAN,
        "Make a plan with its phases and tasks at once. Small tasks that one agent finishes in a sitting, each with acceptance criteria; "
        "depends_on where the order matters, else they are worked on at the same time. If a template fits, use plan_from_template.",
        ["title"],
        {
            "title": _NAME,
            "description": _PROSE,
            "slug": text(64, "Its name in addresses; by default made of the title."),
            "status": choice(["draft", "active"], "active: work may begin at once; draft by default."),
            "org": _ORG,
            "project": _PROJECT,
            "metadata": free("Whatever you want to keep with it."),
            "phases": _PHASES,
            "tasks": listed(
                {"anyOf": [fields(["name"], _TASK_FIELDS), text(255)]}, 500, "In place of phases: the tasks of a single phase."
            ),
        },
    ),
    sets(
        "plan_status",
        PLAN,
        "Begin, pause, go on with, complete or archive a plan. Completing one with open phases is refused and names them. "
        "An archived one is read-only until plan_restore.",
        ["plan", "status"],
        {
            "plan": _PLAN,
            "status": choice(["draft", "active", "paused", "completed", "archived"]),
            "reason": text(1_000, "Why, for the record."),
            "force": flag("Complete it although phases are open; that is recorded."),
        },
    ),
    sets("plan_restore", PLAN, "Take a plan out of the archive again, in the status that it had before.", ["plan"], {"plan": _PLAN}),
    reads(
        "templates",
        SHELF,
        "List templates of plans with what each asks: bug fix, feature, refactor, dependency update, test gaps, docs sync, incident, "
        "release, and those of this workspace.",
        [],
        {"q": text(200, "Words of its slug, name or description."), "category": text(64), **_PAGE},
    ),
    reads("template_show", SHELF, "Show a template whole: its variables, guidelines, phases and tasks.", ["slug"], {"slug": text(64)}),
    adds(
        "plan_from_template",
        USE,
        "Make a plan of a template. Give its variables; those without a default are required, and what is wrong is told by name.",
        ["template"],
        {
            "template": text(64, "The template's slug."),
            "variables": free("A value for each variable."),
            "version": text(64, "A version of the template; by default the one in use."),
            "title": text(255, "Instead of the template's."),
            "slug": text(64, "Its name in addresses; by default made of the title."),
            "status": choice(["draft", "active"], "active: work may begin at once; draft by default."),
            "org": _ORG,
            "project": _PROJECT,
        },
    ),
    sets(
        "phase_status",
        WORK,
        "Begin, complete, skip, hold or reopen a phase. Completing the last one completes the plan.",
        ["plan", "phase", "status"],
        {
            "plan": _PLAN,
            "phase": _PHASE,
            "status": choice(["pending", "in_progress", "completed", "skipped", "on_hold"]),
            "reason": text(1_000, "Why, for the record."),
            "force": flag("Do it although tasks are open or other phases are not done; that is recorded."),
        },
    ),
    adds(
        "phase_checkpoint",
        WORK,
        "Note where a phase stands, for whoever looks at the plan.",
        ["plan", "phase", "note"],
        {"plan": _PLAN, "phase": _PHASE, "note": text(10_000, "Where it stands."), "context": free("The same for machines.")},
    ),
)

TASKS: Sequence[AgentsTool] = (
    reads(
        "task_ready",
        READ,
        "List tasks that may be claimed now, the best first. To just get to work, call task_claim_next instead.",
        [],
        {"plan": _PLAN, **_PAGE},
    ),
    reads(
        "task_show", READ, "Show a task: what to do, when it is done, what it waits for, who works on it.", ["task_id"], {"task_id": _TASK}
    ),
    adds(
        "task_claim_next",
        WORK,
        "Take the best task that is ready, so that nobody else works on it: the normal way to get work. If there is none, it says why "
        "and when to ask again; plan_done means that you are finished.",
        [],
        {
            "plan": {**_PLAN, "description": "Slug or id; by default the session's plan. any: of any active plan."},
            "session_id": _SESSION,
            "ttl_s": _TTL,
            "wait_s": number(0, LONGEST_WAIT_S, "Wait so long for one to become ready."),
        },
    ),
    adds(
        "task_claim",
        WORK,
        "Take one particular task. Refused if somebody has it, telling who and until when.",
        ["task_id"],
        {"task_id": _TASK, "session_id": _SESSION, "ttl_s": _TTL},
    ),
    sets(
        "task_heartbeat",
        WORK,
        "Keep a task that you work on; call it well before its lease ends, or the task goes to somebody else.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "ttl_s": _TTL},
    ),
    adds(
        "task_complete",
        WORK,
        "Say that a task is done, with what came of it; only when its acceptance criteria hold. With claim_next you get the next one.",
        ["task_id"],
        {
            "task_id": _TASK,
            "claim_token": _TOKEN,
            "session_id": _PROOF,
            "result": {"description": "What came of it: a sentence, or any JSON."},
            "notes": _PROSE,
            "claim_next": flag("Take the plan's best ready task in the same step."),
        },
    ),
    adds(
        "task_fail",
        WORK,
        "Say that a task cannot be done, and why; a planner decides what becomes of it. To let somebody else try, use task_release.",
        ["task_id", "error"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "error": text(10_000, "Why, and what you tried."), "result": {}},
    ),
    adds(
        "task_release",
        WORK,
        "Give a task back unfinished, so that somebody else may take it.",
        ["task_id"],
        {"task_id": _TASK, "claim_token": _TOKEN, "session_id": _PROOF, "reason": text(1_000, "Why.")},
    ),
    adds(
        "task_add",
        WORK,
        "Add a task to a phase, such as work that you found on the way.",
        ["plan", "phase", "name"],
        {"plan": _PLAN, "phase": _PHASE, **_TASK_FIELDS},
    ),
    sets(
        "task_update",
        WORK,
        "Change a task: its words, priority, dependencies, criteria, or its status by a planner's hand. Who works on it uses "
        "task_complete, task_fail or task_release instead.",
        ["task_id"],
        {
            "task_id": _TASK,
            **{name: schema for name, schema in _TASK_FIELDS.items() if name != "key"},
            "status": choice(["pending", "in_progress", "completed", "skipped", "failed", "on_hold"]),
            "reason": text(1_000, "Why, for the record."),
            "claim_token": _TOKEN,
            "force": flag("Change the status although somebody works on it; that is recorded."),
        },
    ),
)
