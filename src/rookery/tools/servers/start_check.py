"""Checks of whether a server's command can be started, without starting it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rookery.tools.models import CommandTarget, Server


def find_start_fault(server: Server, environment: Mapping[str, str]) -> str | None:
    """Return why *server* cannot start: a fault of its entry, or a missing program or folder. None: no problem was found."""
    if server.fault is not None:
        return server.fault
    target = server.target
    if not isinstance(target, CommandTarget):
        return None
    if target.cwd is not None and not Path(target.cwd).is_dir():
        return f"The folder {target.cwd!r} does not exist."
    path = target.env.get("PATH") or environment.get("PATH") or os.defpath
    program = str(Path(target.cwd or ".", target.command)) if os.sep in target.command else target.command
    if shutil.which(program, path=path) is None:
        return f"The program {target.command!r} was not found. Install it on Rookery's host, or use its absolute path."
    return None
