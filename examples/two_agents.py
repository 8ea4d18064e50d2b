"""
Two agents, one plan, and a crash: `python examples/two_agents.py`.

Starts a server in a temporary folder, creates a plan from the template `bug-fix`, and starts the agent Kim as a process. In the middle of a
task Kim is killed, as if its machine failed. Lee, another process with another key, receives Kim's hand-off, waits until Kim's lease of the
task expires, and finishes the plan. With `--url` and the key of an administrator in ROOKERY_KEY, it uses an existing server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx2

Json = dict[str, object]

START_TIMEOUT_S = 60
WORK_TIMEOUT_S = 120
LEASE_S = 600
SHORT_LEASE_S = 2
"""Lease of the task in which Kim is killed, so that Lee waits briefly. An agent that thinks for minutes uses a longer one, and heartbeats.
"""

TASKS_BEFORE_CRASH = 2
BUG: Json = {"summary": "The kettle does not whistle", "component": "the kitchen", "severity": "high"}


def main() -> None:
    """Run the story, or one of its agents."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    arguments.add_argument("--url", help="Address of an existing server; ROOKERY_KEY contains its administrator's key.")
    arguments.add_argument("--work", metavar="AGENT", help=argparse.SUPPRESS)
    arguments.add_argument("--plan", help=argparse.SUPPRESS)
    arguments.add_argument("--crash-after", type=int, default=0, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.work:
        work(Api(chosen.url, os.environ["ROOKERY_KEY"]), chosen.work, chosen.plan, crash_after=chosen.crash_after)
    elif chosen.url:
        play(chosen.url, os.environ["ROOKERY_KEY"])
    else:
        with tempfile.TemporaryDirectory(prefix="rookery-") as folder, run_server(Path(folder)) as (url, key):
            play(url, key)


def play(url: str, key: str) -> None:
    """Run both agents, one after the other."""
    admin = Api(url, key)
    plan = admin.post("/v1/templates/bug-fix/plans", {"variables": BUG, "status": "active"})
    slug, total = str(plan["slug"]), cast("Json", plan["progress"])["total"]
    print(f"The plan {slug!r} has {total} tasks in {len(cast('list[Json]', plan['phases']))} phases.")
    kim, lee = (admin.agent_key(name) for name in ("kim", "lee"))

    with run_agent(url, kim, "kim", slug, crash_after=TASKS_BEFORE_CRASH) as first:
        for line in first.stdout or ():
            print(line, end="", flush=True)
            if "is in the middle of" in line:
                first.kill()  # SIGKILL: the session is not ended, and the lease is not released
        print("--- kim was killed ---")
    with run_agent(url, lee, "lee", slug) as second:
        for line in second.stdout or ():
            print(line, end="", flush=True)
        if second.wait(WORK_TIMEOUT_S) != 0:
            sys.exit("lee did not finish")

    done = admin.get(f"/v1/plans/{slug}")
    print(f"The plan is {done['status']}: {cast('Json', done['progress'])['percentage']} %.")
    if done["status"] != "completed":
        sys.exit("the plan was not finished")


def work(api: Api, me: str, plan: str, *, crash_after: int) -> None:
    """Run an agent: start a session, claim and complete tasks while there are any, end the session."""
    created = api.post("/v1/sessions", {"agent_type": "example", "agent_id": me, "plan": plan, "goal": "Fix it"})
    session, boot = str(cast("Json", created["session"])["id"]), cast("Json", created["boot"])
    handoff, checkpoint = cast("Json | None", boot["handoff"]), cast("Json | None", boot["checkpoint"])
    if handoff is not None:
        steps = ", ".join(cast("list[str]", handoff["next_steps"]))
        print(f"{me} has a hand-off of {handoff['agent_id']}: {handoff['summary']} Next: {steps}")
        api.send("PATCH", f"/v1/sessions/{session}", {"acknowledge_handoff": "loaded"})
    if checkpoint is not None:
        print(f"{me} continues from the checkpoint: {json.dumps(checkpoint['state'])}")
    finished: list[str] = []
    while True:
        crashes = crash_after > 0 and len(finished) == crash_after
        lease_s = SHORT_LEASE_S if crashes else LEASE_S
        task = api.post("/v1/tasks/claim-next", {"plan": plan, "session_id": session, "ttl_s": lease_s, "wait_s": 20})
        if "id" not in task:
            break
        name, its = str(task["name"]), f"/v1/tasks/{task['id']}"
        if crashes:
            api.event(session, type="checkpoint", message=f"Began {name}", state={"finished": finished, "doing": name})
            notes = {"summary": f"{len(finished)} tasks are done.", "next_steps": [f"Go on with: {name}"]}
            api.send("PATCH", f"/v1/sessions/{session}", {"handoff": notes})
            print(f"{me} is in the middle of: {name}", flush=True)
            time.sleep(WORK_TIMEOUT_S)  # killed meanwhile
        print(f"{me} does: {name}" + (f" (attempt {cast('int', task['attempts']) + 1})" if task["attempts"] else ""), flush=True)
        api.event(session, type="action", message=f"Did it: {name}", task_id=task["id"])
        api.post(f"{its}/complete", {"claim_token": task["claim_token"], "result": f"{me} did it."})
        finished.append(name)
        close_phases(api, plan)
    api.post(f"/v1/sessions/{session}/end", {"status": "completed", "summary": f"{me} finished {len(finished)} tasks."})


def close_phases(api: Api, plan: str) -> None:
    """Complete the phases in which all tasks are done. Completing the last phase completes the plan."""
    for phase in cast("list[Json]", api.get(f"/v1/plans/{plan}")["phases"]):
        if phase["completable"]:
            api.send("PATCH", f"/v1/plans/{plan}/phases/{phase['id']}/status", {"status": "completed"})


class Api:
    """A client of the server with one key. An error answer ends the program with its message."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30)

    def get(self, path: str) -> Json:
        """Send GET *path* and return the body."""
        return self.send("GET", path)

    def post(self, path: str, body: Json) -> Json:
        """Send POST *path* with *body* and return the answer's body."""
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: Json | None = None) -> Json:
        """Send a request and return the answer's body; an empty dictionary if it has none."""
        answer = self._http.request(method, path) if body is None else self._http.request(method, path, json=body)
        if not answer.is_success:
            sys.exit(f"{method} {path}: {answer.status_code} {answer.text}")
        return cast("Json", answer.json()) if answer.content else {}

    def event(self, session: str, **fields: object) -> None:
        """Record an event of a session."""
        self.post(f"/v1/sessions/{session}/events", fields)

    def agent_key(self, agent: str) -> str:
        """Create a key for *agent* with the permissions of an agent."""
        permissions = ["plans.read", "phases.write", "sessions.read", "sessions.write"]
        made = self.post("/api/v1/agent-keys", {"name": f"{agent} {os.getpid()}", "agent_id": agent, "permissions": permissions})
        return str(made["key"])


@contextmanager
def run_agent(url: str, key: str, name: str, plan: str, *, crash_after: int = 0) -> Generator[subprocess.Popen[str]]:
    """Run an agent as a child process, which is killed at the end of the block."""
    command = [sys.executable, __file__, "--url", url, "--work", name, "--plan", plan, "--crash-after", str(crash_after)]
    with subprocess.Popen(command, env={**os.environ, "ROOKERY_KEY": key}, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def run_server(folder: Path) -> Generator[tuple[str, str]]:
    """Run a server on *folder*. Yield its address and the administrator's key."""
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment["ROOKERY_MIN_FREE_DISK_MB"] = "0"
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            yield wait_until_ready(folder, process)
        finally:
            process.terminate()


def wait_until_ready(folder: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Return the address and the administrator's key once the server answers."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            made = json.loads((folder / "first-run.json").read_text(encoding="utf-8"))
            httpx2.get(made["url"] + "/healthz", timeout=2).raise_for_status()
            return made["url"], made["api_key"]
        except (OSError, ValueError, httpx2.HTTPError):
            time.sleep(0.05)
    sys.exit((folder / "server.log").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
