"""
Logging in at upstreams, and staying so (D-31).

Somebody begins a login, consents at the server's authorisation server, and the answer comes back to us, in this process or in
another; from then on tokens are renewed by themselves, by one process at a time, since a refresh token often works once. A login is
one workspace's, or that of all; a workspace's own comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import cast

import orjson
import structlog

from rookery.access.audit import Audit, Subject
from rookery.access.models import Actor
from rookery.access.workspaces import must_exist
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.sealing import Place, Sealer
from rookery.tools.errors import ConnectFailed, LoginFailed, LoginOver, NoLogin
from rookery.tools.models import EVERYBODY, Address, Isolation, Login, LoginStart, Party, Server
from rookery.tools.ports import Authorities
from rookery.tools.store import logins as store
from rookery.tools.store import servers as revisions
from rookery.tools.store.logins import SealedLogin

_log = structlog.stdlib.get_logger("rookery.tools")

CONSENT = timedelta(minutes=15)
"""How long somebody may take to consent."""

_SLACK_S = 10.0
"""A token is renewed so long before it is over: it has to get there."""

_LEASE = timedelta(seconds=30)
_LOOK_S = 0.05
_FOLLOW_S = 1.0
_CLOSE_S = 5.0
_REVISION = "logins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """
    A login that waits for consent.

    Attributes:
        workspace_id: Whose it will be; `EVERYBODY`: that of all workspaces.
        by: Who began it.
    """

    start: LoginStart
    server_key: str
    server_id: str
    server_name: str
    workspace_id: int
    by: Actor


_Key = tuple[str, str, int | None, bool]
"""A server, where it is, whose login is asked for, and whether all share it: what else an entry says changes nothing here."""


@dataclass(frozen=True, slots=True)
class _Held:
    place: Place
    login: Login


class Logins:
    """
    All logins; as `Tokens`, what connections are given.

    Attributes:
        changed: Told, in the loop, the key of each server at which somebody logged in or out, here or in another process.
    """

    def __init__(self, db: Database, sealer: Sealer, audit: Audit, authorities: Authorities, *, clock: Clock) -> None:
        self.changed: list[Callable[[str], None]] = []
        self._db = db
        self._sealer = sealer
        self._audit = audit
        self._authorities = authorities
        self._clock = clock
        self._held: dict[_Key, _Held] = {}
        self._fetching: dict[_Key, asyncio.Task[_Held | ConnectFailed]] = {}
        self._stamps: dict[tuple[str, int], int] = {}
        self._revision: int | None = None

    # What connections are given.

    async def token(self, server: Server, workspace_id: int | None, *, refused: str | None = None) -> str:
        """Return a token; see `Tokens`. Who waits for one may leave: what was begun is finished for the next."""
        key = _key(server, workspace_id)
        while True:
            held = self._held.get(key)
            if held is not None and self._is_good(held.login, refused):
                return held.login.access_token
            task = self._fetching.get(key)
            if task is None:
                task = asyncio.create_task(self._fetch(server, workspace_id, refused), name=f"tools-login-{server.key}")
                self._fetching[key] = task
                task.add_done_callback(lambda _: self._fetching.pop(key, None))
            outcome = await asyncio.shield(task)
            if isinstance(outcome, ConnectFailed):
                raise ConnectFailed(str(outcome), needs_login=outcome.needs_login)
            if outcome.login.access_token != refused:
                return outcome.login.access_token

    async def aclose(self) -> None:
        """Wait for what is being renewed: half of a renewal would be the end of the login."""
        if self._fetching:
            await asyncio.wait(self._fetching.values(), timeout=_CLOSE_S)

    # What people do.

    async def begin(self, server: Server, workspace_id: int, by: Actor, *, redirect_uri: str, document: str | None = None) -> Begun:
        """
        Return where consent to a login is given.

        Raises:
            NoLogin: The server asks for none.
            LoginFailed: Its authorisation server cannot be found, or wants none of us.
        """
        if server.auth is None or not isinstance(server.target, Address):
            raise NoLogin(f'The server {server.id!r} asks for no login: its entry does not say "auth": "oauth".')
        if server.fault is not None:
            raise LoginFailed(f"The entry of {server.id!r} cannot be used: {server.fault}")
        if workspace_id != EVERYBODY and server.owner is None and server.isolation is Isolation.SHARED:
            raise LoginFailed(f"All workspaces share one session with {server.id!r}: its login is the operator's, `rookery servers login`.")
        await self._sealer.start()  # of a command, nothing is started; and a login that cannot be kept is better not asked for
        start = await self._authorities.begin(server, redirect_uri=redirect_uri, document=document)
        return Begun(start=start, server_key=server.key, server_id=server.id, server_name=server.name, workspace_id=workspace_id, by=by)

    async def keep_begun(self, begun: Begun) -> None:
        """Keep what was begun, for whichever process gets the answer."""
        place, now = store.place_of_start(begun.start.state, EVERYBODY), to_micros(self._clock())
        text, old = orjson.dumps(asdict(begun)), to_micros(self._clock() - CONSENT)

        def work(tx: Tx) -> None:
            store.forget_starts(tx, before=old)
            store.put(tx, place, begun.server_key, self._sealer.seal(tx, text, place), at=now)

        await self._db.write(work)

    async def begun(self, state: str, *, take: bool) -> Begun | None:
        """Return what was begun under *state*; *take*: and forget it, so that its answer counts once."""
        since = to_micros(self._clock() - CONSENT)
        if take:
            found = await self._db.write(lambda tx: store.take_start(tx, state, since=since))
        else:
            found = await self._db.read(lambda tx: store.find_start(tx, state, since=since))
        return None if found is None else _begun(self._sealer.open(found.sealed, found.place))

    async def finish(self, server: Server, begun: Begun, *, code: str, issuer: str | None) -> None:
        """
        Exchange the answer's code for a login and keep it, in the place of the one before.

        Raises:
            LoginFailed: The authorisation server gave none.
            NotFound: The workspace was deleted meanwhile.
        """
        if server.key != begun.server_key or not _is_for(server, begun.start.party):
            raise LoginFailed("The server's entry has changed meanwhile; begin again.")
        login = await self._authorities.finish(server, begun.start, code=code, issuer=issuer)
        place, at = store.place_of(begun.server_key, begun.workspace_id), to_micros(self._clock())

        def work(tx: Tx) -> None:
            if begun.workspace_id != EVERYBODY:
                must_exist(tx, begun.workspace_id)
            was = store.find(tx, place)
            changed_at = at if was is None else max(at, was.changed_at + 1)  # another time, so that all processes see it
            sealed = self._sealer.seal(tx, _written(login), place)
            store.put(tx, place, begun.server_key, sealed, at=changed_at)
            revisions.move_on(tx, _REVISION)
            after = {"issuer": login.party.issuer, "scope": login.scope, "logged_in": True}
            self._note(tx, begun.by, "server.logged_in", server, begun.workspace_id, after)

        await self._db.write(work)
        _log.info("tools.logged_in", server=server.id, issuer=login.party.issuer)
        await self.keep_up()

    async def forget(self, server: Server, workspace_id: int, by: Actor) -> bool:
        """Log out: forget the login; false if there was none."""

        def work(tx: Tx) -> bool:
            if store.forget(tx, workspace_id, server.key) == 0:
                return False
            revisions.move_on(tx, _REVISION)
            self._note(tx, by, "server.logged_out", server, workspace_id, {"logged_in": False})
            return True

        is_gone = await self._db.write(work)
        await self.keep_up()
        return is_gone

    async def has(self, server: Server, workspace_id: int) -> bool:
        """Tell whether a workspace's calls to *server* have a login, good or not: its own or that of all."""
        return await self._db.read(lambda tx: _find(tx, server, workspace_id)) is not None

    # Following the store.

    async def run(self) -> None:
        """Follow what other processes do, until cancelled."""
        while True:
            with contextlib.suppress(RookeryError):  # the next second is another try
                await self.keep_up()
            await asyncio.sleep(_FOLLOW_S)

    async def keep_up(self) -> None:
        """Let go of tokens of logins that changed, and tell of them. At no change it costs one read by key."""
        revision = await self._db.quick(lambda tx: revisions.revision(tx, _REVISION))
        if revision == self._revision:
            return
        stamps, before = await self._db.read(store.stamps), self._stamps
        is_first, self._revision, self._stamps = self._revision is None, revision, stamps
        changed = {server_key for (server_key, _), _ in {*stamps.items()} ^ {*before.items()}}
        if is_first:
            return
        for key in [key for key in self._held if key[0] in changed]:
            del self._held[key]
        for server_key in sorted(changed):
            for listener in self.changed:
                listener(server_key)

    # How tokens are had.

    def _is_good(self, login: Login, refused: str | None) -> bool:
        if login.access_token == refused:
            return False
        return login.expires_at is None or self._clock().timestamp() < login.expires_at - _SLACK_S

    async def _fetch(self, server: Server, workspace_id: int | None, refused: str | None) -> _Held | ConnectFailed:
        key = _key(server, workspace_id)
        try:
            found = await self._db.read(lambda tx: _find(tx, server, workspace_id))
            if found is None:
                self._held.pop(key, None)
                return _log_in(server, "Nobody has logged in")
            login = _login(self._sealer.open(found.sealed, found.place))
            if not _is_for(server, login.party):
                return _log_in(server, "The address is another one than when somebody logged in")
            held = _Held(found.place, login)
            if not self._is_good(login, refused):
                held = await self._renewed(server, held)
            if held.login.access_token == refused:
                # Asked again, it would give that one again, for as long as somebody calls.
                raise _log_in(server, "The server refuses the token that its authorisation server has just renewed")
        except ConnectFailed as failed:
            self._held.pop(key, None)
            return failed
        except RookeryError as error:
            return ConnectFailed(f"The login at {server.id!r} cannot be read: {error.message}")
        self._held[key] = held
        return held

    async def _renewed(self, server: Server, held: _Held) -> _Held:
        """Renew a login, or wait for the process that does."""
        stale, patience = held.login.access_token, time.monotonic() + _LEASE.total_seconds()
        while True:
            if held.login.refresh_token is None:
                raise _log_in(server, "The login is over")
            place, now = held.place, to_micros(self._clock())
            lease = now + _LEASE // timedelta(microseconds=1)
            claimed = await self._db.write(lambda tx, place=place, lease=lease, now=now: store.claim(tx, place, now=now, until=lease))
            if claimed is not None:
                return await self._renew(server, claimed, stale, lease)
            if time.monotonic() > patience:
                raise ConnectFailed(f"The login at {server.id!r} is being renewed by another process, for too long.")
            await asyncio.sleep(_LOOK_S)
            found = await self._db.read(lambda tx, place=place: store.find(tx, place))
            if found is None:
                raise _log_in(server, "Somebody has just logged out")
            held = _Held(place, _login(self._sealer.open(found.sealed, place)))
            if held.login.access_token != stale:
                return held

    async def _renew(self, server: Server, claimed: SealedLogin, stale: str, lease: int) -> _Held:
        place = claimed.place
        login = _login(self._sealer.open(claimed.sealed, place))
        if login.access_token != stale:  # somebody was quicker
            await self._db.write(lambda tx: store.release(tx, place, lease=lease))
            return _Held(place, login)
        try:
            renewed = await self._authorities.renew(server, login)
        except LoginOver as over:
            _log.warning("tools.login_over", server=server.id, error=over.message)
            ended = replace(login, refresh_token=None)  # so that nobody asks for it again
            await self._keep(claimed, ended, lease)
            raise _log_in(server, f"The login is over ({over.message})") from over
        except LoginFailed as failed:
            await self._db.write(lambda tx: store.release(tx, place, lease=lease))
            raise ConnectFailed(f"The login at {server.id!r} could not be renewed: {failed.message}") from failed
        if await self._keep(claimed, renewed, lease):
            return _Held(place, renewed)
        found = await self._db.read(lambda tx: store.find(tx, place))  # somebody logged in, or out, while we asked
        if found is None:
            raise _log_in(server, "Somebody has just logged out")
        return _Held(place, _login(self._sealer.open(found.sealed, place)))

    async def _keep(self, claimed: SealedLogin, login: Login, lease: int) -> bool:
        def work(tx: Tx) -> bool:
            return store.keep_renewed(tx, claimed, self._sealer.seal(tx, _written(login), claimed.place), lease=lease)

        return await self._db.write(work)

    def _note(  # noqa: PLR0917 - in the order of the audit log's own
        self, tx: Tx, by: Actor, action: str, server: Server, workspace_id: int, after: Mapping[str, object]
    ) -> None:
        subject = Subject(kind="server", id=server.id, name=server.name)
        self._audit.note(tx, by, workspace_id, action, subject, before={}, after=after)


