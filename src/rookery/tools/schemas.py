"""Request and response models of the tools API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field, RootModel, field_validator

from rookery.kernel.schema import (
    OMITTED_IF_NONE,
    JsonSchemaOf,
    Links,
    Meta,
    PageQuery,
    QueryModel,
    RequestModel,
    ResponseModel,
    Timestamp,
    enum_schema,
)
from rookery.tools.arguments import drop_nulls
from rookery.tools.models import HealthStatus, ServerStatus, SessionIsolation

_ACTIONS = ("accept", "decline", "cancel")
_SAMPLING_FIELDS = frozenset({"role", "content", "model"})


def _round_to_hundredths(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _round_to_micros(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)


Hundredths = Annotated[float | None, BeforeValidator(_round_to_hundredths)]
Milliseconds = Annotated[float | None, BeforeValidator(_round_to_micros)]
TextOrNull = Annotated[str | None, BeforeValidator(lambda text: text or None)]
"""A text that is null if it is empty."""


class ToolCallRequest(RequestModel):
    """
    A call of one tool.

    Attributes:
        input_responses: The responses to an earlier `input_required` result, by the names in its `inputRequests`.
        request_state: The `requestState` of that result, unchanged.
    """

    server: str = Field(min_length=1, max_length=64, description="The id of the server, as in the list of servers.")
    tool: str = Field(min_length=1, max_length=128, description="The name of the tool.")
    arguments: dict[str, object] | None = Field(default=None, description="The arguments, which must match the inputSchema of the tool.")
    input_responses: dict[str, dict[str, object]] | None = Field(
        default=None, description="The responses to an earlier `input_required` result, by the names in its `inputRequests`."
    )
    request_state: str | None = Field(default=None, description="The `requestState` of that result, unchanged.")

    @field_validator("input_responses")
    @classmethod
    def _validate_answers(cls, responses: dict[str, dict[str, object]] | None) -> dict[str, dict[str, object]] | None:
        for name, response in (responses or {}).items():
            if not (response.get("action") in _ACTIONS or isinstance(response.get("roots"), list) or response.keys() >= _SAMPLING_FIELDS):
                msg = (
                    f"{name}: must be an answer to an elicitation (`action`: accept, decline or cancel; optional `content`), "
                    "a sampled message (`role`, `content` and `model`), or `roots`"
                )
                raise ValueError(msg)
        return responses


class ToolArguments(RootModel[dict[str, object]]):
    """The arguments of a call whose server and tool are in the path."""


class PromptRequest(RequestModel):
    """The arguments of a prompt."""

    arguments: Annotated[dict[str, str], BeforeValidator(drop_nulls)] = Field(
        default_factory=dict, description="The values of the prompt's arguments. A null counts as not set."
    )


class Tool(ResponseModel):
    """
    A tool as its server lists it. Other protocol fields, such as icons, are included.

    Attributes:
        inputSchema: The JSON Schema of its arguments.
        title: The name for people.
        outputSchema: The JSON Schema of the structured content of its results.
        annotations: Hints on its effect, such as `readOnlyHint`.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    description: str = ""
    inputSchema: dict[str, object]  # noqa: N815 - the protocol's name
    title: Annotated[str | None, OMITTED_IF_NONE] = None
    outputSchema: Annotated[dict[str, object] | None, OMITTED_IF_NONE] = None  # noqa: N815 - the protocol's name
    annotations: Annotated[dict[str, object] | None, OMITTED_IF_NONE] = None


