"""Definitions of the tools for sessions. A model reads the descriptions, so each states when to use the tool."""

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
    object_schema,
    read_tool,
    text_schema,
    update_tool,
)

READ_SCOPE, WRITE_SCOPE = "sessions.read", "sessions.write"

_SESSION = text_schema()
_LINES = array_schema(text_schema())
_HANDOFF = closed_object_schema(
    [],
    {
        "summary": text_schema("Current state of the work."),
        "completed": _LINES,
        "remaining": _LINES,
        "blockers": _LINES,
        "decisions": array_schema(text_schema(), "With reasons; also failed attempts."),
        "next_steps": _LINES,
        "refs": {"anyOf": [_LINES, {"type": "object"}], "description": "Branch, commit, files."},
    },
)
_AGENT_FIELDS: Schema = {
    "agent_id": text_schema("Default: the agent of your key."),
    "goal": text_schema(),
    "context": object_schema("Such as the branch."),
}

SESSION_TOOLS: Sequence[AgentsTool] = (
    create_tool(
        "session_start",
        WRITE_SCOPE,
        "Start a session. Call this first: it returns the plan, ready tasks, the last hand-off and checkpoint, and memories. "
        "Then call task_claim_next with the session_id.",
        [],
        {
            "agent_type": text_schema("Such as claude-code."),
            "plan": text_schema("Slug or id."),
            "org": text_schema("Only without a plan."),
            "project": text_schema("Only without a plan."),
            **_AGENT_FIELDS,
            "takeover": boolean_schema("End your open session on the plan."),
        },
    ),
    create_tool(
        "session_resume",
        WRITE_SCOPE,
        "Continue an ended, abandoned or paused session in a new one, from its hand-off and checkpoint.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "agent_type": text_schema(),
            **_AGENT_FIELDS,
            "takeover": boolean_schema("End it first if it is active."),
        },
    ),
    read_tool(
        "session_list",
        READ_SCOPE,
        "List sessions, newest first, to see which agent works on which plan.",
        [],
        {
            "status": enum_schema(["active", "paused", "completed", "failed", "handed_off", "abandoned"]),
            "agent_id": text_schema(),
            "plan": text_schema(),
            "org": text_schema(),
            "project": text_schema(),
            "page": {"type": "integer"},
            "per_page": {"type": "integer"},
        },
    ),
    read_tool("session_show", READ_SCOPE, "Get a session with its hand-off.", ["session_id"], {"session_id": _SESSION}),
    read_tool(
        "session_events",
        READ_SCOPE,
        "List the events of a session.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "after": {"type": "integer", "description": "Events after this seq."},
            "type": enum_schema(["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]),
            "per_page": {"type": "integer"},
        },
    ),
    create_tool(
        "session_log",
        WRITE_SCOPE,
        "Log an event: a decision with its reason, a result, an error, a question.",
        ["session_id", "message"],
        {
            "session_id": _SESSION,
            "type": enum_schema(["note", "action", "decision", "question", "answer", "artifact", "error"], "Default note."),
            "message": text_schema(),
            "data": object_schema(),
            "task_id": text_schema(),
        },
    ),
    create_tool(
        "session_checkpoint",
        WRITE_SCOPE,
        "Save the state of your work after each costly step. The next session on the plan gets it.",
        ["session_id", "state"],
        {
            "session_id": _SESSION,
            "state": object_schema("Done steps, findings, next step, files."),
            "message": text_schema(),
            "task_id": text_schema(),
        },
    ),
    update_tool(
        "session_heartbeat",
        WRITE_SCOPE,
        "Keep your session open during long work without other calls.",
        ["session_id"],
        {"session_id": _SESSION},
    ),
    update_tool(
        "session_update",
        WRITE_SCOPE,
        "Pause or continue your session, change its goal, write its hand-off early, or acknowledge the one offered.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": enum_schema(["active", "paused"]),
            "goal": text_schema(),
            "summary": text_schema(),
            "context": object_schema(),
            "handoff": {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "As in session_handoff."},
            "acknowledge_handoff": enum_schema(["loaded", "ignored_stale"], "The hand-off is then no longer offered."),
        },
    ),
    update_tool(
        "session_handoff",
        WRITE_SCOPE,
        "End your session with a hand-off for the next session on the plan. This releases your tasks.",
        ["session_id", "handoff"],
        {"session_id": _SESSION, "handoff": _HANDOFF, "summary": text_schema()},
    ),
    update_tool(
        "session_end",
        WRITE_SCOPE,
        "End your session when its work is done or failed. For unfinished work, use session_handoff.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": enum_schema(["completed", "failed"], "Default completed."),
            "summary": text_schema(),
            "promote": boolean_schema("Move its session memories to the project."),
        },
    ),
)
