"""The tools of sessions: for the model that chooses among them, so each says when to reach for it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.agents.mcp_tools.shapes import AgentsTool, Schema, adds, choice, fields, flag, free, listed, number, reads, sets, text

READ, WRITE = "sessions.read", "sessions.write"

_SESSION = text(100, "The session's id.")
_LINES = listed(text(10_000), 200)
_HANDOFF = fields(
    [],
    {
        "summary": text(50_000, "How things stand."),
        "completed": {**_LINES, "description": "What is done."},
        "remaining": {**_LINES, "description": "What is not."},
        "blockers": {**_LINES, "description": "What stands in the way."},
        "decisions": {**_LINES, "description": "What was decided, and why; also what did not work."},
        "next_steps": {**_LINES, "description": "What to do first."},
        "refs": free("Branch, commit, files: what the notes speak of."),
    },
)
_WHO: Schema = {
    "agent_id": text(100, "Who you are; by default the key's agent, else the agent_type."),
    "goal": text(10_000, "What the session is for."),
    "context": free("Whatever is worth keeping with it, such as the branch."),
}

SESSIONS: Sequence[AgentsTool] = (
    adds(
        "session_start",
        WRITE,
        "Start working: you get the plan, its current phase, what is ready, the hand-off and checkpoint of whoever worked on it before, "
        "and memories. Do this first; then task_claim_next with the session_id.",
        ["agent_type"],
        {
            "agent_type": text(100, "What kind of agent you are, such as claude-code."),
            "plan": text(255, "The plan that you work on, by slug or id."),
            "org": text(100, "Of a session without a plan."),
            "project": text(255, "Of a session without a plan."),
            **_WHO,
            "takeover": flag("End your own open session on the plan, and go on from it."),
        },
    ),
    adds(
        "session_resume",
        WRITE,
        "Go on from a session that ended, was abandoned or is paused: a new one with its plan, hand-off and last checkpoint.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "agent_type": text(100),
            **_WHO,
            "takeover": flag("Resume one that is still active: it ends."),
        },
    ),
    reads(
        "session_list",
        READ,
        "List sessions, newest first: who works on what, and what was left behind.",
        [],
        {
            "status": choice(["active", "paused", "completed", "failed", "handed_off", "abandoned"]),
            "agent_id": text(100),
            "plan": text(255, "By slug or id."),
            "org": text(100),
            "project": text(255),
            "page": number(1, 100_000),
            "per_page": number(1, 100, "15 by default."),
        },
    ),
    reads("session_show", READ, "Show a session with its hand-off and what was done in it.", ["session_id"], {"session_id": _SESSION}),
    reads(
        "session_events",
        READ,
        "List what happened in a session, in order.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "after": {"type": "integer", "minimum": 0, "description": "Only events with a greater seq."},
            "type": choice(["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]),
            "per_page": number(1, 100, "15 by default."),
        },
    ),
    adds(
        "session_log",
        WRITE,
        "Write down what happened: a decision with its reason, something made, an error, a question. Short, in full sentences.",
        ["session_id", "message"],
        {
            "session_id": _SESSION,
            "type": choice(["note", "action", "decision", "question", "answer", "artifact", "error"], "note by default."),
            "message": text(50_000, "What happened."),
            "data": free("The same for machines."),
            "task_id": text(100, "The task that it is about."),
        },
    ),
    adds(
        "session_checkpoint",
        WRITE,
        "Save what lets the work go on from here if you stop: the next session on the plan gets the latest. Do it after each step that "
        "would be costly to repeat.",
        ["session_id", "state"],
        {
            "session_id": _SESSION,
            "state": free("Whatever you need to go on: done steps, findings, the next step, files. At most 256 KiB."),
            "message": {"type": "string", "maxLength": 50_000, "description": "Where it stands, in words."},
            "task_id": text(100, "The task that it is about."),
        },
    ),
    sets("session_heartbeat", WRITE, "Say that you are there while you do nothing else here.", ["session_id"], {"session_id": _SESSION}),
    sets(
        "session_update",
        WRITE,
        "Pause or go on with a session, change its goal, write its hand-off early, or take the hand-off that it was offered.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": choice(["active", "paused"]),
            "goal": text(10_000),
            "summary": text(50_000, "What came of it so far."),
            "context": free("Instead of the one before."),
            "handoff": _HANDOFF,
            "acknowledge_handoff": choice(["loaded", "ignored_stale"], "You have read what was handed to you: it is offered no more."),
        },
    ),
    sets(
        "session_handoff",
        WRITE,
        "End a session with a hand-off: the next one that starts on the plan gets it. Your tasks are free again. Write what you would "
        "want to be told.",
        ["session_id", "handoff"],
        {"session_id": _SESSION, "handoff": _HANDOFF, "summary": text(50_000, "What came of it.")},
    ),
    sets(
        "session_end",
        WRITE,
        "End a session whose work is done or has failed. If somebody is to go on, use session_handoff.",
        ["session_id"],
        {
            "session_id": _SESSION,
            "status": choice(["completed", "failed"], "completed by default."),
            "summary": text(50_000, "What came of it."),
            "promote": flag("Keep its session memories, as memories of the project."),
        },
    ),
)
