"""The documented operations and their names. An operation with several paths is documented once, with the others as its aliases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.kernel.http.routes import RouteEndpoint

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_SPEC_PARAMETER_NAMES = {"server_id": "serverId"}
"""Parameters whose name in the paths differs from that in the handlers."""

_NON_WORD_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+")


@dataclass(slots=True)
class DocumentedRoute:
    """
    A route of the OpenAPI document.

    Attributes:
        aliases: Further paths of the same operation, as they are mounted.
    """

    operation_id: str
    endpoint: RouteEndpoint
    aliases: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """The method and the path of the documented route."""
        return f"{self.endpoint.route.method} {document_path(self.endpoint.path)}"

    @property
    def all_names(self) -> list[str]:
        """The method with each path, the documented one first."""
        return [self.name, *(f"{self.endpoint.route.method} {document_path(path)}" for path in self.aliases)]


def documented_routes(endpoints: Iterable[RouteEndpoint]) -> list[DocumentedRoute]:
    """
    Return the documented routes in the order in which they are mounted.

    Raises:
        ValueError: Two different operations have the same operation id.
    """
    routes: dict[str, DocumentedRoute] = {}
    for endpoint in endpoints:
        route = endpoint.route
        if route.hidden:
            continue
        operation_id = route.operation_id or fallback_operation_id(route.method, endpoint.path)
        first = routes.setdefault(operation_id, DocumentedRoute(operation_id, endpoint))
        if first.endpoint is endpoint:
            continue
        if _operation_identity(first.endpoint) != _operation_identity(endpoint):
            msg = f"{first.name} and {route.method} {endpoint.path} have the same operation id, {operation_id}"
            raise ValueError(msg)
        first.aliases.append(endpoint.path)
    return list(routes.values())


def _operation_identity(endpoint: RouteEndpoint) -> tuple[str, object]:
    """Return the method and the handler function. Handlers of different instances of a class are the same operation."""
    handler = endpoint.route.handler
    return endpoint.route.method, getattr(handler, "__func__", handler)


def document_path(path: str) -> str:
    """Return *path* as in the document, without the converters of its parameters."""
    return _PARAMETER.sub(lambda match: "{" + document_parameter_name(match[1]) + "}", path)


def list_path_parameters(path: str) -> list[str]:
    """Return the parameters of *path* in order, with their names in the handlers."""
    return [match[1] for match in _PARAMETER.finditer(path)]


def document_parameter_name(name: str) -> str:
    return _SPEC_PARAMETER_NAMES.get(name, name)


def fallback_operation_id(method: str, path: str) -> str:
    """Return an operation id made of method and path, for a route that declares none. A test requires declared ids."""
    return f"{method.lower()}_{_NON_WORD_CHARACTERS.sub('_', path).strip('_').lower()}"
