"""The names of paths, parameters and operations in the document. Pure."""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_SPEC_PARAMETER_NAMES = {"server_id": "serverId"}
"""Parameters whose name in spec 4.1 differs from that in the handlers."""

_NON_WORD_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+")


def document_path(path: str) -> str:
    """Return *path* as in the document, without the converters of its parameters."""
    return _PARAMETER.sub(lambda match: "{" + document_parameter_name(match[1]) + "}", path)


def list_path_parameters(path: str) -> list[str]:
    """Return the parameters of *path* in order, with their names in the handlers."""
    return [match[1] for match in _PARAMETER.finditer(path)]


def document_parameter_name(name: str) -> str:
    """Return the name of a parameter in the document."""
    return _SPEC_PARAMETER_NAMES.get(name, name)


def fallback_operation_id(method: str, path: str) -> str:
    """Return an operation id made of method and path, for a route that declares none. A test requires declared ids."""
    return f"{method.lower()}_{_NON_WORD_CHARACTERS.sub('_', path).strip('_').lower()}"
