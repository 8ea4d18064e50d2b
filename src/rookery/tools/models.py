"""Domain models of tool servers: server entries, server features, logins, call records, their figures, and call outcomes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

from rookery.kernel.clock import to_micros
from rookery.kernel.preconditions import compute_version
from rookery.tools.entry_fields import EntryField

JsonObject: TypeAlias = dict[str, object]
"""A JSON object as received over the wire, passed through unchanged."""

BUILTIN_IDS = frozenset({"brain", "agents", "content", "tools"})
"""Server ids that are reserved for built-in servers."""


MAX_TIMEOUT_S = 600
"""Maximum duration of a call or a start in seconds."""

DEPRECATION_PERIOD = timedelta(days=184)
"""Time for which a deprecated server keeps working: six months."""

MAX_FEATURES_PER_KIND = 5000
"""Limit on the tools, resources, templates and prompts of one server, each. Every feature costs memory and an embedding."""


FEATURE_KINDS = ("tools", "resources", "templates", "prompts")
"""The lists of `ServerFeatures`, by attribute."""


class ServerStatus(StrEnum):
    """The status that the operator gives a server. Any status may follow any other."""

    AVAILABLE = "available"
    BETA = "beta"
    DEPRECATED = "deprecated"


class HealthStatus(StrEnum):
    """The observed health of a server."""

    ONLINE = "online"
    OFFLINE = "offline"
    DEGRADED = "degraded"
    NEEDS_LOGIN = "needs_login"
    UNKNOWN = "unknown"


ALL_WORKSPACES = 0
"""A reserved workspace number that stands for all workspaces. No workspace has it."""


class SessionIsolation(StrEnum):
    """The scope within which callers share one upstream session."""

    PER_WORKSPACE = "per_workspace"
    SHARED = "shared"
    PER_KEY = "per_key"
    PER_SESSION = "per_session"


class SessionLifecycle(StrEnum):
    """The time at which a session is opened: at its first call (lazy) or at start-up (eager)."""

    LAZY = "lazy"
    EAGER = "eager"


class ServerProtocol(StrEnum):
    """
    The protocol revision in which a server is addressed.

    auto: negotiated. handshake: the newest revision that both sides support among those that begin with `initialize`, which are all
    before 2026-07-28.
    """

    AUTO = "auto"
    HANDSHAKE = "handshake"
    V2024_11_05 = "2024-11-05"
    V2025_03_26 = "2025-03-26"
    V2025_06_18 = "2025-06-18"
    V2025_11_25 = "2025-11-25"
    V2026_07_28 = "2026-07-28"


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiatedProtocol:
    """
    The protocol revision that a server supported at its last start, and its own name and version then.

    The next start begins with the first message of that revision.
    """

    version: str
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """
    A server that runs as a child process and speaks MCP over stdio.

    Attributes:
        secrets: Values from our environment that were substituted into the entry. They are redacted from all output.
    """

    command: Annotated[
        str,
        EntryField(
            "A program that Rookery starts. It speaks MCP over its standard input and output.",
            has_variables=True,
            http_description="A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.",
        ),
    ]
    args: Annotated[tuple[str, ...], EntryField("The arguments of the program.", has_variables=True)] = ()
    env: Annotated[
        Mapping[str, str],
        EntryField("Environment variables of the program, in addition to PATH, HOME and a few others.", has_variables=True),
    ] = field(default_factory=dict[str, str], repr=False)
    cwd: Annotated[str | None, EntryField("The working directory of the program.", has_variables=True)] = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def is_downloader(self) -> bool:
        """True if the command may download the server before it starts it."""
        program = self.command.replace("\\", "/").rpartition("/")[2].lower()
        return program.removesuffix(".cmd").removesuffix(".exe") in _DOWNLOADERS


DEFAULT_START_TIMEOUT_S = 30.0
_DEFAULT_CALL_LIMIT = 64
_DOWNLOAD_START_TIMEOUT_S = 120.0
_DOWNLOADERS = frozenset("npx npm pnpm pnpx yarn bun bunx deno uv uvx pipx docker podman nerdctl".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """
    A remote server, reached by Streamable HTTP or by the older HTTP with SSE.

    Attributes:
        secrets: See `CommandTarget.secrets`.
    """

    url: Annotated[
        str,
        EntryField(
            "The server's URL.",
            has_variables=True,
            http_description="The server's URL; may refer to each of `secrets` as ${NAME}.",
            example="https://mcp.example.com/mcp",
        ),
    ]
    kind: Annotated[Literal["http", "sse"], EntryField("http: Streamable HTTP; sse: the older HTTP with SSE.", name="type")] = "http"
    headers: Annotated[
        Mapping[str, str],
        EntryField(
            "Headers of each request.",
            has_variables=True,
            http_description="Headers of each request; a value may refer to each of `secrets` as ${NAME}.",
            example={"Authorization": "Bearer ${TOKEN}"},
        ),
    ] = field(default_factory=dict[str, str], repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


ANNOUNCED_RESOURCE = "announced"
"""The setting to request tokens for the resource that the server announces. It is no URI, so no resource has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthConfig:
    """
    The OAuth settings of a server that requires a login.

    Attributes:
        client_id: The id of a client that was registered by hand. None: Rookery registers itself at the first login.
        client_secret: The secret of that client. None: the client is public.
        scope: Separated by spaces. None: the scopes that the server advertises.
        resource: None: requests name no resource.
    """

    kind: Annotated[Literal["oauth"], EntryField(name="type")] = "oauth"
    client_id: Annotated[str | None, EntryField(has_variables=True)] = None
    client_secret: Annotated[str | None, EntryField(has_variables=True, http_description="Refers to one of `secrets` as ${NAME}.")] = field(
        default=None, repr=False
    )
    scope: Annotated[str | None, EntryField("The scopes to request; by default those that the server announces.", takes_list=True)] = None
    resource: Annotated[
        str | None,
        EntryField(
            "The resource to request tokens for (RFC 8707): an absolute URI without a fragment. "
            "null: none is sent, as Entra ID requires. Omitted: the one that the server announces.",
            has_variables=True,
        ),
    ] = ANNOUNCED_RESOURCE

    def choose_resource(self, announced: str | None) -> str | None:
        """Return the resource to request tokens for, given the one that the server announced."""
        return announced if self.resource == ANNOUNCED_RESOURCE else self.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthRegistration:
    """
    An authorisation server and the client that Rookery is registered as.

    Attributes:
        server_url: The upstream's URL at registration. The login is not sent to any other URL.
        issuer: The issuer identifier of the authorisation server.
        token_url: The token endpoint.
        resource: The resource that the login was requested for (RFC 8707). None: the server announced none, or the entry leaves it out.
        client_auth: The client authentication method: none, client_secret_basic or client_secret_post.
    """

    server_url: str
    issuer: str
    token_url: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """
    A started login that waits for the user's consent.

    Attributes:
        url: The consent page. It contains no secret except *state*.
        verifier: The PKCE code verifier for the challenge in *url*. Never shown.
        tells_issuer: The response must name its issuer (RFC 9207).
    """

    party: OAuthRegistration
    url: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str
    scope: str | None = None
    tells_issuer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """
    The tokens of a finished login.

    Attributes:
        refresh_token: None: the login cannot be renewed after the access token expires.
        expires_at: Expiry of the access token in seconds since 1970. None: unknown.
    """

    party: OAuthRegistration
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTarget:
    """A server that runs inside this process."""


