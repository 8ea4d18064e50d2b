"""
Servers that workspaces add over HTTP: create, change and remove. The registry lists them.

An entry has the form of the file. Its `${NAME}` refer to the server's own secrets, which are encrypted and never shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast

import orjson
import structlog

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import LIVE, TEST, Actor, Caller
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import AddressRefused, EgressGuard
from rookery.kernel.errors import Conflict, NotFound, RookeryError, ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.sealing import SealContext, Sealer
from rookery.tools.models import CommandTarget, JsonObject, Server, ServerStatus, StoredServer
from rookery.tools.servers.entries import FIELDS, RESERVED_IDS, SERVER_ID_PATTERN, VARIABLE_PATTERN, InvalidServerEntry, ServerEntry
from rookery.tools.servers.entry_secrets import find_exposed_secrets, find_plaintext_secrets, get_secret_destination
from rookery.tools.servers.header_forwarding import is_hop_by_hop
from rookery.tools.servers.registry import ServerRegistry, is_server_allowed, require_server_allowed
from rookery.tools.store import servers as store
from rookery.tools.store.servers import SERVERS

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_SERVERS_PER_WORKSPACE = 100
"""Limit on the servers of one workspace."""

MAX_SECRETS_PER_SERVER = 64
"""Limit on the secrets of one server."""

_MISSING_SECRET_MESSAGE = "The secret {name} is missing: set it in `secrets`."  # noqa: S105 - a message
_AuditFields = Mapping[str, object] | None

RemovalHook = Callable[[Tx, int, str], object]
"""Deletes, in this transaction, the stored data of a server that was removed or moved. Takes the workspace id and server key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceServer:
    """One server of a workspace, as its owners may see it: with the names of its secrets only."""

    stored: StoredServer
    server: Server
    secret_names: tuple[str, ...]


