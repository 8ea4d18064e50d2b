"""The tools of sessions: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.shapes import AgentsTool, Schema, adds, choice, fields, flag, free, listed, reads, sets, text

READ, WRITE = "sessions.read", "sessions.write"

_SESSION = text()
_LINES = listed(text())
_HANDOFF = fields(
    [],
    {
        "summary": text("How things stand."),
        "completed": _LINES,
        "remaining": _LINES,
        "blockers": _LINES,
        "decisions": listed(text(), "And why; also what did not work."),
        "next_steps": _LINES,
        "refs": {"anyOf": [_LINES, {"type": "object"}], "description": "Branch, commit, files."},
    },
)
_WHO: Schema = {
    "agent_id": text("By default your key's agent."),
    "goal": text(),
    "context": free("Such as the branch."),
}

SESSIONS: Sequence[AgentsTool] = (
    adds(
        "session_start",
        WRITE,
        "Start working. Call this first: you get the plan, ready tasks, the last hand-off and checkpoint, and memories. "
        "Then task_claim_next with the session_id.",
        [],
        {
            "agent_type": text("Such as claude-code."),
            "plan": text("Slug or id."),
            "org": text("Without a plan only."),
            "project": text("Without a plan only."),
            **_WHO,
            "takeover": flag("End your open session on the plan."),
        },
    ),
    adds(
        "session_resume",
        WRITE,
        "Continue an ended, abandoned or paused session in a new one, with its hand-off and checkpoint.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "agent_type": text(),
            **_WHO,
            "takeover": flag("End it, if it is still active."),
        },
    ),
    reads(
        "session_list",
        READ,
        "List sessions, newest first: who works on what.",
        [],
        {
            "status": choice(["active", "paused", "completed", "failed", "handed_off", "abandoned"]),
            "agent_id": text(),
            "plan": text(),
            "org": text(),
            "project": text(),
            "page": {"type": "integer"},
            "per_page": {"type": "integer"},
        },
    ),
    reads("session_show", READ, "Show a session with its hand-off.", ["session_id"], {"session_id": _SESSION}),
    reads(
        "session_events",
        READ,
        "List the events of a session.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "after": {"type": "integer", "description": "A seq."},
            "type": choice(["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]),
            "per_page": {"type": "integer"},
        },
    ),
    adds(
        "session_log",
        WRITE,
        "Log what happened: a decision with its reason, a result, an error, a question.",
        ["session_id", "message"],
        {
            "session_id": _SESSION,
            "type": choice(["note", "action", "decision", "question", "answer", "artifact", "error"], "note by default."),
            "message": text(),
            "data": free(),
            "task_id": text(),
        },
    ),
    adds(
        "session_checkpoint",
        WRITE,
        "Save the state of the work after each costly step; the next session on the plan gets it.",
        ["session_id", "state"],
        {
            "session_id": _SESSION,
            "state": free("Done steps, findings, the next step, files."),
            "message": text(),
            "task_id": text(),
        },
    ),
    sets("session_heartbeat", WRITE, "Keep a session open while you do nothing else in it.", ["session_id"], {"session_id": _SESSION}),
    sets(
        "session_update",
        WRITE,
        "Pause or continue a session, change its goal, write its hand-off early, or accept the one offered.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": choice(["active", "paused"]),
            "goal": text(),
            "summary": text(),
            "context": free(),
            "handoff": {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "As of session_handoff."},
            "acknowledge_handoff": choice(["loaded", "ignored_stale"], "It is then offered no more."),
        },
    ),
    sets(
        "session_handoff",
        WRITE,
        "End a session with a hand-off for the next one on the plan. Your tasks are free again.",
        ["session_id", "handoff"],
        {"session_id": _SESSION, "handoff": _HANDOFF, "summary": text()},
    ),
    sets(
        "session_end",
        WRITE,
        "End a session: its work is done or failed. If somebody is to continue, use session_handoff.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": choice(["completed", "failed"], "completed by default."),
            "summary": text(),
            "promote": flag("Keep its session memories for the project."),
        },
    ),
)