ServerTarget: TypeAlias = CommandTarget | HttpTarget | BuiltinTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder that a server may work in, in the form of the protocol's `roots/list`."""

    uri: Annotated[
        str,
        EntryField(
            "A file URI.",
            has_variables=True,
            http_description="A file URI; may refer to each of `secrets` as ${NAME}.",
            example="file:///srv/files",
        ),
    ]
    name: Annotated[str | None, EntryField()] = None


CALLER_ROOTS: Final = "caller"
"""A value for `Server.roots` that forwards the roots of the caller's own MCP client."""

Roots: TypeAlias = tuple[Root, ...] | Literal["caller"]

ServerKind: TypeAlias = Literal["stdio", "http", "sse", "builtin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """The operator's rules for a server's tools. Patterns are globs of tool names."""

    allow: Annotated[tuple[str, ...] | None, EntryField("Allowed tools; null: all.")] = None
    deny: Annotated[tuple[str, ...], EntryField("Tools that are not offered.")] = ()
    timeouts_s: Annotated[
        Mapping[str, float], EntryField("Time-outs in seconds, by pattern.", name="timeouts", minimum=0, maximum=MAX_TIMEOUT_S)
    ] = field(default_factory=dict[str, float])
    cache_s: Annotated[
        Mapping[str, float],
        EntryField("Seconds for which results of read-only tools are cached, by pattern.", minimum=0, maximum=MAX_TIMEOUT_S),
    ] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """
    One tool server, as its entry describes it.

    Attributes:
        id: Lower-case letters, digits and hyphens. An id of the file in any other form is replaced by its slug.
        owner: The workspace that added it over HTTP; only that workspace sees it. None: it comes from the file or is built in.
        workspaces: None: all.
        idle_s: None: never.
        max_concurrency: Further calls queue. None: see `change_limit`.
        forward_headers: See `select_forwarded_headers`.
        forward_meta: See `select_forwarded_meta`.
        roots: Empty by default, because keys that share a session must not expose their roots.
        start_timeout_s: None: the default for its kind.
        deprecated_at: None: the date on which the entry changed is recorded.
        fault: The reason why it cannot be reached at all, for example an unset variable.
    """

    id: str
    target: ServerTarget
    owner: int | None = None
    name: Annotated[str, EntryField("The displayed name; by default the title that the server gives itself, else the id.")]
    tagline: Annotated[str, EntryField("One sentence on the server.")] = ""
    description: Annotated[str, EntryField("A description for people.", max_length=4000)] = ""
    icon: Annotated[str | None, EntryField("The address of an image.")] = None
    status: Annotated[ServerStatus, EntryField("Set by you. A deprecated server works, and its answers say so.")] = ServerStatus.AVAILABLE
    use_when: Annotated[str | None, EntryField("Shown to agents: when to use this server.", max_length=4000)] = None
    related_servers: Annotated[tuple[str, ...], EntryField("The ids of servers that complement this one.")] = ()
    enabled: Annotated[bool, EntryField("false: the server is not listed, and calls fail with 403 disabled.")] = True
    private: Annotated[bool, EntryField("Whether it is hidden from requests without a key.", in_file_only=True)] = False
    sandbox: Annotated[bool, EntryField("Whether test keys may call all its tools.")] = False
    workspaces: Annotated[
        frozenset[int] | None, EntryField("The ids of the workspaces that see it; all by default.", in_file_only=True)
    ] = None
    isolation: Annotated[SessionIsolation, EntryField("Which callers share a session with the server.")] = SessionIsolation.PER_WORKSPACE
    replicas: Annotated[int, EntryField("The number of parallel sessions.", minimum=1, maximum=64)] = 1
    lifecycle: Annotated[SessionLifecycle, EntryField("lazy: the session opens with the first call; eager: at the start.")] = (
        SessionLifecycle.LAZY
    )
    idle_s: Annotated[
        float | None,
        EntryField("Idle seconds after which a session is closed; null: never.", minimum=0.1, maximum=86400 * 365),
    ] = 900.0
    timeout_s: Annotated[float, EntryField("Time-out of a call in seconds.", minimum=0.1, maximum=MAX_TIMEOUT_S)] = 60.0
    max_concurrency: Annotated[
        int | None,
        EntryField(
            "Concurrent calls of any kind in a session. By default 64; those of a command that may change something run one at a time.",
            minimum=1,
            maximum=10_000,
        ),
    ] = None
    forward_headers: Annotated[tuple[str, ...], EntryField("Names of headers of the caller that are sent on with a call.")] = ()
    forward_meta: Annotated[
        tuple[str, ...],
        EntryField("Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by default."),
    ] = ()
    rules: Annotated[ToolRules, EntryField("Which tools are offered, with their time-outs and caches.", name="tools")] = ToolRules()
    auth: Annotated[OAuthConfig | None, EntryField("oauth, or its settings, if the server requires a login by OAuth.")] = None
    roots: Annotated[
        Roots,
        EntryField(
            "Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none.", has_variables=True
        ),
    ] = ()
    deprecated_at: Annotated[datetime | None, EntryField("Date of deprecation; null: the date on which the status changed.")] = None
    sunset_at: Annotated[datetime | None, EntryField("Planned date of removal, at least six months after deprecated_at.")] = None
    start_timeout_s: Annotated[float | None, EntryField("Time-out of a start in seconds.", minimum=1, maximum=MAX_TIMEOUT_S)] = None
    protocol: Annotated[
        ServerProtocol,
        EntryField(
            "The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: "
            "the newest one that begins with `initialize`."
        ),
    ] = ServerProtocol.AUTO
    fault: str | None = None

    @property
    def key(self) -> str:
        """The server's unique key. Ids alone are unique only within one workspace."""
        return self.id if self.owner is None else f"{self.owner}/{self.id}"

    @property
    def call_limit(self) -> int:
        """The maximum of concurrent calls in one session, or of concurrent read-only calls if `change_limit` is lower."""
        return _DEFAULT_CALL_LIMIT if self.max_concurrency is None else self.max_concurrency

    @property
    def change_limit(self) -> int:
        """
        The maximum of concurrent calls in one session that may change something.

        One by default for a program that Rookery starts: most are made for one client, and some lose changes that overlap.
        """
        return 1 if self.max_concurrency is None and isinstance(self.target, CommandTarget) else self.call_limit

    @property
    def effective_start_timeout_s(self) -> float | None:
        """Seconds that a start may take. None: the supervisor's default."""
        if self.start_timeout_s is not None:
            return self.start_timeout_s
        return _DOWNLOAD_START_TIMEOUT_S if isinstance(self.target, CommandTarget) and self.target.is_downloader else None

    @property
    def kind(self) -> ServerKind:
        """The kind of connector that reaches the server."""
        match self.target:
            case CommandTarget():
                return "stdio"
            case HttpTarget(kind=kind):
                return kind
            case BuiltinTarget():
                return "builtin"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredServer:
    """
    A server that a workspace added over HTTP, as stored.

    Attributes:
        workspace_id: The owner. If a test key added the server, this is the sandbox workspace.
        entry: The entry as received, in the form of the file; `${NAME}` is not substituted.
        sealed: The encrypted values for `${NAME}`, as JSON. None: no secrets, or the encryption key was lost.
    """

    row_id: str
    workspace_id: int
    server_id: str
    entry: JsonObject
    sealed: bytes | None = field(repr=False)
    created_at: datetime
    updated_at: datetime

    @property
    def version(self) -> str:
        """The version of its settings and secrets. Health and features do not change it."""
        return compute_version(self.row_id, to_micros(self.updated_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStop:
    """
    An operator's stop of a tool, a server or all servers, for one workspace or for all.

    Attributes:
        workspace_id: 0 means every workspace.
        server_id: Empty means every server.
        tool: Empty means every tool of the server.
    """

    workspace_id: int
    server_id: str = ""
    tool: str = ""
    reason: str = ""
    stopped_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """
    A server's statements about itself in the protocol's `serverInfo`, each text as one line of limited length.

    Attributes:
        icon: The address of an image: an http or https URL, or a data URL.
    """

    title: str = ""
    description: str = ""
    icon: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFeatures:
    """
    The features of a server, as the upstream returned them.

    Attributes:
        required_scopes: The scope that each tool requires, by tool name. Only for built-in servers.
        accepted_schemas: The schemas of all arguments that each tool accepts, by tool name. Only for built-in servers, which accept more
            arguments than they publish. Not stored.
        instructions: The upstream's own usage instructions.
        list_errors: The reason why a list could not be read, by its kind (`FEATURE_KINDS`). The other lists are complete. Not stored.
        info: Used where the server's entry says nothing.
    """

    tools: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    required_scopes: Mapping[str, str] = field(default_factory=dict[str, str])
    accepted_schemas: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject], compare=False, repr=False)
    instructions: str | None = None
    list_errors: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    info: ServerInfo = ServerInfo()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """
    The metadata of one open upstream session.

    Attributes:
        protocol_version: The negotiated protocol revision, for example "2026-07-28". None for a built-in server.
        pid: The id of the child process. None for servers that are not started by Rookery.
        software: The upstream's own name and version.
        capabilities: The upstream's capabilities object, unchanged.
    """

    protocol_version: str | None = None
    pid: int | None = None
    software: str = ""
    capabilities: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSnapshot:
    """
    The last features that a server listed successfully, as stored.

    Attributes:
        server_key: `Server.key`.
        fingerprint: A digest of the server's target. A snapshot with another fingerprint belongs to another server.
    """

    server_key: str
    fingerprint: str
    features: ServerFeatures
    seen_at: datetime


FailureCode: TypeAlias = Literal["tool_execution_error", "tool_timeout", "server_unavailable", "server_http_error", "result_too_large"]

FAILURES: Mapping[FailureCode, str] = {
    "tool_execution_error": "The tool returned an error.",
    "tool_timeout": "The tool neither finished nor reported progress in time.",
    "server_unavailable": "No session with the tool server could be opened.",
    "server_http_error": "The tool server answered the call with an HTTP error status, a redirect that is not followed, or without a "
    "result. Only this call failed.",
    "result_too_large": "The result of the tool has more than 10 MiB.",
}
"""The reasons why a call that reached its server failed."""

OutcomeCode: TypeAlias = FailureCode | Literal["input_required"]
"""The reason why a call has no final result: it failed, or the tool needs input from its caller first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """
    The record of one call. It holds the sizes of arguments and result in bytes, never the result.

    Attributes:
        success: False for `input_required` too, although that is not a failure.
        code: None on success; else an `OutcomeCode`, the code of the rejection, or `client_left`.
        cached: The result came from the cache, without an upstream call.
        upstream_ms: The part of the duration that the call waited for its tool server. None: nothing was sent.
        error: The tool's error message, truncated and with secrets redacted.
        arguments: JSON, truncated and with secrets redacted. Stored only if the operator enables it.
    """

    id: str
    workspace_id: int
    server_id: str
    tool: str
    key_id: str
    key_kind: str
    agent_id: str | None
    session_id: str | None
    success: bool
    code: str | None
    duration_ms: float
    arguments_bytes: int
    result_bytes: int
    request_id: str
    called_at: datetime
    cached: bool = False
    error: str | None = None
    arguments: str | None = None
    upstream_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFilter:
    """
    A filter of call records. Fields with the value None are ignored.

    Attributes:
        until: Exclusive.
        servers: Matches calls of any of these server ids.
        names: Matches calls of any of these tools, each "server/tool".
    """

    workspace_id: int
    since: datetime | None = None
    until: datetime | None = None
    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    code: str | None = None
    request_id: str | None = None
    success: bool | None = None
    servers: frozenset[str] | None = None
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamProtocolError:
    """A JSON-RPC error: code, message and optional data."""

    number: int
    message: str
    data: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """
    The outcome of a call that reached its tool. A failure of the tool is an outcome, not an exception.

    Attributes:
        result: The protocol's complete tool result as JSON. A failed call has one if the tool returned one. For
            `input_required` it is {inputRequests, requestState?}.
        error: The error message of a failed call.
        code: None on success.
        cache: "hit" or "miss". None: the result is not cacheable.
        age_s: Age of a cached result in seconds; 0 for a fresh one.
        protocol_error: The upstream's protocol error, if it returned one. MCP callers receive it unchanged.
        retry_after_s: The seconds after which the server allows another call; None if it did not say.
    """

    server: Server
    tool: str
    duration_ms: float
    result: bytes | None = None
    error: str | None = None
    code: OutcomeCode | None = None
    cache: Literal["hit", "miss"] | None = None
    age_s: float = 0.0
    protocol_error: UpstreamProtocolError | None = None
    retry_after_s: int | None = None


def has_workspace_sessions(server: Server) -> bool:
    """
    Return whether several workspaces use *server*, each with its own session.

    The names of such a server's resources are private to each workspace.
    """
    return server.owner is None and server.isolation is not SessionIsolation.SHARED and server.kind != "builtin"


def has_own_lists(server: Server) -> bool:
    """
    Return whether callers of *server* have sessions of their own, whose lists are private to their holder.

    A server that a workspace added is used by this workspace alone, so its sessions per workspace are one session. What a server lists
    for the login of a caller (`forward_headers`) belongs to that caller, also in a session that several share.
    """
    if server.forward_headers:
        return True
    if server.kind == "builtin" or server.isolation is SessionIsolation.SHARED:
        return False
    return server.owner is None or server.isolation is not SessionIsolation.PER_WORKSPACE


def limit_features(features: ServerFeatures) -> ServerFeatures:
    """Return *features* with each kind truncated to `MAX_FEATURES_PER_KIND`."""
    return replace(
        features,
        tools=features.tools[:MAX_FEATURES_PER_KIND],
        resources=features.resources[:MAX_FEATURES_PER_KIND],
        templates=features.templates[:MAX_FEATURES_PER_KIND],
        prompts=features.prompts[:MAX_FEATURES_PER_KIND],
    )


def count_dropped_features(features: ServerFeatures) -> int:
    """Return the number of features beyond `MAX_FEATURES_PER_KIND`."""
    return sum(
        max(len(feature_list) - MAX_FEATURES_PER_KIND, 0)
        for feature_list in (features.tools, features.resources, features.templates, features.prompts)
    )
