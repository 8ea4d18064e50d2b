"""
The audit log: every change to workspaces, keys and settings, recorded in the transaction of the change.

Each entry carries the SHA-256 of the entry before it. Altering, removing or inserting an entry therefore changes all
later hashes. A last hash stored elsewhere also reveals a chain that was rewritten to its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from rookery.access import audit_chain
from rookery.access.audit_chain import GENESIS_HASH, ChainVerifier
from rookery.access.models import Actor, AuditEntry, AuditFilter, ChainEnd, Environment
from rookery.access.store import audit as store
from rookery.access.store.audit import CHAIN_ENDS
from rookery.kernel.clock import Clock, format_iso, from_micros, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict
from rookery.kernel.pages import ListPage, PageSlice

PLATFORM_CHAIN = 0
"""The chain for changes to workspaces themselves. No workspace has this id."""

_BATCH_SIZE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """The thing that was changed (`api_key`, `agent_key`, `workspace`, …), with its id and name."""

    kind: str
    id: str
    name: str
    environment: Environment = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerification:
    """
    The result of verifying one chain.

    Attributes:
        entry_count: Number of entries read.
        last_hash: The hash of the last entry read.
        broken_at: The number of the first invalid entry; None: the chain is valid.
        reason: The error at *broken_at*.
        found_hashes: The known hashes that the chain contains.
    """

    workspace_id: int
    entry_count: int
    last_hash: str
    broken_at: int | None = None
    reason: str = ""
    found_hashes: frozenset[str] = frozenset()


class AuditLog:
    """A writer and reader of the audit chains."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    def record(
        self,
        tx: Tx,
        by: Actor,
        workspace_id: int,
        action: str,
        subject: AuditSubject,
        *,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
    ) -> None:
        """
        Add an entry in this transaction and lock the chain until it ends. Take all other locks before this one.

        Only the fields that differ between *before* and *after* are stored.

        Args:
            before: The fields before the change, without secrets; None: the resource was created.
            after: The fields after the change; None: the resource was deleted.
        """
        old_fields, new_fields = _only_changed(before, after)
        end = store.lock_end(tx, workspace_id, genesis=GENESIS_HASH)
        unsigned = AuditEntry(
            workspace_id=workspace_id,
            seq=end.seq + 1,
            at=from_micros(to_micros(self._clock())),
            actor_kind=by.kind,
            actor_id=by.id,
            actor_name=by.name,
            address=by.address,
            request_id=by.request_id,
            action=action,
            subject_kind=subject.kind,
            subject_id=subject.id,
            subject_name=subject.name,
            environment=subject.environment,
            before=old_fields,
            after=new_fields,
            previous=end.hash,
            hash="",
        )
        store.add_entry(tx, _with_hash(unsigned))

    async def record_alone(
        self, by: Actor, workspace_id: int, action: str, subject: AuditSubject, *, after: Mapping[str, object] | None
    ) -> None:
        """Add an entry in a transaction of its own, for an action that is not a change of the record store."""
        await self._db.write(lambda tx: self.record(tx, by, workspace_id, action, subject, before=None, after=after))

    def lock_last(self, tx: Tx, workspace_id: int, action: str) -> AuditEntry | None:
        """Return the last entry of *action*, and lock the chain until the transaction ends."""
        store.lock_end(tx, workspace_id, genesis=GENESIS_HASH)
        entries = store.list_entry_page(tx, workspace_id, AuditFilter(action=action), page=PageSlice(limit=1)).items
        return entries[0] if entries else None

    def delete_chain(self, tx: Tx, workspace_id: int) -> ChainEnd:
        """Delete the chain of a workspace that is being deleted, and return the chain's last entry."""
        end = CHAIN_ENDS.find(tx, workspace_id) or _empty_chain_end(workspace_id)
        store.delete_chain(tx, workspace_id)
        return end

    async def list_page(self, workspace_id: int, filters: AuditFilter, *, page: PageSlice) -> ListPage[AuditEntry]:
        """Return a page of the workspace's chain, newest first, and the total number of matching entries."""
        return await self._db.read_from_replica(lambda tx: store.list_entry_page(tx, workspace_id, filters, page=page))

    async def list_chain_ends(self) -> list[ChainEnd]:
        """Return the end of each chain, the platform's first."""
        return await self._db.read(store.list_chain_ends)

    async def iter_entries(self, workspace_id: int) -> AsyncGenerator[AuditEntry]:
        """
        Yield the workspace's entries, oldest first. Reads in batches, so memory does not grow with the chain.

        Raises:
            Conflict: A stored row is not a valid entry: it was altered.
        """
        seq = 0
        async for entry in self._iter_rows(workspace_id):
            if entry is None:
                raise Conflict(
                    f"The audit log of workspace {workspace_id} is unreadable after entry {seq}: the next row was altered. "
                    "Run `rookery audit verify`."
                )
            seq = entry.seq
            yield entry

    async def verify(
        self, workspace_id: int, *, known_hashes: Collection[str] = (), progress: Callable[[int], None] = lambda _: None
    ) -> ChainVerification:
        """
        Verify a chain from its first entry.

        Args:
            workspace_id: The workspace of the chain.
            known_hashes: Hashes stored elsewhere. A hash that no chain contains means that a chain was rewritten or is another one.
            progress: Called with the number of entries read so far.
        """
        # Read the end first: entries added during the verification come after it.
        end = await self._get_chain_end(workspace_id)
        chain, at_end, found_hashes = ChainVerifier(workspace_id=workspace_id), GENESIS_HASH, {GENESIS_HASH} & set(known_hashes)
        async for entry in self._iter_rows(workspace_id):
            fault = f"entry {chain.entry_count + 1} was altered" if entry is None else _append(chain, entry)
            if fault:
                return _to_verification(chain, found_hashes, fault)
            if chain.entry_count == end.seq:
                at_end = chain.last_hash
            if chain.last_hash in known_hashes:
                found_hashes.add(chain.last_hash)
            if chain.entry_count % _BATCH_SIZE == 0:
                progress(chain.entry_count)
        progress(chain.entry_count)
        if chain.entry_count < end.seq:
            missing = end.seq - chain.entry_count
            return _to_verification(chain, found_hashes, f"the chain had {end.seq} entries, of which the last {missing} are missing")
        if at_end != end.hash:
            return _to_verification(chain, found_hashes, f"entry {end.seq} is not the one that was last written", at=end.seq)
        now = await self._get_chain_end(workspace_id)
        if chain.entry_count > now.seq:
            return _to_verification(chain, found_hashes, f"entry {now.seq + 1} comes after the one that was last written", at=now.seq + 1)
        if not chain.entry_count and await self._has_creation_entry(workspace_id):
            return _to_verification(chain, found_hashes, "the chain is missing: the workspace was created with a first entry")
        return _to_verification(chain, found_hashes)

    async def list_broken_ends(self) -> list[ChainVerification]:
        """
        Return the chains whose last entry differs from the one last written. Reads only the last entries.

        Cheap enough for `doctor`. Only `verify` reads whole chains.
        """
        lasts = await self._db.read(store.list_last_entries)
        return [verdict for end, entry in lasts if (verdict := _check_end(end, entry)) is not None]

    async def _iter_rows(self, workspace_id: int) -> AsyncGenerator[AuditEntry | None]:
        """Yield the workspace's rows in order. Yield None for an invalid row, then stop."""
        after: int | None = 0
        while after is not None and (batch := await self._db.read(_select_batch(workspace_id, after))):
            for entry in batch:
                yield entry
                after = None if entry is None else entry.seq
                if entry is None:
                    break

    async def _get_chain_end(self, workspace_id: int) -> ChainEnd:
        return await self._db.read(lambda tx: CHAIN_ENDS.find(tx, workspace_id)) or _empty_chain_end(workspace_id)

    async def _has_creation_entry(self, workspace_id: int) -> bool:
        """Return whether the platform's chain records the creation of the workspace; its own chain then had a first entry."""
        creation_filter = AuditFilter(action="workspace.created", subject_id=str(workspace_id))
        return bool((await self.list_page(PLATFORM_CHAIN, creation_filter, page=PageSlice(1))).items)


