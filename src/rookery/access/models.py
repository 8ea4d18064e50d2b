"""The nouns of access: who calls, workspaces, keys and what they may do. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Literal

from rookery.access.errors import ScopeMissing
from rookery.access.scopes import grants
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import NotInAllowList, PermissionDenied
from rookery.kernel.preconditions import version_of
from rookery.kernel.secret import Secret

_MAX_LISTED_NAMES = 10
"""Names of an allow-list that a refusal shows."""

KeyKind = Literal["api", "agent"]
ActorKind = Literal["api", "agent", "operator", "system"]
Environment = Literal["live", "test"]

LIVE: Environment = "live"
TEST: Environment = "test"


class Tier(StrEnum):
    """What an API key may spend an hour (spec 8)."""

    FREE = "free"
    PRO = "pro"
    BUSINESS = "business"
    ENTERPRISE = "enterprise"


class KeyStatus(StrEnum):
    """The label of a key's state (spec 3.2); a suspended key is labelled Revoked (D-21)."""

    ACTIVE = "Active"
    REVOKED = "Revoked"
    EXPIRED = "Expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceDeletion:
    """What deleting a workspace takes with it: its keys and remembered calls; *row_count*: of the other domains."""

    workspace: Workspace
    key_count: int
    call_count: int
    row_count: int | None
    """None in a dry run: only deleting tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """
    Who makes this request, and what the key lets them do; made by the guard, once a request.

    Attributes:
        workspace_id: The tenant acted in: every query is bound to it. The sandbox twin for a test key (D-25).
        public_workspace_id: The workspace that answers show: the parent of a twin.
        scopes: As granted, wildcards included; ask `has_scope`.
        agent_id: The agent that the key speaks for, if it is bound to one.
        servers: Ids of the tool servers that exist for this key; None: all. So too *orgs* and *projects*.
        tools: `server/tool` globs; None: all.
        tool_limits: Calls a minute by `server/tool` glob.
        address: The client's, canonical (D-28), or `unknown`.
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
        """Tell whether the key was granted *scope*, by name or by wildcard."""
        return grants(self.scopes, scope)

    def require_scope(self, scope: str) -> None:
        """
        Do nothing if the key was granted *scope*.

        Raises:
            ScopeMissing: An API key without it (spec 5.2).
            PermissionDenied: An agent key without it (spec 5.3).
        """
        if not grants(self.scopes, scope):
            raise missing_scope_error(self.key_kind, scope)

    def require_in_allow_lists(self, *, org: str | None = None, project: str | None = None) -> None:
        """
        Do nothing if the key's allow-lists have the org and the project that a request names; None: it names none.

        Raises:
            NotInList: One of them is not in the list.
        """
        for name, value, allowed in (("orgs", org, self.orgs), ("projects", project, self.projects)):
            if value is not None and allowed is not None and value not in allowed:
                raise not_in_allow_list(name, value, allowed)


