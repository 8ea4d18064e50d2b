"""The set-up that the contracts of the text and the vector index share: a second process, and a state machine of writes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test


class Index(Protocol):
    """The methods that both indexes have."""

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None: ...
    async def count(self, workspace_id: int) -> int: ...
    async def close(self) -> None: ...


I = TypeVar("I", bound=Index)  # noqa: E741 - the index
D = TypeVar("D")


@contextlib.contextmanager
def run_writer(script: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Run *script* in a process of its own, which prints `stored` after its writes and then sleeps."""
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


class IndexMachine(RuleBasedStateMachine, Generic[I, D]):
    """
    A state machine of writes, compared with a dict; a second instance only reads, and one is reopened at times.

    Attributes:
        model: What the index must contain, by workspace and id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[int, str], D] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.index, self.second_index = self.open_index(), self.open_index()

    @abstractmethod
    def open_engine(self, folder: Path) -> I:
        """Return an instance of the engine with its data in *folder*."""
        ...

    def open_index(self) -> I:
        """Open an instance in the loop of the machine."""

        async def open_it() -> I:
            return self.open_engine(Path(self.folder.name))

        return self.runner.run(open_it())

    @rule(memory_ids=st.sets(st.integers(0, 10), max_size=5), workspace_id=st.sampled_from([1, 2]))
    def delete(self, memory_ids: set[int], workspace_id: int) -> None:
        """Delete memories, known or not."""
        ids = [f"m{number}" for number in memory_ids]
        for memory_id in ids:
            self.model.pop((workspace_id, memory_id), None)
        self.runner.run(self.index.drop(workspace_id, ids))

    @rule()
    def reopen(self) -> None:
        """Close and open the index."""
        self.runner.run(self.index.close())
        self.index = self.open_index()

    @invariant()
    def check_counts(self) -> None:
        """Compare the number of memories."""

        async def count_both() -> list[int]:
            return await asyncio.gather(*(self.index.count(workspace_id) for workspace_id in (1, 2)))

        assert self.runner.run(count_both()) == [sum(1 for owner, _ in self.model if owner == workspace_id) for workspace_id in (1, 2)]

    def teardown(self) -> None:
        """Close the instances and delete their folder."""
        for index in (self.index, self.second_index):
            self.runner.run(index.close())
        self.runner.close()
        self.folder.cleanup()


def run_machine(machine: type[RuleBasedStateMachine]) -> None:
    """Run random orders of the rules of *machine*."""
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))
