"""
Show Rookery at work: `make demo`.

Starts a server in a temporary folder, stores notes, recalls them by meaning and by word, and calls tools of two real MCP servers (time
zones; the history of a git repository). Each request is shown with its answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import httpx2
from rich.console import Console
from rich.syntax import Syntax

NOTES = [
    ("convention", "All money amounts are integers in cents; a float once cost us 1,204.37 EUR of rounding in the March invoices."),
    ("decision", "We chose PostgreSQL over MongoDB for orders: reports need joins, and the team of four knows SQL."),
    ("procedure", "To roll back a release: freeze the queue, run deploy.sh --to previous, then replay events from the outbox."),
    ("architecture", "The checkout talks to payments through an outbox table, so a payment is never charged twice or lost."),
    ("observation", "Customers in Brazil see timeouts at 18:00 local time; the CDN logs show cache misses on /catalog."),
    ("context", "Ines leads the mobile team until August; after that, ask Tomasz about push notifications."),
    ("decision", "Feature flags live at most 60 days; the flag janitor opens a ticket on day 61."),
    ("observation", "ERR_4711 in the importer means that the supplier's CSV has a byte order mark."),
]
QUESTIONS: list[tuple[str, dict[str, object]]] = [
    ("How do we undo a bad deployment?", {"top_k": 2}),
    ("What does ERR_4711 mean?", {"top_k": 1}),
    ("Whom do I ask about the phone app in autumn?", {"top_k": 1, "explain": True}),
]
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
MAX_WIDTH = 110

console = Console(highlight=False)


def main() -> None:
    """Run the demo from an empty folder to a clean end."""
    folder = Path(tempfile.mkdtemp(prefix="rookery-demo-"))
    try:
        servers, repository = folder / "servers.json", _create_repository(folder / "shop")
        servers.write_text(json.dumps({"mcpServers": _server_entries(repository)}), encoding="utf-8")
        command = [sys.executable, "-m", "rookery", "--data-dir", str(folder / "data"), "serve", "--port", "0"]
        environment = {**os.environ, "ROOKERY_SERVERS": str(servers), "ROOKERY_LOG_LEVEL": "warning"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                _show_requests(_wait_until_ready(folder / "data" / "first-run.json", process), repository)
            finally:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
        console.rule("The server has stopped, and its folder is deleted")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server_entries(repository: Path | None) -> Mapping[str, object]:
    zones = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"], "name": "Time"}
    if repository is None:
        return {"time": zones}
    history = {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(repository)], "name": "The shop's history"}
    return {"time": zones, "git": history}


def _create_repository(path: Path) -> Path | None:
    """Create a git repository with one commit. Return None if git is not installed."""
    if shutil.which("git") is None:
        console.print("git is not installed, so the demo runs without its git server.", style="yellow")
        return None
    path.mkdir(parents=True)
    (path / "README.md").write_text("# The shop\n\nAmounts are integers in cents.\n", encoding="utf-8")
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@example.com", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    for words in (["init"], ["add", "."], ["commit", "-m", "Describe how amounts are stored"]):
        subprocess.run(["git", *identity, *words], cwd=path, check=True, capture_output=True)
    return path


def _wait_until_ready(keys: Path, process: subprocess.Popen[bytes]) -> Mapping[str, str]:
    """Return the content of first-run.json once the server is ready and all tool servers are online."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            first_run = cast("Mapping[str, str]", json.loads(keys.read_text(encoding="utf-8")))
            headers = {"Authorization": f"Bearer {first_run['agent_key']}"}
            ready = httpx2.get(f"{first_run['url']}/readyz", timeout=START_TIMEOUT_S).json()
            listed = httpx2.get(f"{first_run['url']}/api/v1/mcp/servers", headers=headers, timeout=START_TIMEOUT_S).json()
        except (OSError, ValueError, httpx2.TransportError):
            time.sleep(0.05)
            continue
        if ready["status"] == "ok" and all(server["health"] == "online" for server in listed["servers"]):
            return first_run
        time.sleep(0.05)
    sys.exit("The server did not start.")