def not_in_allow_list(name: str, value: str | None, allowed: Collection[str]) -> NotInAllowList:
    """Return the refusal of *value*, an org or a project, that is not in the key's list of that *name*."""
    listed = ", ".join(repr(each) for each in sorted(allowed)[:_MAX_LISTED_NAMES]) or "none"
    more = f" and {len(allowed) - _MAX_LISTED_NAMES} more" if len(allowed) > _MAX_LISTED_NAMES else ""
    given = f"{value!r} is not one of them" if value is not None else f"the request is outside of them, as it names no {name[:-1]}"
    return NotInAllowList(name, value, f"This key is limited to these {name}: {listed}{more}; {given}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """
    Who makes a change, for the audit log, and for how far they may go (D-24, D-29).

    Attributes:
        kind: The kind of their key; `operator`: the command line, which may do everything; `system`: a timer of ours.
        id: Their key's; None without a key.
        name: The key's, or the operator's login.
        address: Where the request came from; None without a request.
    """

    kind: ActorKind
    id: str | None = None
    name: str = ""
    address: str | None = None
    request_id: str | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> Actor:
        """Return who acts when *caller* makes a change."""
        return cls(kind=caller.key_kind, id=caller.key_id, name=caller.key_name, address=caller.address, request_id=caller.request_id)

    @property
    def has_key(self) -> bool:
        """Whether a key acts here, which may hand on no more than it holds."""
        return self.id is not None


SYSTEM_ACTOR = Actor(kind="system", name="rookery")
"""Acts when a timer does."""


def missing_scope_error(kind: KeyKind, scope: str) -> ScopeMissing | PermissionDenied:
    """Return the refusal of a key of *kind* that lacks *scope*: the two kinds have two bodies (spec 5.2, 5.3)."""
    return ScopeMissing(scope) if kind == "api" else PermissionDenied(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRestrictions:
    """What a key may touch besides its scopes (D-23); None: no restriction, empty: nothing at all."""

    servers: frozenset[str] | None = None
    tools: tuple[str, ...] | None = None
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None
    tool_limits: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """
    An API key or an agent key as stored, without its secret; times are UTC.

    Attributes:
        workspace_id: The workspace that owns and shows it.
        tenant_id: The tenant its requests act in: the sandbox twin for a test key, else *workspace_id*.
        scopes: Scopes of an API key, permissions of an agent key: one grammar (D-23). In the order given.
        tier: API keys only. *rate_limit*: agent keys only, requests a minute.
        hint: The start of the plaintext, to tell keys apart.
        delete_after: Set by rotation: from then on the key is gone, swept or not (D-26).
        ip_restriction: Whether *ip_list* counts; on with an empty list denies all (D-28).
    """

    id: str
    kind: KeyKind
    name: str
    workspace_id: int
    tenant_id: int
    environment: Environment
    scopes: tuple[str, ...]
    tier: Tier | None
    rate_limit: int | None
    agent_id: str | None
    restrictions: KeyRestrictions
    hint: str
    ip_restriction: bool
    ip_list: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    suspended_at: datetime | None
    revoked_at: datetime | None
    delete_after: datetime | None

    def status(self, at: datetime) -> KeyStatus:
        """Return the label of the key's state at that time; a key at its very expiry is expired."""
        if self.revoked_at is not None or self.suspended_at is not None:
            return KeyStatus.REVOKED
        if self.expires_at is not None and self.expires_at <= at:
            return KeyStatus.EXPIRED
        return KeyStatus.ACTIVE

    def version(self, digest: str) -> str:
        """
        Return the version of its settings. Its use and its status are no part of it.

        Args:
            digest: What is stored of its secret. With it nobody can guess, by the version, the addresses that are hidden from them (D-12).
        """
        reach = self.restrictions
        lists = (None if each is None else sorted(each) for each in (reach.servers, reach.orgs, reach.projects))
        times = (self.expires_at, self.suspended_at, self.revoked_at, self.delete_after)
        return version_of(
            digest,
            *(self.id, self.name, self.scopes, self.tier, self.rate_limit, self.agent_id),
            *(*lists, reach.tools, dict(reach.tool_limits)),
            *(self.ip_restriction, self.ip_list),
            *(None if each is None else to_micros(each) for each in times),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """How a key was used so far: *call_count* over its whole life."""

    call_count: int = 0
    last_used_at: datetime | None = None
    last_used_ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithUsage:
    """
    A key with its use.

    Attributes:
        digest: What is stored of its secret.
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
    A key just made, and its plaintext, which exists nowhere else from now on.

    Attributes:
        digest: What is stored of it.
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
    """A tenant; *parent_id* is set on the sandbox twin of another (D-25), which no list shows."""

    id: int
    name: str
    parent_id: int | None
    created_at: datetime

    @property
    def version(self) -> str:
        """The version of what is stored of it itself."""
        return version_of(self.id, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCall:
    """One admitted request, for the usage log; *workspace_id* is the one that is shown."""

    key_id: str
    workspace_id: int
    at: datetime
    method: str
    route: str
    status: int
    duration_ms: float
    address: str
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressStats:
    """Where calls came from, as far as they are remembered; *only_address* is the address, if there is but one."""

    call_count: int
    key_count: int
    address_count: int
    only_address: str | None


UsageField = Literal["key", "day", "method", "route", "status"]
"""What calls can be added up by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Which calls are asked for; None: all. *until* is not among them."""

    since: datetime | None = None
    until: datetime | None = None
    status: int | None = None
    route: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which sums are asked for; None: all. Days are of UTC, both ends included."""

    key_id: str | None = None
    environment: Environment | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """
    Calls added up; of what they were not added up by, None.

    Attributes:
        key_name: Also of a key that was deleted since.
        errors: Those answered 400 and above.
        total_ms: The time that all of them took.
    """

    key_id: str | None
    key_name: str | None
    day: str | None
    method: str | None
    route: str | None
    status: int | None
    calls: int
    errors: int
    total_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """
    One change, as the audit log keeps it (D-29).

    Attributes:
        workspace_id: Whose chain it is in; 0: the platform's, which tells of workspaces made and deleted.
        seq: Its number in the chain, from 1, without gaps.
        actor_id: The key that acted, if one did; *address* and *request_id*: of the request, if there was one.
        action: Such as `api_key.rotated`.
        environment: `test` of what belongs to the sandbox, which test keys alone may see besides us.
        before: The fields that changed, as they were; None: the thing was made. *after*: as they are; None: it was deleted.
        previous: The hash of the entry before, hexadecimal; *hash*: of this one, which covers all of the above.
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
    """The last entry of a workspace's chain: its number, 0 of an empty chain, and its hash."""

    workspace_id: int
    seq: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are asked for; None: all. *until* is not among them."""

    environment: Environment | None = None
    action: str | None = None
    subject_id: str | None = None
    actor_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
