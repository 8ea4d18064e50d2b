"""Routes that are one operation under several paths: one is documented, the others are named as its aliases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.kernel.http.openapi import RouteDocs, get_route_docs
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.naming import document_path, fallback_operation_id


@dataclass(slots=True)
class DocumentedRoute:
    """
    A route of the document.

    Attributes:
        aliases: The further paths of the same operation, as they are mounted.
    """

    operation_id: str
    endpoint: RouteEndpoint
    docs: RouteDocs
    aliases: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """The method and the path."""
        return f"{self.endpoint.route.method} {document_path(self.endpoint.path)}"

    @property
    def all_names(self) -> list[str]:
        """The method and each path, the documented one first."""
        return [self.name, *(f"{self.endpoint.route.method} {document_path(path)}" for path in self.aliases)]


def documented_routes(endpoints: Iterable[RouteEndpoint]) -> list[DocumentedRoute]:
    """
    Return the routes of the document in the order in which they are mounted, without those that are hidden.

    Raises:
        ValueError: Two different operations have the same name.
    """
    found: dict[str, DocumentedRoute] = {}
    for endpoint in endpoints:
        notes = get_route_docs(endpoint.route.handler)
        if notes.hidden:
            continue
        route = endpoint.route
        operation_id = route.operation_id or fallback_operation_id(route.method, endpoint.path)
        first = found.setdefault(operation_id, DocumentedRoute(operation_id, endpoint, notes))
        if first.endpoint is endpoint:
            continue
        if _operation_identity(first.endpoint) != _operation_identity(endpoint):
            msg = f"{first.name} and {route.method} {endpoint.path} would both be {operation_id}"
            raise ValueError(msg)
        first.aliases.append(endpoint.path)
    return list(found.values())


def _operation_identity(endpoint: RouteEndpoint) -> tuple[str, object]:
    """Return the method and what serves it: the same function, though of another instance of its class, is the same operation."""
    handler = endpoint.route.handler
    return endpoint.route.method, getattr(handler, "__func__", handler)
