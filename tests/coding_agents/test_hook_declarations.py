"""The declared hooks of each coding agent."""

from __future__ import annotations

import pytest

from rookery.coding_agents.hook_declarations import CLIENTS, EVENTS, HOOKS, hook_path, is_switched_off


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_starts_by_a_command_and_declares_an_event_once(client: str) -> None:
    """The start of a session is a command, because no client sends it over HTTP."""
    hooks = HOOKS[client]
    start = next(hook for hook in hooks if hook.event == "session-start")
    assert start.transport == "command"
    assert start.is_injected
    assert len({hook.event for hook in hooks}) == len({hook.name for hook in hooks}) == len(hooks)
    assert {hook.event for hook in hooks} <= set(EVENTS)
    assert not any(hook.is_injected for hook in hooks if hook.event in {"stop", "end"})


def test_only_claude_code_sends_events_itself() -> None:
    """Claude Code has `http` hooks; the others run commands."""
    assert {client for client in CLIENTS if any(hook.transport == "http" for hook in HOOKS[client])} == {"claude-code"}
    assert hook_path("claude-code", "stop") == "/api/agent/hooks/claude-code/stop"
    assert HOOKS["codex"][0].command("codex") == ["hook", "session-start", "--client", "codex"]


def test_the_switch_reads_off_and_nothing_else() -> None:
    """ROOKERY_HOOKS=off switches hooks off."""
    assert [is_switched_off(value) for value in ("off", "OFF ", "0", "false", "no")] == [True] * 5
    assert [is_switched_off(value) for value in (None, "", "on", "1", "true")] == [False] * 5
