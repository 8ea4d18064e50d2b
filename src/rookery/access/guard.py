"""
The guard in front of every route: from a request to its caller, in the order of spec 5.3.

    1 the key presented, 2 its row, 3 revoked and expired, 4 address, 5 permission, 6 rate limit, 7 usage

A key's state is told only to who has proven its secret; what has not the form of a key reaches no store at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple, Protocol, cast

from rookery.access.credentials import Presented, is_agent_key, is_api_key, no_key, presented
from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, RateLimited, Unauthorised, WrongWorkspace
from rookery.access.limits import Limiter, Plan, Standing, plan_of
from rookery.access.models import Caller, Key, missing
from rookery.access.networks import Network, caller_address, contains, networks
from rookery.access.proofs import Proofs
from rookery.access.scopes import grants
from rookery.access.store import keys as key_store
from rookery.access.usage import Usage
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Row
from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import request_id

_KNOWN = 50_000
_NOT_KNOWN = "This key is not known."


class Scoped(Protocol):
    """A request of any framework that carries its ASGI scope."""

    @property
    def scope(self) -> Mapping[str, object]:
        """The ASGI scope."""
        ...


def caller_of(request: Scoped) -> Caller:
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


def caller_if_any(request: Scoped) -> Caller | None:
    """Return who makes *request*; None if it came without a key, to a route that is public."""
    state = cast("Mapping[str, object]", request.scope.get("state") or {})
    caller = state.get("caller")
    return caller if isinstance(caller, Caller) else None


class Admission:
    """A request let in: who makes it, and the rate limit headers of its answer."""

    __slots__ = ("_at", "_usage", "caller", "headers")

    def __init__(self, caller: Caller, headers: tuple[tuple[bytes, bytes], ...], usage: Usage, at: int) -> None:
        self.caller = caller
        self.headers = headers
        self._usage = usage
        self._at = at

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Log how the request was answered; *route* is the path's pattern. The call itself was counted on admission."""
        caller = self.caller
        self._usage.log(
            (caller.key_id, caller.shown_workspace_id, self._at, method, route, status, duration_ms, caller.address, caller.request_id)
        )


class _Known(NamedTuple):
    """A row that was read before, and what follows from it alone; worth nothing unless the row read now is equal."""

    values: Sequence[object]
    key: Key
    scopes: frozenset[str]
    networks: tuple[Network, ...] | None
    workspace: bytes
    is_revoked: bool
    expires_at: int | None
    gone_at: int | None
    plan: Plan


