"""Request and response models of access."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from rookery.access.key_fields import (
    MAX_LIST_ITEMS,
    MAX_NAME_LENGTH,
    MAX_RATE_PER_MINUTE,
    RESTRICTION_NAMES,
    KeyChanges,
    NewAgentKey,
    NewApiKey,
    resolve_enforcement,
)
from rookery.access.keyring import DEFAULT_GRACE_HOURS, MAX_GRACE_HOURS
from rookery.access.models import (
    AuditFilter,
    CallFilter,
    Environment,
    Key,
    KeyKind,
    KeyRestrictions,
    KeyStatus,
    Tier,
    UsageField,
    UsageFilter,
    Workspace,
)
from rookery.access.scopes import PRESETS
from rookery.kernel.projections import Projection
from rookery.kernel.schema import (
    NotBlank,
    PageQuery,
    PatchModel,
    QueryModel,
    RequestModel,
    ResponseModel,
    Timestamp,
    enum_schema,
    split_names,
)
from rookery.kernel.unset import UNSET


def _capitalize(value: object) -> object:
    """Return a status as responses spell it, so that lower case is accepted too."""
    return value.capitalize() if isinstance(value, str) else value


NameList = Annotated[list[str], BeforeValidator(split_names)]
TierName = Annotated[Tier, Field(strict=False), enum_schema(Tier)]
PresetName = Literal["agent", "reader", "planner", "notifier"]
Preset = Annotated[PresetName | None, Field(description="Permissions to add: those of agent, reader, planner or notifier.")]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="The purpose of the key.", examples=["CI"]), NotBlank]
Grants = Annotated[
    list[str],
    Field(max_length=MAX_LIST_ITEMS, description="For example brain:read, mcp:*, *:read or *.", examples=[["brain:read"]]),
]
Names = Annotated[list[Annotated[str, NotBlank]], Field(max_length=MAX_LIST_ITEMS)]
Servers = Annotated[Names, Field(description="Ids of tool servers; null: all.")]
ToolPatterns = Annotated[Names, Field(description="server/tool patterns; null: all.", examples=[["web/*"]])]
Orgs = Annotated[Names, Field(description="Orgs whose memories the key can access; null: all.")]
Projects = Annotated[Names, Field(description="Projects whose memories the key can access; null: all.")]
ToolLimits = Annotated[dict[str, int], Field(max_length=MAX_LIST_ITEMS, description="Calls per minute, by server/tool pattern.")]
RateLimit = Annotated[int, Field(ge=1, le=MAX_RATE_PER_MINUTE, description="Requests per minute.")]
Expiry = Annotated[Timestamp | None, Field(description="Null: the key never expires.")]
Addresses = Annotated[
    list[str],
    Field(max_length=MAX_LIST_ITEMS, description="Addresses and CIDR ranges, IPv4 or IPv6.", examples=[["10.0.0.0/8"]]),
]
PastedList = Annotated[str, Field(max_length=200_000, description="One entry per line. Lines that start with # are ignored.")]


class _RestrictionFields(RequestModel):
    """The allow-lists; null: no restriction; empty: nothing is allowed."""

    servers: Servers | None = None
    tools: ToolPatterns | None = None
    orgs: Orgs | None = None
    projects: Projects | None = None
    tool_limits: ToolLimits = Field(default_factory=dict)

    def to_restrictions(self) -> KeyRestrictions:
        return KeyRestrictions(**{name: _to_value(name, getattr(self, name)) for name in RESTRICTION_NAMES})


class NewApiKeyBody(_RestrictionFields):
    """The body to create an API key."""

    name: Name
    scopes: Grants = Field(default_factory=list)
    preset: Preset = None
    rate_limit_tier: TierName = Tier.PRO
    environment: Annotated[
        Environment | None, Field(description="live or test. A test key acts in a sandbox. Default: the environment of the calling key.")
    ] = None
    expires_at: Expiry = None
    agent_id: Annotated[str | None, Field(description="The agent that the key is bound to.")] = None

    def to_model(self, environment: Environment) -> NewApiKey:
        """Return the input for the new key; *environment* is the default if the body has none."""
        return NewApiKey(
            name=self.name,
            scopes=_combine_grants(self.preset, self.scopes),
            rate_limit_tier=self.rate_limit_tier,
            environment=self.environment or environment,
            expires_at=self.expires_at,
            agent_id=self.agent_id,
            restrictions=self.to_restrictions(),
        )


class NewAgentKeyBody(_RestrictionFields):
    """The body to create an agent key."""

    name: Name
    permissions: Grants = Field(default_factory=list)
    preset: Preset = None
    rate_limit: RateLimit = 600
    expires_at: Expiry = None
    agent_id: Annotated[str | None, Field(description="Default: a slug of the name, unique in the workspace. It never changes.")] = None
    ip_restriction: Annotated[
        bool | None,
        Field(description="Enforce the IP list. Default: true if the list has an entry. An enforced empty list blocks every request."),
    ] = None
    ip_list: Addresses = Field(default_factory=list)

    def to_model(self) -> NewAgentKey:
        """Return the input for the new key."""
        return NewAgentKey(
            name=self.name,
            permissions=_combine_grants(self.preset, self.permissions),
            rate_limit=self.rate_limit,
            expires_at=self.expires_at,
            agent_id=self.agent_id,
            ip_restriction=bool(resolve_enforcement(self.ip_list, self.ip_restriction)),
            ip_list=tuple(self.ip_list),
            restrictions=self.to_restrictions(),
        )


class _ChangeBody(PatchModel):
    """The fields that both kinds of key can change. Omitted fields keep their value; null removes an optional value."""

    name: Name | UNSET = UNSET
    expires_at: Expiry | UNSET = UNSET
    servers: Servers | UNSET | None = UNSET
    tools: ToolPatterns | UNSET | None = UNSET
    orgs: Orgs | UNSET | None = UNSET
    projects: Projects | UNSET | None = UNSET
    tool_limits: ToolLimits | UNSET = UNSET

    def to_changes(self) -> KeyChanges:
        """Return the changes."""
        values = {name: _to_value(name, value) for name, value in self.get_set_fields().items()}
        return KeyChanges(**{"scopes" if name == "permissions" else name: value for name, value in values.items()})


class ApiKeyChangeBody(_ChangeBody):
    """The body to change an API key. Its environment and its secret never change."""

    scopes: Grants | UNSET = UNSET
    rate_limit_tier: TierName | UNSET = UNSET
    agent_id: Annotated[
        str | UNSET | None, Field(description="The agent that the key is bound to; null: none, so it may name any agent.")
    ] = UNSET


class AgentKeyChangeBody(_ChangeBody):
    """The body to change an agent key. Its agent_id never changes."""

    permissions: Grants | UNSET = UNSET
    rate_limit: RateLimit | UNSET = UNSET
    ip_restriction: Annotated[
        bool | UNSET, Field(description="Enforce the IP list. If omitted, setting a list with at least one entry enforces it.")
    ] = UNSET
    ip_list: Addresses | UNSET = UNSET


class RotateBody(RequestModel):
    """The body to rotate a key."""

    grace_period_hours: Annotated[int, Field(ge=0, le=MAX_GRACE_HOURS, description="Hours during which the old key still works.")] = (
        DEFAULT_GRACE_HOURS
    )


class ExtendBody(RequestModel):
    """A new expiry, or null to remove it."""

    expires_at: Expiry


class PermissionsBody(RequestModel):
    """The body to replace the permissions of a key."""

    permissions: Grants


class AddressesBody(RequestModel):
    """The body to change an IP list, as a list or as a text."""

    ips: Addresses | None = None
    text: PastedList | None = None
    ip_restriction: Annotated[
        bool | None,
        Field(
            description="Enforce the list. If omitted, setting or adding an address enforces the list; "
            "false stores it without enforcing it. An enforced empty list blocks every request."
        ),
    ] = None

    @model_validator(mode="after")
    def _has_one(self) -> AddressesBody:
        if (self.ips is None) == (self.text is None):
            msg = "send either ips, a list, or text, with one entry per line"
            raise ValueError(msg)
        return self

    @property
    def entries(self) -> str | list[str]:
        return self.ips if self.ips is not None else self.text or ""


WorkspaceName = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="A unique name without a slash.", examples=["acme"]), NotBlank
]


class NewWorkspaceBody(RequestModel):
    """The body to create a workspace."""

    name: WorkspaceName


class WorkspaceChangeBody(PatchModel):
    """The body to change a workspace."""

    name: WorkspaceName | UNSET = UNSET


class KeysQuery(PageQuery):
    """Filters of the list of keys."""

    environment: Annotated[Environment | None, Field(description="Only live keys, or only test keys.")] = None
    status: Annotated[
        KeyStatus | None, BeforeValidator(_capitalize), Field(description="Only keys in this state; a suspended one counts as Revoked.")
    ] = None
    q: Annotated[str | None, Field(min_length=1, max_length=100, description="A part of the name.")] = None


class PermissionCheckQuery(QueryModel):
    """Checks of a key's permissions. The response answers each given check."""

    has: Annotated[str | None, Field(description="A permission: does the key have it?")] = None
    any: Annotated[NameList, Field(max_length=MAX_LIST_ITEMS, description="Permissions: does the key have any?")] = Field(
        default_factory=list
    )
    all: Annotated[NameList, Field(max_length=MAX_LIST_ITEMS, description="Permissions: does the key have all?")] = Field(
        default_factory=list
    )


