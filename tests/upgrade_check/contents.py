"""The contents of the folder: stored in an older version, over HTTP as a client of that version does."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import httpx2

from tests.upgrade_check import variable_server
from tests.upgrade_check.receiver import Receiver
from tests.upgrade_check.versions import LIMIT_S, SECRET_VARIABLE, RunningServer

Json = dict[str, object]

ORG, FACTS_ORG, AGENT = "acme", "facts", "pilot"
MEMORIES = 440
SERVER_SECRET = "Bearer the-secret-of-a-workspace-server"
REPLAYED = {"content": "Stored once, whatever is repeated.", "type": "fact", "org": "replays"}
REPLAY_KEY = "upgrade-check-replay"
FACTS = {
    "Which day is bread delivered?": "The bakery brings the loaves on Thursday mornings.",
    "How heavy a load can the crane lift?": "The harbour crane carries at most forty tons.",
    "Who repairs the lift?": "Call Anna Berger when the elevator is stuck between floors.",
    "Where is the spare key?": "A second key to the office hangs behind the fire extinguisher.",
    "Why was the release postponed?": "Version four was delayed because the payment tests failed.",
    "What do we use to store sessions?": "User sessions live in Valkey with a time to live of one hour.",
    "How are invoices numbered?": "Bills get consecutive numbers that begin with the year.",
    "May we eat in the reading room?": "Food and drinks are forbidden in the library.",
}
"""Questions with the memory that answers each. They are as different as facts are: of near-equal texts, each version picks others."""

_LEASE_S = 3600
_EXPIRY_S = 45
_NOT_FOUND = 404
_BATCH = 100
_PLACES = ("harbour", "mill", "library", "observatory", "bakery", "museum", "quarry", "orchard")
_THINGS = ("crane", "boiler", "catalogue", "telescope", "oven", "gallery", "conveyor", "press")
_STATES = ("is painted every spring", "was repaired after the storm", "stops at noon", "needs two people", "has a spare part in the cellar")
_TYPES = ("fact", "convention", "decision", "observation")


@dataclass(slots=True)
class Contents:
    """
    The stored things that a client goes on with, and the secrets that were shown once.

    Attributes:
        keys: Keys of each kind and state, by a name for the state.
        webhooks: The id of each webhook with the secrets that sign its deliveries, newest first.
        held: The webhook that is disabled, for which deliveries wait.
        held_delivery: The first of them.
        absent: Kinds of contents that the older version does not have.
    """

    keys: dict[str, str] = field(default_factory=dict[str, str])
    memory_ids: dict[str, str] = field(default_factory=dict[str, str])
    replaced_memory: str = ""
    archived_memory: str = ""
    plan: str = ""
    task: str = ""
    claim_token: str = ""
    session: str = ""
    replayed_memory: str = ""
    webhooks: dict[str, tuple[str, list[str]]] = field(default_factory=dict[str, tuple[str, list[str]]])
    held: str = ""
    held_delivery: str = ""
    absent: list[str] = field(default_factory=list[str])


def write_servers_file(data: Path) -> None:
    """Write servers.json with a program whose environment has a secret of the server's."""
    data.mkdir(mode=0o700)
    entry = {
        "command": sys.executable,
        "args": ["-I", "-S", str(Path(variable_server.__file__))],
        "env": {"SECRET": f"${{{SECRET_VARIABLE}}}"},
        "start_timeout_s": 600,  # a machine may have other work; versions without this field ignore it
    }
    (data / "servers.json").write_text(json.dumps({"mcpServers": {"variable": entry}}), encoding="utf-8")


def fill(server: RunningServer, receiver: Receiver) -> Contents:
    """Store something of each kind, and return what a client of that version has afterwards."""
    contents = Contents()
    with server.connect() as client:
        filling = _Filling(client, receiver, contents)
        filling.add_webhooks()
        filling.add_servers()
        filling.add_memories()
        filling.add_keys()
        filling.add_plans()
        filling.add_session()
        filling.add_later_domains()
        filling.wait()
        filling.disable_webhook()
    return contents


