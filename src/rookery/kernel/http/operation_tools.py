"""MCP tools of operations: a built-in server whose tools run the handlers of the REST API with the same validation (D-92)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from rookery.kernel.errors import NotFound, RookeryError, ValidationFailed
from rookery.kernel.http.operations import (
    CALLER_PARAMETER,
    IF_MATCH_PARAMETER,
    HandlerSignature,
    ItemPage,
    Operation,
    Output,
    ToolDeclaration,
    ToolEffect,
    parse_signature,
)
from rookery.kernel.http.tool_schemas import build_input_schema, build_output_schema, takes_json_text
from rookery.kernel.schema import PageQuery, parse_model

_HINTS: Mapping[ToolEffect, Mapping[str, object]] = {
    "reads": {"readOnlyHint": True, "openWorldHint": False},
    "creates": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
    "updates": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    "destroys": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
}

RenderText = Callable[[str, Mapping[str, object]], str]
"""Returns the text that a model reads, given the name of the tool and its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTool:
    """A tool as `tools/list` publishes it, and the scope that calls need. It implements `tools.ports.BuiltinTool`."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    required_scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeclaration:
    """The entry of a built-in MCP server in lists. *description* tells a model when to use it."""

    id: str
    name: str
    tagline: str
    description: str


class OperationServer:
    """
    A built-in MCP server with the tools of *operations*. It acts as its caller.

    Args:
        render_text: Returns the text of an output for a model.

    Raises:
        ValueError: Two tools have the same name, or an operation with tools has no scope or needs an HTTP request.
        KeyError: The operation has no parameter for a published argument.
    """

    def __init__(self, operations: Iterable[Operation], declaration: ServerDeclaration, *, render_text: RenderText) -> None:
        self.id, self.name = declaration.id, declaration.name
        self.tagline, self.description = declaration.tagline, declaration.description
        self._render_text = render_text
        self._tools: dict[str, _OperationTool] = {}
        for operation in operations:
            for tool in operation.tools:
                if tool.name in self._tools:
                    msg = f"the tool {tool.name} of {self.id} exists twice"
                    raise ValueError(msg)
                self._tools[tool.name] = _OperationTool(operation, tool)

    def tools(self) -> Sequence[PublishedTool]:
        """Return all tools, in the order of the operations."""
        return [tool.definition for tool in self._tools.values()]

    async def call(self, tool: str, arguments: Mapping[str, object], caller: object) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return its output, which is the body of the REST response unless the tool declares another.

        Raises:
            NotFound: No tool has this name.
            RookeryError: An argument is invalid, or the operation failed.
        """
        if tool not in self._tools:
            raise NotFound("tool", tool)
        return await self._tools[tool].call(arguments, caller)

    def text(self, tool: str, output: Mapping[str, object]) -> str:
        """Return the text of an output for a model."""
        return self._render_text(tool, output)


