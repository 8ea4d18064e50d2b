"""The servers of a workspace on the wire (D-31): an entry of the file, field by field, with secrets apart."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import Field

from rookery.kernel.schema import RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.tools.models import HealthStatus, JsonObject, ServerStatus
from rookery.tools.servers.workspace_servers import NewServer, ServerChange, WorkspaceServer

_MAX_ITEMS = 64
Text = Annotated[str, Field(max_length=4000)]
Line = Annotated[str, Field(max_length=500)]
Lines = Annotated[list[Line], Field(max_length=_MAX_ITEMS)]
Texts = Annotated[dict[Annotated[str, Field(min_length=1, max_length=128)], Text], Field(max_length=_MAX_ITEMS)]
Seconds = Annotated[dict[Annotated[str, Field(min_length=1, max_length=128)], float], Field(max_length=_MAX_ITEMS)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
SecretText = Annotated[str, Field(min_length=1, max_length=8000)]

_SECRETS_HINT = "may have ${NAME} for each of `secrets`"


class ToolRulesBody(RequestModel):
    """Which tools may be used, and how; patterns are globs of tool names."""

    allow: Annotated[Lines | None, Field(description="Only these; null: all.")] = None
    deny: Lines = Field(default_factory=list)
    timeouts: Annotated[Seconds, Field(description="Seconds by pattern.")] = Field(default_factory=dict)
    cache_s: Annotated[Seconds, Field(description="How long answers of read-only tools are kept, by pattern.")] = Field(
        default_factory=dict
    )


class OAuthBody(RequestModel):
    """How to log in by OAuth, where a client was registered by hand."""

    type: Literal["oauth"] = "oauth"
    client_id: Line | None = None
    client_secret: Annotated[Line | None, Field(description="${NAME} of one of `secrets`.")] = None
    scope: Line | None = None


class RootBody(RequestModel):
    """A folder that the server may work in."""

    uri: Annotated[Line, Field(description=f"A file URI; {_SECRETS_HINT}.", examples=["file:///srv/files"])]
    name: Line | None = None


class _ServerFields(RequestModel):
    """What an entry has; null is as if it were left out, but for idle_s."""

    url: Annotated[Line | None, Field(description=f"Where the server is; {_SECRETS_HINT}.", examples=["https://mcp.example.com/mcp"])] = (
        None
    )
    type: Annotated[Literal["http", "sse"] | None, Field(description="Streamable HTTP by default, or the older HTTP with SSE.")] = None
    headers: Annotated[
        Texts | None,
        Field(description=f"Sent with each request; a value {_SECRETS_HINT}.", examples=[{"Authorization": "Bearer ${TOKEN}"}]),
    ] = None
    command: Annotated[Line | None, Field(description="A program of this host, where ROOKERY_SERVER_COMMANDS allows it.")] = None
    args: Lines | None = None
    env: Texts | None = None
    cwd: Line | None = None
    name: Line | None = None
    tagline: Line | None = None
    description: Text | None = None
    icon: Line | None = None
    status: Literal["available", "beta", "deprecated"] | None = None
    use_when: Text | None = None
    related_servers: Lines | None = None
    enabled: Annotated[bool | None, Field(description="False: it is not listed, and calls are 403 disabled.")] = None
    sandbox: Annotated[bool | None, Field(description="Whether test keys may call all its tools.")] = None
    isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | None = None
    replicas: Annotated[int | None, Field(ge=1, le=64)] = None
    lifecycle: Literal["lazy", "eager"] | None = None
    idle_s: Annotated[float | None, Field(ge=0.1, description="A session unused for so long is closed; null: never.")] = None
    timeout_s: Annotated[float | None, Field(ge=0.1, le=600)] = None
    max_concurrency: Annotated[int | None, Field(ge=1, le=10_000)] = None
    forward_headers: Lines | None = None
    tools: ToolRulesBody | None = None
    auth: Literal["oauth"] | OAuthBody | None = None
    roots: Annotated[
        Literal["caller"] | Annotated[list[Line | RootBody], Field(max_length=_MAX_ITEMS)] | None,
        Field(description="Folders announced to it: file URIs, or `caller`, which needs a session per key; null: none."),
    ] = None
    deprecated_at: Annotated[Line | None, Field(description="Since when it is deprecated; null: since its status says so.")] = None
    sunset_at: Annotated[Line | None, Field(description="When it is to be removed, six months after that at the earliest.")] = None
    start_timeout_s: Annotated[float | None, Field(ge=1, le=600, description="How long a start may take.")] = None

    def to_entry(self) -> JsonObject:
        """Return the fields that were given, as a file would have them."""
        given = self.model_dump(exclude_unset=True, exclude={"id", "secrets"})
        return cast("JsonObject", given)


class NewServerBody(_ServerFields):
    """A server to be added."""

    id: Annotated[str, Field(min_length=1, max_length=64, description="Letters, digits and dashes.", examples=["tickets"])]
    secrets: Annotated[
        dict[SecretName, SecretText],
        Field(max_length=_MAX_ITEMS, description="What ${NAME} stands for; never shown again.", examples=[{"TOKEN": "…"}]),
    ] = Field(default_factory=dict)

    def to_request(self) -> NewServer:
        """Return what is to be added."""
        return NewServer(id=self.id, entry=self.to_entry(), secrets=dict(self.secrets))


class ServerChangeBody(_ServerFields):
    """What to change of a server: what is left out stays, null removes."""

    secrets: Annotated[
        dict[SecretName, SecretText | None], Field(max_length=_MAX_ITEMS, description="Each replaces the old one; null removes it.")
    ] = Field(default_factory=dict)

    def to_change(self) -> ServerChange:
        """Return what is to be changed."""
        return ServerChange(entry=self.to_entry(), secrets=dict(self.secrets))


class AddedServerResponse(ResponseModel):
    """A server that the workspace added; of its secrets the names."""

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
    secrets: list[str]
    tagline: str
    description: str
    icon: str | None = None
    status: Annotated[str, enum_schema(ServerStatus)]
    use_when: str | None = None
    related_servers: list[str]
    enabled: bool
    sandbox: bool
    isolation: str
    replicas: int
    lifecycle: str
    idle_s: float | None = None
    timeout_s: float
    max_concurrency: int
    forward_headers: list[str]
    tools: dict[str, object] | None = None
    auth: object = None
    roots: object = None
    start_timeout_s: float | None = None
    deprecated_at: Timestamp | None = None
    sunset_at: Timestamp | None = None
    health: Annotated[str, enum_schema(HealthStatus)]
    last_error: str | None = None
    tool_count: int
    resource_count: int
    created_at: Timestamp
    updated_at: Timestamp


class CheckResponse(ResponseModel):
    """What became of reaching a server now."""

    id: str
    ok: bool
    error: str | None = None
    advice: str | None = None
    warnings: list[str]
    software: str | None = None
    era: str | None = None
    tools: list[str]
    took_ms: int
    stderr: Annotated[list[str], Field(description="The last lines that its process wrote to its standard error.")]


def to_workspace_server_response(
    workspace_server: WorkspaceServer, shown_workspace_id: int, *, health: str, last_error: str | None, counts: tuple[int, int]
) -> AddedServerResponse:
    """Return a server as its owners are shown it: its entry as written, with the defaults of what was left out."""
    server, entry = workspace_server.server, workspace_server.stored.entry
    return AddedServerResponse(
        id=workspace_server.stored.server_id,
        workspace_id=shown_workspace_id,
        name=server.name,
        url=cast("str | None", entry.get("url")),
        type="stdio" if entry.get("command") else cast("str", entry.get("type") or "http"),
        headers=cast("dict[str, str] | None", entry.get("headers")),
        command=cast("str | None", entry.get("command")),
        args=cast("list[str] | None", entry.get("args")),
        env=cast("dict[str, str] | None", entry.get("env")),
        cwd=cast("str | None", entry.get("cwd")),
        secrets=list(workspace_server.secret_names),
        tagline=server.tagline,
        description=server.description,
        icon=server.icon,
        status=server.status,
        use_when=server.use_when,
        related_servers=list(server.related_servers),
        enabled=server.enabled,
        sandbox=server.sandbox,
        isolation=server.isolation,
        replicas=server.replicas,
        lifecycle=server.lifecycle,
        idle_s=server.idle_s,
        timeout_s=server.timeout_s,
        max_concurrency=server.max_concurrency,
        forward_headers=list(server.forward_headers),
        tools=cast("dict[str, object] | None", entry.get("tools")),
        auth=entry.get("auth"),
        roots=entry.get("roots"),
        start_timeout_s=server.start_timeout_s,
        deprecated_at=server.deprecated_at,
        sunset_at=server.sunset_at,
        health=health,
        last_error=server.fault or last_error,
        tool_count=counts[0],
        resource_count=counts[1],
        created_at=workspace_server.stored.created_at,
        updated_at=workspace_server.stored.updated_at,
    )