class Resource(ResponseModel):
    """
    A resource as its server lists it.

    Attributes:
        uri: The URI `server://path`, with which the resource can be read.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    uri: str
    name: str
    description: str = ""
    mimeType: str = ""  # noqa: N815 - the protocol's name


Tools = list[Annotated[dict[str, object], JsonSchemaOf(Tool)]]
Resources = list[Annotated[dict[str, object], JsonSchemaOf(Resource)]]


class ServerSummary(ResponseModel):
    """
    One server in a list.

    Attributes:
        status: The status that the operator gives it.
        health: The health that Rookery observes.
        use_when: The operator's advice on when to use it.
        last_error: Why it does not work, in one line. Requires the scope servers:read.
    """

    id: Annotated[str, Field(validation_alias=AliasPath("server", "id"))]
    name: Annotated[str, Field(validation_alias=AliasPath("server", "name"))]
    tagline: Annotated[str, Field(validation_alias=AliasPath("server", "tagline"))]
    status: Annotated[str, enum_schema(ServerStatus), Field(validation_alias=AliasPath("server", "status"))]
    health: Annotated[str, enum_schema(HealthStatus)]
    tool_count: int
    resource_count: int
    icon: Annotated[str | None, Field(validation_alias=AliasPath("server", "icon"))] = None
    use_when: Annotated[str | None, Field(validation_alias=AliasPath("server", "use_when"))] = None
    related_servers: Annotated[list[str], Field(validation_alias="related")] = Field(default_factory=list[str])
    last_error: str | None = None


class ServerList(ResponseModel):
    """All servers that the key can see."""

    servers: list[ServerSummary]
    count: int

    @classmethod
    def from_listings(cls, listings: Sequence[object]) -> ServerList:
        """Return the list of these `ServerListing`s."""
        return cls(servers=[ServerSummary.model_validate(listing, from_attributes=True) for listing in listings], count=len(listings))


class SessionHealthResponse(ResponseModel):
    """The state of one session with a server."""

    state: Literal["open", "opening", "waiting", "closed"]
    pid: int | None = None
    era: Annotated[str | None, Field(validation_alias="protocol_version")] = None
    software: TextOrNull = None
    uptime_s: Hundredths = None
    restarts: int
    in_flight: int
    queued: int
    p50_ms: Hundredths = None
    p95_ms: Hundredths = None
    last_error: TextOrNull = None
    retry_s: Hundredths = None


class ServerHealthResponse(ResponseModel):
    """The state of a server for this workspace: its own sessions and those that all workspaces share."""

    state: Literal["open", "opening", "waiting", "closed"]
    restarts: int
    in_flight: int
    queued: int
    p50_ms: Hundredths = None
    p95_ms: Hundredths = None
    sessions: list[SessionHealthResponse]


class HiddenTool(ResponseModel):
    """A tool that the server offers but Rookery does not list."""

    name: str
    reason: str


class ServerResponse(ServerSummary):
    """
    One server with its features. last_error, stderr, standing and hidden_tools require the scope servers:read.

    Attributes:
        isolation: The callers that share a session with it.
        sharing: The same in a sentence, and what they share if that is known of the server.
        concurrency: The number of calls that run at once in one session, in a sentence.
    """

    description: str
    isolation: Annotated[str, enum_schema(SessionIsolation)]
    sharing: str
    concurrency: str
    instructions: str | None = None
    last_error: str | None = None
    stderr: list[str] | None = None
    standing: ServerHealthResponse | None = None
    hidden_tools: list[HiddenTool] | None = None
    seen_at: Timestamp | None = None
    tools: Tools
    resources: Resources


class ToolList(ResponseModel):
    """The tools of one server."""

    server: str
    tools: Tools
    count: int


class ResourceList(ResponseModel):
    """The resources of one server."""

    server: str
    resources: Resources
    count: int


class TemplateList(ResponseModel):
    """The resource templates of one server."""

    server: str
    resource_templates: list[dict[str, object]]
    count: int


class PromptList(ResponseModel):
    """The prompts of one server."""

    server: str
    prompts: list[dict[str, object]]
    count: int


class PromptMessage(ResponseModel):
    """
    A message of a prompt, as its server returns it.

    Attributes:
        role: `user` or `assistant`.
        content: A block of content, such as `{"type": "text", "text": "…"}`.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    role: str
    content: dict[str, object]


class PromptResponse(ResponseModel):
    """
    One prompt with its arguments filled in.

    Attributes:
        meta: The `_meta` of the server's result, if it has one.
    """

    server: str
    prompt: str
    description: str | None = None
    messages: list[Annotated[object, JsonSchemaOf(PromptMessage)]]
    meta: Annotated[dict[str, object] | None, OMITTED_IF_NONE, Field(serialization_alias="_meta")] = None


