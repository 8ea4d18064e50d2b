"""
The guard in front of every route: from a request to its caller, in the order of spec 5.3.

    1 the key presented, 2 its row, 3 revoked and expired, 4 address, 5 permission, 6 rate limit, 7 usage

A key's state is told only to who has proven its secret; what has not the form of a key reaches no store at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple, Protocol, cast

from rookery.access.credentials import RequestCredentials, is_agent_key, is_api_key, missing_key_error, parse_credentials
from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, RateLimited, Unauthorised, WorkspaceMismatch
from rookery.access.key_cache import VerifiedKeyCache
from rookery.access.models import Caller, Key, missing_scope_error
from rookery.access.networks import Network, contains, parse_networks, resolve_client_address
from rookery.access.rate_limits import RateLimit, RateLimiter, RateLimitStatus, get_rate_limit
from rookery.access.scopes import grants
from rookery.access.store import keys as key_store
from rookery.access.usage_log import UsageLog
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Row
from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import new_request_id

_MAX_CACHED_KEYS = 50_000
_UNKNOWN_KEY_MESSAGE = "This key is not known."


class ScopedRequest(Protocol):
    """A request of any framework that carries its ASGI scope."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The ASGI scope."""
        ...


def get_caller(request: ScopedRequest) -> Caller:
    """
    Return who makes *request*: `scope["state"]["caller"]`, put there by the route wrapper from `Admission.caller`.

    Raises:
        LookupError: The route is public, so nobody was asked for a key.
    """
    state = cast("Mapping[str, object]", request.scope.get("state") or {})
    caller = state.get("caller")
    if isinstance(caller, Caller):
        return caller
    msg = "this request was not admitted by the guard"
    raise LookupError(msg)


def find_caller(request: ScopedRequest) -> Caller | None:
    """Return who makes *request*; None if it came without a key, to a route that is public."""
    state = cast("Mapping[str, object]", request.scope.get("state") or {})
    caller = state.get("caller")
    return caller if isinstance(caller, Caller) else None


class AdmittedRequest:
    """A request let in: who makes it, and the rate limit headers of its answer."""

    __slots__ = ("_admitted_at_us", "_usage", "caller", "headers")

    def __init__(self, caller: Caller, headers: tuple[tuple[bytes, bytes], ...], usage: UsageLog, at: int) -> None:
        self.caller = caller
        self.headers = headers
        self._usage = usage
        self._admitted_at_us = at

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Log how the request was answered; *route* is the path's pattern. The call itself was counted on admission."""
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
                caller.address,
                caller.request_id,
            )
        )


class _CachedKey(NamedTuple):
    """A row that was read before, and what follows from it alone; worth nothing unless the row read now is equal."""

    values: Sequence[object]
    key: Key
    scopes: frozenset[str]
    networks: tuple[Network, ...] | None
    workspace_id_bytes: bytes
    is_revoked: bool
    expires_at_us: int | None
    deleted_at_us: int | None
    rate_limit: RateLimit


