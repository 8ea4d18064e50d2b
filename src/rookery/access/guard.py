"""
The guard in front of every route: it turns a request into its caller, in this order.

    1 the key presented, 2 its row, 3 revoked and expired, 4 address, 5 permission, 6 rate limit, 7 usage

A key's state is revealed only to a client with the correct secret. Tokens in any other format never reach a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple, Protocol, cast

from rookery.access.credentials import RequestCredentials, is_agent_key, is_api_key, missing_key_error, parse_credentials, unknown_key_error
from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, KeySuspended, RateLimited, WorkspaceMismatch
from rookery.access.key_cache import VerifiedKeyCache
from rookery.access.models import Caller, Key, missing_scope_error
from rookery.access.networks import Network, contains, parse_networks, resolve_client_address
from rookery.access.rate_limits import MINUTE_US, RateLimit, RateLimiter, RateLimitStatus, get_rate_limit
from rookery.access.scopes import grants
from rookery.access.store import keys as key_store
from rookery.access.usage_log import UsageLog
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Row
from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import new_request_id
from rookery.kernel.request_context import ADMISSION, CONSOLE_CALL
from rookery.kernel.workspace_shares import WorkspaceShares

_MAX_CACHED_KEYS = 50_000
_CONSOLE_RATE_LIMIT = RateLimit(3_000, MINUTE_US, has_absolute_reset=False)
"""The limit of the calls that the console makes with one key: some pages a second, which people do not reach."""


class ScopedRequest(Protocol):
    """A request of any framework that exposes its ASGI scope."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The ASGI scope."""
        ...


class AdmittedRequest:
    """An admitted request: its caller, and the rate limit headers of the response."""

    __slots__ = ("_admitted_at_us", "_meter", "_usage", "caller", "headers")

    def __init__(self, caller: Caller, status: RateLimitStatus, meter: _Meter, usage: UsageLog, at: int) -> None:
        self.caller = caller
        self.headers = status.headers()
        self._meter = meter
        self._usage = usage
        self._admitted_at_us = at

    async def count(self) -> None:
        """
        Count the request against the key's limit, for a route whose handler decides which requests count.

        Raises:
            RateLimited: The limit is exceeded. The error has the rate limit headers.
        """
        self.headers = (await self._meter.consume(self._admitted_at_us)).headers()

    def record(self, *, method: str, route: str, status: int, duration_ms: float, is_upstream_error: bool = False) -> None:
        """Log the response; *route* is the path's pattern. The usage was already counted on admission."""
        caller = self.caller
        self._usage.log_request(
            (
                caller.key_id,
                caller.public_workspace_id,
                self._admitted_at_us,
                method,
                route,
                status,
                duration_ms,
                int(is_upstream_error),
                caller.address,
                caller.request_id,
            )
        )


def get_caller(request: ScopedRequest) -> Caller:
    """
    Return the caller of *request*: `scope["state"]["caller"]`, set by the route wrapper from `AdmittedRequest.caller`.

    Raises:
        LookupError: The route is public, so the guard did not run.
    """
    state = cast("Mapping[str, object]", request.scope.get("state") or {})
    caller = state.get("caller")
    if isinstance(caller, Caller):
        return caller
    msg = "this request was not admitted by the guard"
    raise LookupError(msg)


async def count_request(request: ScopedRequest) -> None:
    """
    Count *request* against the limit of its key (`Operation.counted_by_handler`), and set the rate limit headers of its response.

    Raises:
        RateLimited: The limit is exceeded.
    """
    state = cast("MutableMapping[str, object]", request.scope["state"])
    admitted = state[ADMISSION]
    assert isinstance(admitted, AdmittedRequest)  # noqa: S101 - the guard admits each request of such a route
    try:
        await admitted.count()
    except RateLimited:
        state["headers"] = ()  # the error has them
        raise
    state["headers"] = admitted.headers


