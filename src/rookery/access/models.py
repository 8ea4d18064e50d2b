"""The types of access: callers, workspaces, keys and their rights. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Literal, Self

from rookery.access.errors import ScopeMissing
from rookery.access.scopes import grants
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import NotInAllowList, PermissionDenied
from rookery.kernel.preconditions import compute_version
from rookery.kernel.secret import Secret

_MAX_LISTED_NAMES = 10
"""Maximum names of an allow-list in an error message."""

KeyKind = Literal["api", "agent"]
ActorKind = Literal["api", "agent", "operator", "system"]
Environment = Literal["live", "test"]

LIVE: Environment = "live"
TEST: Environment = "test"


class Tier(StrEnum):
    """The rate limit tier of an API key."""

    FREE = "free"
    PRO = "pro"
    BUSINESS = "business"
    ENTERPRISE = "enterprise"


class KeyStatus(StrEnum):
    """The label of a key's state. A suspended key is labelled Revoked."""

    ACTIVE = "Active"
    REVOKED = "Revoked"
    EXPIRED = "Expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceDeletion:
    """The result of deleting a workspace: deleted keys and logged calls; *row_count*: rows of the other domains."""

    workspace: Workspace
    key_count: int
    call_count: int
    row_count: int | None
    """None in a dry run, which does not count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """
    The caller of a request and its rights. The guard creates it once per request.

    Attributes:
        workspace_id: The tenant of the request, to which every query is bound. For a test key: the sandbox.
        public_workspace_id: The workspace id in responses; for a sandbox, its parent.
        scopes: The scopes as granted, wildcards included. Check them with `has_scope`.
        agent_id: The agent that the key is bound to, if any.
        servers: Ids of the visible tool servers; None: all. *orgs* and *projects* likewise.
        tools: `server/tool` globs; None: all.
        tool_limits: Calls per minute, by `server/tool` glob.
        address: The client's canonical address, or `unknown`.
    """

    key_id: str
    key_kind: KeyKind
    key_name: str
    workspace_id: int
    public_workspace_id: int
    scopes: frozenset[str]
    agent_id: str | None
    environment: Environment
    servers: frozenset[str] | None
    tools: tuple[str, ...] | None
    orgs: frozenset[str] | None
    projects: frozenset[str] | None
    tool_limits: Mapping[str, int]
    address: str
    request_id: str

    def has_scope(self, scope: str) -> bool:
        """Return whether the key was granted *scope*, by name or by wildcard."""
        return grants(self.scopes, scope)

    def require_scope(self, scope: str) -> None:
        """
        Raise an error unless the key was granted *scope*.

        Raises:
            ScopeMissing: The key is an API key without *scope*.
            PermissionDenied: The key is an agent key without *scope*.
        """
        if not grants(self.scopes, scope):
            raise missing_scope_error(self.key_kind, scope)

    @classmethod
    def without_limits(cls, name: str, workspace_id: int, *, public_workspace_id: int | None = None) -> Caller:
        """
        Return a caller with every right in a tenant and no key, for the operator and for rendering events.

        Args:
            name: The name of the caller, in place of that of a key.
            public_workspace_id: The workspace, if the tenant is its sandbox.
        """
        public_id = workspace_id if public_workspace_id is None else public_workspace_id
        return cls(
            key_id="",
            key_kind="api",
            key_name=name,
            workspace_id=workspace_id,
            public_workspace_id=public_id,
            scopes=frozenset({"*"}),
            agent_id=None,
            environment="live" if public_id == workspace_id else "test",
            servers=None,
            tools=None,
            orgs=None,
            projects=None,
            tool_limits={},
            address="unknown",
            request_id="",
        )

    def require_in_allow_lists(self, *, org: str | None = None, project: str | None = None) -> None:
        """
        Raise an error unless the key's allow-lists contain the org and project of the request; None: the request has none.

        Raises:
            NotInAllowList: The org or the project is not in its list.
        """
        for name, value, allowed in (("orgs", org, self.orgs), ("projects", project, self.projects)):
            if value is not None and allowed is not None and value not in allowed:
                raise not_in_allow_list(name, value, allowed)


def not_in_allow_list(name: str, value: str | None, allowed: Collection[str]) -> NotInAllowList:
    """Return the error for *value*, an org or a project, that is not in the key's allow-list *name*."""
    listed_names = ", ".join(repr(allowed_name) for allowed_name in sorted(allowed)[:_MAX_LISTED_NAMES]) or "none"
    more = f" and {len(allowed) - _MAX_LISTED_NAMES} more" if len(allowed) > _MAX_LISTED_NAMES else ""
    reason = f"{value!r} is not one of them" if value is not None else f"the request has no {name[:-1]}"
    return NotInAllowList(name, value, f"This key is limited to these {name}: {listed_names}{more}; {reason}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """
    The actor of a change, for the audit log and for delegation checks.

    Attributes:
        kind: The kind of the acting key; `operator`: the command line, which may do everything; `system`: a timer.
        id: The id of the acting key; None without a key.
        name: The name of the key, or the operator's login.
        address: The client's address; None without a request.
    """

    kind: ActorKind
    id: str | None = None
    name: str = ""
    address: str | None = None
    request_id: str | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> Actor:
        """Return the actor for changes that *caller* makes. A caller without a key is the operator."""
        if not caller.key_id:
            return cls(kind="operator", name=caller.key_name)
        return cls(kind=caller.key_kind, id=caller.key_id, name=caller.key_name, address=caller.address, request_id=caller.request_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """
    The tenant whose resources are managed, and the actor.

    Attributes:
        workspace_id: The tenant to which every query is bound. For a test key: the sandbox.
        public_workspace_id: The workspace id in responses, events and the audit log.
    """

    workspace_id: int
    public_workspace_id: int
    by: Actor

    @classmethod
    def from_caller(cls, caller: Caller) -> Self:
        return cls(workspace_id=caller.workspace_id, public_workspace_id=caller.public_workspace_id, by=Actor.from_caller(caller))

    @classmethod
    def for_operator(cls, workspace_id: int, by: Actor) -> Self:
        """Return the tenant for the command line."""
        return cls(workspace_id=workspace_id, public_workspace_id=workspace_id, by=by)

    @property
    def environment(self) -> Environment:
        """The environment: test for a sandbox, else live."""
        return LIVE if self.workspace_id == self.public_workspace_id else TEST


SYSTEM_ACTOR = Actor(kind="system", name="rookery")
"""The actor of timers."""


def missing_scope_error(kind: KeyKind, scope: str) -> ScopeMissing | PermissionDenied:
    """Return the error for a key of *kind* without *scope*. The two kinds have different responses."""
    return ScopeMissing(scope) if kind == "api" else PermissionDenied(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRestrictions:
    """The restrictions of a key besides its scopes; None: no restriction; empty: nothing is allowed."""

    servers: frozenset[str] | None = None
    tools: tuple[str, ...] | None = None
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None
    tool_limits: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """
    An API key or an agent key as stored, without its secret. Times are UTC.

    Attributes:
        workspace_id: The workspace that owns the key.
        tenant_id: The tenant of its requests: the sandbox for a test key, else *workspace_id*.
        scopes: Scopes of an API key or permissions of an agent key, in the given order; both use one grammar.
        rate_limit_tier: Only API keys have one.
        rate_limit: Requests per minute; only agent keys have one.
        hint: The start of the plaintext, to distinguish keys.
        delete_after: The end of the grace period, set by rotation. After it the key is treated as deleted.
        ip_restriction: Enforce *ip_list*. An enforced empty list blocks every request.
    """

    id: str
    kind: KeyKind
    name: str
    workspace_id: int
    tenant_id: int
    environment: Environment
    scopes: tuple[str, ...]
    rate_limit_tier: Tier | None = None
    rate_limit: int | None = None
    agent_id: str | None
    restrictions: KeyRestrictions
    hint: str
    ip_restriction: bool = False
    ip_list: tuple[str, ...] = ()
    created_at: datetime
    expires_at: datetime | None
    suspended_at: datetime | None = None
    revoked_at: datetime | None = None
    delete_after: datetime | None = None

    def status(self, at: datetime) -> KeyStatus:
        """Return the label of the key's state at the time *at*. A key is expired from its expiry on."""
        if self.revoked_at is not None or self.suspended_at is not None:
            return KeyStatus.REVOKED
        if self.expires_at is not None and self.expires_at <= at:
            return KeyStatus.EXPIRED
        return KeyStatus.ACTIVE

    def version(self, digest: str) -> str:
        """
        Return the version of the settings, for ETags. Usage and status are not part of it.

        Args:
            digest: The stored form of the secret. It prevents guessing hidden addresses from the version.
        """
        restrictions = self.restrictions
        lists = (None if names is None else sorted(names) for names in (restrictions.servers, restrictions.orgs, restrictions.projects))
        times = (self.expires_at, self.suspended_at, self.revoked_at, self.delete_after)
        return compute_version(
            digest,
            *(self.id, self.name, self.scopes, self.rate_limit_tier, self.rate_limit, self.agent_id),
            *(*lists, restrictions.tools, dict(restrictions.tool_limits)),
            *(self.ip_restriction, self.ip_list),
            *(None if moment is None else to_micros(moment) for moment in times),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """The usage of a key; *call_count* covers its whole life."""

    call_count: int = 0
    last_used_at: datetime | None = None
    last_used_ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithUsage:
    """
    A key with its usage.

    Attributes:
        digest: The stored form of the secret.
    """

    key: Key
    usage: KeyUsage
    digest: str = field(repr=False)

    @property
    def version(self) -> str:
        """The version of the key's settings."""
        return self.key.version(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithSecret:
    """
    A new key and its plaintext, which is stored nowhere.

    Attributes:
        digest: The stored form of the secret.
    """

    key: Key
    plaintext: Secret
    digest: str = field(repr=False)

    @property
    def version(self) -> str:
        """The version of the key's settings."""
        return self.key.version(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A tenant; *parent_id* is set for the sandbox of another workspace, which lists omit."""

    id: int
    name: str
    parent_id: int | None
    created_at: datetime

    @property
    def version(self) -> str:
        """The version of the workspace's own fields, for ETags."""
        return compute_version(self.id, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCall:
    """One admitted request in the usage log; *workspace_id* is the public one."""

    key_id: str
    workspace_id: int
    at: datetime
    method: str
    route: str
    status: int
    duration_ms: float
    address: str
    request_id: str
    is_upstream_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressStats:
    """Addresses in the retained usage log; *only_address* is set if all calls came from one address."""

    call_count: int
    key_count: int
    address_count: int
    only_address: str | None


UsageField = Literal["key", "day", "method", "route", "status"]
"""Fields by which calls can be grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """A filter of calls; None: no filter. *since* is inclusive, *until* exclusive."""

    since: datetime | None = None
    until: datetime | None = None
    status: int | None = None
    route: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """A filter of usage totals; None: no filter. Days are in UTC; both ends are inclusive."""

    key_id: str | None = None
    environment: Environment | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """
    Usage totals of one group. A field is None unless the calls are grouped by it.

    Attributes:
        key_name: The name, kept for deleted keys too.
        errors: Calls with a status of 400 or higher, without those of *upstream_errors*.
        upstream_errors: Calls that were answered with an error status because a tool, its server or a language model failed.
        total_ms: The sum of the durations.
    """

    key_id: str | None
    key_name: str | None
    day: str | None
    method: str | None
    route: str | None
    status: int | None
    calls: int
    errors: int
    upstream_errors: int
    total_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """
    One entry of the audit log.

    Attributes:
        workspace_id: The workspace of the chain; 0: the platform's chain, which records created and deleted workspaces.
        seq: The number in the chain, from 1, without gaps.
        actor_id: The acting key, if any. *address* and *request_id* are those of the request, if any.
        action: The action, for example `api_key.rotated`.
        environment: `test` for resources of the sandbox, the only ones that test keys can see.
        before: The changed fields before the change; None: the resource was created.
        after: The changed fields after the change; None: the resource was deleted.
        previous: The hash of the entry before, in hexadecimal.
        hash: The hash of this entry, which covers all fields above.
    """

    workspace_id: int
    seq: int
    at: datetime
    actor_kind: ActorKind
    actor_id: str | None
    actor_name: str
    address: str | None
    request_id: str | None
    action: str
    subject_kind: str
    subject_id: str
    subject_name: str
    environment: Environment
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """The end of a workspace's chain: the number of its last entry (0: the chain is empty) and its hash."""

    workspace_id: int
    seq: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter of audit entries; None: no filter. *since* is inclusive, *until* exclusive."""

    environment: Environment | None = None
    action: str | None = None
    subject_id: str | None = None
    actor_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