class _Filling:
    def __init__(self, client: httpx2.Client, receiver: Receiver, contents: Contents) -> None:
        self._client = client
        self._receiver = receiver
        self._contents = contents
        self._expires_at = datetime.now(UTC)

    def _post(self, path: str, body: Mapping[str, object], **headers: str) -> Json:
        return cast("Json", _require_success(self._client.post(path, json=dict(body), headers=headers)).json())

    def add_webhooks(self) -> None:
        for name in ("plain", "rotated", "held"):
            body = {"url": self._receiver.url(name), "events": ["memory.*"]}
            created = self._post("/api/v1/webhooks", body)
            self._contents.webhooks[name] = (str(created["id"]), [str(created["secret"])])
        endpoint, secrets = self._contents.webhooks["rotated"]
        rotated = self._post(f"/api/v1/webhooks/{endpoint}/rotate-secret", {"grace_period_hours": 720})
        self._contents.webhooks["rotated"] = (endpoint, [str(rotated["secret"]), *secrets])

    def add_servers(self) -> None:
        body = {
            "id": "echo",
            "url": self._receiver.url("mcp"),
            "headers": {"Authorization": "${TOKEN}"},
            "secrets": {"TOKEN": SERVER_SECRET},
            "tagline": "Returns what it was sent",
        }
        self._post("/api/v1/servers", body)
        self._post("/api/v1/servers", {"id": "resting", "url": self._receiver.url("mcp"), "enabled": False})

    def add_memories(self) -> None:
        ids = self._contents.memory_ids
        has_metadata = self._client.post("/v1/brain/remember", json=_draft(0)).is_success
        if not has_metadata:
            self._contents.absent.append("metadata of memories")
        drafts = [_draft(number, has_metadata=has_metadata) for number in range(MEMORIES)]
        for start in range(0, MEMORIES, _BATCH):
            batch = drafts[start : start + _BATCH]
            answer = self._post("/v1/brain/remember/batch", {"memories": batch})
            for draft, result in zip(batch, cast("list[Json]", answer["results"]), strict=True):
                if result["error"]:
                    msg = f"a memory was refused: {result['error']}"
                    raise RuntimeError(msg)
                ids[str(cast("Json", result["memory"])["id"])] = str(draft["content"])
        facts = [{"content": fact, "type": "fact", "org": FACTS_ORG, "project": "office"} for fact in FACTS.values()]
        self._post("/v1/brain/remember/batch", {"memories": facts})
        old = self._post("/v1/brain/remember", {"content": "The gate opens at eight.", "type": "fact", "org": ORG, "project": "gates"})
        new_body = {"content": "The gate opens at nine.", "type": "fact", "org": ORG, "project": "gates", "supersedes_id": old["id"]}
        self._contents.replaced_memory = str(self._post("/v1/brain/remember", new_body)["id"])
        away = self._post("/v1/brain/remember", {"content": "The kiosk is closed.", "type": "fact", "org": ORG, "project": "gates"})
        self._contents.archived_memory = str(away["id"])
        self._client.post(f"/v1/brain/memories/{away['id']}/archive").raise_for_status()
        replayed = self._post("/v1/brain/remember", REPLAYED, **{"Idempotency-Key": REPLAY_KEY})
        self._contents.replayed_memory = str(replayed["id"])

    def add_keys(self) -> None:
        keys = self._contents.keys
        keys["first"] = self._client.headers["Authorization"].removeprefix("Bearer ")
        self._expires_at = datetime.now(UTC) + timedelta(seconds=_EXPIRY_S)
        reader = {"scopes": ["brain:read", "mcp:read"], "rate_limit_tier": "free"}
        self._create("api", "reader", reader)
        self._create("api", "expired", {**reader, "expires_at": self._expires_at.isoformat()})
        self._create("api", "sandbox", {"scopes": ["brain:read", "brain:write"], "environment": "test"})
        with httpx2.Client(
            base_url=self._client.base_url, headers={"Authorization": f"Bearer {keys['sandbox']}"}, trust_env=False
        ) as sandbox:
            sandbox.post("/v1/brain/remember", json={"content": "Only for tests.", "type": "fact", "org": ORG}).raise_for_status()
        rotated = self._create("api", "in its grace period", {**reader, "scopes": ["brain:read", "plans.read"]})
        self._rotate("api", rotated, 48, "successor")
        replaced = self._create("api", "replaced at once", reader)
        self._rotate("api", replaced, 0, "second successor")
        suspended = self._create("api", "suspended", reader)
        self._client.post(f"/api/v1/api-keys/{suspended}/suspend").raise_for_status()
        deleted = self._create("api", "deleted", reader)
        self._client.delete(f"/api/v1/api-keys/{deleted}").raise_for_status()
        self._create("agent", "agent", {"preset": "agent"})
        self._create("agent", "revoked", {"preset": "reader"})
        revoked = self._find_agent_key("revoked")
        self._client.post(f"/api/v1/agent-keys/{revoked}/revoke").raise_for_status()
        self._create(
            "agent",
            "limited",
            {"permissions": ["brain:read", "mcp:read", "mcp:write"], "rate_limit": 900, "servers": ["echo"], "orgs": [ORG]},
        )
        for name, network in (("here", "127.0.0.0/8"), ("elsewhere", "192.0.2.0/24")):
            key_id = self._create("agent", name, {"preset": "reader"})
            body = {"ips": [network], "ip_restriction": True}
            self._client.put(f"/api/v1/agent-keys/{key_id}/ips", json=body).raise_for_status()
        workspace = self._post("/api/v1/workspaces", {"name": "neighbour"})
        created = self._post(f"/api/v1/workspaces/{workspace['workspace_id']}/api-keys", {"name": "neighbour", "scopes": ["*"]})
        keys["other workspace"] = str(created.get("plaintext_key") or created.get("key"))
        with httpx2.Client(
            base_url=self._client.base_url, headers={"Authorization": f"Bearer {keys['other workspace']}"}, trust_env=False
        ) as other:
            other.post("/v1/brain/remember", json={"content": "The neighbour's cat.", "type": "fact", "org": ORG}).raise_for_status()

    def _create(self, kind: str, name: str, body: Mapping[str, object]) -> str:
        created = self._post(f"/api/v1/{kind}-keys", {"name": name, **body})
        self._contents.keys[name] = str(created.get("plaintext_key") or created.get("key"))
        return str(created["id"])

    def _rotate(self, kind: str, key_id: str, hours: int, name: str) -> None:
        created = self._post(f"/api/v1/{kind}-keys/{key_id}/rotate", {"grace_period_hours": hours})
        self._contents.keys[name] = str(created.get("plaintext_key") or created.get("key"))

    def _find_agent_key(self, name: str) -> str:
        listed = cast("Json", self._client.get("/api/v1/agent-keys", params={"per_page": 100}).raise_for_status().json())
        return next(str(key["id"]) for key in cast("list[Json]", listed["data"]) if key["name"] == name)

    def add_plans(self) -> None:
        tasks: list[object] = ["dump the data", {"name": "check the dump", "depends_on": ["dump the data"], "priority": 0}]
        phases = [{"name": "Prepare", "tasks": tasks}, {"name": "Switch", "depends_on": ["Prepare"], "tasks": ["change the address"]}]
        plan = self._post("/v1/plans", {"title": "Move to PostgreSQL", "status": "active", "org": ORG, "phases": phases})
        self._contents.plan = str(plan["slug"])
        claimed = self._post("/v1/tasks/claim-next", {"plan": plan["slug"], "ttl_s": _LEASE_S})
        self._contents.task, self._contents.claim_token = str(claimed["id"]), str(claimed["claim_token"])
        template = {
            "name": "Hotfix",
            "description": "Repair production.",
            "variables": {"target": {"description": "The broken part."}, "level": {"enum": ["low", "high"], "default": "high"}},
            "plan": {"title": "Repair {{ target }}", "metadata": {"level": "{{ level }}"}},
            "phases": [{"name": "Repair {{ target }}", "tasks": ["Undo the last change"]}],
        }
        self._post("/v1/templates", {**template, "slug": "hotfix"})
        self._client.put("/v1/templates/hotfix", json={**template, "description": "Repair production at once."}).raise_for_status()
        self._post("/v1/templates/hotfix/plans", {"variables": {"target": "the kettle"}})
        self._post("/v1/templates/bug-fix/copies", {"slug": "our-bug-fix"})

    def add_session(self) -> None:
        body = {"agent_type": "claude-code", "goal": "Fix the upload test", "plan": self._contents.plan}
        started = cast("Json", self._post("/v1/sessions", body)["session"])
        self._contents.session = str(started["id"])
        path = f"/v1/sessions/{started['id']}/events"
        self._post(path, {"type": "note", "message": "The test fails with two workers."})
        self._post(path, {"type": "decision", "message": "No sleeps.", "data": {"because": "they hide races"}})
        self._post(path, {"type": "checkpoint", "message": "Half done.", "state": {"file": "upload.py", "line": 40}})
        memory = {"content": "The fixture is shared.", "type": "fact", "org": ORG, "memory_scope": "session", "session_id": started["id"]}
        self._post("/v1/brain/remember", memory)

    def add_later_domains(self) -> None:
        """Store subscribers, campaigns and prompt templates, if the version has them."""
        subscriber = {"external_id": "user-42", "channels": [{"type": "webhook", "url": self._receiver.url("inbox")}], "tags": ["beta"]}
        campaign = {"name": "News", "title": "News", "body": "Hello {{ external_id }}", "audience": {"tags": ["beta"]}}
        messages = [{"role": "user", "content": "Greet {{ name }}."}]
        prompt = {"slug": "greeting", "name": "Greeting", "variables": {"name": {"description": "Who."}}, "messages": messages}
        for kind, path, body in (
            ("subscribers", "/api/agent/notify/subscribers", subscriber),
            ("campaigns", "/api/agent/notify/campaigns", campaign),
            ("prompt templates", "/api/agent/content/templates", prompt),
        ):
            answer = self._client.post(path, json=body)
            if answer.status_code == _NOT_FOUND:
                self._contents.absent.append(kind)
            else:
                _require_success(answer)

    def wait(self) -> None:
        """Wait for the last batch, whose vectors are computed after the answer, and for the expiry of a key."""
        time.sleep(max(0.0, (self._expires_at - datetime.now(UTC)).total_seconds()))
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            last = cast("Json", self._client.get(f"/v1/brain/memories/{list(self._contents.memory_ids)[-1]}").raise_for_status().json())
            session = cast("Json", self._client.get("/v1/brain/memories", params={"per_page": 1}).raise_for_status().json())
            newest = cast("list[Json]", session["data"])[0]
            if last.get("indexed", True) and newest.get("indexed", True):
                return
            time.sleep(0.2)
        msg = "the older version did not index its memories in time"
        raise RuntimeError(msg)

    def disable_webhook(self) -> None:
        """Disable an endpoint, and store a memory whose delivery is held for it."""
        self._contents.held = self._contents.webhooks["held"][0]
        self._client.patch(f"/api/v1/webhooks/{self._contents.held}", json={"enabled": False}).raise_for_status()
        self._post("/v1/brain/remember", {"content": "Held back for a receiver.", "type": "fact", "org": "held", "wait_ms": 5000})
        deadline = time.monotonic() + LIMIT_S
        while not self._contents.held_delivery and time.monotonic() < deadline:
            listed = self._client.get(f"/api/v1/webhooks/{self._contents.held}/deliveries", params={"status": "held"})
            waiting = cast("list[Json]", cast("Json", _require_success(listed).json())["data"])
            self._contents.held_delivery = str(waiting[0]["id"]) if waiting else ""
            time.sleep(0.1)


def _require_success(response: httpx2.Response) -> httpx2.Response:
    """
    Return the response.

    Raises:
        RuntimeError: It is an error; the message has its text, since bodies of older versions are hard to guess.
    """
    if not response.is_success:
        msg = f"{response.request.method} {response.request.url.path}: {response.status_code} {response.text[:500]}"
        raise RuntimeError(msg)
    return response


def _draft(number: int, *, has_metadata: bool = True) -> Json:
    """Return a memory whose words occur in others too, with its own number as a word."""
    place, thing = _PLACES[number % len(_PLACES)], _THINGS[number // 8 % len(_THINGS)]
    draft: Json = {
        "content": f"The {thing} of the {place} {_STATES[number % len(_STATES)]}, says note number n{number:04}.",
        "type": _TYPES[number % len(_TYPES)],
        "org": ORG,
        "project": place,
        "tags": [thing, f"shelf-{number % 5}"],
    }
    if has_metadata and number % 7 == 0:
        draft["metadata"] = {"shelf": number % 5, "checked": number % 2 == 0}
    if number % 11 == 0:
        draft |= {"memory_scope": "agent", "agent_id": AGENT}
    if number % 13 == 0:
        draft |= {"memory_scope": "shared"}
    return draft
