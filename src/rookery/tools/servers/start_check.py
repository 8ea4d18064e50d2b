"""Whether a server's program can be started at all, as far as it shows without starting it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rookery.tools.models import CommandTarget, Server


def find_start_fault(server: Server, environment: Mapping[str, str]) -> str | None:
    """Return why *server* cannot start: a fault of its entry, or a missing program or folder. None: nothing is known against it."""
    if server.fault is not None:
        return server.fault
    target = server.target
    if not isinstance(target, CommandTarget):
        return None
    if target.cwd is not None and not Path(target.cwd).is_dir():
        return f"There is no folder {target.cwd!r}."
    path = target.env.get("PATH") or environment.get("PATH") or os.defpath
    program = str(Path(target.cwd or ".", target.command)) if os.sep in target.command else target.command
    if shutil.which(program, path=path) is None:
        return f"There is no program {target.command!r}. Install it where Rookery runs, or write its whole path."
    return None
