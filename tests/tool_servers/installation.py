"""
Installs the tool servers into `.venv/tool-servers`, each kind in its own folder, and only where something of it is missing.

Nothing here is needed by a test. What cannot be installed is named by the rows of its servers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.pinned_packages import NODE, describe_failure, install_npm, install_python, is_current, run_installer
from tests.tool_servers.servers import SERVERS, ToolServer

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".venv" / "tool-servers"
_SOURCE_ONLY = ("pybars3", "pymeta3")
"""Pure Python packages that are published as source alone."""


def install(servers: Iterable[ToolServer]) -> dict[str, str]:
    """Install what is missing of *servers*; return the reasons of failed installations by the id of the server."""
    wanted = [server for server in servers if not server.unavailable and not is_installed(server)]
    reasons = dict[str, str]()
    for kind in sorted({server.kind for server in wanted}):
        members = [server for server in wanted if server.kind == kind]
        print(f"Installing {', '.join(server.id for server in members)}, once", flush=True)
        try:
            _install_kind(kind, members)
        except (subprocess.SubprocessError, OSError) as error:
            reasons |= {server.id: describe_failure(error) for server in members}
    reasons |= {server.id: "it could not be installed" for server in wanted if server.id not in reasons and not is_installed(server)}
    return reasons


def is_installed(server: ToolServer) -> bool:
    """Return whether the program of *server* exists in its version, as its folder says."""
    return (INSTALLED / server.kind / server.program).exists() and (
        _stamp(server).exists() or is_current(_lock_of(server.kind), INSTALLED / server.kind)
    )


def build_command(server: ToolServer, folder: Path, *, has_credential: bool = True) -> tuple[list[str], dict[str, str]]:
    """Return the command of *server* with its arguments, and its environment variables, for a scratch *folder*."""
    program = INSTALLED / server.kind / server.program
    is_script = program.suffix in {".js", ".mjs", ".cjs"}
    arguments = [*server.args, *(server.credential if has_credential else ())]
    variables = {"HOME": str(folder), **server.env, **(server.secrets if has_credential else {})}
    command = [*([str(NODE / "bin" / "node")] if is_script else []), str(program), *(fill(text, folder) for text in arguments)]
    return command, {name: fill(value, folder) for name, value in variables.items()}


def fill(text: str, folder: Path) -> str:
    """Return *text* with the path of the scratch folder."""
    return text.replace("{folder}", str(folder))


def _stamp(server: ToolServer) -> Path:
    return INSTALLED / server.kind / f".{server.id}-{server.version}"


def _lock_of(kind: str) -> Path:
    return HERE / ("package-lock.json" if kind == "npm" else f"{kind}.lock")


def _install_kind(kind: str, members: Sequence[ToolServer]) -> None:
    target = INSTALLED / kind
    if kind == "npm":
        install_npm(HERE, target)
    elif kind in {"go", "cargo"}:
        target.mkdir(parents=True, exist_ok=True)
        for server in members:
            _build(server, target)
            _stamp(server).touch()
    else:
        python = shutil.which("python3.12") if kind == "python-3-12" else sys.executable
        if python is None:
            msg = "Python 3.12 is not installed"
            raise OSError(msg)
        sources = [word for name in _SOURCE_ONLY if kind == "python-3-12" for word in ("--no-binary", name)]
        install_python(_lock_of(kind), target, python, *sources)


def _build(server: ToolServer, target: Path) -> None:
    if server.kind == "go":
        folder = target / Path(server.program).parent
        folder.mkdir(exist_ok=True)
        run_installer(["go", "install", f"{server.package}@{server.version}"], target, GOBIN=str(folder), GOTOOLCHAIN="local")
    else:
        run_installer(
            ["cargo", "install", "--quiet", "--locked", "--root", str(target), "--version", server.version, server.package], target
        )


def select(names: Sequence[str]) -> list[ToolServer]:
    """
    Return the servers of these ids, or all.

    Raises:
        ValueError: A name is no id.
    """
    unknown = set(names) - {server.id for server in SERVERS}
    if unknown:
        msg = f"unknown servers: {', '.join(sorted(unknown))}; known are {', '.join(server.id for server in SERVERS)}"
        raise ValueError(msg)
    return [server for server in SERVERS if not names or server.id in names]
