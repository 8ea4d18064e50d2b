"""
Servers that workspaces add over HTTP (D-31): made, changed, removed; the roster has them all.

An entry has the form of the file's. Its `${NAME}` stand for the server's own secrets, which are sealed, and never shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast

import orjson
import structlog

from rookery.access.audit import Audit, Subject
from rookery.access.models import LIVE, TEST, Actor, Caller
from rookery.access.workspaces import must_exist
from rookery.kernel.clock import Clock, iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import AddressRefused, EgressGuard
from rookery.kernel.errors import Conflict, NotFound, NotInList, RookeryError, ValidationFailed
from rookery.kernel.ids import Ids
from rookery.kernel.preconditions import Expected, require_match
from rookery.kernel.sealing import Place, Sealer
from rookery.tools.models import Added, Command, JsonObject, Server, Status
from rookery.tools.servers.entries import ID, RESERVED_IDS, VARIABLE, Entry, EntryBroken
from rookery.tools.servers.entry_secrets import open_secrets, shown_secrets, whereabouts
from rookery.tools.servers.headers import is_of_the_connection
from rookery.tools.servers.roster import Roster, is_reached
from rookery.tools.store import servers as store

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_SERVERS = 100
"""Of one workspace."""

MAX_SECRETS = 64
"""Of one server."""

_MISSING = "There is no secret {name}: give it in `secrets`."
_NULL_MEANS = frozenset({"idle_s"})
"""Fields of which null is a value, and not their absence."""

_Fields = Mapping[str, object] | None

Forget = Callable[[Tx, int, str], object]
"""Forgets, in this transaction, what is kept of a server that is no more or elsewhere now: its workspace's number, its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """A server to be added; *entry* as in a file."""

    id: str
    entry: JsonObject
    secrets: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChange:
    """What to change: each field replaces the old one, None removes it; so too each secret."""

    entry: JsonObject
    secrets: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedServer:
    """One server of a workspace, as its owners may see it: of its secrets the names."""

    added: Added
    server: Server
    secret_names: tuple[str, ...]


