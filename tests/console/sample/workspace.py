"""A workspace of a small company, filled through the API over two weeks of its own clock: all that the console has pages for."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.migrations import migrate
from tests.chat_service import ChatService, answer, fail
from tests.conftest import Caller, FakeClock, Instance, run_instance
from tests.webhooks.receiver import Receiver, Reply

Json = dict[str, object]

DAYS = 14
_HERE = Path(__file__).parent
_COMPANY = cast("dict[str, list[Json]]", json.loads((_HERE / "company.json").read_text(encoding="utf-8")))
_SHOP = {
    "command": sys.executable,
    "args": [str(_HERE / "shop_tools.py")],
    "name": "Shop",
    "tagline": "Orders of the shop",
    "use_when": "You need to look up, create, ship or refund an order.",
}
_TIME = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"], "name": "Time", "tagline": "Time zones"}
_LONG_WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft "
_FAILED_SHARE = 0.12
_QUIET_DAYS = frozenset({2, 3, 9, 10})
_WORK_DAYS = frozenset({2, 5, 8})


@dataclass(slots=True)
class SampleServices:
    """The services outside of Rookery: a language model, an endpoint that works and one that fails."""

    model: ChatService
    receiver: Receiver
    broken: Receiver


def make_settings(folder: Path, services: SampleServices) -> Settings:
    """Return the settings of the sample's server."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        data_dir=folder,
        bcrypt_cost=4,
        min_free_disk_mb=0,
        egress_allow=("127.0.0.0/8",),
        tool_arguments=True,
        generation=Secret(services.model.url("ok")),
        generation_prices=(("*", 250, 2_000),),
        generation_daily_budget=5 * 10**9,
    )
    settings.servers_file.write_text(json.dumps({"mcpServers": {"shop": _SHOP, "time": _TIME}}), encoding="utf-8")
    return settings


async def fill(settings: Settings, services: SampleServices, days: int = DAYS) -> dict[str, str]:
    """Fill a server on *settings*, whose clock begins *days* and an hour ago; return its keys by their names."""
    await asyncio.to_thread(migrate, "embedded:", data_dir=settings.data_dir)
    clock = FakeClock(utc_now() - timedelta(days=days, hours=1))
    async with run_instance(settings, clock) as instance:
        story = _Story(instance, clock, services)
        await story.play(days)
        return story.keys


