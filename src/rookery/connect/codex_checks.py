"""
Checks of the trust of Codex in projects and hooks, and of its background server.

Codex runs a hook only if its user has trusted it in /hooks. It stores a hash of the trusted form under the position of the hook. The form
of both is that of codex-cli 0.169.0 (`codex-rs/hooks/src/engine/discovery.rs`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from rookery.coding_agents.hook_declarations import SWITCH_VARIABLE, is_switched_off
from rookery.coding_agents.terminals import read_arguments, read_environment
from rookery.connect.client_files import get_object, read_file, read_toml
from rookery.connect.clients import Places, locate_file
from rookery.connect.errors import Finding
from rookery.connect.hook_entries import FoundHook
from rookery.connect.setups import FoundEntry, Setup
from rookery.connect.toml_edits import get_tables
from rookery.tools.discovery.client_guides import KEY_VARIABLE

_HASHED_FIELDS = frozenset({"type", "command", "timeout", "statusMessage", "async"})

_RESTART = "codex app-server daemon restart"


class CodexTrust(StrEnum):
    """The state of a hook in Codex. It runs only trusted ones."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    CHANGED = "changed"
    DISABLED = "disabled"


def read_trust(config: Mapping[str, object], file: Path, hooks: Sequence[FoundHook]) -> dict[CodexTrust, list[str]]:
    """
    Return the events of *hooks* by their state.

    Args:
        config: The content of Codex's `config.toml` of the user.
        file: The `hooks.json` that has the hooks.
    """
    states = get_tables(get_tables({"sections": dict(config)}, "sections").get("hooks", {}), "state")
    events = dict[CodexTrust, list[str]]()
    for hook in hooks:
        label = "".join(f"_{character.lower()}" if character.isupper() else character for character in hook.event).lstrip("_")
        state = states.get(f"{file}:{label}:{hook.place[2]}:{hook.place[-1]}", {})
        events.setdefault(_judge(state, hash_hook(label, hook.handler)), []).append(hook.event)
    return events


def hash_hook(label: str, handler: Mapping[str, object]) -> str | None:
    """
    Return the hash of a hook without a matcher as Codex computes it, or None for one with fields whose form is unknown here.

    Args:
        label: Codex's name of the event in a position, such as session_start.
    """
    if not handler.keys() <= _HASHED_FIELDS:
        return None
    form = {"event_name": label, "hooks": [{"async": False, **handler}]}
    content = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def _judge(state: Mapping[str, object], current_hash: str | None) -> CodexTrust:
    trusted_hash = state.get("trusted_hash")
    if state.get("enabled") is False:
        return CodexTrust.DISABLED
    if not trusted_hash:
        return CodexTrust.UNTRUSTED
    return CodexTrust.TRUSTED if current_hash in {None, trusted_hash} else CodexTrust.CHANGED


@dataclass(frozen=True, slots=True)
class BackgroundServer:
    """The background server of Codex: its process, and the environment of its start; None if the system does not show it."""

    process: int
    environment: Mapping[str, str] | None


def check_project_trust(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if Codex ignores the file of a project that its user does not trust."""
    if own.scope != "project":
        return
    config = locate_file("codex", "user", setup.places)
    projects = get_object(read_toml(config).get("projects"))
    folder = setup.places.project.resolve()
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    if not any(get_object(projects.get(str(path))).get("trust_level") == "trusted" for path in (setup.places.project, folder, top)):
        message = f"Codex does not trust {top}, so it ignores {own.file}. It asks when it starts in this folder."
        yield Finding("untrusted", message, file=own.file)


def check_hook_trust(setup: Setup, file: Path, hooks: Sequence[FoundHook]) -> Iterator[Finding]:
    """Yield a finding for hooks that Codex does not run."""
    config = locate_file("codex", "user", setup.places)
    events = read_trust(read_toml(config), file, hooks)
    for trust, text in (
        (CodexTrust.UNTRUSTED, "Codex does not trust these hooks yet"),
        (CodexTrust.CHANGED, "These hooks have changed since you trusted them"),
    ):
        if trust in events:
            names = ", ".join(events[trust])
            yield Finding("untrusted", f"{text}, so Codex does not run them: {names}. Open /hooks in Codex.", file=file)
    if CodexTrust.DISABLED in events:
        names = ", ".join(events[CodexTrust.DISABLED])
        yield Finding("disabled", f"These hooks are disabled in {config}: {names}. Open /hooks in Codex.", file=config)


def check_background_server(setup: Setup, *, has_hooks: bool, reads_variable: bool) -> Iterator[Finding]:
    """
    Yield findings if the background server of Codex has another environment than this shell.

    Args:
        reads_variable: The connection or a hook reads the key from the variable.
    """
    server = find_background_server(setup.places)
    if server is None:
        return
    name, shell = f"The background server of Codex (process {server.process})", setup.places.environ
    is_off = has_hooks and is_switched_off(shell.get(SWITCH_VARIABLE))
    if server.environment is None:
        if reads_variable or is_off:
            message = f"{name} keeps the environment of its first start, which this system does not show. To renew it: {_RESTART}"
            yield Finding("background_server", message, is_problem=False)
        return
    if reads_variable and server.environment.get(KEY_VARIABLE, "") != shell.get(KEY_VARIABLE, ""):
        state = f"with another {KEY_VARIABLE} than" if server.environment.get(KEY_VARIABLE) else f"without the {KEY_VARIABLE} of"
        yield Finding("stale_environment", f"{name} was started {state} this shell. Run in this shell: {_RESTART}")
    is_server_off = has_hooks and is_switched_off(server.environment.get(SWITCH_VARIABLE))
    if is_server_off and not is_off:
        message = f"{name} was started with {SWITCH_VARIABLE} switched off, so the hooks send nothing. Run in this shell: {_RESTART}"
        yield Finding("stale_environment", message)
    if is_off and not is_server_off:
        message = (
            f"{name} was started without {SWITCH_VARIABLE}. Its hooks are off in the folder of a terminal that has it, as long as the "
            "terminal is open. To be certain, start codex --no-daemon."
        )
        yield Finding("background_server", message, is_problem=False)


def find_background_server(places: Places) -> BackgroundServer | None:
    """Return the background server of this user's Codex, or None if none runs."""
    try:
        state = get_object(cast("object", json.loads(read_file(places.locate(("codex", "app-server-daemon/daemon.pid"))) or b"{}")))
    except ValueError:
        return None
    process = state.get("pid")
    if not isinstance(process, int) or not _is_running(process):
        return None
    return BackgroundServer(process, read_environment(process))


def _is_running(process: int) -> bool:
    """Return True if *process* is a server of Codex, and not another one that got its number. Other systems show too little to tell."""
    return not Path("/proc/self").exists() or "app-server" in read_arguments(process)
