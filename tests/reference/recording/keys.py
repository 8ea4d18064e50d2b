"""The parts of the story about keys, workspaces and what was done with them."""

from __future__ import annotations

from tests.conftest import eventually
from tests.reference.recording.recorder import Recorder

_API, _AGENT = "/api/v1/api-keys", "/api/v1/agent-keys"
_LATER = "2027-12-31T00:00:00Z"


async def play(tape: Recorder) -> None:
    """Make keys, change and replace them, and take them away."""
    admin, one = tape.instance.admin, f"{_API}/{{key_id}}"
    new = {"name": "The build server", "preset": "reader", "rate_limit_tier": "pro", "expires_at": _LATER}
    made = await tape.send(admin, f"POST {_API}", new)
    used = tape.instance.caller(str(made["plaintext_key"]))
    await used.get("/v1/brain/tags")
    await tape.send(admin, f"GET {_API}", query={"per_page": 20})
    await tape.send(admin, f"GET {one}", key_id=made["id"])
    await tape.send(admin, f"PATCH {one}", {"name": "The build server in Oslo", "orgs": ["acme"]}, key_id=made["id"])
    await tape.send(admin, f"POST {one}/suspend", key_id=made["id"])
    await tape.send(admin, f"POST {one}/resume", key_id=made["id"])
    await tape.send(admin, f"POST {one}/rotate", {"grace_period_hours": 24}, key_id=made["id"])
    await _used(tape, f"{one}/usage", made["id"])
    await tape.send(admin, f"GET {_API}/usage", query={"by": "day"})
    await tape.send(admin, f"DELETE {one}", key_id=made["id"])
    await tape.send(admin, "GET /api/v1/whoami")
    await tape.send(admin, "GET /api/v1/rate-limit")
    await tape.send(tape.instance.agent, "GET /api/agent/rate-limit")
    await tape.send(admin, "GET /api/v1/audit", query={"action": "api_key.created", "per_page": 20})


async def _used(tape: Recorder, path: str, key_id: object) -> None:
    """Ask what a key was used for; that is written down a moment after."""

    async def is_written() -> bool:
        answer = await tape.instance.admin.get(path.replace("{key_id}", str(key_id)))
        return answer.json()["data"] != []

    await eventually(is_written)
    await tape.send(tape.instance.admin, f"GET {path}", query={"per_page": 20}, key_id=key_id)


async def agents(tape: Recorder) -> None:
    """The same with the keys of agents, which have permissions and addresses of their own."""
    admin, one = tape.instance.admin, f"{_AGENT}/{{key_id}}"
    new = {"name": "Kim, who reviews", "preset": "agent", "agent_id": "kim", "rate_limit": 120, "orgs": ["acme"]}
    made = await tape.send(admin, f"POST {_AGENT}", new)
    key = made["id"]
    await tape.instance.caller(str(made["key"])).get("/v1/brain/tags?org=acme")
    await tape.send(admin, f"GET {_AGENT}", query={"per_page": 20})
    await tape.send(admin, f"GET {one}", key_id=key)
    await tape.send(admin, f"PATCH {one}", {"tool_limits": {"library/find_book": 30}}, key_id=key)
    await tape.send(admin, f"GET {one}/permissions", query={"has": "brain:read"}, key_id=key)
    await tape.send(admin, f"PUT {one}/permissions", {"permissions": ["brain:read", "brain:write", "mcp:*"]}, key_id=key)
    await tape.send(admin, f"PUT {one}/ips", {"ips": ["192.0.2.0/24"], "ip_restriction": False}, key_id=key)
    await tape.send(admin, f"POST {one}/ips", {"ips": ["2001:db8::17"]}, key_id=key)
    await tape.send(admin, f"DELETE {one}/ips", {"ips": ["2001:db8::17"]}, key_id=key)
    await tape.send(admin, f"GET {one}/ips", key_id=key)
    await tape.send(admin, f"POST {one}/extend", {"expires_at": _LATER}, key_id=key)
    await tape.send(admin, f"POST {one}/suspend", key_id=key)
    await tape.send(admin, f"POST {one}/resume", key_id=key)
    await tape.send(admin, f"POST {one}/rotate", {"grace_period_hours": 24}, key_id=key)
    await _used(tape, f"{one}/usage", key)
    await tape.send(admin, f"GET {_AGENT}/usage", query={"by": "day"})
    await tape.send(admin, f"POST {one}/revoke", key_id=key)
    await tape.send(admin, f"DELETE {one}", key_id=key)


async def workspaces(tape: Recorder) -> None:
    """Make a workspace for another team, and remove it again."""
    operator = await tape.instance.api_key("*", "platform:workspaces", "platform:metrics")
    made = await tape.send(operator, "POST /api/v1/workspaces", {"name": "The other team"})
    one = "/api/v1/workspaces/{workspace_id}"
    await tape.send(operator, "GET /api/v1/workspaces", query={"per_page": 20})
    await tape.send(operator, f"GET {one}", workspace_id=made["workspace_id"])
    await tape.send(operator, f"PATCH {one}", {"name": "The team of the shop"}, workspace_id=made["workspace_id"])
    first = {"name": "Their first key", "scopes": ["*"]}
    await tape.send(operator, f"POST {one}/api-keys", first, workspace_id=made["workspace_id"])
    await tape.send(operator, f"DELETE {one}", query={"dry_run": "true"}, workspace_id=made["workspace_id"])
    await tape.send(operator, "GET /metrics")