def _show_requests(first_run: Mapping[str, str], repository: Path | None) -> None:
    console.rule("A server with an empty store")
    console.print(f"Rookery answers on {first_run['url']}; the requests use an agent key.")
    with httpx2.Client(base_url=first_run["url"], headers={"Authorization": f"Bearer {first_run['agent_key']}"}, timeout=60) as client:
        console.rule("Remember: eight notes of a team")
        for kind, content in NOTES:
            _send(client, "POST", "/v1/brain/remember", {"type": kind, "content": content, "org": "acme", "wait_ms": 5000})
        console.rule("Recall: by meaning and by word")
        for question, more in QUESTIONS:
            _send(client, "POST", "/v1/brain/recall", {"query": question, "mode": "hybrid", "org": "acme", **more})
        console.rule("Search: exact words, and words to exclude")
        _send(client, "GET", "/v1/brain/search?q=%22push+notifications%22+-mongodb&org=acme")
        console.rule("Tools: of real MCP servers, with the same key")
        _send(client, "GET", "/api/v1/mcp/servers")
        zones = {"source_timezone": "Europe/Lisbon", "time": "09:30", "target_timezone": "Asia/Tokyo"}
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "convert_time", "arguments": zones})
        again = {**zones, "time": "17:00", "target_timezone": "America/Sao_Paulo"}
        console.print("\nThat call started the server. The next one uses the same process:")
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "convert_time", "arguments": again})
        if repository is not None:
            log = {"repo_path": str(repository), "max_count": 1}
            _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "git", "tool": "git_log", "arguments": log})
        console.rule("An invalid call returns an error that explains it")
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "convert_time", "arguments": {"time": 930}}, expect=400)


def _send(client: httpx2.Client, method: str, path: str, body: object = None, *, expect: int | None = None) -> None:
    """Send a request and show it with its answer. Exit if the status differs from the expected one."""
    answer = client.request(method, path, json=body) if body is not None else client.request(method, path)
    console.print(f"\n[bold cyan]{method} {path}[/]")
    if body is not None:
        _show(body)
    console.print(f"[bold]{answer.status_code}[/] in {answer.elapsed.total_seconds() * 1000:.1f} ms")
    _show(answer.json())
    if answer.status_code != expect and (expect is not None or answer.is_error):
        sys.exit(f"expected {expect or 'success'}, got {answer.status_code}")


def _show(value: object) -> None:
    text = format_json(value, min(console.width, MAX_WIDTH))
    console.print(Syntax(text, "json", word_wrap=True, background_color="default", theme="ansi_dark"))


def format_json(value: object, width: int, indent: int = 0) -> str:
    """Return *value* as JSON in few lines. A value that fits into *width* is on one line; otherwise its parts are on several lines."""
    short = json.dumps(value, ensure_ascii=False)
    if indent + len(short) <= width or not value or not isinstance(value, (dict, list)):
        return short
    inner = indent + 2
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        parts = [f"{json.dumps(name)}: {format_json(part, width, inner)}" for name, part in fields.items()]
    else:
        parts = [format_json(part, width, inner) for part in cast("list[object]", value)]
    lines = [""]
    for part in (*(f"{part}," for part in parts[:-1]), parts[-1]):
        # A part of several lines is easier to read if no other part is beside it.
        fits = "\n" not in lines[-1] and "\n" not in part and inner + len(lines[-1]) + len(part) < width
        if lines[-1] and fits:
            lines[-1] += f" {part}"
        elif lines[-1]:
            lines.append(part)
        else:
            lines[-1] = part
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    margin = f"\n{' ' * inner}"
    return f"{opening}{margin}{margin.join(lines)}\n{' ' * indent}{closing}"


if __name__ == "__main__":
    main()