class ToolCallResponse(ResponseModel):
    """
    The result of a call.

    Attributes:
        error: For a failed call: the tool's error text, or the reason why it could not be called.
        code: For a failed call: tool_execution_error, tool_timeout, server_unavailable, server_http_error or result_too_large.
            `input_required`: the tool needs input first; see `result`.
        message: For a failed call: a sentence that explains the failure and what to do.
        retry_after: For a failed call: the seconds after which the server allows another one, if it said so. Also in Retry-After.
    """

    success: bool
    server: str
    tool: str
    result: dict[str, object] | None = None
    duration_ms: int
    cached: bool | None = None
    error: str | None = None
    code: str | None = None
    message: str | None = None
    retry_after: int | None = None


class ToolCallFailure(ResponseModel):
    """
    A failed call, or an error of Rookery.

    Attributes:
        server: The server of the call; null if the request did not name one.
        tool: The tool of the call; null if the request did not name one.
        error: The tool's error text, or the reason why it could not be called. For an error of Rookery: its code.
        message: A sentence that explains the failure and what to do.
        code: For a failed call: tool_execution_error, tool_timeout, server_unavailable, server_http_error or result_too_large.
        result: The result of the tool, if it returned one.
        retry_after: The seconds after which the server allows another call, if it said so. Also in Retry-After.
        request_id: With `internal_error`: the id to search for in the server's log.
    """

    success: bool
    server: str | None
    tool: str | None
    error: str
    message: str
    code: str | None = None
    result: dict[str, object] | None = None
    duration_ms: int | None = None
    retry_after: int | None = None
    request_id: str | None = None


class ResourceResponse(ResponseModel):
    """The content of one resource: {contents: [{uri, mimeType, text or blob}]}, and the `_meta` of the server's result, if it has one."""

    uri: str
    content: dict[str, object]


class ToolSearchQuery(QueryModel):
    """A search for tools."""

    q: str = Field(min_length=1, max_length=2000, description="A need in plain language, words, or a tool's name.")
    limit: Annotated[int, Field(ge=1, le=50, description="Maximum number of tools.")] = 10
    server: str | None = Field(default=None, min_length=1, max_length=64, description="Only tools of this server.")


class ToolSearchResponse(ResponseModel):
    """The matching tools, best first: each as its server lists it, with `server` and `score` added."""

    query: str
    tools: list[dict[str, object]]
    count: int
    took_ms: int


class OpenApi(RootModel[dict[str, object]]):
    """An OpenAPI 3.1 document. Its schemas come from upstreams, so integers may have any length."""


class ConnectQuery(QueryModel):
    """The options of a client set-up."""

    server: str | None = Field(default=None, min_length=1, max_length=64, description="Only this server; without it, all servers.")
    mode: Literal["search"] | None = Field(default=None, description="search: serve three tools that find and call all others.")


class ClientSetup(ResponseModel):
    """The set-up of one client, ready to paste."""

    client: str
    name: str
    file: str | None
    language: str
    text: str
    note: str
    command: str | None = None


class ConnectResponse(ResponseModel):
    """
    Set-up instructions for MCP clients.

    Attributes:
        search_url: The URL of search mode, where three tools find and call all others. For catalogues too large for a context window.
        key_commands: Commands that create a key and store it in the environment variable.
    """

    name: str
    url: str
    search_url: str
    api: str
    server: str | None
    key_variable: str
    key_commands: str
    clients: list[ClientSetup]


class RegistryQuery(QueryModel):
    """A page of the registry's server list, with the registry API's parameter names."""

    cursor: str | None = Field(default=None, max_length=300, description="The nextCursor of the previous page.")
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of servers.")] = 30
    search: str | None = Field(default=None, max_length=200, description="Part of a name or title.")
    updated_since: Timestamp | None = Field(default=None, description="Updated at or after this time.")
    version: str | None = Field(default=None, max_length=255, description="latest, or an exact version.")