class _Story:
    """The work of the company, day by day."""

    def __init__(self, instance: Instance, clock: FakeClock, services: SampleServices) -> None:
        self._admin = instance.admin
        self._clock = clock
        self._services = services
        self._random = random.Random(42)
        self.keys = {"first": instance.admin.key or "", "agent": instance.agent.key or ""}

    async def play(self, days: int) -> None:
        """Fill the workspace, from the oldest day to now."""
        await self._create_keys()
        await self._create_endpoints()
        await self._write_long_memory()
        memories = self._make_memories()
        share = len(memories) // days + 1
        plan = await self._send("POST", "/v1/plans", {**cast("Json", _COMPANY["plan"]), "status": "active"})
        for day in range(days):
            start = self._clock.at
            for memory in memories[day * share : (day + 1) * share]:
                self._clock.advance(minutes=self._random.randint(3, 40))
                await self._send("POST", "/v1/brain/remember", memory)
            await self._call_tools(4 if day in _QUIET_DAYS else 14 + 3 * day)
            await self._generate(1 + day % 3)
            if day in _WORK_DAYS:
                await self._work_on_plan(str(plan["slug"]), f"Release 4.2, step {day // 3 + 1}")
            self._clock.at = start + timedelta(days=1)
        await self._write_special_memories()
        await self._write_plans_and_templates()
        await self._send_campaigns()
        await self._begin_work()
        other = await self._send("POST", "/api/v1/workspaces", {"name": "agency"})
        path = f"/api/v1/workspaces/{other['workspace_id']}/api-keys"
        self.keys["other"] = str((await self._send("POST", path, {"name": "agency admin", "scopes": ["*"]}))["plaintext_key"])
        await asyncio.sleep(1)  # deliveries of webhooks and campaigns are on their way

    async def _send(self, method: str, path: str, body: object = None, *, by: Caller | None = None, may_fail: bool = False) -> Json:
        response = await (by or self._admin).send(method, path, body)
        if response.is_error and not may_fail:
            msg = f"{method} {path}: {response.status_code} {response.text}"
            raise RuntimeError(msg)
        return cast("Json", response.json()) if response.content else {}

    async def _create_keys(self) -> None:
        for name, scopes in cast("dict[str, list[str]]", _COMPANY["keys"]).items():
            await self._create_key("api-keys", name, scopes=scopes)
        await self._create_key("api-keys", "sandbox", scopes=["*"], environment="test")
        expiry = (self._clock.at + timedelta(days=2)).isoformat()
        await self._create_key("api-keys", "trial of the agency", scopes=["console:read", "brain:read"], expires_at=expiry)
        for name in ("claude-code on ines-laptop", "cursor on tomasz-desktop"):
            await self._create_key("agent-keys", name, preset="agent")
        limited = await self._create_key("agent-keys", "codex on build-7", preset="agent")
        await self._send("PUT", f"/api/v1/agent-keys/{limited['id']}/ips", {"ips": ["10.1.0.0/16"]})
        lost = await self._create_key("agent-keys", "old agent", preset="reader")
        await self._send("POST", f"/api/v1/agent-keys/{lost['id']}/revoke")

    async def _create_key(self, kind: str, name: str, **fields: object) -> Json:
        created = await self._send("POST", f"/api/v1/{kind}", {"name": name, **fields})
        self.keys[name] = str(created.get("plaintext_key") or created["key"])
        return created

    async def _create_endpoints(self) -> None:
        """Create webhooks of which one works, and servers of which none does."""
        self._services.broken.reply = lambda _: Reply(status=500, body=b'{"error": "the queue of the chat is full"}')
        self._services.receiver.reply = lambda _: Reply(status=204, body=b"")
        silent = "http://127.0.0.1:9/nothing-listens-here/with/a/rather/long/path/to/see/how/it/breaks"
        for url, events, description in (
            (self._services.receiver.url, ["plan.*", "task.*", "session.*"], "Dashboard of the team"),
            (self._services.broken.url, ["task.*", "key.*"], "Chat of operations"),
            (silent, ["*"], ""),
        ):
            await self._send("POST", "/api/v1/webhooks", {"url": url, "events": events, "description": description})
        advice = "Contacts and offers of the sales team."
        crm = {"id": "crm", "url": "http://127.0.0.1:9/mcp", "name": "Customer relations", "description": advice}
        for server in (crm, {"id": "wiki", "url": "http://127.0.0.1:9/wiki/mcp", "name": "Wiki", "enabled": False}):
            await self._send("POST", "/api/v1/servers", server)

    def _make_memories(self) -> list[Json]:
        memories = [self._make_memory(scope="shared" if number % 9 == 8 else "project", **each) for number, each in _enumerate("memories")]
        people, months = (cast("list[str]", _COMPANY[name]) for name in ("people", "months"))
        for number, entry in _enumerate("subjects"):
            subject = str(entry["subject"])
            for place, finding in enumerate(cast("list[str]", _COMPANY["findings"])):
                content = finding.format(
                    subject=subject,
                    version=f"{3 + number % 5}.{place + 1}",
                    person=people[(number + place) % len(people)],
                    month=months[(number + 2 * place) % len(months)],
                )
                tags = [subject.rsplit(maxsplit=1)[-1]]
                memories.append(self._make_memory(project=entry["project"], type=entry["type"], content=content, tags=tags))
        self._random.shuffle(memories)
        return memories

    def _make_memory(self, *, scope: str = "project", **fields: object) -> Json:
        agent, confidence = (
            self._random.choice(("claude-code", "codex", "cursor", "importer")),
            self._random.choice((0.6, 0.7, 0.8, 0.9, 1.0)),
        )
        return {"org": "acme", "memory_scope": scope, "agent_id": agent, "confidence": confidence, **fields}

    async def _call_tools(self, count: int) -> None:
        calls = cast("Sequence[Sequence[object]]", _COMPANY["calls"])
        weights = [cast("int", weight) for weight, *_ in calls]
        for _ in range(count):
            self._clock.advance(minutes=self._random.randint(2, 12))
            _, server, tool, arguments = self._random.choices(calls, weights)[0]
            await self._send("POST", "/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments}, may_fail=True)

    async def _generate(self, count: int) -> None:
        pairs = cast("Sequence[tuple[str, str]]", _COMPANY["generations"])
        for prompt, text in pairs[:count]:
            self._clock.advance(minutes=self._random.randint(5, 50))
            fails = self._random.random() < _FAILED_SHARE
            self._services.model.queue.append(fail(500, "the model is overloaded") if fails else answer(text))
            messages = [{"role": "system", "content": "Write plainly."}, {"role": "user", "content": prompt}]
            await self._send("POST", "/api/agent/content/generations", {"messages": messages, "mode": "sync"}, may_fail=True)

    async def _work_on_plan(self, slug: str, goal: str) -> None:
        """Complete two tasks in a session, and hand off."""
        body: Json = {"agent_type": "claude-code", "agent_id": "claude-code", "plan": slug, "goal": goal}
        session = await self._start_session(body)
        for _ in range(2):
            task = await self._send("POST", "/v1/tasks/claim-next", {"plan": slug, "session_id": session, "ttl_s": 3600})
            if "id" not in task:
                break
            await self._add_event(session, "action", f"Began: {task['name']}")
            await self._add_event(session, "decision", "Kept the old column for one release, so that a rollback needs no migration.")
            done = {"claim_token": task["claim_token"], "result": "Done, see the pull request."}
            await self._send("POST", f"/v1/tasks/{task['id']}/complete", done)
        await self._add_event(session, "error", "deploy.sh: node 4 did not become ready within 120 s")
        await self._send("PATCH", f"/v1/sessions/{session}", {"handoff": _COMPANY["handoff"]})
        await self._send("POST", f"/v1/sessions/{session}/end", {"status": "completed", "summary": "Two tasks are done."})

    async def _start_session(self, body: Json) -> str:
        return str(cast("Json", (await self._send("POST", "/v1/sessions", body))["session"])["id"])

    async def _add_event(self, session: str, kind: str, message: str) -> None:
        self._clock.advance(minutes=self._random.randint(2, 20))
        await self._send("POST", f"/v1/sessions/{session}/events", {"type": kind, "message": message})

    async def _write_long_memory(self) -> None:
        """Write a memory with long words and many tags. It is the oldest, so that the pictures of the newest do not have it."""
        content = _LONG_WORD * 3 + "x" * 300 + "\n" + "A second paragraph. " * 120
        tags = [f"tag-{number}" for number in range(12)]
        fields = self._make_memory(project="mobile", type="documentation", content=content, tags=tags)
        await self._send("POST", "/v1/brain/remember", fields)

    async def _write_special_memories(self) -> None:
        """Write memories that were superseded or archived, or that belong to one agent."""
        path = "/v1/brain/remember"
        old = await self._send("POST", path, self._make_memory(project="infra", type="fact", content="The staging cluster has two nodes."))
        text = "The staging cluster has three nodes since the move to the second rack."
        metadata = {"ticket": "INFRA-214", "checked": True}
        new = self._make_memory(project="infra", type="fact", content=text, tags=["cluster"], metadata=metadata, supersedes_id=old["id"])
        await self._send("POST", path, new)
        idea = self._make_memory(project="web", type="plan", content="Try a dark shop window for Halloween.", tags=["design"])
        archived = await self._send("POST", path, idea)
        await self._send("POST", f"/v1/brain/memories/{archived['id']}/archive")
        habit = self._make_memory(project="infra", type="context", content="I run the short suite before each commit.", scope="agent")
        await self._send("POST", path, {**habit, "agent_id": "claude-code"})

    async def _write_plans_and_templates(self) -> None:
        phases = [
            {"name": "First steps", "tasks": ["Read the notes", "Write the outline"]},
            {"name": "Review", "tasks": ["Ask two people"]},
        ]
        for title, status in (("Move the search index", "draft"), ("Passkeys in the app", "active"), ("Audit of the refunds", "active")):
            await self._send("POST", "/v1/plans", {"title": title, "status": status, "phases": phases})
        bug = {"summary": "Half sizes are missing", "component": "search", "severity": "high"}
        await self._send("POST", "/v1/templates/bug-fix/plans", {"variables": bug, "status": "active"})
        await self._send("POST", "/api/agent/content/templates", _COMPANY["template"])
        for product in ("Billing 4.2", "App 9.1", "Search 2.0"):
            self._services.model.queue.append(answer(f"{product} is out. It is faster, and its texts are shorter."))
            body = {"template": "release-note", "variables": {"product": product}, "mode": "sync"}
            await self._send("POST", "/api/agent/content/generations", body)
        self._services.model.queue.append(fail(401, "invalid key"))
        await self._send("POST", "/api/agent/content/generations", {"prompt": "This fails.", "mode": "sync"}, may_fail=True)
        requests = [{"prompt": f"Write a subject line for mail {number}."} for number in range(6)]
        await self._send("POST", "/api/agent/content/batches", {"requests": requests})

    async def _send_campaigns(self) -> None:
        for number, name in enumerate(cast("list[str]", _COMPANY["subscribers"])):
            url = self._services.broken.url if number in {3, 7} else self._services.receiver.url
            body: Json = {
                "external_id": f"customer-{1000 + number}",
                "tags": ["beta"] if number % 3 == 0 else ["customers"],
                "attributes": {"first_name": name},
                "channels": [{"type": "webhook", "url": url}],
            }
            await self._send("POST", "/api/agent/notify/subscribers", body)
        when = (self._clock.at + timedelta(days=3)).isoformat()
        for fields in _COMPANY["campaigns"]:
            action = fields["action"]
            campaign = {name: value for name, value in fields.items() if name != "action"} | {"url": "https://shop.example/sale"}
            created = await self._send("POST", "/api/agent/notify/campaigns", campaign)
            if action:
                path = f"/api/agent/notify/campaigns/{created['id']}/{action}"
                await self._send("POST", path, {"at": when} if action == "schedule" else None)

    async def _begin_work(self) -> None:
        """Start sessions and claim tasks that are still open at the end."""
        for agent, goal in (("codex", "Deploy the canary of billing 4.2"), ("cursor", "Find out why half sizes are missing in the search")):
            session = await self._start_session({"agent_type": agent, "agent_id": agent, "goal": goal})
            await self._add_event(session, "action", "Read the hand-off of claude-code.")
        for _ in range(2):
            await self._send("POST", "/v1/tasks/claim-next", {"ttl_s": 7200})


def _enumerate(name: str) -> list[tuple[int, Json]]:
    return list(enumerate(_COMPANY[name]))
