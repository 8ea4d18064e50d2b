"""Mapping of imported items to a workspace: ids, overrides, redaction and validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from rookery.kernel.clock import format_iso
from rookery.kernel.errors import RookeryError
from rookery.memory.maintenance.cleaning.redaction import PiiFinder
from rookery.memory.maintenance.scrubbing import clean_memory
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.records import normalize_tags
from rookery.memory.transfer.field_reader import field_error, validate_memory
from rookery.memory.transfer.items import ImportedMemory, ImportItem, ImportOverrides, RejectedItem, copy_id, derive_id

_MAX_CLOCK_SKEW = timedelta(days=1)
"""Maximum time by which the clock of another machine may be ahead."""

_PAST_TIME_FIELDS = ("created_at", "updated_at", "content_at", "archived_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """
    The parameters of an import.

    Attributes:
        dedupe: Skip memories whose content exists in the same space.
        new_ids: Store copies with new ids, for a store where the old ids are used.
        strip_pii: Redact personal data and secrets.
        is_quiet: Publish no events: no webhooks are sent and no training examples are recorded.
        dry_run: Only report the decisions.
        resume: Continue an interrupted run.
        run: A name from the source and the options, which identifies an interrupted run. None if the source cannot be resumed.
    """

    workspace_id: int
    overrides: ImportOverrides = field(default_factory=ImportOverrides)
    dedupe: bool = False
    new_ids: bool = False
    strip_pii: bool = False
    is_quiet: bool = False
    dry_run: bool = False
    resume: bool = False
    run: str | None = None


def map_item(request: ImportRequest, item: ImportItem, finders: Sequence[PiiFinder], *, at: datetime) -> ImportItem:
    """Return *item* as it is to be stored in the workspace, or rejected with a reason."""
    match item.content:
        case ImportedMemory() as imported_memory:
            try:
                return replace(item, content=_map_memory(request, imported_memory, finders, at=at))
            except RookeryError as error:
                return replace(item, content=RejectedItem(reason=error.message, name=imported_memory.memory.id or None))
        case Tombstone() as tombstone:
            mapped_tombstone = replace(tombstone, workspace_id=request.workspace_id)
            if request.new_ids:
                mapped_tombstone = replace(
                    mapped_tombstone, id=copy_id(request.workspace_id, tombstone.id), **_copy_lineage_ids(request, tombstone)
                )
            return replace(item, content=mapped_tombstone)
        case Merge() as merge:
            mapped_tombstone = replace(merge, workspace_id=request.workspace_id)
            if request.new_ids:
                ids = {name: copy_id(request.workspace_id, getattr(merge, name)) for name in ("memory_id", "primary_id")}
                mapped_tombstone = replace(mapped_tombstone, **ids)
            return replace(item, content=mapped_tombstone)
        case RejectedItem():
            return item


def _map_memory(request: ImportRequest, imported_memory: ImportedMemory, finders: Sequence[PiiFinder], *, at: datetime) -> ImportedMemory:
    imported_memory = _clamp_future_times(imported_memory, at=at)
    memory = request.overrides.apply_to(
        replace(imported_memory.memory, workspace_id=request.workspace_id, tags=normalize_tags(imported_memory.memory.tags))
    )
    if finders:
        memory = clean_memory(memory, finders, normalise=False).memory
    validate_memory(memory)
    if imported_memory.identity is not None:
        memory = replace(memory, id=derive_id(request.workspace_id, memory, imported_memory.identity))
    elif request.new_ids:
        memory = replace(memory, id=copy_id(request.workspace_id, memory.id), **_copy_lineage_ids(request, memory))
    return replace(imported_memory, memory=memory)


def _copy_lineage_ids(request: ImportRequest, of: Memory | Tombstone) -> dict[str, str | None]:
    """Return the ids that *of* refers to, as the ids of copies."""
    names = ("supersedes_id", "superseded_by")
    return {name: None if (old := getattr(of, name)) is None else copy_id(request.workspace_id, old) for name in names}


def _clamp_future_times(imported_memory: ImportedMemory, *, at: datetime) -> ImportedMemory:
    """Return *imported_memory* with future times set to now. In a file of Rookery, a future time is an error."""
    for name in _PAST_TIME_FIELDS:
        moment: datetime | None = getattr(imported_memory.memory, name)
        if moment is not None and moment > at + _MAX_CLOCK_SKEW:
            if imported_memory.is_exact:
                raise field_error(name, f"{format_iso(moment)} is in the future; the clock of the source was wrong")
            imported_memory = replace(imported_memory, memory=replace(imported_memory.memory, **{name: at}))
    return imported_memory
