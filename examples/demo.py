"""
See Rookery at work: `make demo`.

Starts a server of its own in a folder that goes again, remembers real notes, recalls them by meaning and by word, and calls
tools of two real MCP servers (the time anywhere; this demo's own git repository). Each request and its answer is shown.
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
    ("How do we undo a bad deployment?", {}),
    ("What does ERR_4711 mean?", {}),
    ("Whom do I ask about the phone app in autumn?", {"explain": True, "top_k": 1}),
]
START_S = 60

console = Console()


def main() -> None:
    """Run the story from an empty folder to a clean end."""
    folder = Path(tempfile.mkdtemp(prefix="rookery-demo-"))
    try:
        servers, repository = folder / "servers.json", _repository(folder / "shop")
        servers.write_text(json.dumps(_servers(repository)), encoding="utf-8")
        command = [sys.executable, "-m", "rookery", "--data-dir", str(folder / "data")]
        environment = {**os.environ, "ROOKERY_SERVERS": str(servers)}
        console.rule("A server of its own")
        with subprocess.Popen([*command, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                _tell(_wait(folder / "data" / "first-run.json", process), repository)
            finally:
                process.terminate()
                process.wait(START_S)
        console.rule("The server has stopped, and its folder goes")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _servers(repository: Path) -> Mapping[str, object]:
    return {
        "mcpServers": {
            "time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "git": {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(repository)]},
        }
    }


def _repository(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "README.md").write_text("# The shop\n\nAmounts are integers in cents.\n", encoding="utf-8")
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@example.com", "-c", "init.defaultBranch=main"]
    for words in (["init"], ["add", "."], ["commit", "-m", "Say how amounts are kept"]):
        subprocess.run(["git", *identity, *words], cwd=path, check=True, capture_output=True)
    return path


def _wait(keys: Path, process: subprocess.Popen[str]) -> Mapping[str, str]:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if keys.exists() and (text := keys.read_text(encoding="utf-8")):
            made = json.loads(text)
            try:
                httpx2.get(f"{made['url']}/healthz", timeout=1).raise_for_status()
            except httpx2.TransportError:
                time.sleep(0.05)
            else:
                return made
        time.sleep(0.05)
    console.print("The server did not start.", style="bold red")
    sys.exit(1)


def _tell(made: Mapping[str, str], repository: Path) -> None:
    console.print(f"Rookery answers on {made['url']}", highlight=False)
    with httpx2.Client(base_url=made["url"], headers={"Authorization": f"Bearer {made['agent_key']}"}, timeout=60) as client:
        console.rule("Remember: eight notes of a team")
        for number, (kind, content) in enumerate(NOTES):
            body = {"type": kind, "content": content, "org": "acme", "project": "shop", "wait_ms": 5000}
            _send(client, "POST", "/v1/brain/remember", body, quiet=0 < number < len(NOTES) - 1)
        console.rule("Recall: by meaning and by word at once")
        for question, more in QUESTIONS:
            _send(client, "POST", "/v1/brain/recall", {"query": question, "mode": "hybrid", "top_k": 2, "org": "acme", **more})
        _send(client, "GET", "/v1/brain/search?q=%22rounding+in%22+-mongodb&org=acme")
        console.rule("Tools: two real MCP servers behind the same key")
        _send(client, "GET", "/api/v1/mcp/servers")
        arguments = {"source_timezone": "Europe/Lisbon", "time": "09:30", "target_timezone": "Asia/Tokyo"}
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "convert_time", "arguments": arguments})
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "git", "tool": "git_log", "arguments": {"repo_path": str(repository)}})
        console.rule("And a mistake is told in words")
        _send(client, "POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "convert_time", "arguments": {"time": 930}}, expect=400)


def _send(client: httpx2.Client, method: str, path: str, body: object = None, *, expect: int | None = None, quiet: bool = False) -> None:
    answer = client.request(method, path, json=body) if body is not None else client.request(method, path)
    if expect is None:
        answer.raise_for_status()
    elif answer.status_code != expect:
        console.print(f"expected {expect}, got {answer.status_code}: {answer.text}", style="bold red")
        sys.exit(1)
    if quiet:
        return
    console.print(f"[bold cyan]{method} {path}[/]", highlight=False)
    if body is not None:
        console.print(Syntax(json.dumps(body, ensure_ascii=False, indent=2), "json", word_wrap=True, background_color="default"))
    console.print(f"[bold]→ {answer.status_code}[/] in {answer.elapsed.total_seconds() * 1000:.1f} ms", highlight=False)
    console.print(Syntax(json.dumps(answer.json(), ensure_ascii=False, indent=2), "json", word_wrap=True, background_color="default"))


if __name__ == "__main__":
    main()
