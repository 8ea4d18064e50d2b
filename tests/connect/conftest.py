"""A project folder and a home folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect.command_line import ConnectCommand


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder as working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def command(tmp_path: Path, home: Path, project: Path) -> ConnectCommand:
    """The command for a server that does not run; the client has a key."""
    return ConnectCommand(tmp_path / "data", home, ROOKERY_KEY="the key itself")
