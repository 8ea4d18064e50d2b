"""What paths, their parameters and operations are called in the document. Pure."""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_SPEC_PARAMETER_NAMES = {"server_id": "serverId"}
"""Names of parameters that spec 4.1 writes in another way than our handlers do."""

_NON_WORD_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+")


def document_path(path: str) -> str:
    """Return *path* as the document has it, without the convertors of its parameters."""
    return _PARAMETER.sub(lambda found: "{" + document_parameter_name(found[1]) + "}", path)


def list_path_parameters(path: str) -> list[str]:
    """Return the parameters of *path*, in order, as our handlers call them."""
    return [found[1] for found in _PARAMETER.finditer(path)]


def document_parameter_name(name: str) -> str:
    """Return how the document calls a parameter."""
    return _SPEC_PARAMETER_NAMES.get(name, name)


def fallback_operation_id(method: str, path: str) -> str:
    """Return a name for a route that declares none: its method and its path in words. A test requires a declared one."""
    return f"{method.lower()}_{_NON_WORD_CHARACTERS.sub('_', path).strip('_').lower()}"
