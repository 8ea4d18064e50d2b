"""Fixtures for the console: a signed-in client of its pages in this process, and a real browser on a real server."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser
from tests.processes import Server, run_server
from tests.reference.browser import find_chromium, run_chromium

_AXE_FILE = Path(sys.prefix, "upstreams", "node_modules", "axe-core", "axe.min.js")


@pytest.fixture
async def user(instance: Instance) -> AsyncIterator[ConsoleUser]:
    """A person who is signed in with the first API key."""
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(instance.admin.key or "")
        yield user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process, which may connect to this host."""
    find_chromium()
    with run_server(tmp_path_factory.mktemp("console"), egress_allow="127.0.0.0/8") as server:
        yield server


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which checks pages for faults of accessibility. `make upstreams` installs it."""
    if not _AXE_FILE.is_file():
        if "CI" in os.environ:
            pytest.fail("there is no axe-core: make upstreams")
        pytest.skip("there is no axe-core: make upstreams")
    return _AXE_FILE.read_text(encoding="utf-8")


@pytest.fixture
async def visitor(server: Server, axe: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserUser]:
    """A person with a browser, not yet signed in."""
    async with run_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield BrowserUser(await browser.open(server.url), axe)


@pytest.fixture
async def person(visitor: BrowserUser, server: Server) -> BrowserUser:
    """A person with a browser who is signed in with the first API key."""
    await visitor.sign_in(server.keys["api_key"])
    return visitor
