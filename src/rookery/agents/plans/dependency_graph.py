"""
Cycle detection in the dependencies of a plan, so that a dependency that could never be met is rejected on write. Pure.

The graph has a start and an end for each phase. A task lies between the start and the end of its phase, and a phase starts after
the ends of the phases that it depends on. This also finds cycles across both kinds of dependencies: a task that depends on a task
of a phase that in turn depends on the phase of the first task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

Dependencies = Mapping[str, Sequence[str]]
"""Maps an id to the ids that must be done before it."""


def find_cycle(phases: Iterable[str], tasks: Mapping[str, str], dependencies: Dependencies) -> list[str] | None:
    """
    Return the ids of a cycle, each depending on the next, or None if there is no cycle.

    Args:
        tasks: The phase id of each task id.
        dependencies: Tasks depend on tasks, phases on phases.
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
        nodes: list[tuple[str, bool]] = error.args[1]
        return list(dict.fromkeys(node for node, _ in reversed(nodes)))
    return None