class DeleteWorkspaceQuery(QueryModel):
    """Options of deleting a workspace."""

    dry_run: Annotated[bool, Field(description="Return what would be deleted, without deleting it.")] = False


class KeyCallsQuery(PageQuery):
    """Filters of the calls of a key."""

    since: Annotated[Timestamp | None, Field(description="Only calls at this time or later.")] = None
    until: Annotated[Timestamp | None, Field(description="Only calls before this time.")] = None
    status: Annotated[int | None, Field(ge=100, le=599, description="Only calls with this status.")] = None
    route: Annotated[str | None, Field(min_length=1, max_length=500, description="The path's pattern, as in `route` of a call.")] = None
    format: Annotated[
        Literal["json", "csv"] | None,
        Field(description="CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too."),
    ] = None

    def to_filter(self) -> CallFilter:
        return CallFilter(since=self.since, until=self.until, status=self.status, route=self.route)


class UsageSumsQuery(QueryModel):
    """Options of the totals of calls."""

    since: Annotated[date | None, Field(description="The first day, UTC.")] = None
    until: Annotated[date | None, Field(description="The last day, UTC.")] = None
    by: Annotated[
        list[UsageField],
        BeforeValidator(split_names),
        Field(min_length=1, max_length=5, description="Fields to group by: key, day, method, route, status."),
    ] = Field(default_factory=lambda: ["key", "day", "status"])
    format: Annotated[Literal["json", "csv"] | None, Field(description="By default json, or csv with `Accept: text/csv`.")] = None

    def to_filter(self, environment: Environment | None) -> UsageFilter:
        return UsageFilter(environment=environment, since=self.since, until=self.until)


