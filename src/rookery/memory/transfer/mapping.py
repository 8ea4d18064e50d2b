"""Where what was read is put: into its workspace, under which id, cleaned if that is asked for, or why it cannot be."""

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
"""So far another machine's clock may be ahead of ours."""

_PAST_TIME_FIELDS = ("created_at", "updated_at", "content_at", "archived_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """
    Into which workspace, and how.

    Attributes:
        dedupe: Leave out what says the same as a memory of the same space that is there.
        new_ids: Store copies with ids of their own, for a store where the old ones are taken.
        strip_pii: Put marks for personal data and secrets.
        is_quiet: Announce nothing: no webhook is told, and no training row left.
        dry_run: Only tell what would be done.
        resume: Go on where the same run was ended in the middle.
        run: The source and the options, by which that run is found again; None: this source can only be read from its start.
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
    """Return *item* as it is to be stored in its workspace, or why it cannot be."""
    match item.content:
        case ImportedMemory() as arrived:
            try:
                return replace(item, content=_map_memory(request, arrived, finders, at=at))
            except RookeryError as error:
                return replace(item, content=RejectedItem(reason=error.message, name=arrived.memory.id or None))
        case Tombstone() as grave:
            put = replace(grave, workspace_id=request.workspace_id)
            if request.new_ids:
                put = replace(put, id=copy_id(request.workspace_id, grave.id), **_copy_lineage_ids(request, grave))
            return replace(item, content=put)
        case Merge() as merge:
            put = replace(merge, workspace_id=request.workspace_id)
            if request.new_ids:
                ids = {name: copy_id(request.workspace_id, getattr(merge, name)) for name in ("memory_id", "primary_id")}
                put = replace(put, **ids)
            return replace(item, content=put)
        case RejectedItem():
            return item


def _map_memory(request: ImportRequest, imported: ImportedMemory, finders: Sequence[PiiFinder], *, at: datetime) -> ImportedMemory:
    imported = _clamp_future_times(imported, at=at)
    memory = request.overrides.apply_to(
        replace(imported.memory, workspace_id=request.workspace_id, tags=normalize_tags(imported.memory.tags))
    )
    if finders:
        memory = clean_memory(memory, finders, normalise=False).memory
    validate_memory(memory)
    if imported.identity is not None:
        memory = replace(memory, id=derive_id(request.workspace_id, memory, imported.identity))
    elif request.new_ids:
        memory = replace(memory, id=copy_id(request.workspace_id, memory.id), **_copy_lineage_ids(request, memory))
    return replace(imported, memory=memory)


def _copy_lineage_ids(request: ImportRequest, of: Memory | Tombstone) -> dict[str, str | None]:
    """Return the ids that *of* refers to, as those of copies."""
    names = ("supersedes_id", "superseded_by")
    return {name: None if (old := getattr(of, name)) is None else copy_id(request.workspace_id, old) for name in names}


def _clamp_future_times(imported: ImportedMemory, *, at: datetime) -> ImportedMemory:
    """Return *imported* as of now, where a note's date is still to come; a store had no such one, but by a clock that was wrong."""
    for name in _PAST_TIME_FIELDS:
        said: datetime | None = getattr(imported.memory, name)
        if said is not None and said > at + _MAX_CLOCK_SKEW:
            if imported.is_exact:
                raise field_error(name, f"{format_iso(said)} is still to come: the clock was wrong where it comes from")
            imported = replace(imported, memory=replace(imported.memory, **{name: at}))
    return imported
