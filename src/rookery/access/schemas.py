"""Access on the wire: D-29's field names, with the bounds of D-21, D-23, D-26 and D-28."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Annotated, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, model_validator

from rookery.access.keyring import DEFAULT_GRACE_HOURS, MAX_GRACE_HOURS
from rookery.access.models import AuditFilter, CallFilter, Environment, KeyStatus, Reach, Tier, UsageField, UsageFilter
from rookery.access.scopes import PRESETS
from rookery.access.settings import KEPT, MAX_LISTED, MAX_NAME, MAX_RATE, Changes, Kept, NewAgentKey, NewApiKey, enforces
from rookery.kernel.http.pages import PageQuery
from rookery.kernel.wire import Answer, Body, Moment, Query

T = TypeVar("T")


def _split(value: object) -> object:
    """Read names given one by one, or with commas between."""
    if not isinstance(value, list):
        return value
    return [name.strip() for each in cast("list[object]", value) for name in str(each).split(",") if name.strip()]


def _capitalized(value: object) -> object:
    """Return a status as answers spell it; the command line writes it in lower case."""
    return value.capitalize() if isinstance(value, str) else value


Split = Annotated[list[str], BeforeValidator(_split)]
TierName = Literal["free", "pro", "business", "enterprise"]
PresetName = Literal["agent", "reader", "planner", "notifier"]
Preset = Annotated[PresetName | None, Field(description="Permissions that go together, besides those that are named.")]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="What it is for.", examples=["CI"])]
Grants = Annotated[
    list[str], Field(max_length=MAX_LISTED, description="Such as brain:read, mcp:*, *:read or *.", examples=[["brain:read"]])
]
Names = Annotated[list[str], Field(max_length=MAX_LISTED)]
ToolLimits = Annotated[dict[str, int], Field(max_length=MAX_LISTED, description="Calls a minute by server/tool pattern.")]
RateLimit = Annotated[int, Field(ge=1, le=MAX_RATE, description="Requests a minute.")]
Expiry = Annotated[Moment | None, Field(description="None: never.")]
Addresses = Annotated[
    list[str], Field(max_length=MAX_LISTED, description="Addresses and CIDR ranges, IPv4 or IPv6.", examples=[["10.0.0.0/8"]])
]
Pasted = Annotated[str, Field(max_length=200_000, description="A pasted list, one entry a line; lines that start with # are comments.")]


class _ReachFields(Body):
    """The allow-lists; null: no restriction, empty: nothing at all."""

    servers: Annotated[Names | None, Field(description="Ids of tool servers; null: all.")] = None
    tools: Annotated[Names | None, Field(description="server/tool patterns; null: all.", examples=[["web/*"]])] = None
    orgs: Annotated[Names | None, Field(description="Orgs whose memories it sees; null: all.")] = None
    projects: Annotated[Names | None, Field(description="Projects whose memories it sees; null: all.")] = None
    tool_limits: ToolLimits = Field(default_factory=dict)

    def reach(self) -> Reach:
        """Return the allow-lists of a new key."""
        return Reach(
            servers=_set(self.servers),
            tools=None if self.tools is None else tuple(self.tools),
            orgs=_set(self.orgs),
            projects=_set(self.projects),
            tool_limits=dict(self.tool_limits),
        )


class NewApiKeyBody(_ReachFields):
    """An API key to be made."""

    name: Name
    scopes: Grants = Field(default_factory=list)
    preset: Preset = None
    rate_limit_tier: TierName = "pro"
    environment: Annotated[Environment | None, Field(description="A test key acts in a sandbox; by default as the key that asks.")] = None
    expires_at: Expiry = None
    agent_id: Annotated[str | None, Field(description="The agent that it speaks for.")] = None

    def new(self, environment: Environment) -> NewApiKey:
        """Return what is to be made; *environment* if the body names none."""
        return NewApiKey(
            name=self.name,
            scopes=_granted(self.preset, self.scopes),
            tier=Tier(self.rate_limit_tier),
            environment=self.environment or environment,
            expires_at=self.expires_at,
            agent_id=self.agent_id,
            reach=self.reach(),
        )


class NewAgentKeyBody(_ReachFields):
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

    def new(self) -> NewAgentKey:
        """Return what is to be made."""
        return NewAgentKey(
            name=self.name,
            permissions=_granted(self.preset, self.permissions),
            rate_limit=self.rate_limit,
            expires_at=self.expires_at,
            agent_id=self.agent_id,
            ip_restriction=bool(enforces(self.ip_list, self.ip_restriction)),
            ip_list=tuple(self.ip_list),
            reach=self.reach(),
        )


class _ChangeBody(_ReachFields):
    """What both kinds of key can be changed in; what is left out stays, and null removes what may be missing."""

    name: Name = "unchanged"
    expires_at: Expiry = None

    def _if_given(self, field: str, value: T) -> T | Kept:
        return value if field in self.model_fields_set else KEPT

    def _common(self) -> Changes:
        reach = self.reach()
        return Changes(
            name=self._if_given("name", self.name),
            expires_at=self._if_given("expires_at", self.expires_at),
            servers=self._if_given("servers", reach.servers),
            tools=self._if_given("tools", reach.tools),
            orgs=self._if_given("orgs", reach.orgs),
            projects=self._if_given("projects", reach.projects),
            tool_limits=self._if_given("tool_limits", reach.tool_limits),
        )


class ApiKeyChangeBody(_ChangeBody):
    """What an API key is to be changed to; its environment and its secret never change."""

    scopes: Grants = Field(default_factory=list)
    rate_limit_tier: TierName = "pro"
    agent_id: Annotated[str | None, Field(description="The agent that it speaks for; null: none, so that it may name any.")] = None

    def changes(self) -> Changes:
        """Return what is to be changed."""
        return replace(
            self._common(),
            grants=self._if_given("scopes", tuple(self.scopes)),
            tier=self._if_given("rate_limit_tier", Tier(self.rate_limit_tier)),
            agent_id=self._if_given("agent_id", self.agent_id),
        )


class AgentKeyChangeBody(_ChangeBody):
    """What an agent key is to be changed to; its agent_id never changes (D-23)."""

    permissions: Grants = Field(default_factory=list)
    rate_limit: RateLimit = 600
    ip_restriction: Annotated[
        bool, Field(description="Enforce the list of addresses. If this is left out, a list that has any entry is enforced from now on.")
    ] = False
    ip_list: Addresses = Field(default_factory=list)

    def changes(self) -> Changes:
        """Return what is to be changed."""
        return replace(
            self._common(),
            grants=self._if_given("permissions", tuple(self.permissions)),
            rate_limit=self._if_given("rate_limit", self.rate_limit),
            ip_restriction=self._if_given("ip_restriction", self.ip_restriction),
            ip_list=self._if_given("ip_list", tuple(self.ip_list)),
        )


class RotateBody(Body):
    """How a key is to be rotated (spec 3.3, D-26)."""

    grace_period_hours: Annotated[int, Field(ge=0, le=MAX_GRACE_HOURS, description="How long the old key still works.")] = (
        DEFAULT_GRACE_HOURS
    )


class ExtendBody(Body):
    """A new expiry, or null to remove it (spec 3.2)."""

    expires_at: Expiry


class PermissionsBody(Body):
    """The permissions that replace those there are (spec 5.3)."""

    permissions: Grants


class AddressesBody(Body):
    """Addresses, one by one or pasted (spec 5.3, D-28)."""

    ips: Addresses | None = None
    ip_list: Annotated[Addresses | None, Field(description="Another name of `ips`: the one that keys have.")] = None
    text: Pasted | None = None
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


class NewWorkspaceBody(Body):
    """A workspace to be made, or its new name."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="Unique; without a slash.", examples=["acme"])]