class AuditQuery(PageQuery):
    """Filters of the audit log."""

    workspace_id: Annotated[
        int | None, Field(ge=0, le=2**62, description="Another workspace, or 0 for the platform. Needs platform:audit.")
    ] = None
    action: Annotated[
        str | None, Field(min_length=1, max_length=100, description="Only entries of this action.", examples=["api_key.rotated"])
    ] = None
    subject_id: Annotated[str | None, Field(min_length=1, max_length=100, description="The id of the changed resource.")] = None
    actor_id: Annotated[str | None, Field(min_length=1, max_length=100, description="The id of the key that made the change.")] = None
    since: Annotated[Timestamp | None, Field(description="Only entries at this time or later.")] = None
    until: Annotated[Timestamp | None, Field(description="Only entries before this time.")] = None

    def to_filter(self, environment: Environment | None) -> AuditFilter:
        return AuditFilter(
            environment=environment,
            action=self.action,
            subject_id=self.subject_id,
            actor_id=self.actor_id,
            since=self.since,
            until=self.until,
        )


class RateLimitResponse(ResponseModel):
    """The status of a key's rate limit."""

    limit: Annotated[int, Field(description="Requests per window; 2147483647: unlimited.")]
    remaining: Annotated[int, Field(description="Requests left in this window.")]
    reset_in_seconds: Annotated[int, Field(description="Whole seconds until this window ends.")]
    reset: Annotated[int, Field(description="The value of X-RateLimit-Reset: a Unix time for API keys, seconds for agent keys.")]
    used: Annotated[int, Field(description="Requests counted in this window.")]
    window_seconds: Annotated[int, Field(description="The length of a window, which begins with its first request.")]
    local: Annotated[bool, Field(description="True if only this process is counted, because the shared counter is unavailable.")]


