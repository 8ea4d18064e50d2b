"""The tools of sessions: for the model that chooses among them, so each says when to reach for it."""

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
        "summary": text_schema("How things stand."),
        "completed": _LINES,
        "remaining": _LINES,
        "blockers": _LINES,
        "decisions": array_schema(text_schema(), "And why; also what did not work."),
        "next_steps": _LINES,
        "refs": {"anyOf": [_LINES, {"type": "object"}], "description": "Branch, commit, files."},
    },
)
_AGENT_FIELDS: Schema = {
    "agent_id": text_schema("By default your key's agent."),
    "goal": text_schema(),
    "context": object_schema("Such as the branch."),
}

SESSION_TOOLS: Sequence[AgentsTool] = (
    create_tool(
        "session_start",
        WRITE_SCOPE,
        "Start working. Call this first: you get the plan, ready tasks, the last hand-off and checkpoint, and memories. "
        "Then task_claim_next with the session_id.",
        [],
        {
            "agent_type": text_schema("Such as claude-code."),
            "plan": text_schema("Slug or id."),
            "org": text_schema("Without a plan only."),
            "project": text_schema("Without a plan only."),
            **_AGENT_FIELDS,
            "takeover": boolean_schema("End your open session on the plan."),
        },
    ),
    create_tool(
        "session_resume",
        WRITE_SCOPE,
        "Continue an ended, abandoned or paused session in a new one, with its hand-off and checkpoint.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "agent_type": text_schema(),
            **_AGENT_FIELDS,
            "takeover": boolean_schema("End it, if it is still active."),
        },
    ),
    read_tool(
        "session_list",
        READ_SCOPE,
        "List sessions, newest first: who works on what.",
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
    read_tool("session_show", READ_SCOPE, "Show a session with its hand-off.", ["session_id"], {"session_id": _SESSION}),
    read_tool(
        "session_events",
        READ_SCOPE,
        "List the events of a session.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "after": {"type": "integer", "description": "A seq."},
            "type": enum_schema(["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]),
            "per_page": {"type": "integer"},
        },
    ),
    create_tool(
        "session_log",
        WRITE_SCOPE,
        "Log what happened: a decision with its reason, a result, an error, a question.",
        ["session_id", "message"],
        {
            "session_id": _SESSION,
            "type": enum_schema(["note", "action", "decision", "question", "answer", "artifact", "error"], "note by default."),
            "message": text_schema(),
            "data": object_schema(),
            "task_id": text_schema(),
        },
    ),
    create_tool(
        "session_checkpoint",
        WRITE_SCOPE,
        "Save the state of the work after each costly step; the next session on the plan gets it.",
        ["session_id", "state"],
        {
            "session_id": _SESSION,
            "state": object_schema("Done steps, findings, the next step, files."),
            "message": text_schema(),
            "task_id": text_schema(),
        },
    ),
    update_tool(
        "session_heartbeat", WRITE_SCOPE, "Keep a session open while you do nothing else in it.", ["session_id"], {"session_id": _SESSION}
    ),
    update_tool(
        "session_update",
        WRITE_SCOPE,
        "Pause or continue a session, change its goal, write its hand-off early, or accept the one offered.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": enum_schema(["active", "paused"]),
            "goal": text_schema(),
            "summary": text_schema(),
            "context": object_schema(),
            "handoff": {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "As of session_handoff."},
            "acknowledge_handoff": enum_schema(["loaded", "ignored_stale"], "It is then offered no more."),
        },
    ),
    update_tool(
        "session_handoff",
        WRITE_SCOPE,
        "End a session with a hand-off for the next one on the plan. Your tasks are free again.",
        ["session_id", "handoff"],
        {"session_id": _SESSION, "handoff": _HANDOFF, "summary": text_schema()},
    ),
    update_tool(
        "session_end",
        WRITE_SCOPE,
        "End a session: its work is done or failed. If somebody is to continue, use session_handoff.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": enum_schema(["completed", "failed"], "completed by default."),
            "summary": text_schema(),
            "promote": boolean_schema("Keep its session memories for the project."),
        },
    ),
)
