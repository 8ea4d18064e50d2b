"""The wire shapes of tool servers: the names of spec 2.1, and ours beside them (D-08)."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel, field_validator

from rookery.kernel.http.pagination import Links, Meta, PageQuery
from rookery.kernel.schema import JsonSchemaOf, QueryModel, RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.tools.models import HealthStatus, ServerStatus

_ACTIONS = ("accept", "decline", "cancel")
_SAMPLING_FIELDS = frozenset({"role", "content", "model"})


class ToolCallRequest(RequestModel):
    """
    A call of one tool.

    Attributes:
        input_responses: The answers to what an earlier call asked by `input_required`, by the names of its `inputRequests`.
        request_state: The `requestState` of that answer, unchanged.
    """

    server: str = Field(min_length=1, max_length=64)
    tool: str = Field(min_length=1, max_length=128)
    arguments: dict[str, object] | None = None
    input_responses: dict[str, dict[str, object]] | None = None
    request_state: str | None = None

    @field_validator("input_responses")
    @classmethod
    def _validate_answers(cls, responses: dict[str, dict[str, object]] | None) -> dict[str, dict[str, object]] | None:
        for name, response in (responses or {}).items():
            if not (response.get("action") in _ACTIONS or isinstance(response.get("roots"), list) or response.keys() >= _SAMPLING_FIELDS):
                msg = f"{name}: must be {{action: accept | decline | cancel, content?}}, {{role, content, model}} or {{roots}}"
                raise ValueError(msg)
        return responses


class ToolArguments(RootModel[dict[str, object]]):
    """The bare arguments of a call whose server and tool the path names."""


class PromptRequest(RequestModel):
    """The arguments of a prompt."""

    arguments: dict[str, str] = Field(default_factory=dict)


class Tool(ResponseModel):
    """
    A tool, as its server tells of it: with whatever else the protocol has, such as title, outputSchema and annotations.

    Attributes:
        inputSchema: The JSON Schema of its arguments.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    description: str = ""
    inputSchema: dict[str, object]  # noqa: N815 - the protocol's name


class Resource(ResponseModel):
    """
    A resource, as its server tells of it.

    Attributes:
        uri: `server://path`, under which we read it out.
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
        status: What the operator says of it.
        health: What we see of it.
        use_when: When to use it, in the operator's words.
    """

    id: str
    name: str
    tagline: str
    status: Annotated[str, enum_schema(ServerStatus)]
    health: Annotated[str, enum_schema(HealthStatus)]
    tool_count: int
    resource_count: int
    icon: str | None = None
    use_when: str | None = None
    related_servers: list[str] = Field(default_factory=list[str])


class ServerList(ResponseModel):
    """Every server that the key sees."""

    servers: list[ServerSummary]
    count: int


class SessionShown(ResponseModel):
    """One session with a server: what the gateway's supervision knows of it."""

    state: Literal["open", "opening", "waiting", "closed"]
    pid: int | None = None
    era: str | None = None
    software: str | None = None
    uptime_s: float | None = None
    restarts: int
    in_flight: int
    queued: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    last_error: str | None = None
    retry_s: float | None = None


class StandingShown(ResponseModel):
    """How a server does for this workspace: its own sessions, and those that all workspaces share."""

    state: Literal["open", "opening", "waiting", "closed"]
    restarts: int
    in_flight: int
    queued: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    sessions: list[SessionShown]


class HiddenTool(ResponseModel):
    """A tool that the server offers and that Rookery does not."""

    name: str
    reason: str


class ServerResponse(ServerSummary):
    """One server with what it offers; last_error, stderr, standing and hidden_tools to keys with servers:read (D-12)."""

    description: str
    instructions: str | None = None
    last_error: str | None = None
    stderr: list[str] | None = None
    standing: StandingShown | None = None
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
    """The templates of resources of one server."""

    server: str
    resource_templates: list[dict[str, object]]
    count: int


class PromptList(ResponseModel):
    """The prompts of one server."""

    server: str
    prompts: list[dict[str, object]]
    count: int


class PromptResponse(ResponseModel):
    """One prompt, filled in."""

    server: str
    prompt: str
    description: str | None = None
    messages: list[object]


class ToolCallResponse(ResponseModel):
    """
    What a call came to.

    Attributes:
        error: Of a failed call: the text of the tool, or why it could not be called.
        code: Of a failed call: tool_execution_error, tool_timeout, server_unavailable or result_too_large. `input_required`: the tool
            asks for something first, in `result`.
        message: Of a failed call: a sentence that says what failed and what to do.
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


class ResourceResponse(ResponseModel):
    """One resource's content: {contents: [{uri, mimeType, text or blob}]}."""

    uri: str
    content: dict[str, object]


class ToolSearchQuery(QueryModel):
    """What tools are looked for."""

    q: str = Field(min_length=1, max_length=2000, description="A need in plain language, words, or a tool's name.")
    limit: Annotated[int, Field(ge=1, le=50, description="At most so many.")] = 10
    server: str | None = Field(default=None, min_length=1, max_length=64, description="Only tools of this server.")


