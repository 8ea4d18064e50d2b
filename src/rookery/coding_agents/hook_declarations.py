"""
The hooks of each coding agent: which of its events Rookery uses, and how the agent reports them.

`rookery connect` writes these hooks to the files of the clients, `rookery hook` and `POST /api/agent/hooks/{client}/{event}` serve them.
The module imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

HookEvent = Literal["session-start", "prompt", "stop", "end"]
HookTransport = Literal["command", "http"]

EVENTS: tuple[HookEvent, ...] = ("session-start", "prompt", "stop", "end")
"""The events of Rookery, as they are named in the route and in `rookery hook EVENT`."""

REQUIRED_SCOPE = "sessions.write"
"""The scope that the route needs."""

OPTIONAL_SCOPES = ("brain:read", "plans.read", "sessions.read")
"""Scopes without which the text of a hook lacks a part: memories, ready tasks, the hand-off note."""

MAX_EVENT_BYTES = 10 * 1024 * 1024
"""The largest event that the route takes. It has a whole prompt, which may be a log. `rookery hook` shortens longer ones."""

SWITCH_VARIABLE = "ROOKERY_HOOKS"
"""The variable that switches all hooks off with the value off, false, no or 0: `rookery hook`, and the route of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDeclaration:
    """
    A hook of a client.

    Attributes:
        name: The client's name of the event, such as SessionStart.
        transport: Run `rookery hook`, or let the client send the event over HTTP itself.
        timeout_s: Seconds after which the client goes on without the hook. `rookery hook` itself takes at most 1 s.
        matcher: The client's filter of the event; empty for all.
        is_injected: The client adds the text of the answer to the conversation. Other hooks only record.
        needs_variable: A variable without which `rookery hook` sends nothing, for an event that one of two programs cannot use.
    """

    event: HookEvent
    name: str
    transport: HookTransport
    timeout_s: int
    matcher: str = ""
    is_injected: bool = False
    needs_variable: str = ""

    def command(self, client: str, *options: str) -> list[str]:
        """Return the arguments of the program `rookery` for this hook of *client*, without the program itself."""
        return ["hook", self.event, "--client", client, *options]


_CLAUDE_CODE = (
    # SessionStart has no `http` hooks. It runs again when a session is resumed, cleared or compacted.
    HookDeclaration(
        event="session-start",
        name="SessionStart",
        transport="command",
        timeout_s=5,
        matcher="startup|resume|clear|compact|fork",
        is_injected=True,
    ),
    HookDeclaration(event="prompt", name="UserPromptSubmit", transport="http", timeout_s=3, is_injected=True),
    HookDeclaration(event="stop", name="Stop", transport="http", timeout_s=5),
    HookDeclaration(event="end", name="SessionEnd", transport="http", timeout_s=5),
)
_CODEX = (
    HookDeclaration(event="session-start", name="SessionStart", transport="command", timeout_s=5, is_injected=True),
    HookDeclaration(event="prompt", name="UserPromptSubmit", transport="command", timeout_s=3, is_injected=True),
    HookDeclaration(event="stop", name="Stop", transport="command", timeout_s=5),
    HookDeclaration(event="end", name="SessionEnd", transport="command", timeout_s=3),
)
_VSCODE = (
    # Copilot CLI runs the hooks of the same files. In VS Code, UserPromptSubmit cannot add text, and there is no event at the end of a
    # session. In both, Stop has no message.
    HookDeclaration(event="session-start", name="SessionStart", transport="command", timeout_s=5, is_injected=True),
    HookDeclaration(
        event="prompt",
        name="UserPromptSubmit",
        transport="command",
        timeout_s=3,
        is_injected=True,
        needs_variable="COPILOT_CLI",
    ),
    HookDeclaration(event="end", name="SessionEnd", transport="command", timeout_s=5, needs_variable="COPILOT_CLI"),
)
_CURSOR = (
    # beforeSubmitPrompt cannot add text. `stop` has no message, so the response of the agent is the end of a turn.
    HookDeclaration(event="session-start", name="sessionStart", transport="command", timeout_s=5, is_injected=True),
    HookDeclaration(event="stop", name="afterAgentResponse", transport="command", timeout_s=5),
    HookDeclaration(event="end", name="sessionEnd", transport="command", timeout_s=5),
)
_GEMINI = (
    HookDeclaration(event="session-start", name="SessionStart", transport="command", timeout_s=5, is_injected=True),
    HookDeclaration(event="prompt", name="BeforeAgent", transport="command", timeout_s=3, is_injected=True),
    HookDeclaration(event="stop", name="AfterAgent", transport="command", timeout_s=5),
    HookDeclaration(event="end", name="SessionEnd", transport="command", timeout_s=5),
)
_QWEN_CODE = (
    HookDeclaration(event="session-start", name="SessionStart", transport="command", timeout_s=5, is_injected=True),
    HookDeclaration(event="prompt", name="UserPromptSubmit", transport="command", timeout_s=3, is_injected=True),
    HookDeclaration(event="stop", name="Stop", transport="command", timeout_s=5),
    HookDeclaration(event="end", name="SessionEnd", transport="command", timeout_s=5),
)

MAX_PROJECT_CHARS: Mapping[str, int] = MappingProxyType(
    {"org": 100, "project": 255, "repository": 131, "folder": 32, "full_name": 255, "branch": 500, "commit": 500}
)
"""The texts among the query parameters of the route, which name the project, with their maximum length. `rookery hook` cuts longer ones."""

HOOKS: Mapping[str, Sequence[HookDeclaration]] = MappingProxyType(
    {
        "claude-code": _CLAUDE_CODE,
        "codex": _CODEX,
        "vscode": _VSCODE,
        "cursor": _CURSOR,
        "gemini": _GEMINI,
        "qwen-code": _QWEN_CODE,
    }
)
"""The hooks of each client, by the name of the client in the route and in `--client`."""

CLIENTS: tuple[str, ...] = tuple(HOOKS)


def hook_path(client: str, event: HookEvent) -> str:
    """Return the path of the route that serves *event* of *client*."""
    return f"/api/agent/hooks/{client}/{event}"


def is_switched_off(value: str | None) -> bool:
    """Return True if *value* of `SWITCH_VARIABLE` switches hooks off."""
    return value is not None and value.strip().lower() in {"off", "false", "no", "0"}
