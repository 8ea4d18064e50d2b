"""
Operations: the one declaration of what a domain offers.

An `Operation` is a route of the REST API, a set of MCP tools (`ToolDeclaration`), or both. Its row and the signature of its handler
give the validation, the OpenAPI document, the schemas of the tools and the rows of the test matrix. A route and its tools run the same
handler after the same validation, so their limits cannot differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Generic, Literal, TypeVar, cast, get_args

from pydantic import BaseModel
from starlette.requests import Request

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import ErrorFormat
from rookery.kernel.http.result_budgets import ResultBudget
from rookery.kernel.pages import Position
from rookery.kernel.preconditions import PreconditionFailed
from rookery.kernel.schema import QueryModel
from rookery.kernel.working_context import WorkingContext

BYTES_PER_MIB = 1024 * 1024

FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
"""The content type of an HTML form."""

T = TypeVar("T")

Handler = Callable[..., Awaitable[object]]
JsonSchema = Mapping[str, object]
AddContext = Callable[[dict[str, object], WorkingContext], None]
"""Adds parameters that a call omits, given those that it has."""

SESSION_HEADER = "X-Session-ID"
"""The header with the agent session that a request belongs to."""

ToolEffect = Literal["reads", "creates", "updates", "destroys"]
"""The effect of a tool, for MCP's hints. All but `creates` have no further effect when they are repeated."""

