"""What one process has of a workspace: the lists of a sealed file, if it is large, and a slab of what is newer than that."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from rookery.engines.vectors.file import Bounds, VectorFile
from rookery.engines.vectors.probing import Attached
from rookery.engines.vectors.sealed import Floats, Sealed, Unusable, there
from rookery.engines.vectors.slabs import Slab
from rookery.engines.vectors.trust import compare
from rookery.engines.vectors.views import View
from rookery.memory.models import Within
from rookery.memory.ports import Generation

_log = structlog.stdlib.get_logger("rookery.vectors")

_INLINE_ROWS = 2000
"""So many rows are scored (0.13 ms) about as fast as another thread is woken to do it (0.05 to 0.1 ms)."""

_BATCH = 512
"""Changes read at once: about a megabyte."""

EXACT_FLOATS = 32_768 * 384
"""A slab of so many is scored whole in 2 to 4 ms; above, lists are built."""

_NEWS_FLOATS = 16_384 * 384
_NEWS_SHARE = 32
"""Beside lists the slab may have so many, or one of so many, before they are built anew: a millisecond or two for a query."""

_DEAD_SHARE = 4

_DEAD_KEPT_S = 24 * 3600.0
"""At the latest so long after it was forgotten a memory leaves the lists too: older ones with any such are built anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Up to the change *seen*."""

    slab: Slab
    attached: Attached | None
    seen: int


class Shelf:
    """
    A workspace's vectors and how far they have followed the file.

    Attributes:
        age: Of the index's changes when it last followed; the loop's alone, as *following* and *building* are.
    """

    def __init__(self, workspace_id: int, generation: Generation, folder: Path) -> None:
        self.age = 0
        self.following: asyncio.Task[None] | None = None
        self.building: asyncio.Task[None] | None = None
        self.workspace_id = workspace_id
        self._generation = generation
        self._folder = folder
        self._lock = threading.Lock()
        self._state = _State(slab=Slab(generation.dimension), attached=None, seen=0)
        self._next: _State | None = None
        self._is_begun = False

    def follow(self, file: VectorFile) -> None:
        """Read what changed; blocks. One thread at a time; queries go on meanwhile, with what they may see already."""
        bounds = file.bounds()
        next_, self._next = self._next, None
        if next_ is not None and next_.seen >= bounds.floor:
            state = next_
        elif not self._is_begun or self._state.slab.is_bloated or self._state.seen < bounds.floor:
            state = self._opened(file, bounds) or _State(slab=Slab(self._generation.dimension), attached=None, seen=0)
        else:
            state = self._state
        state = self._caught_up(file, state, bounds)
        with self._lock:
            self._state, self._is_begun = state, True

    def take_lists(self, file: VectorFile) -> bool:
        """
        Open the newest file and read what is newer than that, for the next `follow` to go on from; blocks, but nobody else.

        Returns False if there is none that holds what the database does.
        """
        bounds = file.bounds()
        state = self._opened(file, bounds)
        if state is not None:
            self._next = self._caught_up(file, state, bounds)
        return state is not None

    def _caught_up(self, file: VectorFile, state: _State, bounds: Bounds) -> _State:
        slab, attached, seen = state.slab, state.attached, state.seen
        while True:
            changes = file.changes(self.workspace_id, after=seen, limit=_BATCH)
            seen = changes.last
            if changes.forgotten or changes.points:
                with self._lock:
                    if attached is not None:
                        attached.bury([*changes.forgotten, *(point.memory_id for point in changes.points)])
                    slab.apply(forgotten=changes.forgotten, points=changes.points)
            if changes.is_all:
                return _State(slab=slab, attached=attached, seen=max(seen, bounds.last))

    @property
    def is_begun(self) -> bool:
        """Tell whether it ever followed: what came since is soon read."""
        return self._is_begun

    @property
    def rows(self) -> int:
        """How many rows there are to be seen."""
        state = self._state
        attached = state.attached
        return state.slab.rows + (0 if attached is None else attached.living)

    @property
    def listed_rows(self) -> int:
        """How many of them are in lists."""
        attached = self._state.attached
        return 0 if attached is None else attached.living

    @property
    def listed(self) -> int:
        """Up to which change the lists know; 0 without lists."""
        attached = self._state.attached
        return 0 if attached is None else attached.sealed.upto

    @property
    def wants_lists(self) -> bool:
        """Tell whether it is time to build them, or to build them anew."""
        state = self._state
        news, attached = state.slab.rows * self._generation.dimension, state.attached
        if attached is None:
            return news > EXACT_FLOATS
        if attached.dead and _is_old(attached.sealed.made_at_s):
            return True
        size = len(attached.sealed)
        return news > max(_NEWS_FLOATS, size * self._generation.dimension // _NEWS_SHARE) or attached.dead * _DEAD_SHARE > size

    def glance(self, within: Within) -> View | None:
        """Return what *within* sees if that is little and needs no waiting."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            state = self._state
            return state.slab.view(within) if state.attached is None and state.slab.rows <= _INLINE_ROWS else None
        finally:
            self._lock.release()

    def view(self, within: Within) -> View:
        """Return what *within* sees; blocks for a moment while changes are taken in."""
        with self._lock:
            state = self._state
            return state.slab.view(within, beside=None if state.attached is None else state.attached.view(within))

    def similarities(self, vector: Floats, ids: Collection[str]) -> dict[str, float]:
        """Return the similarity of those of *ids* that are here."""
        with self._lock:
            state = self._state
            found = state.slab.similarities(vector, ids)
            if state.attached is not None:
                found |= state.attached.similarities(vector, [each for each in ids if each not in found])
            return found

    def _opened(self, file: VectorFile, bounds: Bounds) -> _State | None:
        """Return the newest file that holds what the database does, to begin at; None: there is none."""
        for upto, path in there(self._folder, workspace_id=self.workspace_id, generation=self._generation):
            try:
                if upto > bounds.last and upto > file.bounds().last:
                    raise Unusable("it knows more than vectors.db, which must be another one")  # noqa: TRY301 - as the others below
                attached = Attached(Sealed(path, workspace_id=self.workspace_id, generation=self._generation))
                living = file.living(self.workspace_id, upto=upto)
                compare(attached.sealed, file, workspace_id=self.workspace_id, living=living)
                attached.keep(living)
            except Unusable as error:
                _log.warning("lists of vectors left aside", workspace_id=self.workspace_id, file=path.name, reason=str(error))
                path.unlink(missing_ok=True)
                continue
            attached.sealed.read_ahead()
            return _State(slab=Slab(self._generation.dimension), attached=attached, seen=upto)
        return None


def are_old(folder: Path, *, workspace_id: int, generation: Generation) -> bool:
    """Tell whether the lists of a workspace are so old that what was forgotten since should leave them."""
    for _, path in there(folder, workspace_id=workspace_id, generation=generation):
        with contextlib.suppress(OSError):
            return _is_old(path.stat().st_mtime)
    return False


def _is_old(made_at_s: float) -> bool:
    return time.time() - made_at_s > _DEAD_KEPT_S
