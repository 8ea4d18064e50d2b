"""MCP tools of operations: a built-in server whose tools run the handlers of the REST API with the same validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

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
from rookery.kernel.http.result_budgets import BUDGET_ARGUMENT, DEFAULT_MAX_TOKENS, NEXT_CURSOR_FIELD, ResultBudget
from rookery.kernel.http.tool_schemas import add_unpublished, build_input_schema, build_output_schema, parse_object_texts
from rookery.kernel.schema import CursorQuery, PageQuery, parse_model
from rookery.kernel.working_context import CallSession, WorkingContextFinder

_HINTS: Mapping[ToolEffect, Mapping[str, object]] = {
    "reads": {"readOnlyHint": True, "openWorldHint": False},
    "creates": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False},
    "updates": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    "destroys": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
}

CompactOutput = Callable[[str, Mapping[str, object]], Mapping[str, object]]
"""Returns an output as a model reads it, given the name of the tool: without fields that carry no information."""

RenderText = Callable[[str, Mapping[str, object]], str]
"""Returns the text that a model reads in place of JSON, given the name of the tool and its output."""

_ALWAYS_LOAD: Mapping[str, object] = {"anthropic/alwaysLoad": True}
"""The `_meta` by which Claude Code offers a tool without a search for it."""


class PageOutput(dict[str, object]):
    """The output of a tool that returns a page of a list. *cursors* are those after each of its items."""

    cursors: Sequence[str] = ()


class RenderedOutput(NamedTuple):
    """
    An output in the form of a tool result.

    Attributes:
        text: What a model reads.
        structured: What a program reads: all fields, within the budget if the call sets one.
    """

    text: str
    structured: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTool:
    """A tool as `tools/list` publishes it, and the scope that calls need. It implements `tools.ports.BuiltinTool`."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    accepted_schema: Mapping[str, object]
    output_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    required_scope: str
    meta: Mapping[str, object]


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
        compact: Returns an output as a model reads it.
        render_text: Returns the text of an output. None: it is the JSON of the compact output.
        contexts: Finds the org and project for calls of tools that store something and name none.

    Raises:
        ValueError: Two tools have the same name, or an operation with tools has no scope or needs an HTTP request.
        KeyError: The operation has no parameter for a published argument.
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        declaration: ServerDeclaration,
        *,
        compact: CompactOutput,
        render_text: RenderText | None = None,
        contexts: WorkingContextFinder | None = None,
    ) -> None:
        self.id, self.name = declaration.id, declaration.name
        self.tagline, self.description = declaration.tagline, declaration.description
        self._compact, self._render_text = compact, render_text
        self._tools: dict[str, _OperationTool] = {}
        for operation in operations:
            for tool in operation.tools:
                if tool.name in self._tools:
                    msg = f"the tool {tool.name} of {self.id} exists twice"
                    raise ValueError(msg)
                self._tools[tool.name] = _OperationTool(operation, tool, contexts)

    def tools(self) -> Sequence[PublishedTool]:
        """Return all tools, in the order of the operations."""
        return [tool.definition for tool in self._tools.values()]

    async def call(
        self, tool: str, arguments: Mapping[str, object], caller: object, *, session: CallSession | None = None
    ) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return its output, which is the body of the REST response unless the tool declares another.

        Args:
            session: The session that the call belongs to, as far as the call says.

        Raises:
            NotFound: No tool has this name.
            RookeryError: An argument is invalid, or the operation failed.
        """
        if tool not in self._tools:
            raise NotFound("tool", tool)
        return await self._tools[tool].call(arguments, caller, session or CallSession())

    def render(self, tool: str, output: Mapping[str, object], arguments: Mapping[str, object]) -> RenderedOutput:
        """Return the form of an output that the call of *tool* with *arguments* asks for."""
        if self._render_text is not None:
            return RenderedOutput(self._render_text(tool, output), output)
        budget, compact = self._tools[tool].budget, self._compact(tool, output)
        if budget is None:
            return RenderedOutput(to_json_text(compact), output)
        max_tokens = budget.read_tokens(arguments)
        cursors = output.cursors if isinstance(output, PageOutput) else ()
        text = to_json_text(budget.fit(compact, max_tokens or DEFAULT_MAX_TOKENS, cursors=cursors))
        return RenderedOutput(text, output if max_tokens is None else budget.fit(output, max_tokens, cursors=cursors))

    def compact(self, tool: str, text: str, structured: Mapping[str, object]) -> Mapping[str, object]:
        """Return the structured content of a rendered output for a model: what its text says, or all fields that carry information."""
        return self._compact(tool, structured) if self._render_text is not None else cast("Mapping[str, object]", orjson.loads(text))


class _OperationTool:
    """A tool and the operation that it runs."""

    def __init__(self, operation: Operation, tool: ToolDeclaration, contexts: WorkingContextFinder | None) -> None:
        self._operation, self._tool, self._contexts = operation, tool, contexts
        self._signature = signature = parse_signature(operation.handler)
        if operation.required_scope is None or signature.requires_request:
            msg = f"the tool {tool.name} has no scope, or its handler needs an HTTP request"
            raise ValueError(msg)
        self._models = [model for _, model in (signature.query or ("", None), signature.body or ("", None)) if model is not None]
        self._arguments = {parameter: argument for argument, parameter in tool.renames.items()}
        self._required_scope = operation.required_scope
        parameters = {field.alias or name for model in self._models for name, field in model.model_fields.items()}
        parameters |= signature.path_parameters.keys()
        parameters |= {BUDGET_ARGUMENT} if tool.budget is not None else set()
        for name in tool.arguments:
            if "." not in name and name not in tool.schemas and tool.renames.get(name, name) not in parameters:
                msg = f"the operation of the tool {tool.name} has no parameter for the argument {name}"
                raise KeyError(msg)

    @property
    def budget(self) -> ResultBudget | None:
        """The budget of the tool's results."""
        return self._tool.budget

    @cached_property
    def definition(self) -> PublishedTool:
        """The published tool. The schemas of all tools take 0.2 s, which most commands do not need."""
        operation, tool = self._operation, self._tool
        input_schema = build_input_schema(tool, self._models, self._signature.path_parameters)
        return PublishedTool(
            name=tool.name,
            description=tool.description,
            input_schema=input_schema,
            accepted_schema=add_unpublished(input_schema, tool, self._models),
            output_schema=build_output_schema(operation, tool),
            annotations=_HINTS[tool.effect],
            required_scope=self._required_scope,
            meta=_ALWAYS_LOAD if tool.is_always_loaded else {},
        )

    async def call(self, arguments: Mapping[str, object], caller: object, session: CallSession) -> Mapping[str, object]:
        """Run the handler and return the output of the tool."""
        if self._tool.budget is not None:
            self._tool.budget.read_tokens(arguments)
            arguments = {name: value for name, value in arguments.items() if name != BUDGET_ARGUMENT}
        parameters = {self._tool.renames.get(name, name): value for name, value in self._parse_objects(arguments).items()}
        parameters = self._drop_empty_texts(parameters, caller)
        if self._tool.defaults is not None:
            parameters = {**self._tool.defaults(caller), **parameters}
        if self._tool.add_context is not None and self._contexts is not None:
            named_session = parameters.get("session_id")
            if isinstance(named_session, str):
                session = replace(session, session_id=named_session)
            context = await self._contexts.find(caller, session)
            if context is not None:
                self._tool.add_context(parameters, context)
        try:
            handler_arguments = self._validate({**parameters, **self._tool.fixed}, caller)
            result = await self._operation.handler(**handler_arguments)
        except ValidationFailed as error:
            raise self._rename_fields(error) from error
        except RookeryError as error:
            error.message = error.tool_message or error.message
            raise
        return self._to_output(caller, result, handler_arguments)

    def _drop_empty_texts(self, parameters: dict[str, object], caller: object) -> dict[str, object]:
        """Return *parameters* without the optional ones that are a blank text where none is valid: models send these for "not set"."""
        required = {self._tool.renames.get(name, name) for name in cast("list[str]", self.definition.input_schema.get("required", ()))}
        empty = {name for name, value in parameters.items() if isinstance(value, str) and not value.strip() and name not in required}
        if not empty:
            return parameters
        try:
            self._validate({**parameters, **self._tool.fixed}, caller)
        except ValidationFailed as error:
            return {name: value for name, value in parameters.items() if name not in empty & error.field_errors.keys()}
        return parameters

    def _validate(self, parameters: dict[str, object], caller: object) -> dict[str, object]:
        """Return the arguments of the handler. Unknown parameters are passed to a model, which rejects them with a suggestion."""
        signature = self._signature
        handler_arguments: dict[str, object] = {name: self._pop_path_parameter(parameters, name) for name in signature.path_parameters}
        if signature.query is not None:
            name, model = signature.query
            own = parameters if signature.body is None else _select_fields(parameters, model)
            handler_arguments[name] = query = parse_model(model, own)
            if isinstance(query, CursorQuery):
                query.bind(self._operation.list_name, {**own, **{name: handler_arguments[name] for name in signature.path_parameters}})
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
            output = PageOutput({self._tool.items: items, "page": query.number, "total": page.total})
            output.cursors = tuple(str(query.encode_cursor(position)) for position in page.positions)
            if page.has_next:
                output[NEXT_CURSOR_FIELD] = output.cursors[-1]
            return output
        if result is None:
            return {}
        output = self._operation.to_body(caller, result)
        body = output.body if isinstance(output, Output) else output
        fields = PageOutput({} if body is None else _to_json(body))
        fields.cursors = cast("Sequence[str]", getattr(result, "cursors", ()))
        return fields

    def _parse_objects(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return *arguments* with objects in place of their JSON texts."""
        return cast("Mapping[str, object]", parse_object_texts(self.definition.accepted_schema, arguments))

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


def to_json_text(value: object) -> str:
    """Return *value* as JSON without spaces."""
    return orjson.dumps(value).decode()


def drop_empty(value: object) -> object:
    """Return *value* without null and without empty texts, lists and objects, at any depth."""
    if isinstance(value, Mapping):
        fields = {name: drop_empty(field) for name, field in cast("Mapping[str, object]", value).items()}
        return {name: field for name, field in fields.items() if not is_empty(field)}
    if isinstance(value, list):
        return [drop_empty(item) for item in cast("Sequence[object]", value)]
    return value


def drop_empty_fields(tool: str, output: Mapping[str, object]) -> Mapping[str, object]:
    """Return the output of any tool without fields that carry no information. It is a `CompactOutput`."""
    del tool
    return cast("Mapping[str, object]", drop_empty(output))


def is_empty(value: object) -> bool:
    """Return whether *value* is null, or an empty text, list or object."""
    return value is None or (isinstance(value, (str, list, dict)) and not value)
