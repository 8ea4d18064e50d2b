"""Access on the wire: D-29's field names, with the bounds of D-21, D-23, D-26 and D-28."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Annotated, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, model_validator

from rookery.access.key_fields import (
    MAX_LIST_ITEMS,
    MAX_NAME_LENGTH,
    MAX_RATE_PER_MINUTE,
    UNSET,
    KeyChanges,
    NewAgentKey,
    NewApiKey,
    Unset,
    resolve_enforcement,
)
from rookery.access.keyring import DEFAULT_GRACE_HOURS, MAX_GRACE_HOURS
from rookery.access.models import AuditFilter, CallFilter, Environment, KeyRestrictions, KeyStatus, Tier, UsageField, UsageFilter
from rookery.access.scopes import PRESETS
from rookery.kernel.http.pagination import PageQuery
from rookery.kernel.schema import QueryModel, RequestModel, ResponseModel, Timestamp

T = TypeVar("T")


def _split_names(value: object) -> object:
    """Read names given one by one, or with commas between."""
    if not isinstance(value, list):
        return value
    return [name.strip() for each in cast("list[object]", value) for name in str(each).split(",") if name.strip()]


def _capitalize(value: object) -> object:
    """Return a status as answers spell it; the command line writes it in lower case."""
    return value.capitalize() if isinstance(value, str) else value


NameList = Annotated[list[str], BeforeValidator(_split_names)]
TierName = Literal["free", "pro", "business", "enterprise"]
PresetName = Literal["agent", "reader", "planner", "notifier"]
Preset = Annotated[PresetName | None, Field(description="Permissions that go together, besides those that are named.")]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="What it is for.", examples=["CI"])]
Grants = Annotated[
    list[str], Field(max_length=MAX_LIST_ITEMS, description="Such as brain:read, mcp:*, *:read or *.", examples=[["brain:read"]])
]
Names = Annotated[list[str], Field(max_length=MAX_LIST_ITEMS)]
ToolLimits = Annotated[dict[str, int], Field(max_length=MAX_LIST_ITEMS, description="Calls a minute by server/tool pattern.")]
RateLimit = Annotated[int, Field(ge=1, le=MAX_RATE_PER_MINUTE, description="Requests a minute.")]
Expiry = Annotated[Timestamp | None, Field(description="None: never.")]
Addresses = Annotated[
    list[str], Field(max_length=MAX_LIST_ITEMS, description="Addresses and CIDR ranges, IPv4 or IPv6.", examples=[["10.0.0.0/8"]])
]
PastedList = Annotated[str, Field(max_length=200_000, description="A pasted list, one entry a line; lines that start with # are comments.")]


class _RestrictionFields(RequestModel):
    """The allow-lists; null: no restriction, empty: nothing at all."""

    servers: Annotated[Names | None, Field(description="Ids of tool servers; null: all.")] = None
    tools: Annotated[Names | None, Field(description="server/tool patterns; null: all.", examples=[["web/*"]])] = None
    orgs: Annotated[Names | None, Field(description="Orgs whose memories it sees; null: all.")] = None
    projects: Annotated[Names | None, Field(description="Projects whose memories it sees; null: all.")] = None
    tool_limits: ToolLimits = Field(default_factory=dict)

    def to_restrictions(self) -> KeyRestrictions:
        """Return the allow-lists of a new key."""
        return KeyRestrictions(
            servers=_to_frozenset(self.servers),
            tools=None if self.tools is None else tuple(self.tools),
            orgs=_to_frozenset(self.orgs),
            projects=_to_frozenset(self.projects),
            tool_limits=dict(self.tool_limits),
        )


class NewApiKeyBody(_RestrictionFields):
    """An API key to be made."""

    name: Name
    scopes: Grants = Field(default_factory=list)
    preset: Preset = None
    rate_limit_tier: TierName = "pro"
    environment: Annotated[Environment | None, Field(description="A test key acts in a sandbox; by default as the key that asks.")] = None
    expires_at: Expiry = None
    agent_id: Annotated[str | None, Field(description="The agent that it speaks for.")] = None

    def to_model(self, environment: Environment) -> NewApiKey:
        """Return what is to be made; *environment* if the body names none."""
        return NewApiKey(
            name=self.name,
            scopes=_combine_grants(self.preset, self.scopes),
            tier=Tier(self.rate_limit_tier),
            environment=self.environment or environment,
            expires_at=self.expires_at,
            agent_id=self.agent_id,
            restrictions=self.to_restrictions(),
        )


class NewAgentKeyBody(_RestrictionFields):
    """An agent key to be made."""

    name: Name
    permissions: Grants = Field(default_factory=list)
    preset: Preset = None
    rate_limit: RateLimit = 600
    expires_at: Expiry = None
    agent_id: Annotated[str | None, Field(description="By default a slug of the name, unique in the workspace; it never changes.")] = None
    ip_restriction: Annotated[
        bool | None,
        Field(description="Enforce the list of addresses; by default if it has any. An enforced empty list blocks every request."),
    ] = None
    ip_list: Addresses = Field(default_factory=list)

    def to_model(self) -> NewAgentKey:
        """Return what is to be made."""
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


class _ChangeBody(_RestrictionFields):
    """What both kinds of key can be changed in; what is left out stays, and null removes what may be missing."""

    name: Name = "unchanged"
    expires_at: Expiry = None

    def _or_unset(self, field: str, value: T) -> T | Unset:
        return value if field in self.model_fields_set else UNSET

    def _shared_changes(self) -> KeyChanges:
        reach = self.to_restrictions()
        return KeyChanges(
            name=self._or_unset("name", self.name),
            expires_at=self._or_unset("expires_at", self.expires_at),
            servers=self._or_unset("servers", reach.servers),
            tools=self._or_unset("tools", reach.tools),
            orgs=self._or_unset("orgs", reach.orgs),
            projects=self._or_unset("projects", reach.projects),
            tool_limits=self._or_unset("tool_limits", reach.tool_limits),
        )


class ApiKeyChangeBody(_ChangeBody):
    """What an API key is to be changed to; its environment and its secret never change."""

    scopes: Grants = Field(default_factory=list)
    rate_limit_tier: TierName = "pro"
    agent_id: Annotated[str | None, Field(description="The agent that it speaks for; null: none, so that it may name any.")] = None

    def to_changes(self) -> KeyChanges:
        """Return what is to be changed."""
        return replace(
            self._shared_changes(),
            grants=self._or_unset("scopes", tuple(self.scopes)),
            tier=self._or_unset("rate_limit_tier", Tier(self.rate_limit_tier)),
            agent_id=self._or_unset("agent_id", self.agent_id),
        )


class AgentKeyChangeBody(_ChangeBody):
    """What an agent key is to be changed to; its agent_id never changes (D-23)."""

    permissions: Grants = Field(default_factory=list)
    rate_limit: RateLimit = 600
    ip_restriction: Annotated[
        bool, Field(description="Enforce the list of addresses. If this is left out, a list that has any entry is enforced from now on.")
    ] = False
    ip_list: Addresses = Field(default_factory=list)

    def to_changes(self) -> KeyChanges:
        """Return what is to be changed."""
        return replace(
            self._shared_changes(),
            grants=self._or_unset("permissions", tuple(self.permissions)),
            rate_limit=self._or_unset("rate_limit", self.rate_limit),
            ip_restriction=self._or_unset("ip_restriction", self.ip_restriction),
            ip_list=self._or_unset("ip_list", tuple(self.ip_list)),
        )


class RotateBody(RequestModel):
    """How a key is to be rotated (spec 3.3, D-26)."""

    grace_period_hours: Annotated[int, Field(ge=0, le=MAX_GRACE_HOURS, description="How long the old key still works.")] = (
        DEFAULT_GRACE_HOURS
    )


class ExtendBody(RequestModel):
    """A new expiry, or null to remove it (spec 3.2)."""

    expires_at: Expiry


class PermissionsBody(RequestModel):
    """The permissions that replace those there are (spec 5.3)."""

    permissions: Grants


class AddressesBody(RequestModel):
    """Addresses, one by one or pasted (spec 5.3, D-28)."""

    ips: Addresses | None = None
    ip_list: Annotated[Addresses | None, Field(description="Another name of `ips`: the one that keys have.")] = None
    text: PastedList | None = None
    ip_restriction: Annotated[
        bool | None,
        Field(
            description="Enforce the list. If this is left out, addresses that are set or added are enforced from now on; "
            "false stores them without enforcing. An enforced empty list blocks every request."
        ),
    ] = None

    @model_validator(mode="after")
    def _has_one(self) -> AddressesBody:
        if self.ips is not None and self.ip_list is not None and self.ips != self.ip_list:
            msg = "ip_list is another name of ips, which has another value; give one of them"
            raise ValueError(msg)
        if (self.ips is None and self.ip_list is None) == (self.text is None):
            msg = "give either ips (or its other name, ip_list), a list, or text, a pasted one"
            raise ValueError(msg)
        return self

    @property
    def entries(self) -> str | list[str]:
        """What was given."""
        listed = self.ip_list if self.ips is None else self.ips
        return listed if listed is not None else self.text or ""


class NewWorkspaceBody(RequestModel):
    """A workspace to be made, or its new name."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="Unique; without a slash.", examples=["acme"])]