class Owned:
    """All servers that were added; `keep_up` follows what other processes did."""

    def __init__(
        self,
        db: Database,
        roster: Roster,
        sealer: Sealer,
        audit: Audit,
        egress: EgressGuard,
        *,
        clock: Clock,
        ids: Ids,
        with_commands: bool = False,
        forget: Sequence[Forget] = (),
    ) -> None:
        self._db = db
        self._roster = roster
        self._sealer = sealer
        self._audit = audit
        self._egress = egress
        self._clock = clock
        self._ids = ids
        self._with_commands = with_commands
        self._forget = tuple(forget)
        self._revision = -1
        self._stamps: dict[str, int] = {}
        self._read: dict[str, Server] = {}
        self._reading = asyncio.Lock()

    # Following the store.

    async def keep_up(self) -> bool:
        """Bring the roster up to the store; tell whether it changed. At no change it costs one read by key."""
        if await self._db.quick(lambda tx: store.revision(tx, store.SERVERS)) == self._revision:
            return False
        async with self._reading:
            # The revision is read first: what changes meanwhile has a later one, and is read the next time.
            revision = await self._db.quick(lambda tx: store.revision(tx, store.SERVERS))
            if revision == self._revision:
                return False
            known = self._stamps
            stamps, changed = await self._db.read(lambda tx: _news(tx, known))
            servers = {row_id: server for row_id, server in self._read.items() if row_id in stamps}
            for added in changed:
                servers[added.row_id] = self._server(added)
            self._stamps, self._read, self._revision = stamps, servers, revision
            before = self._roster.servers
            self._roster.take_owned(servers.values())
            return self._roster.servers is not before

    # What its owners do.

    async def list(self, caller: Caller) -> Sequence[OwnedServer]:
        """Return the servers of the caller's workspace that the key reaches, by id."""
        found = await self._db.read(lambda tx: store.all_of(tx, caller.workspace_id))
        return [self._shown(added) for added in found if is_reached(caller, added.server_id)]

    async def get(self, caller: Caller, server_id: str) -> OwnedServer:
        """
        Return one server of the caller's workspace.

        Raises:
            NotFound: It has none of that id, or not for this key.
        """
        _must_reach(caller, server_id)
        added = await self._db.read(lambda tx: store.find(tx, caller.workspace_id, server_id))
        if added is None:
            raise NotFound("server", server_id)
        return self._shown(added)

    async def create(self, caller: Caller, new: NewServer) -> OwnedServer:
        """
        Add a server to the caller's workspace; it may be called from the next request on.

        Raises:
            ValidationFailed: The id or a field is not valid, or the address one that we do not connect to (D-82).
            Conflict: The workspace sees another server of that id, or has as many as it may.
            NotInList: The key's allow-list leaves the id out.
        """
        if not ID.fullmatch(new.id) or new.id in RESERVED_IDS:
            raise ValidationFailed({"id": [_why_no_id(new.id)]})
        if not is_reached(caller, new.id):
            raise NotInList("servers", new.id, f"This key is limited to some servers; {new.id!r} is not one of them.")
        entry = {name: value for name, value in new.entry.items() if value is not None or name in _NULL_MEANS}
        await self._must_be_good(new.id, entry, new.secrets)
        other = self._roster.find(new.id, caller)
        if other is not None and other.owner is None:
            raise Conflict(f"There is a server {new.id!r} already; choose another id.")
        now = self._clock()
        entry = _dated(entry, {}, now)
        added = Added(
            row_id=self._ids(),
            workspace_id=caller.workspace_id,
            server_id=new.id,
            entry=entry,
            sealed=None,
            created_at=now,
            updated_at=now,
        )

        def work(tx: Tx) -> Added:
            must_exist(tx, caller.shown_workspace_id)
            if store.count(tx, caller.workspace_id) >= MAX_SERVERS:
                raise Conflict(f"A workspace may add {MAX_SERVERS} servers, and this one has.")
            whole = replace(added, sealed=self._seal(tx, added, new.secrets))
            if not store.add(tx, whole, whole.sealed):
                raise Conflict(f"There is a server {new.id!r} already; choose another id.")
            store.move_on(tx, store.SERVERS)
            self._note(tx, caller, "server.created", whole, (None, _audited(whole, new.secrets)))
            return whole

        made = await self._db.write(work)
        await self.keep_up()
        return self._shown(made)

    async def change(self, caller: Caller, server_id: str, change: ServerChange, *, expected: Expected = None) -> OwnedServer:
        """
        Change a server; the next call goes by what it is then.

        Who may write but not read what is secret could send it elsewhere: an address at another host, or another command, must
        come with the secrets given anew.

        Raises:
            ValidationFailed: A field is not valid, the address one that we do not connect to, or secrets must be given.
            NotFound: There is none of that id.
            PreconditionFailed: It has another version than *expected*.
        """
        was = (await self.get(caller, server_id)).added
        require_match("server", was.version, expected)
        entry, secrets = _merged(was.entry, change.entry), self._known(was)
        kept = {name: value for name, value in secrets.items() if name not in change.secrets}
        wanted = {**kept, **{name: value for name, value in change.secrets.items() if value is not None}}
        has_moved = whereabouts(was.entry, secrets) != whereabouts(entry, wanted)
        if has_moved and kept:
            again = f"the server is elsewhere now: give these again, or null to remove them: {', '.join(sorted(kept))}"
            raise ValidationFailed({"secrets": [again]})
        await self._must_be_good(server_id, entry, wanted)

        def work(tx: Tx) -> Added:
            must_exist(tx, caller.shown_workspace_id)
            old = store.find(tx, caller.workspace_id, server_id, to_change=True)
            if old is None:
                raise NotFound("server", server_id)
            require_match("server", old.version, expected)
            if old != was:
                raise Conflict("Somebody else changed the server at this moment; look at it, and try again.")
            now = max(self._clock(), old.updated_at + timedelta(microseconds=1))  # another time, so that all processes see it
            new = replace(old, entry=_dated(entry, old.entry, now), updated_at=now)
            new = replace(new, sealed=self._seal(tx, new, wanted))
            store.change(tx, new, new.sealed)
            if has_moved or old.entry.get("auth") != entry.get("auth"):
                self._forget_all(tx, old)
            store.move_on(tx, store.SERVERS)
            before, after = _audited(old, secrets), _audited(new, wanted)
            gone = dict.fromkeys(before.keys() - after.keys())
            anew = {"secrets_given": sorted(change.secrets)} if change.secrets else {}
            self._note(tx, caller, "server.changed", new, (before, {**after, **gone, **anew}))
            return new

        changed = await self._db.write(work)
        await self.keep_up()
        return self._shown(changed)

    async def remove(self, caller: Caller, server_id: str, *, expected: Expected = None) -> None:
        """
        Remove a server, with its secrets and all that is kept of it but the rows of its calls.

        Raises:
            NotFound: There is none of that id.
            PreconditionFailed: It has another version than *expected*.
        """
        _must_reach(caller, server_id)
        await self._remove(caller.workspace_id, caller.shown_workspace_id, server_id, Actor.of(caller), expected)

    # What operators do.

    async def remove_of(self, workspace_id: int, server_id: str, *, by: Actor) -> None:
        """Remove a server of a workspace; raises as `remove` does."""
        await self._remove(workspace_id, workspace_id, server_id, by, expected=None)

    async def all_of(self, workspace_id: int) -> Sequence[OwnedServer]:
        """Return every server of a workspace, by id."""
        return [self._shown(added) for added in await self._db.read(lambda tx: store.all_of(tx, workspace_id))]

    async def faults(self) -> Sequence[Server]:
        """Return the servers of all workspaces that cannot be used, with why."""
        await self.keep_up()
        return [server for server in self._read.values() if server.fault is not None]

    async def _remove(self, workspace_id: int, shown_workspace_id: int, server_id: str, by: Actor, expected: Expected) -> None:
        def work(tx: Tx) -> None:
            must_exist(tx, shown_workspace_id)
            old = store.find(tx, workspace_id, server_id, to_change=True)
            if old is None:
                raise NotFound("server", server_id)
            require_match("server", old.version, expected)
            store.remove(tx, workspace_id, server_id)
            self._forget_all(tx, old)
            store.move_on(tx, store.SERVERS)
            subject, before = _subject(old, is_test=workspace_id != shown_workspace_id), _audited(old, self._known(old))
            self._audit.note(tx, by, shown_workspace_id, "server.deleted", subject, before=before, after=None)

        await self._db.write(work)
        await self.keep_up()

    # How.

    async def _must_be_good(self, server_id: str, entry: JsonObject, secrets: Mapping[str, str]) -> None:
        if entry.get("command") is not None and not self._with_commands:
            said = "servers that are commands cannot be added here; the operator can allow them by ROOKERY_SERVER_COMMANDS, or add them"
            raise ValidationFailed({"command": [f"{said} to servers.json"]})
        lying_open = open_secrets(entry)
        if lying_open:
            says = "looks like a secret: give it in `secrets`, and write ${NAME} here"
            raise ValidationFailed({field: [says] for field in lying_open})
        if len(secrets) > MAX_SECRETS:
            raise ValidationFailed({"secrets": [f"a server has {MAX_SECRETS} at most; null removes one"]})
        wrong = shown_secrets(entry) | _carrying(entry)
        if wrong:
            raise ValidationFailed({field: [says] for field, says in wrong.items()})
        try:
            Entry(entry, secrets, missing=_MISSING).server(server_id, server_id)
        except EntryBroken as broken:
            raise ValidationFailed({broken.field: [str(broken)]}) from None
        url = entry.get("url")
        if isinstance(url, str):
            try:
                await self._egress.must_allow_url(VARIABLE.sub(lambda found: secrets[found[1]], url))
            except AddressRefused as refused:
                raise ValidationFailed({"url": [refused.message]}) from None

    def _server(self, added: Added) -> Server:
        """Return the server of a row; one that cannot be used any more has its fault."""
        try:
            server = Entry(dict(added.entry), self._secrets(added), missing=_MISSING).server(added.server_id, added.server_id)
        except (EntryBroken, RookeryError) as error:
            if isinstance(error, RookeryError):
                _log.error("tools.secrets_unreadable", server=added.server_id, workspace_id=added.workspace_id, error=error.message)
                says = "Its secrets cannot be opened; give them again."
            else:
                says = str(error)
            server = Server(id=added.server_id, name=added.server_id, target=Command(command=""), fault=says)
        return replace(server, owner=added.workspace_id, workspaces=None)

    def _secrets(self, added: Added) -> Mapping[str, str]:
        if added.sealed is None:
            return {}
        return cast("dict[str, str]", orjson.loads(self._sealer.open(added.sealed, _place_of(added))))

    def _seal(self, tx: Tx, added: Added, secrets: Mapping[str, str]) -> bytes | None:
        return self._sealer.seal(tx, orjson.dumps(dict(secrets)), _place_of(added)) if secrets else None

    def _known(self, added: Added) -> Mapping[str, str]:
        """Return its secrets; none that cannot be opened, since they are as good as gone."""
        try:
            return self._secrets(added)
        except RookeryError:
            return {}

    def _shown(self, added: Added) -> OwnedServer:
        return OwnedServer(added=added, server=self._server(added), secret_names=tuple(sorted(self._known(added))))

    def _forget_all(self, tx: Tx, added: Added) -> None:
        for forget in self._forget:
            forget(tx, added.workspace_id, f"{added.workspace_id}/{added.server_id}")

    def _note(self, tx: Tx, caller: Caller, action: str, added: Added, changes: tuple[_Fields, _Fields]) -> None:
        before, after = changes
        subject = _subject(added, is_test=caller.workspace_id != caller.shown_workspace_id)
        self._audit.note(tx, Actor.of(caller), caller.shown_workspace_id, action, subject, before=before, after=after)


