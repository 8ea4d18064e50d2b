"""Operations with several paths: one path is documented, the others are listed as its aliases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.kernel.http.openapi import RouteDocs
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.naming import document_path, fallback_operation_id


@dataclass(slots=True)
class DocumentedRoute:
    """
    A route of the OpenAPI document.

    Attributes:
        aliases: Further paths of the same operation, as they are mounted.
    """

    operation_id: str
    endpoint: RouteEndpoint
    docs: RouteDocs
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
        notes = endpoint.docs
        if notes.hidden:
            continue
        route = endpoint.route
        operation_id = route.operation_id or fallback_operation_id(route.method, endpoint.path)
        first = routes.setdefault(operation_id, DocumentedRoute(operation_id, endpoint, notes))
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
