"""What paths, their parameters and operations are called in the document. Pure."""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_SPEC_NAMES = {"server_id": "serverId"}
"""Spec 4.1 writes this one otherwise than our handlers do."""

_AGENT, _TWICE = "/api/agent", "/v1"
"""Agent work is under the one and, as the public overview has it, under the other too (spec 4.2)."""

_PREFIXES = {"/api/v1": "", _AGENT: "agent_", _TWICE: ""}
"""What operations under each are called after their method; those under none belong to the host."""

_WORD = re.compile(r"[^a-zA-Z0-9]+")


def shown_path(path: str) -> str:
    """Return *path* as the document has it: the convertors of its parameters are ours alone."""
    return _PARAMETER.sub(lambda found: "{" + parameter_name(found[1]) + "}", path)


def parameters_of(path: str) -> list[str]:
    """Return the parameters of *path*, in order, as our handlers call them."""
    return [found[1] for found in _PARAMETER.finditer(path)]


def parameter_name(name: str) -> str:
    """Return how the document calls a parameter."""
    return _SPEC_NAMES.get(name, name)


def operation_id(method: str, path: str, *, is_alias: bool) -> str:
    """
    Return the name of an operation, which stays as it is when others are added: its method and its path in words.

    Args:
        is_alias: The same operation is under another prefix too, and has this name there; it gets `_v1`.
    """
    if is_alias:
        path = _AGENT + path.removeprefix(_TWICE)
    prefix = next((each for each in _PREFIXES if path.startswith(each + "/")), "")
    rest = _PARAMETER.sub(lambda found: f"by_{found[1]}", path.removeprefix(prefix))
    words = _WORD.sub("_", rest).strip("_")
    return f"{method.lower()}_{_PREFIXES.get(prefix, 'host_')}{words}" + ("_v1" if is_alias else "")


def other_prefix(path: str) -> str | None:
    """Return where an operation under the second prefix would stand under the first one; None: it is under another."""
    return _AGENT + path.removeprefix(_TWICE) if path.startswith(_TWICE + "/") else None