class FoundTools(ResponseModel):
    """The tools that fit, the best first: each as its server tells of it, with `server` and `score` beside."""

    query: str
    tools: list[dict[str, object]]
    count: int
    took_ms: int


class OpenApi(RootModel[dict[str, object]]):
    """An OpenAPI 3.1 document; the schemas in it are others', so integers of any length."""


class ConnectQuery(QueryModel):
    """For what a client is to be set up."""

    server: str | None = Field(default=None, min_length=1, max_length=64, description="One server; without it, all at once.")
    mode: Literal["search"] | None = Field(default=None, description="search: two tools that find and call all others.")


class ClientSetup(ResponseModel):
    """One client's set-up, ready to paste."""

    client: str
    name: str
    file: str | None
    language: str
    text: str
    note: str
    command: str | None = None


class ConnectResponse(ResponseModel):
    """
    How clients are set up.

    Attributes:
        search_url: The same with two tools that find and call all others, for catalogues too large for a context window.
        key_commands: Commands that make a key and put it into the variable.
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
    """A page of the registry's list, in its own words."""

    cursor: str | None = Field(default=None, max_length=300, description="From nextCursor of the page before.")
    limit: Annotated[int, Field(ge=1, le=100, description="At most so many.")] = 30
    search: str | None = Field(default=None, max_length=200, description="Part of a name or title.")
    updated_since: Timestamp | None = Field(default=None, description="Seen anew since then.")
    version: str | None = Field(default=None, max_length=255, description="latest, or an exact version.")


class RegistryList(ResponseModel):
    """Servers in the shape of the official registry's API, v0.1."""

    servers: list[dict[str, object]]
    metadata: dict[str, object]


class CallRangeQuery(QueryModel):
    """Which calls, whatever was called."""

    since: Timestamp | None = Field(default=None, description="Calls from this moment on.")
    until: Timestamp | None = Field(default=None, description="Calls before this moment.")
    key_id: str | None = Field(default=None, max_length=100, description="Calls by this key.")
    session_id: str | None = Field(default=None, max_length=100, description="Calls of this agent session.")
    agent_id: str | None = Field(default=None, max_length=200, description="Calls by keys of this agent.")


class ToolCallsQuery(CallRangeQuery):
    """Which calls."""

    server: str | None = Field(default=None, max_length=64, description="Calls of this server.")
    tool: str | None = Field(default=None, max_length=128, description="Calls of tools of this name.")


class ToolCallListQuery(PageQuery, ToolCallsQuery):
    """A page of calls, the latest first."""

    success: bool | None = Field(default=None, description="Whether they went well.")
    code: str | None = Field(default=None, max_length=64, description="Calls that ended with this code.")


class ToolAnalyticsQuery(CallRangeQuery):
    """Which calls of a tool, in which groups."""

    by: Literal["key", "session", "day"] = Field(default="day", description="What the groups have in common.")
    limit: Annotated[int, Field(ge=1, le=1000, description="At most so many groups.")] = 100


class AnalyticsQuery(ToolCallsQuery):
    """Which calls, in which groups."""

    by: Literal["tool", "server", "key", "session", "day"] = Field(default="tool", description="What the groups have in common.")
    limit: Annotated[int, Field(ge=1, le=1000, description="At most so many groups.")] = 100


class LastError(ResponseModel):
    """The latest of some failures."""

    code: str
    message: str | None
    tool: str
    server: str
    at: Timestamp
    request_id: str


class CallStatsResponse(ResponseModel):
    """
    How calls went; durations in milliseconds, null where no call reached its tool.

    Attributes:
        errors: Calls that failed or were refused; `error_rate` is their share.
        cached: Calls answered from the cache, which no duration counts.
    """

    calls: int
    errors: int
    error_rate: float
    cached: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    last_called_at: Timestamp | None
    last_error: LastError | None


class FigureGroup(CallStatsResponse):
    """The figures of one group, and what its calls have in common; the rest is absent."""

    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    key_kind: str | None = None
    session_id: str | None = None
    day: date | None = None


class AnalyticsResponse(CallStatsResponse):
    """
    The figures of all chosen calls together, then of each group.

    Attributes:
        data: Those of the most calls first; days in their order, the latest ones if there are more than asked for.
        group_count: How many groups there are.
    """

    since: Timestamp | None
    until: Timestamp | None
    server: str | None
    tool: str | None
    by: str
    group_count: int
    data: list[FigureGroup]


class CallShown(ResponseModel):
    """One call that was made; of its arguments and its result the sizes, and the arguments where the operator keeps them."""

    id: str
    server: str
    tool: str
    key_id: str
    key_kind: str
    agent_id: str | None
    session_id: str | None
    success: bool
    code: str | None
    error: str | None
    cached: bool
    duration_ms: int
    duration_exact_ms: float
    arguments_bytes: int
    result_bytes: int
    arguments: str | None
    request_id: str
    called_at: Timestamp


class CallList(ResponseModel):
    """A page of calls."""

    data: list[CallShown]
    links: Links
    meta: Meta