class WorkspaceServers:
    """All servers added by workspaces. `refresh` applies changes of other processes."""

    def __init__(
        self,
        db: Database,
        registry: ServerRegistry,
        sealer: Sealer,
        audit: AuditLog,
        egress: EgressGuard,
        *,
        clock: Clock,
        ids: IdFactory,
        allow_commands: bool = False,
        removal_hooks: Sequence[RemovalHook] = (),
    ) -> None:
        self._db = db
        self._registry = registry
        self._sealer = sealer
        self._audit = audit
        self._egress = egress
        self._clock = clock
        self._ids = ids
        self._allow_commands = allow_commands
        self._removal_hooks = tuple(removal_hooks)
        self._revision = -1
        self._stamps: dict[str, int] = {}
        self._servers: dict[str, Server] = {}
        self._read_lock = asyncio.Lock()

    # Synchronisation with the store.

    async def refresh(self) -> bool:
        """Update the registry from the store; return whether it changed. Without changes it costs one read by key."""
        if await self._db.lookup(lambda tx: store.get_revision(tx, store.SERVERS_REVISION)) == self._revision:
            return False
        async with self._read_lock:
            # The revision is read first. Changes made meanwhile have a later revision and are read the next time.
            revision = await self._db.lookup(lambda tx: store.get_revision(tx, store.SERVERS_REVISION))
            if revision == self._revision:
                return False
            old_stamps = self._stamps
            stamps, changed_servers = await self._db.read(lambda tx: _list_changed(tx, old_stamps))
            servers = {row_id: server for row_id, server in self._servers.items() if row_id in stamps}
            for stored_server in changed_servers:
                servers[stored_server.row_id] = self._to_server(stored_server)
            self._stamps, self._servers, self._revision = stamps, servers, revision
            before = self._registry.servers
            self._registry.set_workspace_servers(servers.values())
            return self._registry.servers is not before

    # Actions of workspaces.

    async def list_servers(self, caller: Caller) -> Sequence[WorkspaceServer]:
        """Return the servers of the caller's workspace that the key may use, ordered by id."""
        stored_servers = await self._db.read(lambda tx: SERVERS.find_all(tx, caller.workspace_id, "server_id"))
        return [
            self._to_workspace_server(stored_server)
            for stored_server in stored_servers
            if is_server_allowed(caller, stored_server.server_id)
        ]

    async def get(self, caller: Caller, server_id: str) -> WorkspaceServer:
        """
        Return one server of the caller's workspace.

        Raises:
            NotFound: It does not exist, or is not allowed for this key.
        """
        _require_allowed(caller, server_id)
        stored_server = await self._db.read(lambda tx: SERVERS.find(tx, caller.workspace_id, server_id=server_id))
        if stored_server is None:
            raise NotFound("server", server_id)
        return self._to_workspace_server(stored_server)

    async def create(self, caller: Caller, server_id: str, entry: JsonObject, secrets: Mapping[str, str]) -> WorkspaceServer:
        """
        Add a server to the caller's workspace. It can be called from the next request on. *entry* has the form of the file.

        Raises:
            ValidationFailed: The id or a field is invalid, or the URL is not allowed.
            Conflict: The workspace sees another server with this id, or has reached its limit.
            NotInAllowList: The key's allow-list excludes the id.
        """
        if not SERVER_ID_PATTERN.fullmatch(server_id) or server_id in RESERVED_IDS:
            raise ValidationFailed({"id": [_explain_invalid_id(server_id)]})
        require_server_allowed(caller, server_id)
        entry = _without_absent(entry)
        await self._validate_entry(server_id, entry, secrets)
        other = self._registry.find(server_id, caller)
        if other is not None and other.owner is None:
            raise Conflict(f"A server with the id {server_id!r} already exists; choose another id.")
        now = self._clock()
        entry = _with_deprecation_date(entry, {}, now)
        new_server = StoredServer(
            row_id=self._ids(),
            workspace_id=caller.workspace_id,
            server_id=server_id,
            entry=entry,
            sealed=None,
            created_at=now,
            updated_at=now,
        )

        def work(tx: Tx) -> StoredServer:
            require_workspace(tx, caller.public_workspace_id)
            if SERVERS.count(tx, caller.workspace_id) >= MAX_SERVERS_PER_WORKSPACE:
                raise Conflict(f"This workspace has {MAX_SERVERS_PER_WORKSPACE} servers, the maximum. Remove one first.")
            stored_server = replace(new_server, sealed=self._seal_secrets(tx, new_server, secrets))
            if not SERVERS.add(tx, stored_server):
                raise Conflict(f"A server with the id {server_id!r} already exists; choose another id.")
            store.increment_revision(tx, store.SERVERS_REVISION)
            self._audit_change(tx, caller, "server.created", stored_server, (None, _to_audit_fields(stored_server, secrets)))
            return stored_server

        stored_server = await self._db.write(work)
        await self.refresh()
        return self._to_workspace_server(stored_server)

    async def change(
        self,
        caller: Caller,
        server_id: str,
        changes: JsonObject,
        secret_changes: Mapping[str, str | None],
        *,
        expected: ExpectedETags = None,
    ) -> WorkspaceServer:
        """
        Change a server. The next call uses the new settings. Each field and secret replaces the old value; None removes it.

        A change without an effect writes nothing.
        A key that may write but not read secrets could send them elsewhere. Therefore a URL at another host, or another command,
        requires that all kept secrets are given again.

        Raises:
            ValidationFailed: A field is invalid, the URL is not allowed, or secrets must be given again.
            NotFound: The server does not exist.
            PreconditionFailed: The server has another version than *expected*.
        """
        previous = (await self.get(caller, server_id)).stored
        require_match("server", previous.version, expected)
        entry, secrets = _without_absent({**previous.entry, **changes}), self._open_secrets_if_possible(previous)
        unchanged_secrets = {name: value for name, value in secrets.items() if name not in secret_changes}
        new_secrets = {**unchanged_secrets, **{name: value for name, value in secret_changes.items() if value is not None}}
        has_moved = get_secret_destination(previous.entry, secrets) != get_secret_destination(entry, new_secrets)
        if has_moved and unchanged_secrets:
            message = (
                f"the secrets would be sent elsewhere: give these again, or null to remove them: {', '.join(sorted(unchanged_secrets))}"
            )
            raise ValidationFailed({"secrets": [message]})
        await self._validate_entry(server_id, entry, new_secrets)

        def work(tx: Tx) -> StoredServer:
            require_workspace(tx, caller.public_workspace_id)
            old = SERVERS.find(tx, caller.workspace_id, server_id=server_id, lock=True)
            if old is None:
                raise NotFound("server", server_id)
            require_match("server", old.version, expected)
            if old != previous:
                raise Conflict("The server was changed by another request meanwhile. Read it again and retry.")
            now = max(self._clock(), old.updated_at + timedelta(microseconds=1))  # always a new time, so that all processes see the change
            new = replace(old, entry=_with_deprecation_date(entry, old.entry, now), updated_at=now)
            if new.entry == old.entry and new_secrets == secrets:
                return old
            new = replace(new, sealed=self._seal_secrets(tx, new, new_secrets))
            SERVERS.update(tx, new)
            if has_moved or old.entry.get("auth") != entry.get("auth"):
                self._run_removal_hooks(tx, old)
            store.increment_revision(tx, store.SERVERS_REVISION)
            before, after = _to_audit_fields(old, secrets), _to_audit_fields(new, new_secrets)
            removed_fields = dict.fromkeys(before.keys() - after.keys())
            given_secrets = {"secrets_given": sorted(secret_changes)} if secret_changes else {}
            self._audit_change(tx, caller, "server.changed", new, (before, {**after, **removed_fields, **given_secrets}))
            return new

        stored_server = await self._db.write(work)
        await self.refresh()
        return self._to_workspace_server(stored_server)

    async def remove(self, caller: Caller, server_id: str, *, expected: ExpectedETags = None) -> None:
        """
        Remove a server, with its secrets and all its stored data except call records.

        Raises:
            NotFound: The server does not exist.
            PreconditionFailed: The server has another version than *expected*.
        """
        _require_allowed(caller, server_id)
        await self._remove(caller.workspace_id, caller.public_workspace_id, server_id, Actor.from_caller(caller), expected)

    # Actions of operators.

    async def remove_for_workspace(self, workspace_id: int, server_id: str, *, actor: Actor) -> None:
        """Remove a server of a workspace. Raises the errors of `remove`."""
        await self._remove(workspace_id, workspace_id, server_id, actor, expected=None)

    async def list_for_workspace(self, workspace_id: int) -> Sequence[WorkspaceServer]:
        """Return all servers of a workspace, ordered by id."""
        return [
            self._to_workspace_server(stored_server)
            for stored_server in await self._db.read(lambda tx: SERVERS.find_all(tx, workspace_id, "server_id"))
        ]

    async def list_faulty(self) -> Sequence[Server]:
        """Return the servers of all workspaces that are unusable, each with its fault."""
        await self.refresh()
        return [server for server in self._servers.values() if server.fault is not None]

    async def _remove(self, workspace_id: int, public_workspace_id: int, server_id: str, actor: Actor, expected: ExpectedETags) -> None:
        def work(tx: Tx) -> None:
            require_workspace(tx, public_workspace_id)
            old = SERVERS.find(tx, workspace_id, server_id=server_id, lock=True)
            if old is None:
                raise NotFound("server", server_id)
            require_match("server", old.version, expected)
            SERVERS.delete(tx, workspace_id, server_id=server_id)
            self._run_removal_hooks(tx, old)
            store.increment_revision(tx, store.SERVERS_REVISION)
            subject, before = (
                _to_audit_subject(old, is_test=workspace_id != public_workspace_id),
                _to_audit_fields(old, self._open_secrets_if_possible(old)),
            )
            self._audit.record(tx, actor, public_workspace_id, "server.deleted", subject, before=before, after=None)

        await self._db.write(work)
        await self.refresh()

    # Helpers.

    async def _validate_entry(self, server_id: str, entry: JsonObject, secrets: Mapping[str, str]) -> None:
        if entry.get("command") is not None and not self._allow_commands:
            message = "commands cannot be added here; the operator can set ROOKERY_SERVER_COMMANDS, or add the server to servers.json"
            raise ValidationFailed({"command": [message]})
        plaintext_fields = find_plaintext_secrets(entry)
        if plaintext_fields:
            message = "looks like a secret: set it in `secrets`, and write ${NAME} here"
            raise ValidationFailed({field: [message] for field in plaintext_fields})
        if len(secrets) > MAX_SECRETS_PER_SERVER:
            raise ValidationFailed({"secrets": [f"a server may have at most {MAX_SECRETS_PER_SERVER} secrets; null removes one"]})
        invalid = find_exposed_secrets(entry) | _find_hop_by_hop_headers(entry)
        if invalid:
            raise ValidationFailed({field: [message] for field, message in invalid.items()})
        try:
            ServerEntry(entry, secrets, missing_message=_MISSING_SECRET_MESSAGE).to_server(server_id, server_id)
        except InvalidServerEntry as broken:
            raise ValidationFailed({broken.field: [str(broken)]}) from None
        url = entry.get("url")
        if isinstance(url, str):
            try:
                await self._egress.require_allowed_url(VARIABLE_PATTERN.sub(lambda match: secrets[match[1]], url))
            except AddressRefused as refused:
                raise ValidationFailed({"url": [refused.message]}) from None

    def _to_server(self, stored_server: StoredServer) -> Server:
        """Return the server of a row. An unusable one has its fault set."""
        try:
            server = ServerEntry(
                dict(stored_server.entry), self._open_secrets(stored_server), missing_message=_MISSING_SECRET_MESSAGE
            ).to_server(stored_server.server_id, stored_server.server_id)
        except (InvalidServerEntry, RookeryError) as error:
            if isinstance(error, RookeryError):
                _log.error(
                    "tools.secrets_unreadable", server=stored_server.server_id, workspace_id=stored_server.workspace_id, error=error.message
                )
                fault = "Its secrets cannot be decrypted; set them again."
            else:
                fault = str(error)
            server = Server(id=stored_server.server_id, name=stored_server.server_id, target=CommandTarget(command=""), fault=fault)
        return replace(server, owner=stored_server.workspace_id, workspaces=None)

    def _open_secrets(self, stored_server: StoredServer) -> Mapping[str, str]:
        if stored_server.sealed is None:
            return {}
        return cast("dict[str, str]", orjson.loads(self._sealer.open(stored_server.sealed, _to_secret_place(stored_server))))

    def _seal_secrets(self, tx: Tx, stored_server: StoredServer, secrets: Mapping[str, str]) -> bytes | None:
        return self._sealer.seal(tx, orjson.dumps(dict(secrets)), _to_secret_place(stored_server)) if secrets else None

    def _open_secrets_if_possible(self, stored_server: StoredServer) -> Mapping[str, str]:
        """Return the secrets of a server; empty if they cannot be decrypted, because they are lost then."""
        try:
            return self._open_secrets(stored_server)
        except RookeryError:
            return {}

    def _to_workspace_server(self, stored_server: StoredServer) -> WorkspaceServer:
        return WorkspaceServer(
            stored=stored_server,
            server=self._to_server(stored_server),
            secret_names=tuple(sorted(self._open_secrets_if_possible(stored_server))),
        )

    def _run_removal_hooks(self, tx: Tx, stored_server: StoredServer) -> None:
        for hook in self._removal_hooks:
            hook(tx, stored_server.workspace_id, f"{stored_server.workspace_id}/{stored_server.server_id}")

    def _audit_change(
        self, tx: Tx, caller: Caller, action: str, stored_server: StoredServer, changes: tuple[_AuditFields, _AuditFields]
    ) -> None:
        before, after = changes
        subject = _to_audit_subject(stored_server, is_test=caller.workspace_id != caller.public_workspace_id)
        self._audit.record(tx, Actor.from_caller(caller), caller.public_workspace_id, action, subject, before=before, after=after)


