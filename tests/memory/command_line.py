"""The commands for memories, run on the services of the rig."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from rookery.cli import add_commands
from rookery.kernel.db import open_database
from rookery.memory.build import MemoryServices
from rookery.memory.capacity import StorageLimits
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig


@dataclass(frozen=True, slots=True)
class OpenPlatform:
    """The platform, opened for one command."""

    memory: MemoryServices
    workspace_names: Mapping[int, str]

    async def workspaces(self) -> Mapping[int, str]:
        """Return the workspaces that the test defines."""
        return self.workspace_names


@dataclass
class Platform:
    """The platform object that each command receives; it opens the memory domain again, as separate processes do."""

    folder: Path
    embedder: StemEmbedder = field(default_factory=StemEmbedder)
    workspace_names: dict[int, str] = field(default_factory=lambda: {1: "main"})
    limits: StorageLimits | None = None

    @asynccontextmanager
    async def rig(self) -> AsyncGenerator[MemoryRig]:
        """Open the memory domain on the folder, as a separate process."""
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, FakeClock(), embedder=self.embedder, limits=self.limits)
        try:
            yield rig
        finally:
            await rig.close()
            await db.close()

    @asynccontextmanager
    async def open(self, *, create: bool = False) -> AsyncGenerator[OpenPlatform]:
        """Open the platform for one command. A missing store is created even without *create*."""
        del create
        async with self.rig() as rig:
            yield OpenPlatform(rig.services, self.workspace_names)

    def run(self, *arguments: str, standard_input: bytes = b"") -> Result:
        """Run a command."""
        app = typer.Typer()
        add_commands(app, "brain", "export", "import")
        return CliRunner().invoke(app, list(arguments), input=standard_input, obj=self)
