"""
The audit log: every change to what guards the platform, written in the change's own transaction (D-29).

Each entry carries the SHA-256 of the one before, so that none can be altered, dropped or slipped in without all that
follow it changing too; who keeps a chain's last hash elsewhere can tell even a chain that was rewritten to its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from rookery.access import audit_chain
from rookery.access.audit_chain import GENESIS_HASH, ChainVerifier
from rookery.access.models import Actor, AuditEntry, AuditFilter, ChainEnd, Environment
from rookery.access.store import audit as store
from rookery.kernel.clock import Clock, format_iso, from_micros, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict

PLATFORM_CHAIN = 0
"""The chain that no workspace has: what is done to workspaces themselves."""

_BATCH_SIZE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """What was changed: `api_key`, `agent_key`, `workspace`…, by id and name."""

    kind: str
    id: str
    name: str
    environment: Environment = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerification:
    """
    What checking one chain found.

    Attributes:
        entry_count: How many were read; *last_hash*: of the last of them.
        broken_at: The number of the first entry that is not what it was written as; None: the chain is whole.
        reason: What is wrong there, in words.
        found_hashes: Those of the hashes asked for that the chain has.
    """

    workspace_id: int
    entry_count: int
    last_hash: str
    broken_at: int | None = None
    reason: str = ""
    found_hashes: frozenset[str] = frozenset()


class AuditLog:
    """Writes and reads the chains."""

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
        Add an entry in this transaction, which from here on holds the chain: so last of all that it locks.

        Args:
            before: The thing's fields as they were, without secrets; None: it is made. Of both only what differs is kept.
            after: As they are now; None: it is deleted.
        """
        was, now_is = _only_changed(before, after)
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
            before=was,
            after=now_is,
            previous=end.hash,
            hash="",
        )
        store.add_entry(tx, _with_hash(unsigned))

    def delete_chain(self, tx: Tx, workspace_id: int) -> ChainEnd:
        """Delete a workspace's chain, with the workspace, and return how it ended."""
        end = store.find_end(tx, workspace_id) or _empty_chain_end(workspace_id)
        store.delete_chain(tx, workspace_id)
        return end

    async def list_page(self, workspace_id: int, filters: AuditFilter, *, limit: int, offset: int) -> tuple[list[AuditEntry], int]:
        """Return entries of the workspace's chain, newest first, and how many there are in all."""
        return await self._db.read(lambda tx: store.list_entry_page(tx, workspace_id, filters, limit=limit, offset=offset))

    async def list_chain_ends(self) -> list[ChainEnd]:
        """Return where each chain ends, the platform's first."""
        return await self._db.read(store.list_chain_ends)

    async def iter_entries(self, workspace_id: int) -> AsyncGenerator[AuditEntry]:
        """
        Yield the workspace's entries, oldest first, in batches, so that a long chain needs no more memory than a short one.

        Raises:
            Conflict: A row in the store is no entry: it was altered.
        """
        seq = 0
        async for entry in self._iter_rows(workspace_id):
            if entry is None:
                raise Conflict(f"The audit log of workspace {workspace_id} cannot be read past entry {seq}: the row after it was altered.")
            seq = entry.seq
            yield entry

    async def verify(
        self, workspace_id: int, *, known_hashes: Collection[str] = (), progress: Callable[[int], None] = lambda _: None
    ) -> ChainVerification:
        """
        Read a chain from its beginning and tell whether it is what was written.

        Args:
            workspace_id: Whose.
            known_hashes: Hashes kept elsewhere. One that is in no chain means that a chain was rewritten since, or is another one.
            progress: Told how many entries were read so far.
        """
        # The end first: what is added while we read comes after it.
        end = await self._get_chain_end(workspace_id)
        followed, at_end, has = ChainVerifier(workspace_id=workspace_id), GENESIS_HASH, {GENESIS_HASH} & set(known_hashes)
        async for entry in self._iter_rows(workspace_id):
            wrong = f"entry {followed.entry_count + 1} was altered" if entry is None else _append(followed, entry)
            if wrong:
                return _verification_of(followed, has, wrong)
            if followed.entry_count == end.seq:
                at_end = followed.last_hash
            if followed.last_hash in known_hashes:
                has.add(followed.last_hash)
            if followed.entry_count % _BATCH_SIZE == 0:
                progress(followed.entry_count)
        progress(followed.entry_count)
        if followed.entry_count < end.seq:
            missing = end.seq - followed.entry_count
            return _verification_of(followed, has, f"the chain had {end.seq} entries, of which the last {missing} are missing")
        if at_end != end.hash:
            return _verification_of(followed, has, f"entry {end.seq} is not the one that was last written", at=end.seq)
        now = await self._get_chain_end(workspace_id)
        if followed.entry_count > now.seq:
            return _verification_of(followed, has, f"entry {now.seq + 1} comes after the one that was last written", at=now.seq + 1)
        if not followed.entry_count and await self._has_creation_entry(workspace_id):
            return _verification_of(followed, has, "the chain is gone: its workspace was made with a first entry")
        return _verification_of(followed, has)

    async def list_broken_ends(self) -> list[ChainVerification]:
        """
        Return the chains whose last entry is not what was last written, looking at nothing but the last entries.

        Cheap, so for `doctor`; only `verify` reads a chain.
        """
        lasts = await self._db.read(store.list_last_entries)
        return [verdict for end, entry in lasts if (verdict := _check_end(end, entry)) is not None]

    async def _iter_rows(self, workspace_id: int) -> AsyncGenerator[AuditEntry | None]:
        """Yield the workspace's rows in order; None, and nothing after it, for one that is no entry."""
        after: int | None = 0
        while after is not None and (found := await self._db.read(_select_batch(workspace_id, after))):
            for entry in found:
                yield entry
                after = None if entry is None else entry.seq
                if entry is None:
                    break

    async def _get_chain_end(self, workspace_id: int) -> ChainEnd:
        return await self._db.read(lambda tx: store.find_end(tx, workspace_id)) or _empty_chain_end(workspace_id)

    async def _has_creation_entry(self, workspace_id: int) -> bool:
        """Tell whether the platform's chain tells of the workspace being made: then its own began with that."""
        made = AuditFilter(action="workspace.created", subject_id=str(workspace_id))
        return bool((await self.list_page(PLATFORM_CHAIN, made, limit=1, offset=0))[0])


def _append(chain: ChainVerifier, entry: AuditEntry) -> str:
    """Take the next entry; return what is wrong with it, or nothing."""
    try:
        return chain.add_entry(entry_to_json(entry))
    except ValueError:  # a text in it that is no Unicode: we wrote none
        return f"entry {chain.entry_count + 1} was altered"


def entry_to_json(entry: AuditEntry) -> dict[str, object]:
    """Return the fields of an entry as they are shown, exported, and hashed."""
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
    """Return what is wrong with the last entry of a chain, if anything is."""
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


def _verification_of(followed: ChainVerifier, has: Collection[str], reason: str = "", *, at: int | None = None) -> ChainVerification:
    return ChainVerification(
        workspace_id=followed.workspace_id,
        entry_count=followed.entry_count,
        last_hash=followed.last_hash,
        broken_at=(at or followed.entry_count + 1) if reason else None,
        reason=reason,
        found_hashes=frozenset(has),
    )


def _only_changed(
    before: Mapping[str, object] | None, after: Mapping[str, object] | None
) -> tuple[Mapping[str, object] | None, Mapping[str, object] | None]:
    if before is None or after is None:
        return before, after
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}
