"""Routes that are one operation under several paths: one is documented, the others are named as its aliases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.kernel.http.describing import Notes, notes_of
from rookery.kernel.http.routes import Endpoint
from rookery.reference.naming import fallback_operation_id, shown_path


@dataclass(slots=True)
class DocumentedRoute:
    """
    A route of the document.

    Attributes:
        aliases: The further paths of the same operation, as they are mounted.
    """

    operation_id: str
    endpoint: Endpoint
    notes: Notes
    aliases: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """The method and the path."""
        return f"{self.endpoint.route.method} {shown_path(self.endpoint.path)}"

    @property
    def all_names(self) -> list[str]:
        """The method and each path, the documented one first."""
        return [self.name, *(f"{self.endpoint.route.method} {shown_path(path)}" for path in self.aliases)]


def documented_routes(endpoints: Iterable[Endpoint]) -> list[DocumentedRoute]:
    """
    Return the routes of the document in the order in which they are mounted, without those that are hidden.

    Raises:
        ValueError: Two different operations have the same name.
    """
    found: dict[str, DocumentedRoute] = {}
    for endpoint in endpoints:
        notes = notes_of(endpoint.route.handler)
        if notes.hidden:
            continue
        route = endpoint.route
        operation_id = route.operation_id or fallback_operation_id(route.method, endpoint.path)
        first = found.setdefault(operation_id, DocumentedRoute(operation_id, endpoint, notes))
        if first.endpoint is endpoint:
            continue
        if _function_of(first.endpoint) != _function_of(endpoint):
            msg = f"{first.name} and {route.method} {endpoint.path} would both be {operation_id}"
            raise ValueError(msg)
        first.aliases.append(endpoint.path)
    return list(found.values())


def _function_of(endpoint: Endpoint) -> tuple[str, object]:
    """Return the method and what serves it: the same function, though of another instance of its class, is the same operation."""
    handler = endpoint.route.handler
    return endpoint.route.method, getattr(handler, "__func__", handler)