class _Meter(NamedTuple):
    """The count of a key's requests."""

    limiter: RateLimiter
    name: str
    rate_limit: RateLimit

    async def consume(self, now: int) -> RateLimitStatus:
        """Count one request. Raise RateLimited, with the rate limit headers, over the limit."""
        status = await self.limiter.consume(self.name, self.rate_limit, now)
        if status.is_over:
            raise _add_rate_limit_headers(RateLimited(status.reset_in_s), status)
        return status

    async def get_status(self, now: int) -> RateLimitStatus:
        """Return the status without counting a request."""
        return await self.limiter.get_status(self.name, self.rate_limit, now)


class _CachedKey(NamedTuple):
    """A parsed key row and values derived from it, valid only while the row is unchanged."""

    values: Sequence[object]
    key: Key
    scopes: frozenset[str]
    networks: tuple[Network, ...] | None
    workspace_id_bytes: bytes
    expires_at_us: int | None
    deleted_at_us: int | None
    rate_limit: RateLimit


class Guard:
    """Authenticates and authorises requests."""

    def __init__(
        self,
        *,
        db: Database,
        key_cache: VerifiedKeyCache,
        limiter: RateLimiter,
        usage: UsageLog,
        clock: Clock,
        trusted_proxies: Sequence[Network] = (),
        shares: WorkspaceShares | None = None,
    ) -> None:
        self._db = db
        self._key_cache = key_cache
        self._limiter = limiter
        self._usage = usage
        self._clock = clock
        self._trusted_proxies = tuple(trusted_proxies)
        self._shares = shares or WorkspaceShares()
        self._cached_keys: dict[str, _CachedKey] = {}

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmittedRequest:
        """
        Return the caller of the request, with the headers for its response.

        Args:
            scope: The ASGI scope; `scope["state"]["request_id"]` is the request's id.
            required_scope: The scope that the route requires; None: any valid key.
            rate_limited: Count the request against the key's limit, and reject it over the limit.

        Raises:
            Unauthorised: The key is missing or unknown.
            KeyRevoked, KeyExpired: The key was revoked, is suspended or has expired.
            AddressNotAllowed: The key may not be used from the client's address.
            WorkspaceMismatch: X-Workspace-ID names another workspace.
            ScopeMissing, PermissionDenied: The key lacks *required_scope*.
            RateLimited: The limit is exceeded, or the address sent too many wrong keys.
            EngineUnavailable: The record store is unavailable, or too many new keys are being verified.
        """
        credentials = parse_credentials(cast("list[tuple[bytes, bytes]]", scope["headers"]))
        address = self._resolve_address(scope, credentials)
        cached = self._get_cached(await self._find_row(credentials, address))
        now = to_micros(self._clock())
        if cached.deleted_at_us is not None and cached.deleted_at_us <= now:
            raise unknown_key_error()
        key = cached.key
        rejection = _find_rejection(cached, credentials, address, required_scope, now)
        # A page of the console takes several calls. They must not use up the limit of the programs that have the same key.
        name, rate_limit = (f"{key.id} console", _CONSOLE_RATE_LIMIT) if CONSOLE_CALL in scope else (key.id, cached.rate_limit)
        meter = _Meter(self._limiter, name, rate_limit)
        if rejection is not None:
            raise _add_rate_limit_headers(rejection, await meter.get_status(now))
        status = await (meter.consume(now) if rate_limited else meter.get_status(now))
        self._usage.count_request(key.id, now, address)
        self._shares.record_request(key.tenant_id)
        return AdmittedRequest(_build_caller(cached, address, _get_request_id(scope)), status, meter, self._usage, now)

    def find_client_address(self, scope: Mapping[str, object]) -> str:
        """Return the address of the client of a request whose key is not checked, such as a sign-in."""
        return self._resolve_address(scope, parse_credentials(cast("list[tuple[bytes, bytes]]", scope["headers"])))

    def _resolve_address(self, scope: Mapping[str, object], credentials: RequestCredentials) -> str:
        client = cast("tuple[str, int] | None", scope.get("client"))
        return resolve_client_address(client[0] if client else None, credentials.forwarded, self._trusted_proxies)

    async def get_rate_limit_status(self, caller: Caller) -> RateLimitStatus | None:
        """Return the rate limit status of the caller's key without consuming a request; None if the key no longer exists."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, caller.key_id))
        return (
            None
            if row is None
            else await self._limiter.get_status(caller.key_id, self._get_cached(row).rate_limit, to_micros(self._clock()))
        )

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* with its key's current rights, for work that outlasts its request; None if it is no longer admitted."""
        return await self.find_caller(caller.key_id, required_scope, address=caller.address, request_id=caller.request_id)

    async def find_caller(self, key_id: str, required_scope: str, *, address: str, request_id: str) -> Caller | None:
        """Return the caller of a request whose secret was checked before; None if its key is no longer admitted. Count nothing."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, key_id))
        if row is None:
            return None
        cached, now = self._get_cached(row), to_micros(self._clock())
        is_deleted = cached.deleted_at_us is not None and cached.deleted_at_us <= now
        if is_deleted or _find_rejection(cached, RequestCredentials(), address, required_scope, now) is not None:
            return None
        return _build_caller(cached, address, request_id)

    async def _find_row(self, credentials: RequestCredentials, address: str) -> Row:
        token = credentials.token
        if is_api_key(token):
            row = await self._key_cache.find_row(token, address)
        elif is_agent_key(token):
            digest = hashlib.sha256(token).hexdigest()
            rows = await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "agent", digest))
            row = rows[0] if rows else None
        elif token:
            row = None
        else:
            raise missing_key_error(credentials)
        if row is None:
            raise unknown_key_error(token)
        return row

    def _get_cached(self, row: Row) -> _CachedKey:
        key_id = row.text("id")
        cached = self._cached_keys.get(key_id)
        if cached is None or cached.values != row.values:
            if len(self._cached_keys) >= _MAX_CACHED_KEYS:
                self._cached_keys.clear()
            cached = self._cached_keys[key_id] = _parse_row(row)
        return cached


def _find_rejection(
    cached: _CachedKey, credentials: RequestCredentials, address: str, required_scope: str | None, now: int
) -> RookeryError | None:
    """Return the first reason to reject the request, in the order of the checks; None to admit it."""
    if cached.key.revoked_at is not None:
        return KeyRevoked()
    if cached.key.suspended_at is not None:
        return KeySuspended()
    if cached.expires_at_us is not None and cached.expires_at_us <= now:
        return KeyExpired()
    if cached.networks is not None and not contains(cached.networks, address):
        return AddressNotAllowed(address)
    if credentials.workspace is not None and credentials.workspace.strip() != cached.workspace_id_bytes:
        return WorkspaceMismatch(cached.key.workspace_id)
    if required_scope is not None and not grants(cached.scopes, required_scope):
        return missing_scope_error(cached.key.kind, required_scope)
    return None


def _add_rate_limit_headers(error: RookeryError, status: RateLimitStatus) -> RookeryError:
    error.headers.update({name.decode("ascii"): value.decode("ascii") for name, value in status.headers()})
    return error


def _parse_row(row: Row) -> _CachedKey:
    key = key_store.KEYS.from_row(row)
    return _CachedKey(
        values=row.values,
        key=key,
        scopes=frozenset(key.scopes),
        networks=parse_networks(key.ip_list) if key.ip_restriction else None,
        workspace_id_bytes=str(key.workspace_id).encode("ascii"),
        expires_at_us=None if key.expires_at is None else to_micros(key.expires_at),
        deleted_at_us=None if key.delete_after is None else to_micros(key.delete_after),
        rate_limit=get_rate_limit(key),
    )


def _build_caller(cached: _CachedKey, address: str, request: str) -> Caller:
    key, restrictions = cached.key, cached.key.restrictions
    return Caller(
        key_id=key.id,
        key_kind=key.kind,
        key_name=key.name,
        workspace_id=key.tenant_id,
        public_workspace_id=key.workspace_id,
        scopes=cached.scopes,
        agent_id=key.agent_id,
        environment=key.environment,
        servers=restrictions.servers,
        tools=restrictions.tools,
        orgs=restrictions.orgs,
        projects=restrictions.projects,
        tool_limits=restrictions.tool_limits,
        address=address,
        request_id=request,
    )


def _get_request_id(scope: Mapping[str, object]) -> str:
    state = cast("Mapping[str, object]", scope.get("state") or {})
    request_id = state.get("request_id")
    return request_id if isinstance(request_id, str) else new_request_id()
