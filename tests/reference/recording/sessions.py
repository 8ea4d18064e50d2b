"""The part of the story about sessions of agents."""

from __future__ import annotations

from typing import cast

from tests.reference.recording.recorder import Json, Recorder

_BASE = "/api/agent/sessions"
_SESSION = f"{_BASE}/{{session_id}}"


async def play(recorder: Recorder) -> None:
    """Start a session, record events, hand it over, and resume it."""
    kim = recorder.instance.admin
    start = {
        "agent_type": "reviewer",
        "agent_id": "kim",
        "org": "acme",
        "project": "shop",
        "goal": "Review the new checkout",
        "context": {"branch": "checkout"},
    }
    started = await recorder.send(kim, f"POST {_BASE}", start)
    session = cast("Json", started["session"])["id"]
    await recorder.send(kim, f"GET {_BASE}", query={"status": "active", "agent_id": "kim"})
    await recorder.send(kim, f"GET {_SESSION}", session_id=session)
    note = {
        "type": "decision",
        "message": "The form keeps its state in the address, so that a reload loses nothing.",
        "data": {"file": "checkout/form.ts"},
        "tokens": {"input": 1200, "output": 300},
    }
    await recorder.send(kim, f"POST {_SESSION}/events", note, session_id=session)
    await recorder.send(kim, f"GET {_SESSION}/events", query={"type": "decision"}, session_id=session)
    await recorder.send(kim, f"POST {_SESSION}/heartbeat", session_id=session)
    await recorder.send(kim, f"PATCH {_SESSION}", {"goal": "Review and measure the new checkout"}, session_id=session)
    handoff = {
        "summary": "The form is reviewed; the page is not measured yet.",
        "completed": ["Reviewed the form"],
        "remaining": ["Measure the page"],
        "next_steps": ["Ask for access to the test machine"],
        "refs": {"branch": "checkout"},
    }
    end = {"status": "handed_off", "summary": "Half of it is done.", "handoff": handoff}
    await recorder.send(kim, f"POST {_SESSION}/end", end, session_id=session)
    await recorder.send(kim, f"GET {_SESSION}/stream", query={"after": 0}, session_id=session)
    await recorder.send(kim, f"POST {_SESSION}/resume", {"agent_id": "kim", "goal": "Measure the new checkout"}, session_id=session)
    start = {"session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0", "source": "startup", "hook_event_name": "SessionStart"}
    await recorder.send(
        kim,
        "POST /api/agent/hooks/{client}/{event}",
        start,
        query={"org": "acme", "project": "shop", "branch": "checkout"},
        client="claude-code",
        event="session-start",
    )
