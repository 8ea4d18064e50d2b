"""
The payloads and answers of each client of `HOOKS`. Pure functions.

The names of the fields of all clients are read for each of them, because VS Code and Cursor also run the hooks of Claude Code, with their
own field names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rookery.agents.models.agent_hooks import HookCall, HookPayload
from rookery.coding_agents.hook_declarations import HOOKS, HookEvent

MAX_SESSION_ID_CHARS = 200

_SESSION_FIELDS = ("session_id", "sessionId", "conversation_id")
_TURN_FIELDS = ("turn_id", "generation_id", "prompt_id")
_PROMPT_FIELDS = ("prompt", "user_prompt")
_MESSAGE_FIELDS = ("last_assistant_message", "text", "prompt_response")
"""`text` is the field of Cursor's afterAgentResponse, `prompt_response` that of Gemini CLI's AfterAgent."""

_HOOK_CONTEXT = re.compile(r"\s*<hook_context>[^<]*</hook_context>\s*")
"""The texts of hooks of the start, which Gemini CLI puts before the prompt without a terminal (`-p`). It escapes each `<` in them."""

_MAX_ID_CHARS = 200


def read_call(client: str, event: HookEvent, payload: HookPayload) -> HookCall | None:
    """Return the event that *client* reports, or None if the payload does not name its session. Unknown fields are ignored."""
    session_id = _find_text(payload, _SESSION_FIELDS)
    if not 0 < len(session_id) <= MAX_SESSION_ID_CHARS or not session_id.isprintable():
        return None
    return HookCall(
        client=client,
        event=event,
        session_id=session_id,
        turn=_find_text(payload, _TURN_FIELDS)[:_MAX_ID_CHARS] or None,
        source=_find_text(payload, ("source",))[:_MAX_ID_CHARS] or "startup",
        prompt=_read_prompt(client, payload) if event == "prompt" else "",
        message=_find_text(payload, _MESSAGE_FIELDS) if event == "stop" else "",
    )


def is_injected(client: str, event: HookEvent) -> bool:
    """Return True if *client* adds the text of an answer to *event* to the conversation."""
    return any(hook.is_injected for hook in HOOKS[client] if hook.event == event)


def build_answer(client: str, event: HookEvent, text: str) -> Mapping[str, object]:
    """Return the answer in the schema of *client*. It is empty without a *text*, and if the client cannot add one."""
    name = next((hook.name for hook in HOOKS[client] if hook.event == event and hook.is_injected), None)
    if not text or name is None:
        return {}
    if client == "cursor":
        return {"additional_context": text}
    output = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}
    # Copilot CLI, which runs the hooks of VS Code, reads the text only at the top.
    return {**output, "additionalContext": text} if client == "vscode" else output


def _read_prompt(client: str, payload: HookPayload) -> str:
    """Return the prompt of the user. It is empty if Qwen Code reports the results of tools."""
    prompt = _find_text(payload, _PROMPT_FIELDS)
    while client == "gemini" and (context := _HOOK_CONTEXT.match(prompt)) is not None:
        prompt = prompt[context.end() :]
    return prompt


def _find_text(payload: HookPayload, names: Sequence[str]) -> str:
    """Return the first of the fields that is a text which is not blank, or an empty text."""
    values = (payload.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")
