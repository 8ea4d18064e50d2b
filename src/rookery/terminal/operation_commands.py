"""
Commands made from operations.

A command declares its words and its output. The types, bounds and defaults of its parameters are those of the operation, and the command
runs the handler of the operation in its own process, with the rights of the operator. So its checks cannot differ from those of the route.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime
from enum import Enum
from importlib import import_module
from inspect import Parameter, Signature, getdoc, isclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rookery.kernel.http.operations import CALLER_PARAMETER, IF_MATCH_PARAMETER, ItemPage, Operation, Output, parse_signature
from rookery.kernel.schema import CursorQuery, PatchModel, ResponseModel, parse_model, to_json
from rookery.kernel.unset import UNSET
from rookery.terminal.context import run
from rookery.terminal.options import (
    DryRunOption,
    FieldsFile,
    JsonOption,
    WorkspaceOption,
    YesOption,
    confirm,
    parse_day,
    parse_time,
    raise_usage_error,
    read_json_object,
    read_text_file,
    split_names,
)
from rookery.terminal.output import Fields, print_fields, print_json, print_notice, print_rows

_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class ListLimit:
    """The option `--limit` of a list: its default, its maximum and the plural of the items."""

    default: int
    maximum: int
    items: str


@dataclass(frozen=True, slots=True)
class OperationCommand:
    """
    A command that runs one operation in one workspace.

    Attributes:
        operation: The `operation_id`.
        help: The help text; empty: the first paragraph of the docstring of the handler.
        arguments: The parameters of the operation that are arguments, with their help texts, in order.
        options: Those that are options. An empty help text stands for the description of the field.
        names: The option of a parameter, if it is not named like it. `--on/--off` are the options of a truth value.
        files: Parameters whose option names a file with the value, because other users of the host can read arguments.
        fixed: Parameters that the command sets.
        takes_body: The only argument is a file with the JSON body.
        limit: The option `--limit` of a list. None: the command lists all items.
        columns: The columns of a list, or the fields of a record that people read; empty: all.
        table_columns: The columns of a list on a terminal, if they differ.
        empty: The message in place of an empty list.
        convert: Converts the response, also for --json.
        to_row: Converts the response, or an item of a list, for people.
        print_response: Prints the response for people.
        notice: Returns a message for people about the response, or an empty text.
        question: The question to confirm, formatted with the arguments and the fields of the target.
        target: The operation that returns what the command removes. The command gets --dry-run, which prints the target.
        to_removal: Returns the output from the target and the value of --dry-run, in place of the target and of the response.
    """

    name: str
    operation: str
    help: str = ""
    _: KW_ONLY
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Sequence[str] = ()
    fixed: Mapping[str, object] = field(default_factory=dict[str, object])
    takes_body: bool = False
    limit: ListLimit | None = None
    columns: Sequence[str] = ()
    table_columns: Sequence[str] | None = None
    empty: str = ""
    convert: Callable[[Fields], Fields] | None = None
    to_row: Callable[[Fields], Fields] | None = None
    print_response: Callable[[Fields], None] | None = None
    notice: Callable[[Fields], str] | None = None
    question: str = ""
    target: str = ""
    to_removal: Callable[[Fields, bool], Fields] | None = None


class OperationServices(Protocol):
    """The services that a part of the platform opens for commands of operations."""

    @property
    def operations(self) -> Sequence[Operation]: ...


ResolveCaller = Callable[[Any, str | None], Awaitable[object]]
"""Returns the operator as the caller in a workspace, given the opened services and the value of --workspace."""


def add_operation_commands(
    app: typer.Typer, commands: Iterable[OperationCommand], *, apis: Sequence[str], resolve_caller: ResolveCaller, part: str | None = None
) -> None:
    """
    Add *commands* to a group.

    Args:
        apis: The classes with the operations, as `module:class`.
        part: The part of the platform that a command opens (`PlatformOpener.open_part`), as `OperationServices`. None: all of it.

    Raises:
        KeyError: No operation has the id of a command.
    """
    operations = {operation.operation_id: operation for api in apis for operation in _declare_operations(api)}
    for command in commands:
        runner = _CommandRunner(command, operations[command.operation], part, resolve_caller)
        help_text = command.help or (getdoc(operations[command.operation].handler) or "").partition("\n\n")[0]
        app.command(command.name, help=help_text)(runner.build_function())


def _declare_operations(api: str) -> list[Operation]:
    """Return the operations of an API without services. Their declarations can be read, but their handlers cannot run."""
    module, _, name = api.partition(":")
    kind = getattr(import_module(module), name)
    return kind.operations(object.__new__(kind))


class _CommandRunner:
    """One command: the parameters of its function, and what it does."""

    def __init__(self, command: OperationCommand, operation: Operation, part: str | None, resolve_caller: ResolveCaller) -> None:
        self._command, self._part, self._resolve_caller = command, part, resolve_caller
        self._has_response = operation.response_model is not None
        self._signature = parse_signature(operation.handler)
        self._models = [model for model in (self._signature.query, self._signature.body) if model is not None]
        self._fields = {name: _OptionField(info) for _, model in self._models for name, info in model.model_fields.items()}

    def build_function(self) -> Callable[..., None]:
        """Return the function of which Typer makes the command."""

        def run_command(context: typer.Context, **values: Any) -> None:  # noqa: ANN401 - the values of the parameters below
            self._run(context, values)

        cast("Any", run_command).__signature__ = Signature(list(self._iter_parameters()))
        return run_command

    def _iter_parameters(self) -> Iterator[Parameter]:
        command = self._command
        yield Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        for name, text in command.arguments.items():
            option = self._fields.get(name)
            kind, info = (
                (str, typer.Argument(help=text)) if option is None else (option.annotation, typer.Argument(help=text or option.description))
            )
            yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])
        if command.takes_body:
            yield Parameter("file", Parameter.KEYWORD_ONLY, annotation=FieldsFile)
        for name, text in command.options.items():
            option = self._fields[name]
            kind = Path if name in command.files else option.annotation
            names = command.names.get(name) or f"--{name.replace('_', '-')}"
            info = typer.Option(
                names, help=text or option.description, min=option.minimum, max=option.maximum, show_default=option.default is not None
            )
            if option.is_required:
                yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])
            else:
                kind = kind | None if option.default is None else kind
                yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=option.default)
        if command.limit is not None:
            info = typer.Option(help=f"Maximum number of {command.limit.items}.", min=1, max=command.limit.maximum)
            yield Parameter("limit", Parameter.KEYWORD_ONLY, annotation=Annotated[int, info], default=command.limit.default)
        yield Parameter("workspace", Parameter.KEYWORD_ONLY, annotation=WorkspaceOption, default=None)
        if command.question:
            yield Parameter("yes", Parameter.KEYWORD_ONLY, annotation=YesOption, default=False)
        if command.target:
            yield Parameter("dry_run", Parameter.KEYWORD_ONLY, annotation=DryRunOption, default=False)
        if self._has_response or command.target:
            yield Parameter("as_json", Parameter.KEYWORD_ONLY, annotation=JsonOption, default=False)

    def _run(self, context: typer.Context, values: Mapping[str, Any]) -> None:
        command, fields = self._command, self._read_fields(values)
        arguments: dict[str, object] = {name: values[name] for name in self._signature.path_parameters}
        arguments |= {name: parse_model(model, fields) for name, model in self._models}
        target = self._read_target(context, values) if command.target else dict[str, object]()
        is_dry_run = values.get("dry_run", False)
        if command.question and not is_dry_run:
            confirm(command.question.format(**{**values, **target}), yes=values["yes"])

        async def work(services: OperationServices) -> Fields | None:
            caller = await self._resolve_caller(services, values["workspace"])
            operation = _find_operation(services, command.operation)
            if self._signature.takes_caller:
                arguments[CALLER_PARAMETER] = caller
            if self._signature.takes_if_match:
                arguments[IF_MATCH_PARAMETER] = None
            if self._signature.query is not None and issubclass(self._signature.query[1], CursorQuery):
                items = self._iter_items(operation, caller, arguments, fields, limit=values.get("limit"))
                return await self._print_list(items, as_json=values["as_json"])
            result = await operation.handler(**arguments)
            return self._to_fields(operation.to_body(caller, result)) if self._has_response else None

        output = target if is_dry_run else run(context, work, part=self._part)
        if command.to_removal is not None:
            output = command.to_removal(target, is_dry_run)
        if output is not None and values["as_json"]:
            print_json(output)
        elif output is not None:
            self._print_record({**target, **output})

    def _read_target(self, context: typer.Context, values: Mapping[str, Any]) -> Fields:
        """Return the fields of what the command removes."""

        async def work(services: OperationServices) -> Fields:
            caller = await self._resolve_caller(services, values["workspace"])
            operation = _find_operation(services, self._command.target)
            arguments = {name: values[name] for name in self._signature.path_parameters}
            return self._to_fields(operation.to_body(caller, await operation.handler(**{CALLER_PARAMETER: caller}, **arguments)))

        return run(context, work, part=self._part)

    def _read_fields(self, values: Mapping[str, Any]) -> dict[str, object]:
        """Return the fields of the body or the query that the command line has."""
        command = self._command
        if command.takes_body:
            return read_json_object(values["file"])
        fields = dict(command.fixed)
        for name in (*command.arguments, *command.options):
            value = values[name]
            if name in self._fields and value not in (None, [], ()):
                fields[name] = read_text_file(value).strip() if name in command.files else self._fields[name].convert(value)
        if not fields and any(issubclass(model, PatchModel) for _, model in self._models):
            raise_usage_error("Use at least one option that changes something; --help lists them.")
        return fields

    async def _iter_items(
        self, operation: Operation, caller: object, arguments: Mapping[str, object], filters: Mapping[str, object], *, limit: int | None
    ) -> AsyncGenerator[Fields]:
        """Yield the items of all pages, or the first *limit* of them."""
        name, model = cast("tuple[str, type[CursorQuery]]", self._signature.query)
        count, cursor = 0, dict[str, str]()
        while True:
            size = _PAGE_SIZE if limit is None else min(_PAGE_SIZE, limit - count)
            query = parse_model(model, {**filters, **cursor, model.size_field: size})
            query.bind(operation.list_name, {**filters, **cursor})
            page = cast("ItemPage[object]", await operation.handler(**{**arguments, name: query}))
            for item in operation.to_items(caller, page.items):
                yield self._to_fields(item)
            count += len(page.items)
            next_cursor = query.encode_cursor(page.end)
            if next_cursor is None or count == limit:
                return
            cursor["cursor"] = next_cursor

    def _to_fields(self, body: BaseModel | Mapping[str, object] | Output) -> Fields:
        content = body.body if isinstance(body, Output) else body
        fields = to_json(cast("ResponseModel", content)) if isinstance(content, BaseModel) else content or {}
        return fields if self._command.convert is None else self._command.convert(fields)

    def _to_row(self, fields: Fields) -> Fields:
        return fields if self._command.to_row is None else self._command.to_row(fields)

    async def _print_list(self, items: AsyncGenerator[Fields], *, as_json: bool) -> None:
        command = self._command
        rows = items if as_json else (self._to_row(item) async for item in items)
        await print_rows(rows, command.columns, as_json=as_json, table_columns=command.table_columns, empty=command.empty)

    def _print_record(self, fields: Fields) -> None:
        command, row = self._command, self._to_row(fields)
        if command.print_response is not None:
            command.print_response(fields)
        else:
            print_fields({name: row[name] for name in command.columns or row})
        text = "" if command.notice is None else command.notice(fields)
        if text:
            print_notice(text)


def _find_operation(services: OperationServices, operation_id: str) -> Operation:
    return next(operation for operation in services.operations if operation.operation_id == operation_id)


class _OptionField:
    """A field of a body or a query, as an option or an argument has it."""

    def __init__(self, info: FieldInfo) -> None:
        self.is_required = info.is_required()
        default = info.get_default(call_default_factory=False)
        self.default = None if default is UNSET else default
        self.kind, rules, self.description = _read_type(info)
        self.minimum = next((rule.ge for rule in rules if hasattr(rule, "ge")), None)
        self.maximum = next((rule.le for rule in rules if hasattr(rule, "le")), None)

    @property
    def _is_array(self) -> bool:
        return get_origin(self.kind) in {list, tuple, frozenset}

    @property
    def annotation(self) -> Any:  # noqa: ANN401 - a type
        """The type that Typer reads, with choices in lower case. Dates and times are parsed here: they may also be a number of days."""
        if self._is_array:
            return list[str]
        if isclass(self.kind) and issubclass(self.kind, Enum):
            return Literal[tuple(member.value.lower() for member in self.kind)]
        return str if self.kind in {date, datetime} else self.kind

    def convert(self, value: Any) -> object:  # noqa: ANN401 - a value from Typer
        """Return the value of the field."""
        if self._is_array:
            return list(split_names(value))
        if self.kind is datetime:
            return parse_time(value)
        return parse_day(value) if self.kind is date else value


def _read_type(info: FieldInfo) -> tuple[Any, list[Any], str]:
    """Return the type of a field without null and UNSET, its rules and its description."""
    kind, rules, description = info.annotation, list[Any](info.metadata), info.description or ""
    if get_origin(kind) in {Union, UnionType}:
        kind = next(choice for choice in get_args(kind) if choice not in (NoneType, UNSET))
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        for rule in inner:
            if isinstance(rule, FieldInfo):
                rules += rule.metadata
                description = description or rule.description or ""
    return kind, rules, description
