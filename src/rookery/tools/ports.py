"""
Interfaces between the tools domain and the engines that connect to tool servers.

Other domains offer tools of their own as a `BuiltinServer`, such as memory with remember and recall. They do not import this module:
`kernel.http.operation_tools` builds the server from their operations, and `wiring` passes it to `engines/upstreams`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from rookery.access.models import Caller
from rookery.kernel.working_context import CallSession
from rookery.tools.models import AuthorizationRequest, ConnectionInfo, JsonObject, Login, NegotiatedProtocol, Server, ServerFeatures

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives one progress notification of a running call: progress, total, message."""

OnLog: TypeAlias = Callable[[JsonObject], Awaitable[None]]
"""Receives one log notification of a running call: the protocol's params {level, logger?, data}."""

OnRequest: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""
Answers a request from the upstream (elicitation/create, sampling/createMessage, roots/list) on behalf of the caller.

Takes the method and params, and returns the protocol's result. Raises `UpstreamErrorResponse` to return an error to the upstream.
"""

OnUpdate: TypeAlias = Callable[[str | None], None]
"""Receives, in the event loop, the URI of a resource that changed. None: the session closed and no further updates follow."""

UpstreamMethod: TypeAlias = Literal[
    "tools/call", "resources/read", "prompts/get", "completion/complete", "resources/subscribe", "resources/unsubscribe"
]
"""Methods of an upstream request. The params are those of the protocol's method of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """
    The caller and the options of one upstream request, in addition to its params.

    Attributes:
        headers: The caller's headers that the server's `forward_headers` names, in lower case. Only HTTP upstreams receive them.
        capabilities: The capabilities object of the caller's MCP client. None: the caller uses the HTTP API.
        on_request: Answers requests of the upstream during the call. None: they are rejected.
        on_update: The listener that resources/subscribe adds and resources/unsubscribe removes.
        session: The session that the request belongs to, for built-in servers.
    """

    caller: Caller
    on_progress: OnProgress | None = None
    on_log: OnLog | None = None
    on_request: OnRequest | None = None
    on_update: OnUpdate | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    capabilities: JsonObject | None = None
    session: CallSession = field(default_factory=CallSession)


class BuiltinTool(Protocol):
    """
    One tool of a built-in server. A frozen dataclass with these fields is sufficient.

    Attributes:
        name: 1 to 128 characters of `[A-Za-z0-9_-]`.
        description: Text for the model that selects a tool: what it does and when to use it.
        input_schema: JSON Schema 2020-12 of the arguments, with "type": "object" at the top level. Arguments are validated
            against it before `call`.
        accepted_schema: The same with the arguments that are accepted too, but not published.
        output_schema: JSON Schema of the structured content of a result. It also allows the body of an error.
        annotations: MCP's hints, {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True,
            "title": …}. readOnlyHint decides whether test keys may call the tool and whether a lost call is retried.
        required_scope: The scope of the equivalent REST route, for example "brain:write". Keys without it do not see the tool,
            and their calls fail with 403. Both checks run before `call`.
        meta: The tool's `_meta`, for clients.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, object]: ...

    @property
    def accepted_schema(self) -> Mapping[str, object]: ...

    @property
    def output_schema(self) -> Mapping[str, object]: ...

    @property
    def annotations(self) -> Mapping[str, object]: ...

    @property
    def required_scope(self) -> str: ...

    @property
    def meta(self) -> Mapping[str, object]: ...


class BuiltinOutput(Protocol):
    """
    An output of a built-in tool in the form of a tool result.

    Attributes:
        text: What a model reads.
        structured: What a program reads.
    """

    @property
    def text(self) -> str: ...

    @property
    def structured(self) -> Mapping[str, object]: ...


class BuiltinServer(Protocol):
    """
    A tool server that runs inside this process, with the rights of its caller.

    `kernel.http.operation_tools.OperationServer` is one, whose tools are operations of a domain.
    """

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def tagline(self) -> str: ...

    @property
    def description(self) -> str: ...

    def tools(self) -> Sequence[BuiltinTool]:
        """Return all tools. The list is constant; `required_scope` decides which callers see a tool."""
        ...

    async def call(
        self, tool: str, arguments: Mapping[str, object], caller: Caller, *, session: CallSession | None = None
    ) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return its result as a JSON-ready object, equal to the body of the REST response.

        `render` makes the content of the protocol's result from it. *arguments*
        have been validated against the tool's input_schema. A `RookeryError` with status 403 or 429 is returned to the caller
        as an HTTP error. Any other `RookeryError` becomes a failure of the tool with its message as the text. Other exceptions
        are internal errors.
        """
        ...

    def render(self, tool: str, output: Mapping[str, object], arguments: Mapping[str, object]) -> BuiltinOutput:
        """Return an *output* of `call` as a text for a model and as structured content for a program, within the tool's budget."""
        ...

    def compact(self, tool: str, text: str, structured: Mapping[str, object]) -> Mapping[str, object]:
        """Return the structured content of a rendered output for a model, without fields that carry no information."""
        ...