class _OperationTool:
    """A tool and the operation that it runs."""

    def __init__(self, operation: Operation, tool: ToolDeclaration) -> None:
        self._operation, self._tool = operation, tool
        self._signature = signature = parse_signature(operation.handler)
        if operation.required_scope is None or signature.requires_request:
            msg = f"the tool {tool.name} has no scope, or its handler needs an HTTP request"
            raise ValueError(msg)
        self._models = [model for _, model in (signature.query or ("", None), signature.body or ("", None)) if model is not None]
        self._arguments = {parameter: argument for argument, parameter in tool.renames.items()}
        self._required_scope = operation.required_scope
        parameters = {field.alias or name for model in self._models for name, field in model.model_fields.items()}
        parameters |= signature.path_parameters.keys()
        for name in tool.arguments:
            if "." not in name and name not in tool.schemas and tool.renames.get(name, name) not in parameters:
                msg = f"the operation of the tool {tool.name} has no parameter for the argument {name}"
                raise KeyError(msg)

    @cached_property
    def definition(self) -> PublishedTool:
        """The published tool. The schemas of all tools take 0.2 s, which most commands do not need."""
        operation, tool = self._operation, self._tool
        return PublishedTool(
            name=tool.name,
            description=tool.description,
            input_schema=build_input_schema(tool, self._models, self._signature.path_parameters),
            output_schema=build_output_schema(operation, tool),
            annotations=_HINTS[tool.effect],
            required_scope=self._required_scope,
        )

    @cached_property
    def _json_arguments(self) -> frozenset[str]:
        properties = cast("Mapping[str, Mapping[str, object]]", self.definition.input_schema["properties"])
        return frozenset(name for name, schema in properties.items() if takes_json_text(schema))

    async def call(self, arguments: Mapping[str, object], caller: object) -> Mapping[str, object]:
        """Run the handler and return the output of the tool."""
        parameters = {self._tool.renames.get(name, name): value for name, value in self._parse_json_texts(arguments).items()}
        if self._tool.defaults is not None:
            parameters = {**self._tool.defaults(caller), **parameters}
        try:
            handler_arguments = self._validate({**parameters, **self._tool.fixed}, caller)
            result = await self._operation.handler(**handler_arguments)
        except ValidationFailed as error:
            raise self._rename_fields(error) from error
        except RookeryError as error:
            error.message = error.tool_message or error.message
            raise
        return self._to_output(caller, result, handler_arguments)

    def _validate(self, parameters: dict[str, object], caller: object) -> dict[str, object]:
        """Return the arguments of the handler. Unknown parameters are passed to a model, which rejects them with a suggestion."""
        signature = self._signature
        handler_arguments: dict[str, object] = {name: self._pop_path_parameter(parameters, name) for name in signature.path_parameters}
        if signature.query is not None:
            name, model = signature.query
            own = parameters if signature.body is None else _select_fields(parameters, model)
            handler_arguments[name] = parse_model(model, own)
            parameters = {field: value for field, value in parameters.items() if field not in own}
        if signature.body is not None:
            name, model = signature.body
            handler_arguments[name] = parse_model(model, parameters)
        elif parameters and signature.query is None:
            raise ValidationFailed({field: ["unknown argument"] for field in parameters})
        return handler_arguments | _fixed_roles(signature, caller)

    def _pop_path_parameter(self, parameters: dict[str, object], name: str) -> str | None:
        value = parameters.pop(name, None)
        if value is None:
            if self._arguments.get(name, name) in cast("list[str]", self.definition.input_schema.get("required", ())):
                raise ValidationFailed({name: ["is required"]})
            return None
        text = str(value)
        if "\x00" in text:
            raise ValidationFailed({name: ["must not contain the character NUL (U+0000)"]})
        return text

    def _to_output(self, caller: object, result: object, handler_arguments: Mapping[str, object]) -> Mapping[str, object]:
        if isinstance(result, Response):
            msg = f"{self._tool.name} returned a Response; only a value can be the output of a tool"
            raise TypeError(msg)
        if self._tool.present is not None:
            return _to_json(self._tool.present(caller, result))
        if isinstance(result, ItemPage):
            page = cast("ItemPage[object]", result)
            query = cast("PageQuery", handler_arguments[cast("tuple[str, object]", self._signature.query)[0]])
            items = [_to_json(item) for item in self._operation.to_items(caller, page.items)]
            return {self._tool.items: items, "page": query.page, "total": page.total}
        if result is None:
            return {}
        output = self._operation.to_body(caller, result)
        body = output.body if isinstance(output, Output) else output
        return {} if body is None else _to_json(body)

    def _parse_json_texts(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return *arguments* with parsed objects in place of their JSON texts, which some clients send (`tool_schemas.takes_json_text`)."""
        texts = {name: value for name, value in arguments.items() if name in self._json_arguments and isinstance(value, str)}
        return {**arguments, **{name: _parse_object(name, value) for name, value in texts.items()}} if texts else arguments

    def _rename_fields(self, error: ValidationFailed) -> ValidationFailed:
        """Return *error* with the names of the tool's arguments in place of the operation's parameters."""
        errors = error.field_errors
        return ValidationFailed({self._arguments.get(name, name): list(messages) for name, messages in errors.items()})


def _select_fields(parameters: Mapping[str, object], model: type[BaseModel]) -> dict[str, object]:
    return {name: value for name, value in parameters.items() if name in model.model_fields}


def _fixed_roles(signature: HandlerSignature, caller: object) -> dict[str, object]:
    """Return the caller, no ETags, because a tool accepts any version, and no request."""
    roles: dict[str, object] = {CALLER_PARAMETER: caller} if signature.takes_caller else {}
    if signature.takes_if_match:
        roles[IF_MATCH_PARAMETER] = None
    if signature.request is not None:
        roles[signature.request] = None
    return roles


def _to_json(value: BaseModel | Mapping[str, object]) -> Mapping[str, object]:
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value


def _parse_object(name: str, text: str) -> object:
    try:
        value = cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValidationFailed({name: ["must be a JSON object, or a string with the JSON of an object"]})
    return cast("dict[str, object]", value)