def _append(chain: ChainVerifier, entry: AuditEntry) -> str:
    """Verify the next entry; return the error, or an empty string."""
    try:
        return chain.add_entry(entry_to_json(entry))
    except ValueError:  # The entry has a text that is not valid Unicode, which we never write.
        return f"entry {chain.entry_count + 1} was altered"


def entry_to_json(entry: AuditEntry) -> dict[str, object]:
    """Return the fields of an entry as the API returns them, and as they are exported and hashed."""
    return {
        "workspace_id": entry.workspace_id,
        "seq": entry.seq,
        "at": format_iso(entry.at),
        "actor": {
            "kind": entry.actor_kind,
            "id": entry.actor_id,
            "name": entry.actor_name,
            "address": entry.address,
            "request_id": entry.request_id,
        },
        "action": entry.action,
        "subject": {"kind": entry.subject_kind, "id": entry.subject_id, "name": entry.subject_name, "environment": entry.environment},
        "before": None if entry.before is None else dict(entry.before),
        "after": None if entry.after is None else dict(entry.after),
        "previous": entry.previous,
        "hash": entry.hash,
    }


def _select_batch(workspace_id: int, after: int) -> Callable[[Tx], list[AuditEntry | None]]:
    return lambda tx: store.list_entries_from(tx, workspace_id, after_seq=after, limit=_BATCH_SIZE)


def _with_hash(entry: AuditEntry) -> AuditEntry:
    return replace(entry, hash=audit_chain.hash_entry(entry_to_json(entry)))


def _empty_chain_end(workspace_id: int) -> ChainEnd:
    return ChainEnd(workspace_id=workspace_id, seq=0, hash=GENESIS_HASH)


def _check_end(end: ChainEnd, entry: AuditEntry | None) -> ChainVerification | None:
    """Return the error in the last entry of a chain, if it has one."""
    if end == _empty_chain_end(end.workspace_id):
        return None
    reason = ""
    if entry is None:
        reason = f"entry {end.seq}, the last, is missing or was altered"
    elif entry.hash != end.hash or audit_chain.hash_entry(entry_to_json(entry)) != end.hash:
        reason = f"entry {end.seq} is not the one that was last written"
    if not reason:
        return None
    return ChainVerification(workspace_id=end.workspace_id, entry_count=end.seq, last_hash=end.hash, broken_at=end.seq, reason=reason)


def _to_verification(chain: ChainVerifier, found_hashes: Collection[str], reason: str = "", *, at: int | None = None) -> ChainVerification:
    return ChainVerification(
        workspace_id=chain.workspace_id,
        entry_count=chain.entry_count,
        last_hash=chain.last_hash,
        broken_at=(at or chain.entry_count + 1) if reason else None,
        reason=reason,
        found_hashes=frozenset(found_hashes),
    )


def _only_changed(
    before: Mapping[str, object] | None, after: Mapping[str, object] | None
) -> tuple[Mapping[str, object] | None, Mapping[str, object] | None]:
    if before is None or after is None:
        return before, after
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}