def _to_audit_subject(stored_server: StoredServer, *, is_test: bool) -> AuditSubject:
    name = str(stored_server.entry.get("name") or stored_server.server_id)
    return AuditSubject(kind="server", id=stored_server.server_id, name=name, environment=TEST if is_test else LIVE)


def _list_changed(tx: Tx, old_stamps: Mapping[str, int]) -> tuple[dict[str, int], list[StoredServer]]:
    """Return the time of the last change of every row, and the rows that changed since *old_stamps*."""
    stamps = store.list_change_times(tx)
    return stamps, store.find_by_ids(tx, [row_id for row_id, stamp in stamps.items() if old_stamps.get(row_id) != stamp])


def _to_secret_place(stored_server: StoredServer) -> SealContext:
    return SealContext(store.SEALED_PURPOSE, stored_server.workspace_id, stored_server.row_id)


def _require_allowed(caller: Caller, server_id: str) -> None:
    """Raise NotFound if the key's allow-lists exclude the server, so that its existence is not revealed."""
    if not is_server_allowed(caller, server_id):
        raise NotFound("server", server_id)


def _find_hop_by_hop_headers(entry: JsonObject) -> dict[str, str]:
    """Return the hop-by-hop headers of an entry with an error. With another Host, a request would bypass the egress check."""
    names = cast("dict[str, str]", entry.get("headers") or {})
    return {f"headers.{name}": "controls the transport of requests and is set by Rookery" for name in names if is_hop_by_hop(name)}


def _explain_invalid_id(server_id: str) -> str:
    if server_id in RESERVED_IDS:
        return f"{server_id!r} is reserved; choose another id"
    return "must be 1 to 64 letters, digits and dashes, and begin with a letter or digit"


def _without_absent(entry: JsonObject) -> JsonObject:
    return {name: value for name, value in entry.items() if value is not None or FIELDS[name].keeps_null}


def _to_audit_fields(stored_server: StoredServer, secrets: Mapping[str, str]) -> dict[str, object]:
    return {**stored_server.entry, "secrets": sorted(secrets)}


def _with_deprecation_date(entry: JsonObject, before: JsonObject, now: datetime) -> JsonObject:
    """Return *entry* with its deprecation date set; without dates if it is no longer deprecated."""
    is_deprecated, was_deprecated = (fields.get("status") == ServerStatus.DEPRECATED for fields in (entry, before))
    if is_deprecated and not was_deprecated and entry.get("deprecated_at") == before.get("deprecated_at"):
        return {**entry, "deprecated_at": format_iso(now)}
    if was_deprecated and not is_deprecated:
        return {name: value for name, value in entry.items() if name not in {"deprecated_at", "sunset_at"}}
    return entry
