"""One tool as its server tells of it, and who may use it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import cast

import structlog

from rookery.access.models import Caller
from rookery.tools.arguments import Arguments
from rookery.tools.models import JsonObject, Offer, Server

_log = structlog.stdlib.get_logger("rookery.tools")


class Tool:
    """One tool as its server tells of it, its schema compiled at its first call."""

    __slots__ = ("_arguments", "definition", "name", "needs")

    def __init__(self, definition: JsonObject, needs: str | None) -> None:
        self.name = str(definition.get("name", ""))
        self.definition = definition
        self.needs = needs
        self._arguments: Arguments | None = None

    @property
    def arguments(self) -> Arguments:
        """The compiled schema of its arguments."""
        if self._arguments is None:
            schema = self.definition.get("inputSchema")
            self._arguments = Arguments(schema if isinstance(schema, dict) else {})  # pyright: ignore[reportUnknownArgumentType] - an object of JSON
            if self._arguments.fault is not None:
                _log.warning("tools.schema_unusable", tool=self.name, error=self._arguments.fault)
        return self._arguments

    @property
    def is_read_only(self) -> bool:
        """Whether its server says that it changes nothing."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True  # pyright: ignore[reportUnknownMemberType] - an object of JSON

    @property
    def is_destructive(self) -> bool:
        """Whether its server says that it deletes, and does not add."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("destructiveHint") is True  # pyright: ignore[reportUnknownMemberType] - as above

    @property
    def needs_task(self) -> bool:
        """Whether its server runs it only as a task (2025-11-25), which Rookery does not."""
        return runs_as_task_only(self.definition)


def runs_as_task_only(definition: JsonObject) -> bool:
    """Return whether a tool's definition requires that a call asks for a task."""
    execution = definition.get("execution")
    return isinstance(execution, dict) and cast("JsonObject", execution).get("taskSupport") == "required"


def is_off(server: Server, tool: str) -> bool:
    """Tell whether the operator left a tool out (D-33)."""
    rules = server.rules
    if rules.allow is not None and not any(fnmatchcase(tool, glob) for glob in rules.allow):
        return True
    return any(fnmatchcase(tool, glob) for glob in rules.deny)


def reaches(caller: Caller, server: Server, tool: str) -> bool:
    """Tell whether the key's own list of tools has this one (D-23)."""
    return caller.tools is None or any(fnmatchcase(f"{server.id}/{tool}", glob) for glob in caller.tools)


def by_name(offer: Offer, known: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools by name; one that did not change stays the same object, its schema compiled."""
    found: dict[str, Tool] = {}
    for definition in offer.tools:
        name = str(definition.get("name", ""))
        old = known.get(name)
        needs = offer.needs.get(name)
        found[name] = old if old is not None and old.definition == definition and old.needs == needs else Tool(definition, needs)
    return found
