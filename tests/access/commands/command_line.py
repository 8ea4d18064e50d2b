"""The command line on a data folder, run as an operator does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import typer
from typer.testing import CliRunner, Result

from rookery.access.errors import Unauthorised
from rookery.cli import add_commands
from rookery.engines.counters import open as open_counter
from rookery.kernel.db import open_database
from tests.access.makers import Access, build_access
from tests.conftest import FakeClock

T = TypeVar("T")


@dataclass
class OpenPlatform:
    """The platform, opened for one command."""

    access: Access

    async def erase_deleted(self) -> str | None:
        """Return None; the indexes are not open here."""
        return None


@dataclass
class Platform:
    """The platform object that each command receives; it opens the store again, as separate processes do."""

    data_dir: Path
    clock: FakeClock = field(default_factory=FakeClock)

    def open(self, *, create: bool = False) -> AbstractAsyncContextManager[OpenPlatform]:
        """Open the platform. A missing store is created even without *create*."""
        del create
        return self._open()

    @asynccontextmanager
    async def open_part(self, part: str, *, create: bool = False) -> AsyncGenerator[Access]:
        """Open keys, workspaces and the audit log, also for a command that changes nothing."""
        assert part in {"keys", "keys-read-only"}
        async with self.open(create=create) as platform:
            yield platform.access

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[OpenPlatform]:
        database, counter = open_database("embedded:", data_dir=self.data_dir), open_counter("embedded:", data_dir=self.data_dir)
        access = build_access(database, counter, self.clock)
        try:
            yield OpenPlatform(access)
        finally:
            await access.close()
            await counter.close()
            await database.close()


class CommandLine:
    """A command line on one data folder, without a terminal."""

    def __init__(self, data_dir: Path) -> None:
        self.platform = Platform(data_dir)
        self.app = typer.Typer()
        add_commands(self.app, "workspace", "keys", "agent-keys", "audit")

    def run(self, *arguments: str, text: str | None = None) -> Result:
        """Run a command."""
        return CliRunner().invoke(self.app, list(arguments), obj=self.platform, input=text)

    def run_json(self, *arguments: str) -> object:
        """Run a command with --json; it must succeed. Return the parsed output."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return cast("object", json.loads(result.stdout))

    def run_object(self, *arguments: str) -> dict[str, object]:
        """Run a command with --json; it must succeed and print an object."""
        output = self.run_json(*arguments)
        assert isinstance(output, dict)
        return cast("dict[str, object]", output)

    def run_list(self, *arguments: str) -> list[dict[str, object]]:
        """Run a command with --json; it must succeed and print a list of objects."""
        output = self.run_json(*arguments)
        assert isinstance(output, list)
        return cast("list[dict[str, object]]", output)

    def run_table(self, *arguments: str) -> list[list[str]]:
        """Run a command as in a pipe; it must succeed. Return the fields of each line."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return [line.split("\t") for line in result.stdout.splitlines()]

    def admission_error(self, token: object) -> type[BaseException] | None:
        """Send a key; return the type of the error, or None if it is admitted."""

        async def admit(access: Access) -> type[BaseException] | None:
            try:
                await access.admit(str(token))
            except Unauthorised as error:
                return type(error)
            return None

        return self.with_access(admit)

    def call(self, token: object, *, status: int = 200, route: str = "/v1/brain/recall", times: int = 1) -> None:
        """Record calls with a key."""

        async def send(access: Access) -> None:
            for _ in range(times):
                (await access.admit(str(token))).record(method="POST", route=route, status=status, duration_ms=2.0)

        self.with_access(send)

    def with_access(self, work: Callable[[Access], Awaitable[T]]) -> T:
        """Run *work* with the services of access."""

        async def run_work() -> T:
            async with self.platform.open() as platform:
                return await work(platform.access)

        return asyncio.run(run_work())