class KeysQuery(PageQuery):
    """Which keys of the workspace."""

    environment: Annotated[Environment | None, Field(description="Only live keys, or only test keys.")] = None
    status: Annotated[
        KeyStatus | None, BeforeValidator(_capitalized), Field(description="Only keys in this state; a suspended one counts as Revoked.")
    ] = None


class HasQuery(Query):
    """Checks on a key's permissions (spec 5.3); each that is asked is answered."""

    has: Annotated[str | None, Field(description="Has it this one?")] = None
    any: Annotated[Split, Field(max_length=MAX_LISTED, description="Has it at least one of these?")] = Field(default_factory=list)
    all: Annotated[Split, Field(max_length=MAX_LISTED, description="Has it each of these?")] = Field(default_factory=list)


class DeleteWorkspaceQuery(Query):
    """How a workspace is to be deleted."""

    dry_run: Annotated[bool, Field(description="Only tell what would go.")] = False


class CallsQuery(PageQuery):
    """Which calls of a key."""

    since: Moment | None = None
    until: Moment | None = None
    status: Annotated[int | None, Field(ge=100, le=599)] = None
    route: Annotated[str | None, Field(min_length=1, max_length=500, description="The path's pattern, as rows show it.")] = None
    format: Annotated[Literal["json", "csv"], Field(description="CSV has all calls that are asked for, not a page of them.")] = "json"

    def calls(self) -> CallFilter:
        """Return which are asked for."""
        return CallFilter(since=self.since, until=self.until, status=self.status, route=self.route)