class Guard:
    """Lets requests in, or says why not."""

    def __init__(
        self, *, db: Database, proofs: Proofs, limiter: Limiter, usage: Usage, clock: Clock, trusted_proxies: Sequence[Network] = ()
    ) -> None:
        self._db = db
        self._proofs = proofs
        self._limiter = limiter
        self._usage = usage
        self._clock = clock
        self._trusted = tuple(trusted_proxies)
        self._known: dict[str, _Known] = {}

    async def admit(self, scope: MutableMapping[str, object], *, needs: str | None, spend: bool = True) -> Admission:
        """
        Return the caller of the request, with the headers for its answer.

        Args:
            scope: ASGI; the request's id is `scope["state"]["request_id"]`.
            needs: The scope of the route; None: any valid key.
            spend: Whether the request counts against the key's limit; if not, it is not refused for it either.

        Raises:
            Unauthorised: No key, or none that is known; KeyRevoked, KeyExpired.
            AddressNotAllowed: Not from there. WrongWorkspace: Not that one.
            ScopeMissing, PermissionDenied: The key lacks *needs*.
            RateLimited: The limit is used up, or too many wrong keys came from the address.
            EngineUnavailable: The record store is down, or too many new keys are being checked.
        """
        found = presented(cast("list[tuple[bytes, bytes]]", scope["headers"]))
        client = cast("tuple[str, int] | None", scope.get("client"))
        address = caller_address(client[0] if client else None, found.forwarded, self._trusted)
        known = self._read(await self._row_of(found.token, address))
        now = to_micros(self._clock())
        if known.gone_at is not None and known.gone_at <= now:
            raise Unauthorised(_NOT_KNOWN)
        key = known.key
        refusal = _refusal(known, found, address, needs, now)
        if refusal is not None:
            raise _with_headers(refusal, await self._limiter.standing(key.id, known.plan, now))
        if spend:
            standing = await self._limiter.spend(key.id, known.plan, now)
            if standing.is_over:
                raise _with_headers(RateLimited(standing.reset_in_s), standing)
        else:
            standing = await self._limiter.standing(key.id, known.plan, now)
        self._usage.count(key.id, now, address)
        return Admission(_caller(known, address, _request_id(scope)), standing.headers(), self._usage, now)

    async def standing(self, caller: Caller) -> Standing | None:
        """Return how much of its plan the caller's key has used, spending nothing; None if the key is gone meanwhile."""
        row = await self._db.quick(lambda tx: key_store.by_id(tx, caller.key_id))
        return None if row is None else await self._limiter.standing(caller.key_id, self._read(row).plan, to_micros(self._clock()))

    async def still(self, caller: Caller, needs: str) -> Caller | None:
        """Return *caller* as its key is now, for what outlasts its request; None: it would not be let in any more."""
        row = await self._db.quick(lambda tx: key_store.by_id(tx, caller.key_id))
        if row is None:
            return None
        known, now = self._read(row), to_micros(self._clock())
        is_gone = known.gone_at is not None and known.gone_at <= now
        if is_gone or _refusal(known, Presented(), caller.address, needs, now) is not None:
            return None
        return _caller(known, caller.address, caller.request_id)

    async def _row_of(self, token: bytes, address: str) -> Row:
        if is_api_key(token):
            row = await self._proofs.row_of(token, address)
        elif is_agent_key(token):
            digest = hashlib.sha256(token).hexdigest()
            rows = await self._db.quick(lambda tx: key_store.by_lookup(tx, "agent", digest))
            row = rows[0] if rows else None
        elif token:
            row = None
        else:
            raise no_key()
        if row is None:
            raise Unauthorised(_NOT_KNOWN)
        return row

    def _read(self, row: Row) -> _Known:
        key_id = row.text("id")
        known = self._known.get(key_id)
        if known is None or known.values != row.values:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[key_id] = _known(row)
        return known


def _refusal(known: _Known, found: Presented, address: str, needs: str | None, now: int) -> RookeryError | None:
    """Return the first reason not to let the key in, in the spec's order."""
    if known.is_revoked:
        return KeyRevoked()
    if known.expires_at is not None and known.expires_at <= now:
        return KeyExpired()
    if known.networks is not None and not contains(known.networks, address):
        return AddressNotAllowed(address)
    if found.workspace is not None and found.workspace.strip() != known.workspace:
        return WrongWorkspace(known.key.workspace_id)
    if needs is not None and not grants(known.scopes, needs):
        return missing(known.key.kind, needs)
    return None


def _with_headers(error: RookeryError, standing: Standing) -> RookeryError:
    error.headers.update({name.decode("ascii"): value.decode("ascii") for name, value in standing.headers()})
    return error


def _known(row: Row) -> _Known:
    key = key_store.key_of(row)
    return _Known(
        values=row.values,
        key=key,
        scopes=frozenset(key.scopes),
        networks=networks(key.ip_list) if key.ip_restriction else None,
        workspace=str(key.workspace_id).encode("ascii"),
        is_revoked=key.revoked_at is not None or key.suspended_at is not None,
        expires_at=None if key.expires_at is None else to_micros(key.expires_at),
        gone_at=None if key.delete_after is None else to_micros(key.delete_after),
        plan=plan_of(key),
    )


def _caller(known: _Known, address: str, request: str) -> Caller:
    key, reach = known.key, known.key.reach
    return Caller(
        key_id=key.id,
        key_kind=key.kind,
        key_name=key.name,
        workspace_id=key.acts_in,
        shown_workspace_id=key.workspace_id,
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


def _request_id(scope: Mapping[str, object]) -> str:
    state = cast("Mapping[str, object]", scope.get("state") or {})
    known = state.get("request_id")
    return known if isinstance(known, str) else request_id()
