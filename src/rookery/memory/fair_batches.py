"""Batches of memories to index in which no workspace waits for the backlog of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from rookery.memory.models import Memory


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory with the characters of its workspace before and after it, counted from the same point for all workspaces."""

    memory: Memory
    start: int
    end: int


class FairBatches:
    """
    Limits batches by fair queueing: each memory has an end, the characters of its workspace up to and with it. The lowest ends go first.

    A workspace whose memories have to wait keeps its start, at most *max_chars* behind the others. So short memories do not wait for long
    ones, and a long one waits only until each of the others has had as many characters.

    Args:
        max_chars: Maximum characters of a batch with more than one memory.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._starts: dict[int, int] = {}
        """The start of each workspace that waits."""
        self._served_end = 0
        """The highest end of a batch so far, at which other workspaces start."""

    def select(self, memories: Sequence[Memory]) -> list[Memory]:
        """Return those of *memories* that are indexed now, at least one if there are any. Those of a workspace are in their order."""
        ends, candidates = dict[int, int](), list[_Candidate]()
        for memory in memories:
            start = ends.get(memory.workspace_id, self._get_start(memory.workspace_id))
            end = ends[memory.workspace_id] = start + len(memory.content)
            candidates.append(_Candidate(memory, start, end))
        candidates.sort(key=attrgetter("end"))
        count = self._count_fitting(candidates)
        if candidates:
            self._update(candidates[:count], candidates[count:])
        return [candidate.memory for candidate in candidates[:count]]

    def _get_start(self, workspace_id: int) -> int:
        return max(self._starts.get(workspace_id, self._served_end), self._served_end - self._max_chars)

    def _count_fitting(self, candidates: Sequence[_Candidate]) -> int:
        total = 0
        for count, candidate in enumerate(candidates):
            total += len(candidate.memory.content)
            if count and total > self._max_chars:
                return count
        return len(candidates)

    def _update(self, selected: Sequence[_Candidate], waiting: Sequence[_Candidate]) -> None:
        if not waiting:
            self._starts, self._served_end = {}, 0
            return
        self._served_end = max(self._served_end, selected[-1].end)
        for candidate in selected:
            self._starts.pop(candidate.memory.workspace_id, None)
        for candidate in reversed(waiting):
            self._starts[candidate.memory.workspace_id] = candidate.start
