"""
What tool servers are to this domain, whatever engine reaches them.

`BuiltinServer` is for other domains: one that has tools of its own (memory has remember, recall, search, forget) writes an
object of this shape in its `mcp_tools.py`, with plain classes of its own and without importing this module; `wiring` passes
it to `engines/upstreams/inprocess.py`. See the example in its docstring.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from rookery.access.models import Caller
from rookery.tools.models import AuthorizationRequest, ConnectionInfo, JsonObject, Login, Server, ServerFeatures

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Takes one progress notice of a running call: done, total, message."""

OnLog: TypeAlias = Callable[[JsonObject], Awaitable[None]]
"""Takes one log notice of a running call, the protocol's params {level, logger?, data}."""

OnRequest: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""
Answers one request of the upstream's own (elicitation/create, sampling/createMessage, roots/list) in the caller's name.

Takes its method and params, returns the protocol's result; raises `UpstreamRefused` with the error that the upstream is to get.
"""

OnUpdate: TypeAlias = Callable[[str | None], None]
"""Hears, in the loop, the uri of a resource that changed; None: the session is over, and nothing is heard any more."""

UpstreamMethod: TypeAlias = Literal[
    "tools/call", "resources/read", "prompts/get", "completion/complete", "resources/subscribe", "resources/unsubscribe"
]
"""What may be asked of an upstream; its params are those of the protocol's method of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """
    Who asks an upstream, and how; what goes with one request beside its params.

    Attributes:
        headers: The caller's headers that this server's `forward_headers` names, lower-case; only HTTP upstreams get them.
        capabilities: Of the caller's own MCP client, as the protocol has them; None: the caller speaks HTTP.
        on_request: Who answers what the upstream asks meanwhile; None: nobody, and it is told so.
        on_update: Of resources/subscribe and its opposite: who hears of the resource, and is to hear of it no more.
    """

    caller: Caller
    on_progress: OnProgress | None = None
    on_log: OnLog | None = None
    on_request: OnRequest | None = None
    on_update: OnUpdate | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    capabilities: JsonObject | None = None


class BuiltinTool(Protocol):
    """
    One tool of a built-in server; a frozen dataclass with these fields will do.

    Attributes:
        name: 1 to 128 of `[A-Za-z0-9_-]`.
        description: For the model that chooses: what it does, when to use it.
        input_schema: JSON Schema 2020-12 of the arguments, "type": "object" at its top; arguments are validated
            by it before `call`, so say "additionalProperties": false and every bound there.
        annotations: MCP's hints, {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True,
            "title": …}; readOnlyHint decides whether test keys may call and whether a lost call is repeated.
        needs: The scope of its REST twin, for example "brain:write". A key without it is not shown the tool, and a
            call is 403 (D-92): both are done here, before `call`.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, object]: ...

    @property
    def annotations(self) -> Mapping[str, object]: ...

    @property
    def required_scope(self) -> str: ...


