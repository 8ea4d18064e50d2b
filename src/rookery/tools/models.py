"""The nouns of tool servers: what a file says of one, what it offers, what a call of it came to. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from rookery.kernel.clock import to_micros
from rookery.kernel.preconditions import version_of

JsonObject: TypeAlias = dict[str, object]
"""An object of JSON as it came over the wire; passed through unchanged."""

BUILTIN_IDS = frozenset({"brain", "agents", "tools"})
"""Ids no file may give to a server (D-31)."""


DEPRECATION_PERIOD = timedelta(days=184)
"""Six months, in which a deprecated server still works (D-08)."""

MAX_FEATURES_PER_KIND = 5000
"""Tools, resources, templates, prompts of one server; each costs everybody: memory here, and a look at its words by the embedder."""


class ServerStatus(StrEnum):
    """The operator's word on a server (spec 3.1); any may follow any (D-33)."""

    AVAILABLE = "available"
    BETA = "beta"
    DEPRECATED = "deprecated"


class HealthStatus(StrEnum):
    """How a server does, as we see it (D-33)."""

    ONLINE = "online"
    OFFLINE = "offline"
    DEGRADED = "degraded"
    NEEDS_LOGIN = "needs_login"
    UNKNOWN = "unknown"


ALL_WORKSPACES = 0
"""Stands for all workspaces where a workspace's number is expected; no workspace has it."""


class SessionIsolation(StrEnum):
    """Who shares one session with an upstream (D-32)."""

    PER_WORKSPACE = "per_workspace"
    SHARED = "shared"
    PER_KEY = "per_key"
    PER_SESSION = "per_session"


class SessionLifecycle(StrEnum):
    """Whether a session opens with its first call or with the platform."""

    LAZY = "lazy"
    EAGER = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """
    A server that we start, and speak with over its pipes.

    Attributes:
        env: Beside the few variables that every child gets.
        secrets: What the entry was filled in with from our environment; never shown, wherever it stands.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def is_downloader(self) -> bool:
        """Whether the program is one that may download the server before it starts it."""
        program = self.command.replace("\\", "/").rpartition("/")[2].lower()
        return program.removesuffix(".cmd").removesuffix(".exe") in _DOWNLOADERS


_DOWNLOAD_START_TIMEOUT_S = 120.0
_DOWNLOADERS = frozenset("npx npm pnpm pnpx yarn bun bunx deno uv uvx pipx docker podman nerdctl".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """
    A server that runs elsewhere: Streamable HTTP, or the older HTTP with SSE.

    Attributes:
        secrets: As of a `CommandTarget`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    kind: Literal["http", "sse"] = "http"
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthConfig:
    """
    That a server asks for a login by OAuth, and what was agreed with its authorisation server beforehand (D-31).

    Attributes:
        client_id: Of a client that somebody registered by hand; None: we register ourselves when somebody logs in.
        client_secret: Of that client; None: it is a public one.
        scope: What to ask for, words with spaces between; None: what the server says it needs.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthRegistration:
    """
    With which authorisation server we deal, and as which client of it.

    Attributes:
        server_url: The upstream's address then: at another one nothing of this is shown.
        issuer: Its name for itself; with *token_url*, where tokens come from.
        resource: What a token is for (RFC 8707); None: the server says nothing of it, as before 2025-06.
        client_auth: How the client proves itself: none, client_secret_basic, client_secret_post.
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
    A login that somebody is to give their consent to.

    Attributes:
        url: Where they do; it shows no secret of ours but the mark of this start, *state*.
        verifier: What the challenge in *url* was made of (PKCE); never shown.
        tells_issuer: The answer must say from which authorisation server it comes (RFC 9207).
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
    What a login gave us.

    Attributes:
        refresh_token: What renews it; None: nothing does, once the access token is over.
        expires_at: When that is, in seconds since 1970; None: nobody said.
    """

    party: OAuthRegistration
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTarget:
    """A server that is part of this process."""


ServerTarget: TypeAlias = CommandTarget | HttpTarget | BuiltinTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder that a server may work in, as the protocol's `roots/list` gives it."""

    uri: str
    name: str | None = None


CALLER_ROOTS: Final = "caller"
"""In the place of a list of roots: those of the caller's own client."""

Roots: TypeAlias = tuple[Root, ...] | Literal["caller"]