class KeysQuery(PageQuery):
    """Which keys of the workspace."""

    environment: Annotated[Environment | None, Field(description="Only live keys, or only test keys.")] = None
    status: Annotated[
        KeyStatus | None, BeforeValidator(_capitalize), Field(description="Only keys in this state; a suspended one counts as Revoked.")
    ] = None


class PermissionCheckQuery(QueryModel):
    """Checks on a key's permissions (spec 5.3); each that is asked is answered."""

    has: Annotated[str | None, Field(description="Has it this one?")] = None
    any: Annotated[NameList, Field(max_length=MAX_LIST_ITEMS, description="Has it at least one of these?")] = Field(default_factory=list)
    all: Annotated[NameList, Field(max_length=MAX_LIST_ITEMS, description="Has it each of these?")] = Field(default_factory=list)


class DeleteWorkspaceQuery(QueryModel):
    """How a workspace is to be deleted."""

    dry_run: Annotated[bool, Field(description="Only tell what would go.")] = False


class KeyCallsQuery(PageQuery):
    """Which calls of a key."""

    since: Timestamp | None = None
    until: Timestamp | None = None
    status: Annotated[int | None, Field(ge=100, le=599)] = None
    route: Annotated[str | None, Field(min_length=1, max_length=500, description="The path's pattern, as rows show it.")] = None
    format: Annotated[Literal["json", "csv"], Field(description="CSV has all calls that are asked for, not a page of them.")] = "json"

    def to_filter(self) -> CallFilter:
        """Return which are asked for."""
        return CallFilter(since=self.since, until=self.until, status=self.status, route=self.route)