def _key(server: Server, workspace_id: int | None) -> _Key:
    where = server.target.url if isinstance(server.target, Address) else ""
    return server.key, where, workspace_id, server.isolation is Isolation.SHARED


def _find(tx: Tx, server: Server, workspace_id: int | None) -> SealedLogin | None:
    """Return the login that a session of *workspace_id* with *server* uses."""
    if workspace_id is not None:
        own = store.find(tx, store.place_of(server.key, workspace_id))
        if own is not None or server.owner is not None:
            return own
    elif server.isolation is not Isolation.SHARED:
        # A look at what the server offers, in a session that no caller will have.
        return store.any_of(tx, server.key)
    return store.find(tx, store.place_of(server.key, EVERYBODY))


def _is_for(server: Server, party: Party) -> bool:
    return server.auth is not None and isinstance(server.target, Address) and server.target.url == party.server_url


def _log_in(server: Server, why: str) -> ConnectFailed:
    how = f"POST /api/v1/servers/{server.id}/login"
    if server.owner is None:
        how = f"`rookery servers login {server.id}`, or by {how}"
    return ConnectFailed(f"{why} at {server.id!r}. Log in by {how}.", needs_login=True)


def _written(login: Login) -> bytes:
    return orjson.dumps(asdict(login))


def _login(text: bytes) -> Login:
    fields = cast("dict[str, object]", orjson.loads(text))
    return Login(**{**fields, "party": _party(fields)})  # pyright: ignore[reportArgumentType] - as `_written` wrote them


def _party(fields: dict[str, object]) -> Party:
    return Party(**cast("dict[str, str]", fields["party"]))


def _begun(text: bytes) -> Begun:
    fields = cast("dict[str, object]", orjson.loads(text))
    start = cast("dict[str, object]", fields["start"])
    whole = {
        **fields,
        "start": LoginStart(**{**start, "party": _party(start)}),  # pyright: ignore[reportArgumentType] - as `keep_begun` wrote them
        "by": Actor(**cast("dict[str, str]", fields["by"])),  # pyright: ignore[reportArgumentType] - as above
    }
    return Begun(**whole)  # pyright: ignore[reportArgumentType] - as above
