"""
Install a built wheel into an empty virtual environment and use it as a new user would: `make test-dist`.

pip resolves the dependencies without a lock, as for every user who installs the wheel.
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
from pathlib import Path
from typing import cast

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 30.0

STORED = ("The cat is called Miso.", "Deploys happen on Tuesdays.", "The staging password is in the vault.")
QUESTION = "What is the name of our pet?"


def recall_first_answer(python: Path, data_dir: Path) -> str:
    """
    Start a server with *python* on *data_dir*, store three memories and return the content of the best hit for `QUESTION`.

    Raises:
        RuntimeError: The server did not start in time.
        urllib.error.HTTPError: The server rejected a request.
    """
    command = [str(python), "-m", "rookery", "--data-dir", str(data_dir), "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROOKERY_", "PYTHON"))}
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


def main() -> None:
    """Install the newest wheel of a folder and use it. Fail if the best hit is not the expected memory."""
    parser = argparse.ArgumentParser(description="Install the newest wheel of a folder into an empty environment and use it.")
    parser.add_argument("folder", type=Path)
    wheels = sorted(cast("Path", parser.parse_args().folder).glob("rookery-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit("no wheel found; run: make dist")
    with tempfile.TemporaryDirectory(prefix="rookery-wheel-") as temporary:
        environment = Path(temporary) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheels[-1]], check=True)
        answer = recall_first_answer(python, Path(temporary) / "data")
    if answer != STORED[0]:
        sys.exit(f"{wheels[-1].name}: recall of {QUESTION!r} returned {answer!r}")
    print(f"{wheels[-1].name} starts, remembers and recalls in an empty environment")


if __name__ == "__main__":
    main()