class UsageSumsQuery(QueryModel):
    """How the calls of all keys are to be added up."""

    since: Annotated[date | None, Field(description="The first day, UTC.")] = None
    until: Annotated[date | None, Field(description="The last day, UTC.")] = None
    by: Annotated[list[UsageField], BeforeValidator(_split_names), Field(min_length=1, max_length=5, description="What to keep apart.")] = (
        Field(default_factory=lambda: ["key", "day", "status"])
    )
    format: Literal["json", "csv"] = "json"

    def to_filter(self, environment: Environment | None) -> UsageFilter:
        """Return which are asked for."""
        return UsageFilter(environment=environment, since=self.since, until=self.until)


class AuditQuery(PageQuery):
    """Which entries of the audit log."""

    workspace_id: Annotated[
        int | None, Field(ge=0, le=2**62, description="Another workspace's chain, or 0, the platform's: needs platform:audit.")
    ] = None
    action: Annotated[str | None, Field(min_length=1, max_length=100, examples=["api_key.rotated"])] = None
    subject_id: Annotated[str | None, Field(min_length=1, max_length=100, description="What was changed.")] = None
    actor_id: Annotated[str | None, Field(min_length=1, max_length=100, description="The key that changed it.")] = None
    since: Timestamp | None = None
    until: Timestamp | None = None

    def to_filter(self, environment: Environment | None) -> AuditFilter:
        """Return which are asked for."""
        return AuditFilter(
            environment=environment,
            action=self.action,
            subject_id=self.subject_id,
            actor_id=self.actor_id,
            since=self.since,
            until=self.until,
        )


