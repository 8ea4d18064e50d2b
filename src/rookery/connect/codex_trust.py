"""
The trust of Codex in hooks, by the state that it keeps in `config.toml`.

Codex runs a hook only if its user has trusted it in /hooks. It stores a hash of the trusted form under the position of the hook. The form
of both is that of codex-cli 0.169.0 (`codex-rs/hooks/src/engine/discovery.rs`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from rookery.connect.hook_entries import FoundHook
from rookery.connect.toml_edits import get_tables

_HASHED_FIELDS = frozenset({"type", "command", "timeout", "statusMessage", "async"})


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