class _KeyResponse(Projection[Key]):
    hidden = frozenset(
        {"kind", "tenant_id", "restrictions", "environment", "scopes", "rate_limit_tier", "rate_limit"}
        | {"ip_restriction", "ip_list", "revoked_at"}
    )

    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]
    delete_after: Annotated[Timestamp | None, Field(description="The end of the grace period after a rotation.")]
    status: Annotated[KeyStatus, enum_schema(KeyStatus)]
    hint: Annotated[str, Field(description="The start of the secret.")]
    call_count: Annotated[int, Field(description="Calls over the whole life of the key.")]
    last_used_at: Timestamp | None
    last_used_ip: Annotated[str | None, Field(description="Needs audit:read; omitted without it.")] = None


class ApiKeyResponse(_KeyResponse):
    """An API key. Its secret is returned only at creation and rotation."""

    scopes: list[str]
    rate_limit_tier: TierName
    environment: Environment


class NewApiKeyResponse(ApiKeyResponse):
    """A new API key with its secret."""

    plaintext_key: str


class AgentKeyResponse(_KeyResponse):
    """An agent key. Its secret is returned only at creation and rotation."""

    permissions: list[str]
    rate_limit: int
    revoked_at: Timestamp | None
    ip_restriction: bool
    ip_list: Annotated[list[str], Field(default_factory=list, description="Needs audit:read; omitted without it.")]


class NewAgentKeyResponse(AgentKeyResponse):
    """A new agent key with its secret."""

    key: str


class PermissionsResponse(ResponseModel):
    """A key's permissions, and the results of the requested checks."""

    permissions: list[str]
    has: bool | None
    any: bool | None
    all: bool | None


class AddressesResponse(ResponseModel):
    """The IP list of an agent key."""

    ip_restriction: bool
    ips: list[str]


class WorkspaceResponse(Projection[Workspace]):
    """A workspace."""

    hidden = frozenset({"parent_id"})

    id: Annotated[int, Field(description="Same as `workspace_id`, as every resource has an `id`.")]
    workspace_id: int


class DeletionResponse(WorkspaceResponse):
    """The result of deleting a workspace, or of a dry run."""

    keys: int
    calls: int
    rows: int | None
    deleted: bool


UpstreamErrors = Annotated[
    int, Field(description="Calls that were answered with an error status because a tool, its server or a language model failed.")
]


class UsageSumResponse(ResponseModel):
    """Totals of one group of calls. Fields that are not grouped by are omitted."""

    key_id: str | None = None
    key_name: str | None = None
    day: str | None = None
    method: str | None = None
    route: str | None = None
    status: int | None = None
    calls: int
    errors: Annotated[int, Field(description="Calls with a status of 400 or higher, without those of `upstream_errors`.")]
    upstream_errors: UpstreamErrors
    mean_ms: float


class UsageResponse(ResponseModel):
    """The usage of all keys of one kind."""

    since: str | None
    until: str | None
    calls: int
    errors: int
    upstream_errors: UpstreamErrors
    data: list[UsageSumResponse]


class WhoResponse(_KeyResponse):
    """The calling key and its rights."""

    kind: KeyKind
    workspace_name: str
    scopes: Annotated[list[str], Field(default_factory=list, description="Only of API keys.")]
    rate_limit_tier: Annotated[TierName | None, Field(description="Only of API keys.")] = None
    environment: Annotated[Environment | None, Field(description="Only of API keys.")] = None
    permissions: Annotated[list[str], Field(default_factory=list, description="Only of agent keys.")]
    rate_limit: Annotated[int | None, Field(description="Requests per minute. Only of agent keys.")] = None
    revoked_at: Annotated[Timestamp | None, Field(description="Only of agent keys.")] = None
    ip_restriction: Annotated[bool | None, Field(description="Only of agent keys.")] = None
    ip_list: Annotated[list[str], Field(default_factory=list, description="Only of agent keys. Needs audit:read; omitted without it.")]


def _combine_grants(preset: PresetName | None, names: list[str]) -> tuple[str, ...]:
    return (*(PRESETS[preset] if preset else ()), *names)


def _to_value(name: str, value: Any) -> Any:  # noqa: ANN401 - the value of any field
    """Return the value of a field of a body as a key has it."""
    if not isinstance(value, list):
        return value
    names = cast("list[str]", value)
    return frozenset(names) if name in {"servers", "orgs", "projects"} else tuple(names)