def _subject(added: Added, *, is_test: bool) -> Subject:
    name = str(added.entry.get("name") or added.server_id)
    return Subject(kind="server", id=added.server_id, name=name, environment=TEST if is_test else LIVE)


def _news(tx: Tx, known: Mapping[str, int]) -> tuple[dict[str, int], list[Added]]:
    """Return when each row was changed, and the rows that changed since *known*."""
    stamps = store.stamps(tx)
    return stamps, store.some(tx, [row_id for row_id, stamp in stamps.items() if known.get(row_id) != stamp])


def _place_of(added: Added) -> Place:
    return Place(store.WHAT, added.workspace_id, added.row_id)


def _must_reach(caller: Caller, server_id: str) -> None:
    """Hide what the key's allow-lists leave out: it is not told whether it is there."""
    if not is_reached(caller, server_id):
        raise NotFound("server", server_id)


def _carrying(entry: JsonObject) -> dict[str, str]:
    """Return the headers that are not the workspace's to write: by its Host alone a request reaches another site than was judged."""
    names = cast("dict[str, str]", entry.get("headers") or {})
    return {f"headers.{name}": "says how requests are carried, which is for Rookery to say" for name in names if is_of_the_connection(name)}


def _why_no_id(server_id: str) -> str:
    if server_id in RESERVED_IDS:
        return f"{server_id!r} is reserved"
    return "must be 1 to 64 letters, digits and dashes, and begin with a letter or digit"


def _merged(old: JsonObject, changes: JsonObject) -> JsonObject:
    merged = {**old, **changes}
    return {name: value for name, value in merged.items() if value is not None or name in _NULL_MEANS}


def _audited(added: Added, secrets: Mapping[str, str]) -> dict[str, object]:
    return {**added.entry, "secrets": sorted(secrets)}


def _dated(entry: JsonObject, before: JsonObject, now: datetime) -> JsonObject:
    """Return *entry* with since when its server is deprecated; without a date that Rookery wrote, if it no longer is."""
    is_deprecated, was_deprecated = (each.get("status") == Status.DEPRECATED for each in (entry, before))
    if is_deprecated and not was_deprecated and entry.get("deprecated_at") == before.get("deprecated_at"):
        return {**entry, "deprecated_at": iso(now)}
    if was_deprecated and not is_deprecated:
        return {name: value for name, value in entry.items() if name not in {"deprecated_at", "sunset_at"}}
    return entry
