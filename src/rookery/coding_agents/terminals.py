"""
The terminals of a client whose hooks run in a background server, with the environment of the server and not of the terminal.

Only Linux shows the environment of another process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rookery.coding_agents.hook_declarations import SWITCH_VARIABLE, is_switched_off

PROCESSES = Path("/proc")

_FOLDER_OPTIONS = ("-C", "--cd")


def is_switched_off_in_terminal(program: str, folder: Path) -> bool:
    """
    Return True if *program* runs in *folder*, started with hooks switched off.

    A process that names its folder by an option counts for every folder: it may work in this one.
    """
    return any(
        is_switched_off(environment.get(SWITCH_VARIABLE)) and _may_work_in(process, folder)
        for process in _list_processes(program)
        if (environment := read_environment(process)) is not None
    )


def read_environment(process: int) -> dict[str, str] | None:
    """Return the environment with which *process* was started, or None if the system does not show it."""
    try:
        content = (PROCESSES / str(process) / "environ").read_bytes()
    except OSError:
        return None
    entries = (entry.partition("=") for entry in os.fsdecode(content).split("\0") if "=" in entry)
    return {name: value for name, _, value in entries}


def read_arguments(process: int) -> list[str]:
    """Return the command line of *process*; empty if there is no such process."""
    try:
        return os.fsdecode((PROCESSES / str(process) / "cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


def _list_processes(program: str) -> list[int]:
    """Return the processes of this user with the name *program*."""
    processes, user = list[int](), os.getuid() if hasattr(os, "getuid") else None
    with suppress(OSError), os.scandir(PROCESSES) as entries:
        for entry in entries:
            with suppress(OSError):  # it has ended
                if entry.name.isdecimal() and entry.stat().st_uid == user and _read_name(entry.path) == program:
                    processes.append(int(entry.name))
    return processes


def _read_name(process_folder: str) -> str:
    return (Path(process_folder) / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")


def _may_work_in(process: int, folder: Path) -> bool:
    if any(argument.startswith(_FOLDER_OPTIONS) for argument in read_arguments(process)):
        return True
    try:
        return (PROCESSES / str(process) / "cwd").readlink() == folder.resolve()
    except OSError:
        return False