class Guard:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        *,
        db: Database,
        key_cache: VerifiedKeyCache,
        limiter: RateLimiter,
        usage: UsageLog,
        clock: Clock,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._db = db
        self._key_cache = key_cache
        self._limiter = limiter
        self._usage = usage
        self._clock = clock
        self._trusted_proxies = tuple(trusted_proxies)
        self._cached_keys: dict[str, _CachedKey] = {}

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmittedRequest:
        """
        Return the caller of the request, with the headers for its answer.

        Args:
            scope: ASGI; the request's id is `scope["state"]["request_id"]`.
            required_scope: The scope of the route; None: any valid key.
            rate_limited: Whether the request counts against the key's limit; if not, it is not refused for it either.

        Raises:
            Unauthorised: No key, or none that is known; KeyRevoked, KeyExpired.
            AddressNotAllowed: Not from there. WrongWorkspace: Not that one.
            ScopeMissing, PermissionDenied: The key lacks *required_scope*.
            RateLimited: The limit is used up, or too many wrong keys came from the address.
            EngineUnavailable: The record store is down, or too many new keys are being checked.
        """
        found = parse_credentials(cast("list[tuple[bytes, bytes]]", scope["headers"]))
        client = cast("tuple[str, int] | None", scope.get("client"))
        address = resolve_client_address(client[0] if client else None, found.forwarded, self._trusted_proxies)
        known = self._get_cached(await self._find_row(found.token, address))
        now = to_micros(self._clock())
        if known.deleted_at_us is not None and known.deleted_at_us <= now:
            raise Unauthorised(_UNKNOWN_KEY_MESSAGE)
        key = known.key
        refusal = _find_rejection(known, found, address, required_scope, now)
        if refusal is not None:
            raise _add_rate_limit_headers(refusal, await self._limiter.get_status(key.id, known.rate_limit, now))
        if rate_limited:
            standing = await self._limiter.consume(key.id, known.rate_limit, now)
            if standing.is_over:
                raise _add_rate_limit_headers(RateLimited(standing.reset_in_s), standing)
        else:
            standing = await self._limiter.get_status(key.id, known.rate_limit, now)
        self._usage.count_request(key.id, now, address)
        return AdmittedRequest(_build_caller(known, address, _get_request_id(scope)), standing.headers(), self._usage, now)

    async def get_rate_limit_status(self, caller: Caller) -> RateLimitStatus | None:
        """Return how much of its plan the caller's key has used, spending nothing; None if the key is gone meanwhile."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, caller.key_id))
        return (
            None
            if row is None
            else await self._limiter.get_status(caller.key_id, self._get_cached(row).rate_limit, to_micros(self._clock()))
        )

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* as its key is now, for what outlasts its request; None: it would not be let in any more."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, caller.key_id))
        if row is None:
            return None
        known, now = self._get_cached(row), to_micros(self._clock())
        is_gone = known.deleted_at_us is not None and known.deleted_at_us <= now
        if is_gone or _find_rejection(known, RequestCredentials(), caller.address, required_scope, now) is not None:
            return None
        return _build_caller(known, caller.address, caller.request_id)

    async def _find_row(self, token: bytes, address: str) -> Row:
        if is_api_key(token):
            row = await self._key_cache.find_row(token, address)
        elif is_agent_key(token):
            digest = hashlib.sha256(token).hexdigest()
            rows = await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "agent", digest))
            row = rows[0] if rows else None
        elif token:
            row = None
        else:
            raise missing_key_error()
        if row is None:
            raise Unauthorised(_UNKNOWN_KEY_MESSAGE)
        return row

    def _get_cached(self, row: Row) -> _CachedKey:
        key_id = row.text("id")
        known = self._cached_keys.get(key_id)
        if known is None or known.values != row.values:
            if len(self._cached_keys) >= _MAX_CACHED_KEYS:
                self._cached_keys.clear()
            known = self._cached_keys[key_id] = _parse_row(row)
        return known


def _find_rejection(
    known: _CachedKey, found: RequestCredentials, address: str, required_scope: str | None, now: int
) -> RookeryError | None:
    """Return the first reason not to let the key in, in the spec's order."""
    if known.is_revoked:
        return KeyRevoked()
    if known.expires_at_us is not None and known.expires_at_us <= now:
        return KeyExpired()
    if known.networks is not None and not contains(known.networks, address):
        return AddressNotAllowed(address)
    if found.workspace is not None and found.workspace.strip() != known.workspace_id_bytes:
        return WorkspaceMismatch(known.key.workspace_id)
    if required_scope is not None and not grants(known.scopes, required_scope):
        return missing_scope_error(known.key.kind, required_scope)
    return None


def _add_rate_limit_headers(error: RookeryError, standing: RateLimitStatus) -> RookeryError:
    error.headers.update({name.decode("ascii"): value.decode("ascii") for name, value in standing.headers()})
    return error


def _parse_row(row: Row) -> _CachedKey:
    key = key_store.key_from_row(row)
    return _CachedKey(
        values=row.values,
        key=key,
        scopes=frozenset(key.scopes),
        networks=parse_networks(key.ip_list) if key.ip_restriction else None,
        workspace_id_bytes=str(key.workspace_id).encode("ascii"),
        is_revoked=key.revoked_at is not None or key.suspended_at is not None,
        expires_at_us=None if key.expires_at is None else to_micros(key.expires_at),
        deleted_at_us=None if key.delete_after is None else to_micros(key.delete_after),
        rate_limit=get_rate_limit(key),
    )


def _build_caller(known: _CachedKey, address: str, request: str) -> Caller:
    key, reach = known.key, known.key.restrictions
    return Caller(
        key_id=key.id,
        key_kind=key.kind,
        key_name=key.name,
        workspace_id=key.tenant_id,
        public_workspace_id=key.workspace_id,
        scopes=known.scopes,
        agent_id=key.agent_id,
        environment=key.environment,
        servers=reach.servers,
        tools=reach.tools,
        orgs=reach.orgs,
        projects=reach.projects,
        tool_limits=reach.tool_limits,
        address=address,
        request_id=request,
    )


def _get_request_id(scope: Mapping[str, object]) -> str:
    state = cast("Mapping[str, object]", scope.get("state") or {})
    known = state.get("request_id")
    return known if isinstance(known, str) else new_request_id()
