"""
Logins at upstreams and their renewal.

A user starts a login and consents at the server's authorisation server. The response may arrive in another process. From then
on, tokens are renewed automatically, by one process at a time, because refresh tokens often work only once. A login belongs to
one workspace or to all. A workspace's own login takes precedence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import cast

import orjson
import structlog

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Actor
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.sealing import SealContext, Sealer
from rookery.tools.errors import ConnectFailed, LoginExpired, LoginFailed, LoginNotSupported, add_resource_advice, describe_oauth_error
from rookery.tools.models import ALL_WORKSPACES, AuthorizationRequest, HttpTarget, Login, OAuthRegistration, Server, SessionIsolation
from rookery.tools.ports import AuthorizationServers
from rookery.tools.store import logins as store
from rookery.tools.store import servers as revisions
from rookery.tools.store.logins import StoredLogin

_log = structlog.stdlib.get_logger("rookery.tools")

CONSENT_TIMEOUT = timedelta(minutes=15)
"""Time within which the user must consent."""

_EXPIRY_MARGIN_S = 10.0
"""Seconds before its expiry at which a token is renewed, because it must reach the upstream in time."""

_LEASE_TTL = timedelta(seconds=30)
_LEASE_POLL_INTERVAL_S = 0.05
_CLOSE_TIMEOUT_S = 5.0
_REVISION_NAME = "logins"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLogin:
    """
    A login that waits for consent.

    Attributes:
        workspace_id: The workspace that the login is for; `ALL_WORKSPACES` for all.
        by: The actor who started it.
    """

    start: AuthorizationRequest
    server_key: str
    server_id: str
    server_name: str
    workspace_id: int
    by: Actor

    def describe_refusal(self, fields: Mapping[str, str]) -> str:
        """Return why the authorisation server refused, from the parameters of its response, with advice on the entry."""
        code, description = fields.get("error"), fields.get("error_description")
        reason = describe_oauth_error(code, description, default="it gave no reason")
        return add_resource_advice(reason, code, description, resource=self.start.party.resource)


_TokenKey = tuple[str, str, int | None, bool]
"""A server key, its URL, the workspace, and whether all workspaces share the session. Other changes of the entry do not matter."""


@dataclass(frozen=True, slots=True)
class _CachedLogin:
    place: SealContext
    login: Login


class Logins:
    """
    All logins at upstreams; implements `TokenProvider`.

    Attributes:
        change_listeners: Called in the event loop with the key of each server whose login changed, in this or another process.
    """

    def __init__(self, db: Database, sealer: Sealer, audit: AuditLog, authorization_servers: AuthorizationServers, *, clock: Clock) -> None:
        self.change_listeners: list[Callable[[str], None]] = []
        self._db = db
        self._sealer = sealer
        self._audit = audit
        self._authorization_servers = authorization_servers
        self._clock = clock
        self._cached: dict[_TokenKey, _CachedLogin] = {}
        self._fetch_tasks: dict[_TokenKey, asyncio.Task[_CachedLogin | ConnectFailed]] = {}
        self._stamps: dict[tuple[str, int], int] = {}
        self._revision: int | None = None

    # Tokens for connections.

    async def get_token(self, server: Server, workspace_id: int | None, *, rejected_token: str | None = None) -> str:
        """Return an access token; see `TokenProvider`. If a waiting caller is cancelled, the renewal continues for the next caller."""
        key = _to_token_key(server, workspace_id)
        while True:
            cached = self._cached.get(key)
            if cached is not None and self._is_usable(cached.login, rejected_token):
                return cached.login.access_token
            task = self._fetch_tasks.get(key)
            if task is None:
                task = asyncio.create_task(self._fetch(server, workspace_id, rejected_token), name=f"tools-login-{server.key}")
                self._fetch_tasks[key] = task
                task.add_done_callback(lambda _: self._fetch_tasks.pop(key, None))
            outcome = await asyncio.shield(task)
            if isinstance(outcome, ConnectFailed):
                raise ConnectFailed(str(outcome), needs_login=outcome.needs_login)
            if outcome.login.access_token != rejected_token:
                return outcome.login.access_token

    async def aclose(self) -> None:
        """Wait for running renewals. An interrupted renewal could lose the login."""
        if self._fetch_tasks:
            await asyncio.wait(self._fetch_tasks.values(), timeout=_CLOSE_TIMEOUT_S)

    # Actions of users.

    async def begin(
        self, server: Server, workspace_id: int, actor: Actor, *, redirect_uri: str, document: str | None = None
    ) -> PendingLogin:
        """
        Start a login and return its consent request.

        Raises:
            LoginNotSupported: The server's entry has no OAuth settings.
            LoginFailed: The entry has a fault, or the authorisation server was not found or rejects Rookery as a client.
        """
        if server.fault is not None:
            raise LoginFailed(f"The entry of {server.id!r} cannot be used: {server.fault}")
        if not isinstance(server.target, HttpTarget):
            raise LoginNotSupported(f"The server {server.id!r} has no login by OAuth: its entry has no `url`.")
        if server.auth is None:
            raise LoginNotSupported(f'The server {server.id!r} needs no login: its entry does not have "auth": "oauth".')
        if workspace_id != ALL_WORKSPACES and server.owner is None and server.isolation is SessionIsolation.SHARED:
            raise LoginFailed(f"All workspaces share {server.id!r}, so only the operator can log in: `rookery servers login`.")
        await self._sealer.start()  # commands do not start it earlier; do not request a login that cannot be stored
        start = await self._authorization_servers.begin(server, redirect_uri=redirect_uri, document=document)
        return PendingLogin(
            start=start, server_key=server.key, server_id=server.id, server_name=server.name, workspace_id=workspace_id, by=actor
        )

    async def save_pending(self, pending: PendingLogin) -> None:
        """Store a started login, so that any process can finish it."""
        place, now = store.get_pending_place(pending.start.state, ALL_WORKSPACES), to_micros(self._clock())
        content, cutoff = orjson.dumps(asdict(pending)), to_micros(self._clock() - CONSENT_TIMEOUT)

        def work(tx: Tx) -> None:
            store.delete_expired_pending(tx, before=cutoff)
            store.save(tx, place, pending.server_key, self._sealer.seal(tx, content, place), at=now)

        await self._db.write(work)

    async def find_pending(self, state: str, *, consume: bool) -> PendingLogin | None:
        """Return the login started with *state*, or None. *consume* deletes it, so that its response counts only once."""
        since = to_micros(self._clock() - CONSENT_TIMEOUT)
        if consume:
            stored_login = await self._db.write(lambda tx: store.consume_pending(tx, state, since=since))
        else:
            stored_login = await self._db.read(lambda tx: store.find_pending(tx, state, since=since))
        return None if stored_login is None else _pending_from_json(self._sealer.open(stored_login.sealed, stored_login.place))

    async def finish(self, server: Server, pending: PendingLogin, *, code: str, issuer: str | None) -> None:
        """
        Exchange the authorisation code for a login and store it, replacing an earlier one.

        Raises:
            LoginFailed: The authorisation server rejected the exchange, or the server's entry changed.
            NotFound: The workspace was deleted meanwhile.
        """
        if server.key != pending.server_key or not _matches_server(server, pending.start.party):
            raise LoginFailed("The server's entry changed since the login was started. Start the login again.")
        login = await self._authorization_servers.finish(server, pending.start, code=code, issuer=issuer)
        place, at = store.get_login_place(pending.server_key, pending.workspace_id), to_micros(self._clock())

        def work(tx: Tx) -> None:
            if pending.workspace_id != ALL_WORKSPACES:
                require_workspace(tx, pending.workspace_id)
            previous = store.find(tx, place)
            changed_at = (
                at if previous is None else max(at, previous.changed_at + 1)
            )  # always a new time, so that all processes see the change
            sealed = self._sealer.seal(tx, _login_to_json(login), place)
            store.save(tx, place, pending.server_key, sealed, at=changed_at)
            revisions.increment_revision(tx, _REVISION_NAME)
            after = {"issuer": login.party.issuer, "scope": login.scope, "logged_in": True}
            self._audit_change(tx, pending.by, "server.logged_in", server, pending.workspace_id, after)

        await self._db.write(work)
        _log.info("tools.logged_in", server=server.id, issuer=login.party.issuer)
        await self.refresh()

    async def log_out(self, server: Server, workspace_id: int, actor: Actor) -> bool:
        """Log out: delete the login. Return False if it did not exist."""

        def work(tx: Tx) -> bool:
            if store.delete_logins(tx, workspace_id, server.key) == 0:
                return False
            revisions.increment_revision(tx, _REVISION_NAME)
            self._audit_change(tx, actor, "server.logged_out", server, workspace_id, {"logged_in": False})
            return True

        was_deleted = await self._db.write(work)
        await self.refresh()
        return was_deleted

    async def has_login(self, server: Server, workspace_id: int) -> bool:
        """Return whether calls of a workspace to *server* use a login, valid or not: its own or the one for all."""
        return await self._db.read(lambda tx: _find_stored_login(tx, server, workspace_id)) is not None

    # Synchronisation with the store.

    async def refresh(self) -> None:
        """Drop cached tokens of changed logins and notify the listeners. Without changes it costs one read by key."""
        revision = await self._db.lookup(lambda tx: revisions.get_revision(tx, _REVISION_NAME))
        if revision == self._revision:
            return
        stamps, before = await self._db.read(store.list_change_times), self._stamps
        is_first, self._revision, self._stamps = self._revision is None, revision, stamps
        changed_keys = {server_key for (server_key, _), _ in {*stamps.items()} ^ {*before.items()}}
        if is_first:
            return
        for key in [key for key in self._cached if key[0] in changed_keys]:
            del self._cached[key]
        for server_key in sorted(changed_keys):
            for listener in self.change_listeners:
                listener(server_key)

    # Token renewal.

    def _is_usable(self, login: Login, rejected_token: str | None) -> bool:
        if login.access_token == rejected_token:
            return False
        return login.expires_at is None or self._clock().timestamp() < login.expires_at - _EXPIRY_MARGIN_S

    async def _fetch(self, server: Server, workspace_id: int | None, rejected_token: str | None) -> _CachedLogin | ConnectFailed:
        key = _to_token_key(server, workspace_id)
        try:
            stored_login = await self._db.read(lambda tx: _find_stored_login(tx, server, workspace_id))
            if stored_login is None:
                self._cached.pop(key, None)
                return _login_required(server, "There is no login")
            cached = self._open(server, stored_login)
            if not _matches_server(server, cached.login.party):
                return _login_required(server, "The URL has changed since the login")
            if not self._is_usable(cached.login, rejected_token):
                cached = await self._renew_or_wait(server, cached)
            if cached.login.access_token == rejected_token:
                # Without this check, each further call would fetch the same rejected token again.
                raise _login_required(server, "The server rejects the token that its authorisation server has just renewed")
        except ConnectFailed as failed:
            self._cached.pop(key, None)
            return failed
        except RookeryError as error:
            return ConnectFailed(f"The login at {server.id!r} cannot be read: {error.message}")
        self._cached[key] = cached
        return cached

    async def _renew_or_wait(self, server: Server, cached_login: _CachedLogin) -> _CachedLogin:
        """Renew a login, or wait for the process that is renewing it."""
        stale_token, deadline = cached_login.login.access_token, time.monotonic() + _LEASE_TTL.total_seconds()
        while True:
            if cached_login.login.refresh_token is None:
                raise _login_required(server, "The login has expired")
            place, now = cached_login.place, to_micros(self._clock())
            lease = now + _LEASE_TTL // timedelta(microseconds=1)
            claimed_login = await self._db.write(
                lambda tx, place=place, lease=lease, now=now: store.claim_renewal(tx, place, now=now, expires_at=lease)
            )
            if claimed_login is not None:
                return await self._renew(server, claimed_login, stale_token, lease)
            if time.monotonic() > deadline:
                raise ConnectFailed(
                    f"The login at {server.id!r} is being renewed by another process for more than {_LEASE_TTL.total_seconds():g} s."
                )
            await asyncio.sleep(_LEASE_POLL_INTERVAL_S)
            cached_login = self._open(server, await self._db.read(lambda tx, place=place: store.find(tx, place)))
            if cached_login.login.access_token != stale_token:
                return cached_login

    async def _renew(self, server: Server, claimed_login: StoredLogin, stale_token: str, lease_expires_at: int) -> _CachedLogin:
        place, login = claimed_login.place, self._open(server, claimed_login).login
        if login.access_token != stale_token:  # another process renewed it first
            await self._db.write(lambda tx: store.release_renewal(tx, place, lease_expires_at=lease_expires_at))
            return _CachedLogin(place, login)
        try:
            renewed = await self._authorization_servers.renew(server, login)
        except LoginExpired as error:
            _log.warning("tools.login_expired", server=server.id, error=error.message)
            expired_login = replace(login, refresh_token=None)  # prevents further attempts to renew it
            await self._store_renewed(claimed_login, expired_login, lease_expires_at)
            raise _login_required(server, f"The login has expired ({error.message})") from error
        except LoginFailed as failed:
            await self._db.write(lambda tx: store.release_renewal(tx, place, lease_expires_at=lease_expires_at))
            raise ConnectFailed(f"The login at {server.id!r} could not be renewed: {failed.message}") from failed
        if await self._store_renewed(claimed_login, renewed, lease_expires_at):
            return _CachedLogin(place, renewed)
        return self._open(server, await self._db.read(lambda tx: store.find(tx, place)))  # a user logged in or out during the renewal

    def _open(self, server: Server, stored_login: StoredLogin | None) -> _CachedLogin:
        if stored_login is None:
            raise _login_required(server, "The login has just been deleted")
        login = self._sealer.open(stored_login.sealed, stored_login.place)
        return _CachedLogin(stored_login.place, _login_from_json(login))

    async def _store_renewed(self, claimed_login: StoredLogin, login: Login, lease_expires_at: int) -> bool:
        def work(tx: Tx) -> bool:
            return store.save_renewed(
                tx, claimed_login, self._sealer.seal(tx, _login_to_json(login), claimed_login.place), lease_expires_at=lease_expires_at
            )

        return await self._db.write(work)

    def _audit_change(  # noqa: PLR0917 - same order as the audit log's method
        self, tx: Tx, actor: Actor, action: str, server: Server, workspace_id: int, after: Mapping[str, object]
    ) -> None:
        subject = AuditSubject(kind="server", id=server.id, name=server.name)
        self._audit.record(tx, actor, workspace_id, action, subject, before={}, after=after)


def _to_token_key(server: Server, workspace_id: int | None) -> _TokenKey:
    url = server.target.url if isinstance(server.target, HttpTarget) else ""
    return server.key, url, workspace_id, server.isolation is SessionIsolation.SHARED


def _find_stored_login(tx: Tx, server: Server, workspace_id: int | None) -> StoredLogin | None:
    """Return the stored login that a session of *workspace_id* with *server* uses."""
    if workspace_id is not None:
        own_login = store.find(tx, store.get_login_place(server.key, workspace_id))
        if own_login is not None or server.owner is not None:
            return own_login
    elif server.isolation is not SessionIsolation.SHARED:
        # A session without a caller, used only to list the server's features.
        return store.find_any(tx, server.key)
    return store.find(tx, store.get_login_place(server.key, ALL_WORKSPACES))


def _matches_server(server: Server, party: OAuthRegistration) -> bool:
    return server.auth is not None and isinstance(server.target, HttpTarget) and server.target.url == party.server_url


def _login_required(server: Server, reason: str) -> ConnectFailed:
    command = f"POST /api/v1/servers/{server.id}/login"
    if server.owner is None:
        command = f"`rookery servers login {server.id}`, or by {command}"
    return ConnectFailed(f"{reason} at {server.id!r}. Log in by {command}.", needs_login=True)


def _login_to_json(login: Login) -> bytes:
    return orjson.dumps(asdict(login))


def _login_from_json(text: bytes) -> Login:
    fields = cast("dict[str, object]", orjson.loads(text))
    return Login(**{**fields, "party": _registration_from_json(fields)})  # pyright: ignore[reportArgumentType] - as `_login_to_json` wrote them


def _registration_from_json(fields: dict[str, object]) -> OAuthRegistration:
    return OAuthRegistration(**cast("dict[str, str]", fields["party"]))


def _pending_from_json(text: bytes) -> PendingLogin:
    fields = cast("dict[str, object]", orjson.loads(text))
    start = cast("dict[str, object]", fields["start"])
    pending = {
        **fields,
        "start": AuthorizationRequest(**{**start, "party": _registration_from_json(start)}),  # pyright: ignore[reportArgumentType] - as `save_pending` wrote them
        "by": Actor(**cast("dict[str, str]", fields["by"])),  # pyright: ignore[reportArgumentType] - as above
    }
    return PendingLogin(**pending)  # pyright: ignore[reportArgumentType] - as above