class RateLimitResponse(ResponseModel):
    """How much of its limit a key has used (spec 8)."""

    limit: Annotated[int, Field(description="Requests a window; 2147483647: unlimited.")]
    remaining: Annotated[int, Field(description="Requests left in this window.")]
    reset_in_seconds: Annotated[int, Field(description="Whole seconds until this window is over.")]
    reset: Annotated[int, Field(description="What X-RateLimit-Reset says: a Unix time for API keys, seconds for agent keys.")]
    used: Annotated[int, Field(description="Requests counted in this window.")]
    window_seconds: Annotated[int, Field(description="How long a window is: it begins with its first request.")]
    local: Annotated[bool, Field(description="Whether only this process is counted, the shared counter being down.")]


class _RestrictionsResponse(ResponseModel):
    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]


class _UsageResponse(_RestrictionsResponse):
    call_count: Annotated[int, Field(description="Calls over its whole life.")]
    last_used_at: Timestamp | None
    last_used_ip: Annotated[str | None, Field(description="Needs audit:read; left out without it.")] = None


class ApiKeyResponse(_UsageResponse):
    """An API key (spec 2.3); its secret is shown at creation and rotation alone."""

    id: str
    name: str
    workspace_id: int
    agent_id: str | None
    scopes: list[str]
    rate_limit_tier: TierName
    environment: Environment
    expires_at: Timestamp | None
    created_at: Timestamp
    suspended_at: Timestamp | None
    status: Literal["Active", "Revoked", "Expired"]
    hint: Annotated[str, Field(description="How it begins.")]
    delete_after: Annotated[Timestamp | None, Field(description="When its grace period ends, after a rotation.")]


class NewApiKeyResponse(ApiKeyResponse):
    """An API key just made, with its secret."""

    plaintext_key: str


class AgentKeyResponse(_UsageResponse):
    """An agent key (spec 2.2); its secret is shown at creation and rotation alone."""

    id: str
    name: str
    agent_id: str | None
    workspace_id: int
    permissions: list[str]
    rate_limit: int
    expires_at: Timestamp | None
    created_at: Timestamp
    suspended_at: Timestamp | None
    revoked_at: Timestamp | None
    delete_after: Annotated[Timestamp | None, Field(description="When its grace period ends, after a rotation.")]
    status: Literal["Active", "Revoked", "Expired"]
    hint: Annotated[str, Field(description="How it begins.")]
    ip_restriction: bool
    ip_list: Annotated[list[str], Field(default_factory=list, description="Needs audit:read; left out without it.")]


class NewAgentKeyResponse(AgentKeyResponse):
    """An agent key just made, with its secret."""

    key: str


class PermissionsResponse(ResponseModel):
    """A key's permissions, and the answers to the checks that were asked."""

    permissions: list[str]
    has: bool | None
    any: bool | None
    all: bool | None


class AddressesResponse(ResponseModel):
    """Where an agent key may be used from."""

    ip_restriction: bool
    ips: list[str]
    ip_list: Annotated[list[str], Field(description="As `ips`.")]


class WorkspaceResponse(ResponseModel):
    """A workspace."""

    id: Annotated[int, Field(description="As `workspace_id`.")]
    workspace_id: int
    name: str
    created_at: Timestamp


class DeletionResponse(WorkspaceResponse):
    """What went, or would go, with a workspace."""

    keys: int
    calls: int
    rows: int | None
    deleted: bool


class UsageSumResponse(ResponseModel):
    """Calls added up by the fields that were asked for; the others are left out."""

    key_id: str | None = None
    key_name: str | None = None
    day: str | None = None
    method: str | None = None
    route: str | None = None
    status: int | None = None
    calls: int
    errors: Annotated[int, Field(description="Those answered 400 and above.")]
    mean_ms: float


class UsageResponse(ResponseModel):
    """The use of all keys of one kind."""

    since: str | None
    until: str | None
    calls: int
    errors: int
    data: list[UsageSumResponse]


class WhoResponse(ResponseModel):
    """The key that asks, and what it may do; further fields as its kind has them."""

    kind: Literal["api", "agent"]
    workspace_name: str


def _combine_grants(preset: PresetName | None, named: list[str]) -> tuple[str, ...]:
    return (*(PRESETS[preset] if preset else ()), *named)


def _to_frozenset(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