class BuiltinServer(Protocol):
    """
    A tool server that is part of this process and acts as its caller.

    For example (in memory/mcp_tools.py)::

        @dataclass(frozen=True, slots=True, kw_only=True)
        class BrainTool:
            name: str
            description: str
            input_schema: Mapping[str, object]
            annotations: Mapping[str, object]
            needs: str


        class BrainServer:
            id, name, tagline, description = "brain", "Shared memory", "…", "…"

            def tools(self) -> Sequence[BrainTool]: ...

            async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]: ...

            def text(self, tool: str, answer: Mapping[str, object]) -> str: ...
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
        """Return all tools, always the same ones; who sees which is decided from `required_scope`."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return its result as a JSON-ready object, the body of the REST twin's answer.

        It becomes the structuredContent of the protocol's result, and `text` makes the content of it. *arguments* fit the
        tool's input_schema. A `RookeryError` of status 403 or 429 is the caller's answer as it is; any other becomes
        the tool's own failure, its message the text. What else is raised is an internal error.
        """
        ...

    def text(self, tool: str, answer: Mapping[str, object]) -> str:
        """Return what a model reads of an *answer* of `call`: JSON, from which fields that tell it nothing may be left out."""
        ...


class UpstreamConnection(Protocol):
    """
    One open session with an upstream, in the hands of the task that opened it; its methods may be awaited by any task.

    Every method raises `UpstreamError` (errors.py) and no vendor's error. A caller that is cancelled cancels the request
    upstream, and the session stays usable.
    """

    @property
    def info(self) -> ConnectionInfo:
        """What is known of it; constant while it is open."""
        ...

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """
        Return the protocol's whole result, at most 10 MiB of it.

        One that asks for input ("resultType": "input_required") is returned as it is; the answer to it goes into *params*,
        as `inputResponses` and `requestState`.

        Raises:
            RookeryError: Only by built-in servers, which may refuse the caller.
        """
        ...

    async def list_features(self) -> ServerFeatures:
        """Return everything the upstream lists, all pages; a kind of thing that it does not know is empty."""
        ...

    async def wait_closed(self) -> str:
        """Return, once the session is of no use any more, why."""
        ...


class Connector(Protocol):
    """Opens sessions with one kind of upstream: a command, an address, a part of this process."""

    def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AbstractAsyncContextManager[UpstreamConnection]:
        """
        Return a session to enter and leave in one task; its caller bounds the time of entering.

        *workspace_id* is whose login at the server is used, of a server that asks for one; None: the one for all workspaces.

        Leaving it takes 5 seconds at most and leaves no process behind. *on_changed* is called, in the loop, whenever
        the upstream says that what it offers changed. *on_stderr* is called with each line that a process of ours writes to
        its standard error, without the values of secrets. Entering raises `ConnectFailed`.
        """
        ...


class TokenProvider(Protocol):
    """The access tokens of logins at upstreams, kept fresh (D-31)."""

    async def get_token(self, server: Server, workspace_id: int | None, *, rejected_token: str | None = None) -> str:
        """
        Return a token for *server* that should be good.

        Args:
            server: One with `auth`.
            workspace_id: Whose; see `Connector.connect`.
            rejected_token: A token that the upstream has just turned down: never that one.

        Raises:
            ConnectFailed: Nobody has logged in, or the login is over (`needs_login`); or the authorisation server is down.
        """
        ...


class AuthorizationServers(Protocol):
    """
    The authorisation servers of upstreams (OAuth 2.1, RFC 9728, 8414, 7591).

    Every method raises `LoginFailed` with what is wrong in words, and `LoginOver` where only a new login helps.
    """

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        """
        Find the authorisation server of *server*, become its client, and return where consent is to be given.

        Args:
            server: One with `auth`.
            redirect_uri: Where the answer is to come.
            document: The public https address of what describes us as a client; None: there is none.
        """
        ...

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        """Exchange the *code* of the answer to *start*; *issuer* is who the answer says it is from."""
        ...

    async def renew(self, server: Server, login: Login) -> Login:
        """Return *login* renewed; what it was is worth nothing then."""
        ...


class ToolCallLimiter(Protocol):
    """The caller's own limits per tool (D-38); access's guard is one."""

    async def spend_tool_limit(self, caller: Caller, server: str, tool: str) -> None:
        """
        Count one call against whatever limits the caller's key has for it.

        Raises:
            RookeryError: 429 rate_limited.
        """
        ...


class AgentSessionChecker(Protocol):
    """Which agent sessions there are (D-38); wiring fills it with those of agent work."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Tell whether the workspace has such a session, and it has not ended."""
        ...


class TextSimilarity(Protocol):
    """
    How near texts are in meaning; wiring fills it with memory's embedder. Raises `EngineUnavailable` and no other engine error.

    The vectors of texts are kept: a text costs something once.
    """

    async def compare(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of *question* with each of *texts*; None for those whose vectors take longer than a question may wait."""
        ...

    async def preload(self, texts: Iterable[str]) -> None:
        """Return once the vectors of *texts* are there."""
        ...


class GatewayKeyVerifier(Protocol):
    """Who knows the keys as they are now."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* as its key is now; None: it would not be let in any more, for what needs that scope."""
        ...
