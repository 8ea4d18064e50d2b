"""Models of workspace servers: the fields of a file's entry, with secrets in a separate field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, cast

from pydantic import AliasPath, BeforeValidator, Field

from rookery.kernel.schema import PatchModel, RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.kernel.unset import UNSET
from rookery.tools.models import HealthStatus, JsonObject, ServerProtocol, ServerStatus
from rookery.tools.schemas import TextOrNull

_MAX_ITEMS = 64
Text = Annotated[str, Field(max_length=4000)]
Line = Annotated[str, Field(max_length=500)]
Lines = Annotated[list[Line], Field(max_length=_MAX_ITEMS)]
Texts = Annotated[dict[Annotated[str, Field(min_length=1, max_length=128)], Text], Field(max_length=_MAX_ITEMS)]
Seconds = Annotated[dict[Annotated[str, Field(min_length=1, max_length=128)], float], Field(max_length=_MAX_ITEMS)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
SecretText = Annotated[str, Field(min_length=1, max_length=8000)]

ENTRY_FIELDS = ("url", "headers", "command", "args", "env", "cwd", "tools", "auth", "roots")
"""Fields of a response that show the entry as written."""

SERVER_FIELDS = (
    "name", "tagline", "description", "icon", "status", "use_when", "related_servers", "enabled", "sandbox", "isolation", "replicas",
    "lifecycle", "idle_s", "timeout_s", "forward_headers", "forward_meta", "start_timeout_s", "protocol", "deprecated_at", "sunset_at",
)  # fmt: skip
"""Fields of a response that show the server, with the defaults of fields that the entry omits."""

_SECRETS_HINT = "may refer to each of `secrets` as ${NAME}"


class ToolRulesBody(RequestModel):
    """Rules for the server's tools. Patterns are globs of tool names."""

    allow: Annotated[Lines | UNSET | None, Field(description="Allowed tools; null: all.")] = UNSET
    deny: Lines | UNSET = UNSET
    timeouts: Annotated[Seconds | UNSET, Field(description="Time-outs in seconds, by pattern.")] = UNSET
    cache_s: Annotated[Seconds | UNSET, Field(description="Seconds for which results of read-only tools are cached, by pattern.")] = UNSET


class OAuthBody(RequestModel):
    """OAuth settings: a client that was registered by hand, and what to request."""

    type: Literal["oauth"] | UNSET = UNSET
    client_id: Line | UNSET | None = UNSET
    client_secret: Annotated[Line | UNSET | None, Field(description="Refers to one of `secrets` as ${NAME}.")] = UNSET
    scope: Annotated[
        Line | Lines | UNSET | None, Field(description="The scopes to request; by default those that the server announces.")
    ] = UNSET
    resource: Annotated[
        Line | UNSET | None,
        Field(
            description="The resource to request tokens for (RFC 8707): an absolute URI without a fragment. "
            "null: none is sent, as Entra ID requires. Omitted: the one that the server announces."
        ),
    ] = UNSET


class RootBody(RequestModel):
    """A folder that the server may work in."""

    uri: Annotated[Line, Field(description=f"A file URI; {_SECRETS_HINT}.", examples=["file:///srv/files"])]
    name: Line | UNSET | None = UNSET


