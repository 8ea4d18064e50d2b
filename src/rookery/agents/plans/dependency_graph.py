"""
What waits for what in a plan, as one graph: a dependency that could never be met is refused when it is written. Pure.

A task lies between the start and the end of its phase, and a phase starts after the ends of those that it depends on. So two
dependencies that look harmless one by one are seen to lock each other: a task that waits for a task of a phase that waits for
the first one's phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

Dependencies = Mapping[str, Sequence[str]]
"""Of an id, the ids that must be done before it."""


def find_cycle(phases: Iterable[str], tasks: Mapping[str, str], dependencies: Dependencies) -> list[str] | None:
    """
    Return ids that wait for each other in a circle, each for the next; None: there are none.

    Args:
        tasks: The phase of each task.
        dependencies: Of tasks, tasks; of phases, phases.
    """
    sorter: TopologicalSorter[tuple[str, bool]] = TopologicalSorter()
    for phase in phases:
        sorter.add((phase, True), (phase, False))
        for other in dependencies.get(phase, ()):
            sorter.add((phase, False), (other, True))
    for task, phase in tasks.items():
        sorter.add((task, True), (phase, False), *((other, True) for other in dependencies.get(task, ())))
        sorter.add((phase, True), (task, True))
    try:
        sorter.prepare()
    except CycleError as error:
        found: list[tuple[str, bool]] = error.args[1]
        return list(dict.fromkeys(each for each, _ in reversed(found)))
    return None