CALLER_PARAMETER, IF_MATCH_PARAMETER = "caller", "expected"
"""Names of handler parameters: the caller, and the ETags in If-Match (`preconditions.ExpectedETags`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """
    The response to a request, with more than its body.

    Attributes:
        body: The JSON body: a response model, or a mapping of JSON values. None: the response has no body.
        status: The status, if it is not that of the operation.
        version: The version of the resource, for the ETag.
    """

    body: BaseModel | Mapping[str, object] | None
    status: int | None = None
    version: int | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ItemPage(Generic[T]):
    """
    The items on one page of a list, and the number of items on all pages.

    Attributes:
        positions: The positions of the items, for cursors.
        has_next: There are items after the last one.
        summary: Fields of the whole list, such as the totals of a report, sent beside the fields of the page.
    """

    items: Sequence[T]
    total: int
    positions: Sequence[Position] = ()
    has_next: bool = False
    summary: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def end(self) -> Position | None:
        """The position of the last item, or None if there are no items after it."""
        return self.positions[-1] if self.has_next else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedResponse:
    """
    A further response of a route, beside the one in its row.

    Attributes:
        model: The model of the body; None: see *media_types*.
        media_types: Content types of the body. Without these, without a model and without a format, there is no body.
        error_format: The format of the body, if it is an error of another protocol.
    """

    description: str
    model: type[BaseModel] | None = None
    media_types: Sequence[str] = ()
    error_format: ErrorFormat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """
    An MCP tool that an operation also is. Its schemas come from the models of the operation.

    Attributes:
        description: What the tool does and when to use it, for the model that selects a tool.
        arguments: The published arguments with their descriptions, in order. An empty description publishes none. The key
            `phases.name` describes the field of an object, or of the objects in a list.
        renames: The parameter of the operation, for each argument with another name.
        fixed: Parameters of the operation that the tool sets.
        defaults: Returns parameters for arguments that a call omits.
        add_context: Adds parameters that a call omits, given the parameters and the `WorkingContext` of the caller, if one is known.
        schemas: Schemas to publish in place of those of the models, for models that need a simpler one.
        required: Arguments that the tool requires although the operation does not.
        nullable: Arguments for which null has a meaning. For the others, null counts as missing and is not published.
        items: The name of the array that holds the items, for an operation that returns an `ItemPage`.
        present: Converts the result of the handler for the tool, if its output differs from the body of the response.
        output: The model of that output.
        budget: The budget of its results, set by the argument `max_tokens`, which the operation does not get.
        is_always_loaded: Ask clients that load tools on demand to offer this one at once.
    """

    name: str
    description: str
    effect: ToolEffect
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, object] = field(default_factory=dict[str, object])
    defaults: Callable[..., Mapping[str, object]] | None = None
    add_context: AddContext | None = None
    schemas: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    required: Sequence[str] = ()
    nullable: Sequence[str] = ()
    items: str = ""
    present: Callable[..., BaseModel | Mapping[str, object]] | None = None
    output: type[BaseModel] | None = None
    budget: ResultBudget | None = None
    is_always_loaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """
    One operation of a domain.

    Attributes:
        method: The HTTP method. An operation without a path is no route; it needs no method.
        handler: `async (caller?, expected?, body?, query?, request?, path parameters…) -> result`. A `RequestModel` is the JSON body, a
            `QueryModel` the query, a str the path parameter of the same name, `expected` the ETags in If-Match. The result is a
            value for *present*, an `ItemPage` of such values, None if the status is 204, or a complete `Response`. A handler of
            tools declares `request: Request | None`, which is None when a tool runs.
        present: Converts the handler's result, or each item of a page, to the response, given the caller and the result. Without it, a
            result that is not a response model is read as one by its attributes.
        committed: The type of the result that the handler's transaction returns. With an Idempotency-Key, that transaction stores
            the response too.
        is_large: Returns whether converting a result takes so long that it runs in a thread.
        required_scope: The scope that the key needs. None: any valid key (status routes). It has no default, so that each
            operation declares it.
        public: The route needs no key and ignores one, unless *optional_auth* is set.
        optional_auth: Check a key that is sent to a public route, and show what the key may see.
        rate_limited: Calls count against the rate limit of the key.
        counted_by_handler: The handler decides which calls count, and counts them itself.
        idempotent: The route accepts an Idempotency-Key, as each POST that creates or sends does. Other routes ignore the header.
        repeatable: A POST without Idempotency-Key that clients may send again after a lost answer, because it only reads or
            computes, or sets again what is set. Other methods than POST and PATCH are repeatable without it.
        secret_fields: Response fields that are shown only once. A response with such a field is stored without its body.
        etag: The response has the ETag of the resource.
        operation_id: The name of the operation in the OpenAPI document: a verb and its object in snake_case, such as `list_plans`.
            Routes with the same method, handler and name are one operation. The first is documented, the others are its aliases.
        description: The description of the operation, in addition to the docstring of its handler.
        rebuild_response: Returns the result of the handler or the response again, given the request and the id of the object, for
            a route that stores only this id (`store_created_id`).
        errors: Errors beyond those that follow from the row, for the documentation.
        responses: Further responses by status, for the documentation.
        media_types: Content types of the response in place of JSON, or beside it if there is a *response_model*.
        request_headers: Names of the request headers that the handler reads, except If-Match.
        response_headers: Names of the response headers, except ETag.
        request_media_types: Content types of a body that the handler reads itself and not as a model.
        form_fields: The descriptions of the fields of a form that the handler reads itself.
        security: Names of alternative security schemes. None: as in the row; empty: none is needed.
        hidden: The route is served, but not documented.
        body_optional: A missing body counts as an empty object. This also holds for a POST or DELETE whose body has no required field.
        map_error: Converts an error raised before or in the handler into the one to send. It also gets the body, as far as it
            was read, and the path parameters.
        error_format: The error format of this route, if it is not the common one.
        allows_slash: The path with a slash at its end is served too.
        allowed_on_full_disk: A nearly full disk does not block the route, because it only reads, or removes rights or memories.
        ignores_query: Any query is accepted and ignored, for URLs that monitors request.
        outage_body: The body of a 200 that the route sends in place of a failure of the server (a status of 500 and above), for clients
            that must not be disturbed by it. The failure is logged. None: the error is sent.
        outage_after_s: Seconds after which a check of the key counts as a failure of the server. None: as long as the engines take.
        replaces_unstorable: NUL and half a surrogate pair in the body become U+FFFD instead of an error, for texts that their sender
            passes on as it got them.
        tools: The MCP tools that run the same handler.
    """

    handler: Handler
    required_scope: str | None
    method: str = ""
    path: str = ""
    present: Callable[..., BaseModel | Mapping[str, object] | Output] | None = None
    committed: type[object] | None = None
    is_large: Callable[..., bool] | None = None
    public: bool = False
    optional_auth: bool = False
    rate_limited: bool = True
    counted_by_handler: bool = False
    idempotent: bool = False
    repeatable: bool = False
    secret_fields: Sequence[str] = ()
    etag: bool = False
    rebuild_response: Callable[[Request, str], Awaitable[object]] | None = None
    status: int = 200
    response_model: type[BaseModel] | None = None
    operation_id: str = ""
    summary: str = ""
    description: str = ""
    tags: Sequence[str] = ()
    errors: Sequence[type[RookeryError]] = ()
    responses: Mapping[int, DocumentedResponse] = field(default_factory=dict[int, DocumentedResponse])
    media_types: Sequence[str] = ()
    request_headers: Sequence[str] = ()
    response_headers: Sequence[str] = ()
    request_media_types: Sequence[str] = ()
    form_fields: Mapping[str, str] = field(default_factory=dict[str, str])
    security: Sequence[str] | None = None
    hidden: bool = False
    max_body_bytes: int = BYTES_PER_MIB
    body_optional: bool = False
    map_error: Callable[[RookeryError, object, Mapping[str, str]], RookeryError] | None = None
    error_format: ErrorFormat | None = None
    allows_slash: bool = False
    allowed_on_full_disk: bool = False
    ignores_query: bool = False
    outage_body: Mapping[str, object] | None = None
    outage_after_s: float | None = None
    replaces_unstorable: bool = False
    tools: Sequence[ToolDeclaration] = ()

    @property
    def list_name(self) -> str:
        """The name to which the cursors of a list are bound, the same for its routes and tools."""
        return self.operation_id or self.handler.__qualname__

    @property
    def all_request_headers(self) -> tuple[str, ...]:
        """The request headers that the route reads."""
        takes_if_match = parse_signature(self.handler).takes_if_match
        session_header = (SESSION_HEADER,) if self.add_context is not None else ()
        return (*self.request_headers, *session_header, *(("If-Match",) if takes_if_match else ()))

    @property
    def add_context(self) -> AddContext | None:
        """Adds parameters of the session in which the caller works, for its tools and for requests that name a session."""
        return next((tool.add_context for tool in self.tools if tool.add_context is not None), None)

    @property
    def all_response_headers(self) -> tuple[str, ...]:
        """The response headers of the route, beyond those of every route."""
        return (*self.response_headers, *(("ETag",) if self.etag else ()))

    @property
    def all_errors(self) -> tuple[type[RookeryError], ...]:
        """The declared errors of the route."""
        return (*self.errors, *((PreconditionFailed,) if "If-Match" in self.all_request_headers else ()))

    def to_body(self, caller: object, result: object) -> BaseModel | Mapping[str, object] | Output:
        """Return the response to *result*, or the item for it on a page."""
        if self.present is not None:
            return self.present(caller, result)
        return self._convert(result, self.response_model)

    def to_items(self, caller: object, items: Sequence[object]) -> list[BaseModel | Mapping[str, object]]:
        if self.present is None:
            model = self.item_model
            return [cast("BaseModel | Mapping[str, object]", self._convert(item, model)) for item in items]
        bodies = [self.present(caller, item) for item in items]
        return [cast("BaseModel", body.body) if isinstance(body, Output) else body for body in bodies]

    @property
    def item_model(self) -> type[BaseModel] | None:
        """The model of the items, for an operation that returns an `ItemPage`."""
        data = None if self.response_model is None else self.response_model.model_fields.get("data")
        return None if data is None else cast("type[BaseModel]", get_args(data.annotation)[0])

    @staticmethod
    def _convert(result: object, model: type[BaseModel] | None) -> BaseModel | Mapping[str, object] | Output:
        if model is None or isinstance(result, (BaseModel, Output, Mapping)):
            return cast("BaseModel | Mapping[str, object] | Output", result)
        return model.model_validate(result, from_attributes=True)


@dataclass(slots=True)
class HandlerSignature:
    """
    The parameters of a handler, by their role.

    Attributes:
        requires_request: The handler always gets the request, so it has no tools.
        path_parameters: The names of the path parameters, and whether a tool requires them. A route always has them.
    """

    request: str | None = None
    requires_request: bool = False
    takes_caller: bool = False
    takes_if_match: bool = False
    body: tuple[str, type[BaseModel]] | None = None
    query: tuple[str, type[BaseModel]] | None = None
    path_parameters: dict[str, bool] = field(default_factory=dict[str, bool])


def parse_signature(handler: Handler) -> HandlerSignature:
    """
    Return the roles of the parameters of *handler*.

    Raises:
        TypeError: A parameter has no role; see `Operation`.
    """
    function = getattr(handler, "__func__", None)
    return _parse_parameters(handler) if function is None else _parse_method(function)


@cache  # methods are few, and every platform of a process has the same ones
def _parse_method(function: Handler) -> HandlerSignature:
    return _parse_parameters(function, skipped=1)


def _parse_parameters(handler: Handler, *, skipped: int = 0) -> HandlerSignature:
    signature = HandlerSignature()
    for name, parameter in list(inspect.signature(handler, eval_str=True).parameters.items())[skipped:]:
        kind: object = parameter.annotation
        if kind is Request or kind == Request | None:
            signature.request, signature.requires_request = name, kind is Request
        elif name == CALLER_PARAMETER:
            signature.takes_caller = True
        elif name == IF_MATCH_PARAMETER:
            signature.takes_if_match = True
        elif isinstance(kind, type) and issubclass(kind, QueryModel):
            signature.query = (name, kind)
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            signature.body = (name, kind)
        elif kind is str or (isinstance(kind, UnionType) and str in get_args(kind)):
            signature.path_parameters[name] = kind is str
        else:
            msg = (
                f"{handler.__qualname__}: parameter {name!r} must be the caller, a Request, a body model, a query model, "
                "`expected` for If-Match, or a str for a path parameter"
            )
            raise TypeError(msg)
    return signature
