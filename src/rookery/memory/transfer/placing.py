"""Where what was read is put: into its workspace, under which id, cleaned if that is asked for, or why it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from rookery.kernel.clock import iso
from rookery.kernel.errors import RookeryError
from rookery.memory.maintenance.cleaning.marks import Finder
from rookery.memory.maintenance.scrubbing import clean
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.records import normal
from rookery.memory.transfer.fields import must_fit, wrong
from rookery.memory.transfer.parcels import Arrived, Parcel, Place, Refused, named_id, new_id

_AHEAD = timedelta(days=1)
"""So far another machine's clock may be ahead of ours."""

_PAST = ("created_at", "updated_at", "content_at", "archived_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
    place: Place = field(default_factory=Place)
    dedupe: bool = False
    new_ids: bool = False
    strip_pii: bool = False
    is_quiet: bool = False
    dry_run: bool = False
    resume: bool = False
    run: str | None = None


def placed(wanted: Wanted, parcel: Parcel, known: Sequence[Finder], *, at: datetime) -> Parcel:
    """Return *parcel* as it is to be stored in its workspace, or why it cannot be."""
    match parcel.holds:
        case Arrived() as arrived:
            try:
                return replace(parcel, holds=_settled(wanted, arrived, known, at=at))
            except RookeryError as error:
                return replace(parcel, holds=Refused(why=error.message, name=arrived.memory.id or None))
        case Tombstone() as grave:
            put = replace(grave, workspace_id=wanted.workspace_id)
            if wanted.new_ids:
                put = replace(put, id=new_id(wanted.workspace_id, grave.id), **_lineage(wanted, grave))
            return replace(parcel, holds=put)
        case Merge() as merge:
            put = replace(merge, workspace_id=wanted.workspace_id)
            if wanted.new_ids:
                ids = {name: new_id(wanted.workspace_id, getattr(merge, name)) for name in ("memory_id", "primary_id")}
                put = replace(put, **ids)
            return replace(parcel, holds=put)
        case Refused():
            return parcel


def _settled(wanted: Wanted, arrived: Arrived, known: Sequence[Finder], *, at: datetime) -> Arrived:
    arrived = _timely(arrived, at=at)
    memory = wanted.place.put(replace(arrived.memory, workspace_id=wanted.workspace_id, tags=normal(arrived.memory.tags)))
    if known:
        memory = clean(memory, known, normalise=False).memory
    must_fit(memory)
    if arrived.known_as is not None:
        memory = replace(memory, id=named_id(wanted.workspace_id, memory, arrived.known_as))
    elif wanted.new_ids:
        memory = replace(memory, id=new_id(wanted.workspace_id, memory.id), **_lineage(wanted, memory))
    return replace(arrived, memory=memory)


def _lineage(wanted: Wanted, of: Memory | Tombstone) -> dict[str, str | None]:
    """Return the ids that *of* refers to, as those of copies."""
    names = ("supersedes_id", "superseded_by")
    return {name: None if (old := getattr(of, name)) is None else new_id(wanted.workspace_id, old) for name in names}


def _timely(arrived: Arrived, *, at: datetime) -> Arrived:
    """Return *arrived* as of now, where a note's date is still to come; a store had no such one, but by a clock that was wrong."""
    for name in _PAST:
        said: datetime | None = getattr(arrived.memory, name)
        if said is not None and said > at + _AHEAD:
            if arrived.is_exact:
                raise wrong(name, f"{iso(said)} is still to come: the clock was wrong where it comes from")
            arrived = replace(arrived, memory=replace(arrived.memory, **{name: at}))
    return arrived