class CallRangeQuery(QueryModel):
    """A filter of calls by time, key, session and agent."""

    since: Timestamp | None = Field(default=None, description="Calls at or after this time.")
    until: Timestamp | None = Field(default=None, description="Calls before this time.")
    key_id: str | None = Field(default=None, max_length=100, description="Calls by this key.")
    session_id: str | None = Field(default=None, max_length=100, description="Calls of this agent session.")
    agent_id: str | None = Field(default=None, max_length=200, description="Calls by keys of this agent.")


class ToolCallsQuery(CallRangeQuery):
    """A filter of calls."""

    server: str | None = Field(default=None, max_length=64, description="Calls of this server.")
    tool: str | None = Field(default=None, max_length=128, description="Calls of tools of this name.")


class ToolCallListQuery(PageQuery, ToolCallsQuery):
    """A page of calls, latest first."""

    success: bool | None = Field(default=None, description="true: successful calls; false: failed or rejected calls.")
    code: str | None = Field(default=None, max_length=64, description="Calls that ended with this code.")
    request_id: str | None = Field(default=None, max_length=100, description="The calls of this request (`X-Request-ID`).")


class ToolAnalyticsQuery(CallRangeQuery):
    """A filter of one tool's calls, and the grouping of their figures."""

    by: Literal["key", "session", "day"] = Field(default="day", description="The field to group by.")
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of groups.")] = 100


class AnalyticsQuery(ToolCallsQuery):
    """A filter of calls, and the grouping of their figures."""

    by: Literal["tool", "server", "key", "session", "day"] = Field(default="tool", description="The field to group by.")
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of groups.")] = 100


class LastError(ResponseModel):
    """The latest failure of a group of calls."""

    code: Annotated[str, BeforeValidator(lambda code: code or "")]
    message: Annotated[str | None, Field(validation_alias="error")]
    tool: str
    server: Annotated[str, Field(validation_alias="server_id")]
    at: Annotated[Timestamp, Field(validation_alias="called_at")]
    request_id: str


class CallStatsResponse(ResponseModel):
    """
    Figures of calls. Durations are in milliseconds, null if no call reached its tool.

    Attributes:
        errors: Calls that failed or were rejected; `error_rate` is their share.
        cached: Calls answered from the cache. Durations exclude them.
    """

    calls: int
    errors: int
    error_rate: Annotated[float, BeforeValidator(lambda rate: round(rate, 4))]
    cached: int
    p50_ms: Milliseconds
    p95_ms: Milliseconds
    p99_ms: Milliseconds
    max_ms: Milliseconds
    last_called_at: Timestamp | None
    last_error: LastError | None


class CallStatsGroup(CallStatsResponse):
    """The figures of one group. Only the fields that identify the group are present."""

    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    key_kind: str | None = None
    session_id: str | None = None
    day: date | None = None


class AnalyticsResponse(CallStatsResponse):
    """
    The figures of all matching calls, and of each group.

    Attributes:
        data: The groups with the most calls first. Days are in chronological order; the limit keeps the latest ones.
        group_count: The number of groups, including those beyond the limit.
    """

    since: Timestamp | None
    until: Timestamp | None
    server: str | None
    tool: str | None
    by: str
    group_count: int
    data: list[CallStatsGroup]


class CallRecordResponse(ResponseModel):
    """
    The record of one call: sizes of arguments and result, and the arguments themselves if the operator stores them.

    Attributes:
        upstream_ms: The part of the duration that the call waited for its tool server; null if nothing was sent to it.
    """

    id: str
    server: Annotated[str, Field(validation_alias="server_id")]
    tool: str
    key_id: str
    key_kind: str
    agent_id: str | None
    session_id: str | None
    success: bool
    code: str | None
    error: str | None
    cached: bool
    duration_ms: Annotated[int, BeforeValidator(round)]
    duration_exact_ms: Annotated[float, BeforeValidator(_round_to_micros), Field(validation_alias="duration_ms")]
    upstream_ms: Milliseconds = None
    arguments_bytes: int
    result_bytes: int
    arguments: str | None
    request_id: str
    called_at: Timestamp


class CallList(ResponseModel):
    """A page of calls."""

    data: list[CallRecordResponse]
    links: Links
    meta: Meta