class SumsQuery(Query):
    """How the calls of all keys are to be added up."""

    since: Annotated[date | None, Field(description="The first day, UTC.")] = None
    until: Annotated[date | None, Field(description="The last day, UTC.")] = None
    by: Annotated[list[UsageField], BeforeValidator(_split), Field(min_length=1, max_length=5, description="What to keep apart.")] = Field(
        default_factory=lambda: ["key", "day", "status"]
    )
    format: Literal["json", "csv"] = "json"

    def sums(self, environment: Environment | None) -> UsageFilter:
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
    since: Moment | None = None
    until: Moment | None = None

    def entries(self, environment: Environment | None) -> AuditFilter:
        """Return which are asked for."""
        return AuditFilter(
            environment=environment,
            action=self.action,
            subject_id=self.subject_id,
            actor_id=self.actor_id,
            since=self.since,
            until=self.until,
        )


class RateLimitAnswer(Answer):
    """How much of its limit a key has used (spec 8)."""

    limit: Annotated[int, Field(description="Requests a window; 2147483647: unlimited.")]
    remaining: Annotated[int, Field(description="Requests left in this window.")]
    reset_in_seconds: Annotated[int, Field(description="Whole seconds until this window is over.")]
    reset: Annotated[int, Field(description="What X-RateLimit-Reset says: a Unix time for API keys, seconds for agent keys.")]
    used: Annotated[int, Field(description="Requests counted in this window.")]
    window_seconds: Annotated[int, Field(description="How long a window is: it begins with its first request.")]
    local: Annotated[bool, Field(description="Whether only this process is counted, the shared counter being down.")]


class _ReachAnswer(Answer):
    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]


class _UseAnswer(_ReachAnswer):
    call_count: Annotated[int, Field(description="Calls over its whole life.")]
    last_used_at: Moment | None
    last_used_ip: Annotated[str | None, Field(description="Needs audit:read; left out without it.")] = None


class ApiKeyAnswer(_UseAnswer):
    """An API key (spec 2.3); its secret is shown at creation and rotation alone."""

    id: str
    name: str
    workspace_id: int
    agent_id: str | None
    scopes: list[str]
    rate_limit_tier: TierName
    environment: Environment
    expires_at: Moment | None
    created_at: Moment
    suspended_at: Moment | None
    status: Literal["Active", "Revoked", "Expired"]
    hint: Annotated[str, Field(description="How it begins.")]
    delete_after: Annotated[Moment | None, Field(description="When its grace period ends, after a rotation.")]


class NewApiKeyAnswer(ApiKeyAnswer):
    """An API key just made, with its secret."""

    plaintext_key: str


class AgentKeyAnswer(_UseAnswer):
    """An agent key (spec 2.2); its secret is shown at creation and rotation alone."""

    id: str
    name: str
    agent_id: str | None
    workspace_id: int
    permissions: list[str]
    rate_limit: int
    expires_at: Moment | None
    created_at: Moment
    suspended_at: Moment | None
    revoked_at: Moment | None
    delete_after: Annotated[Moment | None, Field(description="When its grace period ends, after a rotation.")]
    status: Literal["Active", "Revoked", "Expired"]
    hint: Annotated[str, Field(description="How it begins.")]
    ip_restriction: bool
    ip_list: Annotated[list[str], Field(default_factory=list, description="Needs audit:read; left out without it.")]


class NewAgentKeyAnswer(AgentKeyAnswer):
    """An agent key just made, with its secret."""

    key: str


class PermissionsAnswer(Answer):
    """A key's permissions, and the answers to the checks that were asked."""

    permissions: list[str]
    has: bool | None
    any: bool | None
    all: bool | None


class AddressesAnswer(Answer):
    """Where an agent key may be used from."""

    ip_restriction: bool
    ips: list[str]
    ip_list: Annotated[list[str], Field(description="As `ips`.")]


class WorkspaceAnswer(Answer):
    """A workspace."""

    id: Annotated[int, Field(description="As `workspace_id`.")]
    workspace_id: int
    name: str
    created_at: Moment


class DeletionAnswer(WorkspaceAnswer):
    """What went, or would go, with a workspace."""

    keys: int
    calls: int
    rows: int | None
    deleted: bool


class UsageSumAnswer(Answer):
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


class UsageAnswer(Answer):
    """The use of all keys of one kind."""

    since: str | None
    until: str | None
    calls: int
    errors: int
    data: list[UsageSumAnswer]


class WhoAnswer(Answer):
    """The key that asks, and what it may do; further fields as its kind has them."""

    kind: Literal["api", "agent"]
    workspace_name: str


def _granted(preset: PresetName | None, named: list[str]) -> tuple[str, ...]:
    return (*(PRESETS[preset] if preset else ()), *named)


def _set(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
