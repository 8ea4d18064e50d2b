"""One tool of the catalogue, with the checks of who may use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import structlog

from rookery.access.models import Caller
from rookery.kernel import globs
from rookery.tools.arguments import ArgumentValidator
from rookery.tools.models import JsonObject, Server, ServerFeatures

_ALL_TYPES = frozenset({"object", "array", "string", "number", "boolean"})
_log = structlog.stdlib.get_logger("rookery.tools")


class CatalogueTool:
    """One tool as its server lists it. The input schema is compiled at the first call."""

    __slots__ = ("_argument_validator", "accepted_schema", "definition", "name", "required_scope")

    def __init__(self, definition: JsonObject, required_scope: str | None, accepted_schema: JsonObject | None = None) -> None:
        """*accepted_schema*: that of `ServerFeatures.accepted_schemas`, in place of the published one."""
        self.accepted_schema = accepted_schema
        self.name = str(definition.get("name", ""))
        self.definition = definition
        self.required_scope = required_scope
        self._argument_validator: ArgumentValidator | None = None

    @property
    def argument_validator(self) -> ArgumentValidator:
        """The compiled schema of the arguments."""
        if self._argument_validator is None:
            schema = self.accepted_schema or self.definition.get("inputSchema")
            accepted_schema = cast("JsonObject", schema) if isinstance(schema, dict) else {}
            is_builtin = self.required_scope is not None
            if is_builtin:
                accepted_schema = _to_accepted_schema(accepted_schema)
            self._argument_validator = ArgumentValidator(accepted_schema, is_builtin=is_builtin, is_destructive=self.is_destructive)
            if self._argument_validator.fault is not None:
                _log.warning("tools.schema_unusable", tool=self.name, error=self._argument_validator.fault)
        return self._argument_validator

    @property
    def is_read_only(self) -> bool:
        """True if the server annotates the tool as read-only."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True  # pyright: ignore[reportUnknownMemberType] - an object of JSON

    @property
    def is_destructive(self) -> bool:
        """True if the server annotates the tool as destructive."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("destructiveHint") is True  # pyright: ignore[reportUnknownMemberType] - as above

    @property
    def needs_task(self) -> bool:
        """True if the server runs the tool only as a task (2025-11-25). Rookery does not support tasks."""
        return requires_task(self.definition)


def _to_accepted_schema(published: JsonObject) -> JsonObject:
    """
    Return the schema that arguments of a built-in tool are validated against.

    It is *published*, except that an argument whose `anyOf` lists every JSON type but null accepts any JSON value. Model providers
    reject a schema without a type, so such an argument is published with types, but it is not restricted by them.
    """
    fields = cast("Mapping[str, JsonObject]", published.get("properties", {}))
    return {**published, "properties": {name: {} if _lists_all_types(field) else field for name, field in fields.items()}}


def _lists_all_types(schema: JsonObject) -> bool:
    return {option.get("type") for option in cast("list[JsonObject]", schema.get("anyOf", []))} >= _ALL_TYPES


TASK_REASON = "runs only as a task (execution.taskSupport is required), which Rookery does not support"
"""Why Rookery neither lists nor calls a tool that `requires_task`; "the tool" or its name precedes it."""


def requires_task(definition: JsonObject) -> bool:
    """Return whether a tool's definition requires calls to run as tasks."""
    execution = definition.get("execution")
    return isinstance(execution, dict) and cast("JsonObject", execution).get("taskSupport") == "required"


def is_tool_disabled(server: Server, tool: str) -> bool:
    """Return whether the operator's rules exclude the tool."""
    rules = server.rules
    if rules.allow is not None and not any(globs.matches(tool, glob) for glob in rules.allow):
        return True
    return any(globs.matches(tool, glob) for glob in rules.deny)


def list_tool_names(server: Server, features: ServerFeatures) -> list[str]:
    """Return the names of the tools that a caller who may use all of them sees. Others are nameless, excluded, or need tasks."""
    definitions = {str(tool.get("name", "")): tool for tool in features.tools}
    return [name for name, tool in definitions.items() if name and not requires_task(tool) and not is_tool_disabled(server, name)]


def is_tool_allowed(caller: Caller, server_id: str, tool: str) -> bool:
    """Return whether the key's allow-list of tools contains this one."""
    return caller.tools is None or any(globs.matches(f"{server_id}/{tool}", glob) for glob in caller.tools)


def index_by_name(features: ServerFeatures, known_tools: Iterable[Mapping[str, CatalogueTool]]) -> dict[str, CatalogueTool]:
    """Return the tools by name, without nameless ones, which cannot be called. A tool that *known_tools* have keeps its object."""
    tools_by_name: dict[str, CatalogueTool] = {}
    indexes = tuple(known_tools)
    for definition in features.tools:
        name = str(definition.get("name", ""))
        if not name:
            continue
        required_scope, accepted_schema = features.required_scopes.get(name), features.accepted_schemas.get(name)
        tools_by_name[name] = next(
            (
                tool
                for tools in indexes
                if (tool := tools.get(name)) is not None
                and tool.definition == definition
                and tool.required_scope == required_scope
                and tool.accepted_schema == accepted_schema
            ),
            None,
        ) or CatalogueTool(definition, required_scope, accepted_schema)
    return tools_by_name