ServerKind: TypeAlias = Literal["stdio", "http", "sse", "builtin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """What the operator says of a server's tools; patterns are globs of tool names."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    timeouts_s: Mapping[str, float] = field(default_factory=dict[str, float])
    cache_s: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """
    One tool server as its entry describes it (D-31).

    Attributes:
        id: By D-30; for a file's id outside that form its slug.
        use_when: For agents: when to reach for this server.
        private: Left out of what is shown without a key (D-35); keys see it.
        sandbox: Test keys may call all its tools (D-25).
        workspaces: Who may see it; None means all.
        idle_s: A session unused for so long is closed; None means never.
        timeout_s: Of one call, reset by its progress.
        max_concurrency: Calls at once in one session; more queue.
        forward_headers: Of the caller's headers, which go on to it; see `headers.forwarded`.
        auth: That we log in at it, and how; None: whatever its headers say is enough.
        roots: The folders announced to it; none by default, because a session that keys share must not take one key's.
        start_timeout_s: How long a start may take; None: the default of its kind.
        deprecated_at: Since when it is deprecated, if its entry says so; else it is noted when the entry changes.
        sunset_at: When it is to be removed, by its entry.
        fault: Why it cannot be reached at all, for example a variable that is not set.
        owner: The workspace that added it over HTTP, which alone sees it; None: it is of the file or built in.
    """

    id: str
    name: str
    target: ServerTarget
    owner: int | None = None
    tagline: str = ""
    description: str = ""
    icon: str | None = None
    status: ServerStatus = ServerStatus.AVAILABLE
    use_when: str | None = None
    related_servers: tuple[str, ...] = ()
    enabled: bool = True
    private: bool = False
    sandbox: bool = False
    workspaces: frozenset[int] | None = None
    isolation: SessionIsolation = SessionIsolation.PER_WORKSPACE
    replicas: int = 1
    lifecycle: SessionLifecycle = SessionLifecycle.LAZY
    idle_s: float | None = 900.0
    timeout_s: float = 60.0
    rules: ToolRules = ToolRules()
    max_concurrency: int = 64
    forward_headers: tuple[str, ...] = ()
    auth: OAuthConfig | None = None
    roots: Roots = ()
    start_timeout_s: float | None = None
    deprecated_at: datetime | None = None
    sunset_at: datetime | None = None
    fault: str | None = None

    @property
    def key(self) -> str:
        """Its name among the servers of all workspaces: two workspaces may each have added one of the same id."""
        return self.id if self.owner is None else f"{self.owner}/{self.id}"

    @property
    def effective_start_timeout_s(self) -> float | None:
        """How many seconds a start may take; None: as long as supervision allows any server."""
        if self.start_timeout_s is not None:
            return self.start_timeout_s
        return _DOWNLOAD_START_TIMEOUT_S if isinstance(self.target, CommandTarget) and self.target.is_downloader else None

    @property
    def kind(self) -> ServerKind:
        """By which connector it is reached."""
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
    One server that a workspace added over HTTP, as the store keeps it.

    Attributes:
        workspace_id: Whose it is: a twin's, if a test key added it (D-25).
        entry: What was sent, in the form of a file's entry, `${NAME}` not filled in.
        sealed: What `${NAME}` stands for, as JSON; None: nothing, or it was lost with its key.
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
        """The version of its settings and secrets. Its health and what it offers are no part of it."""
        return version_of(self.row_id, to_micros(self.updated_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStop:
    """
    What an operator stopped (D-33): a tool of a server, a server, or all servers, for one workspace or for all.

    Attributes:
        workspace_id: 0 stands for every workspace.
        server_id: Empty: every server.
        tool: Empty: every tool of the server.
    """

    workspace_id: int
    server_id: str = ""
    tool: str = ""
    reason: str = ""
    stopped_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFeatures:
    """
    What a server offers, each thing in the upstream's own words.

    Attributes:
        required_scopes: Of built-in servers: the scope that each tool asks of its caller, by the tool's name (D-92).
        instructions: The upstream's own text on how it is used.
    """

    tools: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    required_scopes: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """
    What is known of one open session with an upstream.

    Attributes:
        protocol_version: The protocol revision spoken, for example "2026-07-28"; None of a built-in server.
        pid: Of the process that we started for it; None of any other.
        software: Its own name and version, as it says them.
        capabilities: The protocol's object of what the upstream can do, as it came.
    """

    protocol_version: str | None = None
    pid: int | None = None
    software: str = ""
    capabilities: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSnapshot:
    """
    The last good offer of a server, as the store keeps it.

    Attributes:
        server_key: `Server.key`.
        fingerprint: Of where the server is reached; another one makes the snapshot another server's.
    """

    server_key: str
    fingerprint: str
    features: ServerFeatures
    seen_at: datetime


FailureCode: TypeAlias = Literal["tool_execution_error", "tool_timeout", "server_unavailable", "result_too_large"]

OutcomeCode: TypeAlias = FailureCode | Literal["input_required"]
"""Why a call is not done: it failed, or the tool asks its caller something first (D-34)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """
    What is kept of one call (D-38): never its result; of results and arguments the sizes in bytes.

    Attributes:
        success: False also of `input_required`, which is no failure.
        code: None on success; else an `OutcomeCode`, the code of the refusal, or `client_left`.
        cached: It was answered from the cache; the upstream was not asked.
        error: The text of a failure of the tool, cut and without secrets of ours.
        arguments: As JSON, cut and without secrets of ours; only where the operator wants them kept.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamProtocolError:
    """A JSON-RPC error: its number, its text, and what else was said."""

    number: int
    message: str
    data: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """
    What a call that reached its tool came to; a failure of the tool is an outcome, not an exception (D-34).

    Attributes:
        result: The protocol's whole tool result as JSON; also of a failure, when the tool gave one. Of `input_required`
            {inputRequests, requestState?}.
        error: The text of a failure, else None.
        code: None on success.
        cache: None: such a result is never kept; else whether it was taken from there.
        age_s: How long ago the upstream gave it; 0 unless it was kept.
        protocol_error: By which error of the protocol the upstream refused, if that is what it did; callers over MCP get it as it is.
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


def has_workspace_sessions(server: Server) -> bool:
    """
    Tell whether several workspaces use *server* without sharing a session.

    What its resources are called there, notes or documents, is then each workspace's own business.
    """
    return server.owner is None and server.isolation is not SessionIsolation.SHARED and server.kind != "builtin"


def limit_features(features: ServerFeatures) -> ServerFeatures:
    """Return as much of *features* as is kept."""
    return replace(
        features,
        tools=features.tools[:MAX_FEATURES_PER_KIND],
        resources=features.resources[:MAX_FEATURES_PER_KIND],
        templates=features.templates[:MAX_FEATURES_PER_KIND],
        prompts=features.prompts[:MAX_FEATURES_PER_KIND],
    )


def count_dropped_features(features: ServerFeatures) -> int:
    """Return how many things of *features* are too many."""
    return sum(
        max(len(each) - MAX_FEATURES_PER_KIND, 0) for each in (features.tools, features.resources, features.templates, features.prompts)
    )