class _ServerFields(RequestModel):
    """The fields of an entry. One that is left out is absent from it. null means absent too, except for idle_s."""

    url: Annotated[
        Line | UNSET | None, Field(description=f"The server's URL; {_SECRETS_HINT}.", examples=["https://mcp.example.com/mcp"])
    ] = UNSET
    type: Annotated[
        Literal["http", "sse"] | UNSET | None, Field(description="http: Streamable HTTP (default); sse: the older HTTP with SSE.")
    ] = UNSET
    headers: Annotated[
        Texts | UNSET | None,
        Field(description=f"Headers of each request; a value {_SECRETS_HINT}.", examples=[{"Authorization": "Bearer ${TOKEN}"}]),
    ] = UNSET
    command: Annotated[
        Line | UNSET | None, Field(description="A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.")
    ] = UNSET
    args: Annotated[Lines | UNSET | None, Field(description="The arguments of the program.")] = UNSET
    env: Annotated[
        Texts | UNSET | None, Field(description="Environment variables of the program, in addition to PATH, HOME and a few others.")
    ] = UNSET
    cwd: Annotated[Line | UNSET | None, Field(description="The working directory of the program.")] = UNSET
    name: Annotated[Line | UNSET | None, Field(description="The displayed name; the id by default.")] = UNSET
    tagline: Annotated[Line | UNSET | None, Field(description="One sentence on the server.")] = UNSET
    description: Annotated[Text | UNSET | None, Field(description="A description for people.")] = UNSET
    icon: Annotated[Line | UNSET | None, Field(description="The address of an image.")] = UNSET
    status: Annotated[
        Literal["available", "beta", "deprecated"] | UNSET | None,
        Field(description="Set by you; available by default. A deprecated server works, and its answers say so."),
    ] = UNSET
    use_when: Annotated[Text | UNSET | None, Field(description="Shown to agents: when to use this server.")] = UNSET
    related_servers: Annotated[Lines | UNSET | None, Field(description="The ids of servers that fit to this one.")] = UNSET
    enabled: Annotated[bool | UNSET | None, Field(description="false: the server is not listed, and calls fail with 403 disabled.")] = UNSET
    sandbox: Annotated[bool | UNSET | None, Field(description="Whether test keys may call all its tools.")] = UNSET
    isolation: Annotated[
        Literal["per_workspace", "shared", "per_key", "per_session"] | UNSET | None,
        Field(description="Which callers share a session with the server; per_workspace by default."),
    ] = UNSET
    replicas: Annotated[int, Field(ge=1, le=64, description="The number of parallel sessions; 1 by default.")] | UNSET | None = UNSET
    lifecycle: Annotated[
        Literal["lazy", "eager"] | UNSET | None,
        Field(description="lazy: the session opens with the first call (default); eager: at the start."),
    ] = UNSET
    idle_s: Annotated[float, Field(ge=0.1, description="Idle seconds after which a session is closed; null: never.")] | UNSET | None = UNSET
    timeout_s: Annotated[float, Field(ge=0.1, le=600, description="Time-out of a call in seconds; 60 by default.")] | UNSET | None = UNSET
    max_concurrency: (
        Annotated[
            int,
            Field(
                ge=1,
                le=10_000,
                description="Concurrent calls of any kind in a session. By default 64; those of a command that may change something run "
                "one at a time.",
            ),
        ]
        | UNSET
        | None
    ) = UNSET
    forward_headers: Annotated[Lines | UNSET | None, Field(description="Names of headers of the caller that are sent on with a call.")] = (
        UNSET
    )
    forward_meta: Annotated[
        Lines | UNSET | None,
        Field(
            description="Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by default."
        ),
    ] = UNSET
    tools: Annotated[ToolRulesBody | UNSET | None, Field(description="Which tools are offered, with their time-outs and caches.")] = UNSET
    auth: Annotated[
        Literal["oauth"] | OAuthBody | UNSET | None, Field(description="oauth, or its settings, if the server requires a login by OAuth.")
    ] = UNSET
    roots: Annotated[
        Literal["caller"] | Annotated[list[Line | RootBody], Field(max_length=_MAX_ITEMS)] | UNSET | None,
        Field(description="Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none."),
    ] = UNSET
    deprecated_at: Annotated[Line | UNSET | None, Field(description="Date of deprecation; null: the date on which the status changed.")] = (
        UNSET
    )
    sunset_at: Annotated[Line | UNSET | None, Field(description="Planned date of removal, at least six months after deprecated_at.")] = (
        UNSET
    )
    start_timeout_s: Annotated[float, Field(ge=1, le=600, description="Time-out of a start in seconds.")] | UNSET | None = UNSET
    protocol: Annotated[
        Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | UNSET | None,
        Field(
            description="The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: "
            "the newest one that begins with `initialize`."
        ),
    ] = UNSET

    def to_entry(self) -> JsonObject:
        """Return the given fields, in the form of a file's entry."""
        fields = self.model_dump(exclude={"id", "secrets"})
        return cast("JsonObject", fields)


class NewServerBody(_ServerFields):
    """A server to add."""

    id: Annotated[str, Field(min_length=1, max_length=64, description="Letters, digits and dashes.", examples=["tickets"])]
    secrets: Annotated[
        dict[SecretName, SecretText],
        Field(max_length=_MAX_ITEMS, description="Values for ${NAME}; never shown again.", examples=[{"TOKEN": "…"}]),
    ] = Field(default_factory=dict)


class ServerChangeBody(_ServerFields, PatchModel):
    """Changes of a server. Omitted fields keep their value; null removes a field."""

    secrets: (
        Annotated[
            dict[SecretName, SecretText | None],
            Field(max_length=_MAX_ITEMS, description="Each value replaces the old one; null removes the secret."),
        ]
        | UNSET
    ) = UNSET


class AddedServerResponse(ResponseModel):
    """A server that the workspace added. Of its secrets, only the names are included."""

    id: str
    workspace_id: int
    name: str
    url: str | None = None
    type: str
    headers: dict[str, str] | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    secrets: Sequence[str]
    tagline: str
    description: str
    icon: str | None = None
    status: Annotated[str, enum_schema(ServerStatus)]
    use_when: str | None = None
    related_servers: Sequence[str]
    enabled: bool
    sandbox: bool
    isolation: str
    replicas: int
    lifecycle: str
    idle_s: float | None = None
    timeout_s: float
    max_concurrency: int
    forward_headers: Sequence[str]
    forward_meta: Sequence[str]
    tools: dict[str, object] | None = None
    auth: object = None
    roots: object = None
    start_timeout_s: float | None = None
    protocol: Annotated[str, enum_schema(ServerProtocol)]
    deprecated_at: Timestamp | None = None
    sunset_at: Timestamp | None = None
    health: Annotated[str, enum_schema(HealthStatus)]
    last_error: str | None = None
    tool_count: int
    resource_count: int
    created_at: Timestamp
    updated_at: Timestamp


class CheckResponse(ResponseModel):
    """The result of a connection check."""

    id: Annotated[str, Field(validation_alias="server_id")]
    ok: bool
    error: str | None = None
    advice: str | None = None
    warnings: Sequence[str]
    sharing: Annotated[str, Field(description="The callers that share a session with it, and what they share, in a sentence.")]
    concurrency: Annotated[str, Field(description="The number of calls that run at once in one session, in a sentence.")]
    software: Annotated[TextOrNull, Field(validation_alias=AliasPath("info", "software"))] = None
    era: Annotated[str | None, Field(validation_alias=AliasPath("info", "protocol_version"))] = None
    tools: Annotated[list[str], Field(validation_alias="tool_names", description="The names of the tools that callers see.")]
    hidden_tools: Annotated[Sequence[str], Field(description="The names of its tools that Rookery cannot run.")]
    took_ms: Annotated[int, BeforeValidator(round)]
    stderr: Annotated[Sequence[str], Field(description="The first and the last lines that its process wrote to standard error.")]
