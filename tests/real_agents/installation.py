"""Installs the programs into `.venv/agents`, each kind in its own folder, and only where its lock has changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.pinned_packages import describe_failure, install_npm, install_python, is_current
from tests.real_agents.programs import AgentProgram

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".venv" / "agents"


def install(programs: Iterable[AgentProgram]) -> dict[str, str]:
    """Install what is missing; return the reasons of failed installations by the id of the program."""
    wanted = [program for program in programs if not program.unavailable]
    reasons = dict[str, str]()
    for kind in sorted({program.kind for program in wanted}):
        members = [program for program in wanted if program.kind == kind]
        lock = HERE / ("package-lock.json" if kind == "npm" else f"{kind}.lock")
        if not is_current(lock, INSTALLED / kind):
            print(f"Installing {', '.join(program.id for program in members)}, once", flush=True)
            try:
                if kind == "npm":
                    install_npm(HERE, INSTALLED / kind, "install")
                else:
                    install_python(lock, INSTALLED / kind, sys.executable)
            except (subprocess.SubprocessError, OSError) as error:
                reasons |= {program.id: describe_failure(error) for program in members}
        reasons |= {
            program.id: "it could not be installed: its package is missing"
            for program in members
            if program.id not in reasons and kind == "npm" and not (INSTALLED / kind / "node_modules" / program.package).exists()
        }
    return reasons