class UpstreamConnection(Protocol):
    """
    One open session with an upstream, owned by the task that opened it. Any task may await its methods.

    Every method raises `UpstreamError` (errors.py) and no vendor exceptions. If a caller is cancelled, its request is cancelled
    upstream and the session stays usable.
    """

    @property
    def info(self) -> ConnectionInfo:
        """The metadata of the session, constant while it is open."""
        ...

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """
        Send one request and return the protocol's complete result, at most 10 MiB.

        A result that requires input ("resultType": "input_required") is returned unchanged. The response to it goes into
        *params*, as `inputResponses` and `requestState`.

        Raises:
            RookeryError: Raised by built-in servers only, which may reject the caller.
        """
        ...

    async def list_features(self, opener: RequestOptions | None = None) -> ServerFeatures:
        """
        Return all pages of every list. A kind of feature that the upstream does not support is empty.

        A list that fails is empty too, with the reason in `list_errors`. If all fail, the first error is raised.

        Args:
            opener: The caller with whose forwarded headers the lists are requested. None: without such headers.
        """
        ...

    @property
    def has_subscribers(self) -> bool:
        """True while callers are subscribed to a resource, which keeps the session open."""
        ...

    async def wait_closed(self) -> str:
        """Wait until the session is no longer usable, and return the reason."""
        ...


class Connector(Protocol):
    """Opens sessions with one kind of upstream: a command, a URL or a built-in server."""

    def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_output: Callable[[str], None] | None = None,
        on_process: Callable[[int], None] | None = None,
        opener: RequestOptions | None = None,
    ) -> AbstractAsyncContextManager[UpstreamConnection]:
        """
        Return a session to enter and leave in the same task. The caller limits the time of entering.

        *workspace_id* selects the login to use, for a server that requires one. None: the login for all workspaces. *opener* is the
        caller who needs the session, whose forwarded headers open and end it. None: no caller, for example to list the server.

        Leaving takes at most 5 seconds and leaves no process behind. *on_changed* is called, in the event loop, whenever the
        upstream notifies that its features changed. *on_output* is called with each line that a child process writes to its
        standard error, or to its standard output if it is no protocol message, with secrets redacted. *on_process* is called with
        the id of each process that is started. Entering raises `ConnectFailed`.
        """
        ...


class TokenProvider(Protocol):
    """A provider of access tokens for logins at upstreams, which refreshes expired tokens."""

    async def get_token(self, server: Server, workspace_id: int | None, *, rejected_token: str | None = None) -> str:
        """
        Return an access token for *server* that is expected to be valid.

        Args:
            server: A server with `auth`.
            workspace_id: The workspace of the login; see `Connector.connect`.
            rejected_token: A token that the upstream has just rejected. It is not returned again.

        Raises:
            ConnectFailed: There is no login, the login expired (`needs_login`), or the authorisation server is unavailable.
        """
        ...


class NegotiatedProtocols(Protocol):
    """
    A store of the protocol revision that each server negotiated last, shared by all processes.

    Without it, each start would probe a server again, which some servers answer by exiting and others not at all.
    """

    async def find(self, server: Server) -> NegotiatedProtocol | None:
        """Return what *server* negotiated last. None: unknown, or its target has changed since."""
        ...

    async def save(self, server: Server, negotiated: NegotiatedProtocol | None) -> None:
        """Store what *server* negotiated. None: the next start probes it."""
        ...


class AuthorizationServers(Protocol):
    """
    A client of the authorisation servers of upstreams (OAuth 2.1, RFC 9728, 8414, 7591).

    Every method raises `LoginFailed` with a description of the problem, and `LoginExpired` if only a new login helps.
    """

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        """
        Discover the authorisation server of *server*, register as its client, and return the consent request.

        Args:
            server: A server with `auth`.
            redirect_uri: The URI that receives the authorisation response.
            document: The public https URL of the client metadata document. None: not available.
        """
        ...

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        """Exchange the *code* of the authorisation response for tokens; *issuer* is the issuer that the response names."""
        ...

    async def renew(self, server: Server, login: Login) -> Login:
        """Return *login* with new tokens. The old tokens become invalid."""
        ...


class ToolCallLimiter(Protocol):
    """Checks the caller's rate limits per tool. Implemented by the guard of the access domain."""

    async def spend_tool_limit(self, caller: Caller, server: str, tool: str) -> None:
        """
        Count one call against the limits that the caller's key has for the tool.

        Raises:
            RookeryError: 429 rate_limited.
        """
        ...


class AgentSessionChecker(Protocol):
    """Checks whether an agent session exists. `wiring` passes the implementation of the agents domain."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return whether the workspace has an agent session with this id that has not ended."""
        ...


class TextSimilarity(Protocol):
    """
    Semantic similarity of texts, implemented with memory's embedder. Raises `EngineUnavailable` and no other engine error.

    Vectors are cached, so each text is embedded once.
    """

    async def compare(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine similarity of *question* with each text; None for texts whose vectors are not ready in time."""
        ...

    async def preload(self, texts: Iterable[str]) -> None:
        """Compute and cache the vectors of *texts*."""
        ...


class GatewayKeyVerifier(Protocol):
    """Checks whether a key is still valid. Gateway streams outlive the authentication of their request."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* with the current rights of its key. None: the key is no longer valid for *required_scope*."""
        ...

    async def find_caller(self, key_id: str, required_scope: str, *, address: str, request_id: str) -> Caller | None:
        """Return the caller of a request that another process has admitted. None: its key is no longer valid for *required_scope*."""
        ...
