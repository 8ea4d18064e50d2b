"""The parts of the story about keys, their usage, and workspaces."""

from __future__ import annotations

from tests.conftest import eventually
from tests.reference.recording.recorder import Recorder

_API, _AGENT = "/api/v1/api-keys", "/api/v1/agent-keys"
_LATER = "2027-12-31T00:00:00Z"


async def play(recorder: Recorder) -> None:
    """Create keys, change, rotate and delete them."""
    admin, key_path = recorder.instance.admin, f"{_API}/{{key_id}}"
    new = {"name": "The build server", "preset": "reader", "rate_limit_tier": "pro", "expires_at": _LATER}
    created = await recorder.send(admin, f"POST {_API}", new)
    reader = recorder.instance.caller(str(created["plaintext_key"]))
    await reader.get("/v1/brain/tags")
    await recorder.send(admin, f"GET {_API}", query={"per_page": 20})
    await recorder.send(admin, f"GET {key_path}", key_id=created["id"])
    await recorder.send(admin, f"PATCH {key_path}", {"name": "The build server in Oslo", "orgs": ["acme"]}, key_id=created["id"])
    await recorder.send(admin, f"POST {key_path}/suspend", key_id=created["id"])
    await recorder.send(admin, f"POST {key_path}/resume", key_id=created["id"])
    await recorder.send(admin, f"POST {key_path}/rotate", {"grace_period_hours": 24}, key_id=created["id"])
    await _read_usage(recorder, f"{key_path}/usage", created["id"])
    await recorder.send(admin, f"GET {_API}/usage", query={"by": "day"})
    await recorder.send(admin, f"DELETE {key_path}", key_id=created["id"])
    await recorder.send(admin, "GET /api/v1/whoami")
    await recorder.send(admin, "GET /api/v1/rate-limit")
    await recorder.send(recorder.instance.agent, "GET /api/agent/rate-limit")
    await recorder.send(admin, "GET /api/v1/audit", query={"action": "api_key.created", "per_page": 20})


async def _read_usage(recorder: Recorder, path: str, key_id: object) -> None:
    """Read the usage of a key, which is written shortly after the calls."""

    async def is_written() -> bool:
        response = await recorder.instance.admin.get(path.replace("{key_id}", str(key_id)))
        return response.json()["data"] != []

    await eventually(is_written)
    await recorder.send(recorder.instance.admin, f"GET {path}", query={"per_page": 20}, key_id=key_id)


async def agents(recorder: Recorder) -> None:
    """Do the same with agent keys, which have permissions and IP lists."""
    admin, key_path = recorder.instance.admin, f"{_AGENT}/{{key_id}}"
    new = {"name": "Kim, who reviews", "preset": "agent", "agent_id": "kim", "rate_limit": 120, "orgs": ["acme"]}
    created = await recorder.send(admin, f"POST {_AGENT}", new)
    key = created["id"]
    await recorder.instance.caller(str(created["key"])).get("/v1/brain/tags?org=acme")
    await recorder.send(admin, f"GET {_AGENT}", query={"per_page": 20})
    await recorder.send(admin, f"GET {key_path}", key_id=key)
    await recorder.send(admin, f"PATCH {key_path}", {"tool_limits": {"library/find_book": 30}}, key_id=key)
    await recorder.send(admin, f"GET {key_path}/permissions", query={"has": "brain:read"}, key_id=key)
    await recorder.send(admin, f"PUT {key_path}/permissions", {"permissions": ["brain:read", "brain:write", "mcp:*"]}, key_id=key)
    await recorder.send(admin, f"PUT {key_path}/ips", {"ips": ["192.0.2.0/24"], "ip_restriction": False}, key_id=key)
    await recorder.send(admin, f"POST {key_path}/ips", {"ips": ["2001:db8::17"]}, key_id=key)
    await recorder.send(admin, f"DELETE {key_path}/ips", {"ips": ["2001:db8::17"]}, key_id=key)
    await recorder.send(admin, f"GET {key_path}/ips", key_id=key)
    await recorder.send(admin, f"POST {key_path}/extend", {"expires_at": _LATER}, key_id=key)
    await recorder.send(admin, f"POST {key_path}/suspend", key_id=key)
    await recorder.send(admin, f"POST {key_path}/resume", key_id=key)
    await recorder.send(admin, f"POST {key_path}/rotate", {"grace_period_hours": 24}, key_id=key)
    await _read_usage(recorder, f"{key_path}/usage", key)
    await recorder.send(admin, f"GET {_AGENT}/usage", query={"by": "day"})
    await recorder.send(admin, f"POST {key_path}/revoke", key_id=key)
    await recorder.send(admin, f"DELETE {key_path}", key_id=key)


async def workspaces(recorder: Recorder) -> None:
    """Create a workspace for another team, and delete it again."""
    operator = await recorder.instance.api_key("*", "platform:workspaces", "platform:metrics")
    created = await recorder.send(operator, "POST /api/v1/workspaces", {"name": "The other team"})
    key_path = "/api/v1/workspaces/{workspace_id}"
    await recorder.send(operator, "GET /api/v1/workspaces", query={"per_page": 20})
    await recorder.send(operator, f"GET {key_path}", workspace_id=created["workspace_id"])
    await recorder.send(operator, f"PATCH {key_path}", {"name": "The team of the shop"}, workspace_id=created["workspace_id"])
    first = {"name": "Their first key", "scopes": ["*"]}
    await recorder.send(operator, f"POST {key_path}/api-keys", first, workspace_id=created["workspace_id"])
    await recorder.send(operator, f"DELETE {key_path}", query={"dry_run": "true"}, workspace_id=created["workspace_id"])
    await recorder.send(operator, "GET /metrics")
