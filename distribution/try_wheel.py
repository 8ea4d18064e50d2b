"""
Install a built wheel with nothing else, and use it as a new user would: `make test-dist`.

The installer resolves the dependencies without a lock, as for every user who installs the wheel. `--with` names the installers: pip into an
empty virtual environment, which is the default, pipx, `uv tool` and `uvx`. For the last three, pipx and uv are installed into an
environment of their own: `make test-installers`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 300.0
"""These only end what hangs: on a machine with other work, the first call of a tool server took more than 30 s."""

STORED = ("The cat is called Miso.", "Deploys happen on Tuesdays.", "The staging password is in the vault.")
QUESTION = "What is the name of our pet?"


def use_new_server(rookery: Sequence[str | Path], data_dir: Path, variables: Mapping[str, str] | None = None) -> str:
    """
    Start a server by the command *rookery* on *data_dir*, and return the content of the best hit for `QUESTION`.

    Before, it calls the tool server of a first start and stores three memories.

    Raises:
        RuntimeError: The server did not start in time, or its tool failed.
        urllib.error.HTTPError: The server rejected a request.
    """
    command = [*map(str, rookery), "--data-dir", str(data_dir), "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROOKERY_", "PYTHON"))} | {**(variables or {})}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        started = server.stdout.readline()
        url = next((word.rstrip(",;") for word in started.split() if word.startswith("http")), None)
        if url is None:
            server.kill()
            raise RuntimeError(f"the server did not start: {started}{server.communicate()[1]}")
        _wait_until_up(url)
        key = str(json.loads((data_dir / "first-run.json").read_text(encoding="utf-8"))["api_key"])
        call: dict[str, object] = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
        called = _post(f"{url}/api/v1/mcp/tools/call", key, call)
        if called["success"] is not True:
            raise RuntimeError(f"the tool of a first start failed: {called}")
        for content in STORED:
            _post(f"{url}/v1/brain/remember", key, {"type": "fact", "content": content, "wait_ms": 5000})
        answer = _post(f"{url}/v1/brain/recall", key, {"query": QUESTION, "mode": "semantic"})
        return cast("list[dict[str, str]]", answer["memories"])[0]["content"]
    finally:
        server.terminate()
        try:
            server.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


def _wait_until_up(url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=REQUEST_TIMEOUT_S).close()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer at {url}/healthz within {START_TIMEOUT_S} s") from None
            time.sleep(0.05)
        else:
            return


def _post(url: str, key: str, body: dict[str, object]) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
        return cast("dict[str, object]", json.loads(response.read()))


def install_with_pip(wheel: Path, folder: Path, variables: Mapping[str, str]) -> list[str | Path]:
    """Install *wheel* by pip into an empty environment in *folder*; return the command that runs Rookery."""
    del variables
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel], check=True)
    return [python, "-m", "rookery"]


def install_with_pipx(wheel: Path, folder: Path, variables: Mapping[str, str]) -> list[str | Path]:
    """Install *wheel* by `pipx install`."""
    subprocess.run([_find_tool(folder, "pipx"), "install", "--quiet", wheel], env={**os.environ, **variables}, check=True)
    return [folder / "bin" / "rookery"]


def install_with_uv_tool(wheel: Path, folder: Path, variables: Mapping[str, str]) -> list[str | Path]:
    """Install *wheel* by `uv tool install`."""
    subprocess.run([_find_tool(folder, "uv"), "tool", "install", "--quiet", wheel], env={**os.environ, **variables}, check=True)
    return [folder / "bin" / "rookery"]


def install_with_uvx(wheel: Path, folder: Path, variables: Mapping[str, str]) -> list[str | Path]:
    """Return the command that runs *wheel* by `uvx`, which installs it when it is first run."""
    command: list[str | Path] = [_find_tool(folder, "uvx"), "--quiet", "--from", wheel, "rookery"]
    subprocess.run([*command, "--version"], env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True)
    return command


INSTALLERS: Mapping[str, Callable[[Path, Path, Mapping[str, str]], list[str | Path]]] = {
    "pip": install_with_pip,
    "pipx": install_with_pipx,
    "uv-tool": install_with_uv_tool,
    "uvx": install_with_uvx,
}


def _find_tool(folder: Path, name: str) -> Path:
    """Return a program of pipx or uv, installed into an environment of their own."""
    environment = folder / "tools"
    if not environment.exists():
        venv.create(environment, with_pip=True)
        pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "pipx", "uv"]
        subprocess.run(pip, check=True)
    return environment / "bin" / name


def try_installer(name: str, wheel: Path) -> str:
    """
    Install *wheel* by the installer *name* into a temporary folder, and use it; return the result.

    Raises:
        SystemExit: The best hit is not the expected memory, or the installation contains torch.
    """
    with tempfile.TemporaryDirectory(prefix="rookery-wheel-") as temporary:
        folder = Path(temporary)
        variables = {
            "PIPX_HOME": str(folder / "pipx"),
            "PIPX_BIN_DIR": str(folder / "bin"),
            "UV_TOOL_DIR": str(folder / "uv"),
            "UV_TOOL_BIN_DIR": str(folder / "bin"),
            "UV_CACHE_DIR": str(folder / "cache"),
        }
        start = time.monotonic()
        command = INSTALLERS[name](wheel, folder, variables)
        installed_s = time.monotonic() - start
        answer = use_new_server(command, folder / "data", variables)
        if answer != STORED[0]:
            sys.exit(f"{wheel.name} by {name}: recall of {QUESTION!r} returned {answer!r}")
        packages = {path.name for path in folder.rglob("site-packages/*") if "tools" not in path.parts}
        if "torch" in packages:
            sys.exit(f"{wheel.name} by {name}: the installation contains torch")
    count = sum(name.endswith(".dist-info") for name in packages)
    return f"installed in {installed_s:.0f} s, {count} packages; starts, calls a tool, remembers and recalls"


def main() -> None:
    """Install the newest wheel of a folder and use it. Fail if the best hit is not the expected memory."""
    parser = argparse.ArgumentParser(description="Install the newest wheel of a folder with nothing else, and use it.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--with", dest="installers", nargs="+", choices=[*INSTALLERS, "all"], default=["pip"])
    options = parser.parse_args()
    wheels = sorted(cast("Path", options.folder).glob("rookery-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit("no wheel found; run: make dist")
    chosen = cast("list[str]", options.installers)
    for name in INSTALLERS if "all" in chosen else chosen:
        print(f"{wheels[-1].name} by {name}: {try_installer(name, wheels[-1].resolve())}", flush=True)


if __name__ == "__main__":
    main()
