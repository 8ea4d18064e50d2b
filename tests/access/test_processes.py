"""Several processes on one store: what one changes, all obey at once, and what they spend adds up exactly (D-20, D-27)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import Tier
from tests.access.makers import Access
from tests.access.worker import Worker, run_workers
from tests.conftest import OPERATOR, lend_model
from tests.processes import run_server

pytestmark = pytest.mark.timeout(120)


async def test_a_change_acts_on_the_next_request_of_another_process(access: Access, data_dir: Path, database_url: str) -> None:
    """D-20, D-21, D-26: scopes, rotation, suspension, expiry, address lists, revoking, deleting; no cache holds anything back."""
    workspace, clock = await access.create_workspace(), access.clock
    api = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("brain:read",)))
    agent = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",)))
    api_token, agent_token = api.plaintext.reveal(), agent.plaintext.reveal()

    with run_workers(1, data_dir, database_url) as (there,):

        def admitted(token: str, needs: str | None = "brain:read", address: str = "192.0.2.1") -> str:
            return there.admit(token, at=clock(), needs=needs, address=address)

        assert (admitted(api_token), admitted(agent_token)) == ("ok", "ok")
        for ring, key_id, token, lacking in (
            (access.api_keys, api.key.id, api_token, "scope_missing"),
            (access.agent_keys, agent.key.id, agent_token, "permission_denied"),
        ):
            await ring.update(workspace, key_id, KeyChanges(grants=("brain:write",)), by=OPERATOR)
            assert (admitted(token), admitted(token, "brain:write")) == (lacking, "ok")
            await ring.update(workspace, key_id, KeyChanges(grants=("brain:read",)), by=OPERATOR)
            await ring.suspend(workspace, key_id, by=OPERATOR)
            assert admitted(token) == "key_revoked"
            await ring.resume(workspace, key_id, by=OPERATOR)
            assert admitted(token) == "ok"
            await ring.update(workspace, key_id, KeyChanges(expires_at=clock() + timedelta(minutes=1)), by=OPERATOR)
            assert admitted(token) == "ok"
            clock.advance(minutes=1)
            assert admitted(token) == "key_expired"
            await ring.update(workspace, key_id, KeyChanges(expires_at=None), by=OPERATOR)
            assert admitted(token) == "ok"

        await access.agent_keys.set_addresses(workspace, agent.key.id, ["192.0.2.0/24"], is_enforced=True, by=OPERATOR)
        assert (admitted(agent_token), admitted(agent_token, address="203.0.113.9")) == ("ok", "ip_not_allowed")
        await access.agent_keys.set_addresses(workspace, agent.key.id, ["203.0.113.9"], by=OPERATOR)
        assert (admitted(agent_token), admitted(agent_token, address="203.0.113.9")) == ("ip_not_allowed", "ok")
        await access.agent_keys.set_enforcement(workspace, agent.key.id, is_enforced=False, by=OPERATOR)

        new_api = await access.api_keys.rotate(workspace, api.key.id, grace_hours=1, by=OPERATOR)
        new_agent = await access.agent_keys.rotate(workspace, agent.key.id, grace_hours=1, by=OPERATOR)
        tokens = [api_token, agent_token, new_api.plaintext.reveal(), new_agent.plaintext.reveal()]
        assert [admitted(token) for token in tokens] == ["ok"] * 4
        clock.advance(hours=1)
        assert [admitted(token) for token in tokens] == ["unauthorised"] * 2 + ["ok"] * 2
        await access.agent_keys.revoke(workspace, new_agent.key.id, by=OPERATOR)
        assert admitted(tokens[3]) == "key_revoked"
        await access.api_keys.delete(workspace, new_api.key.id, by=OPERATOR)
        assert admitted(tokens[2]) == "unauthorised"


async def test_exactly_the_limit_passes_in_several_processes(access: Access, data_dir: Path, database_url: str) -> None:
    """D-27: of both kinds of key; three processes at once, and a fourth that comes when one was killed in between."""
    workspace, clock = await access.create_workspace(), access.clock
    api = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), tier=Tier.FREE))
    agent = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("*",), rate_limit=600))
    limits = {api.plaintext.reveal(): (1_000, timedelta(hours=1)), agent.plaintext.reveal(): (600, timedelta(minutes=1))}
    began = clock()

    with run_workers(3, data_dir, database_url) as three:
        for token in limits:
            assert spent(three, token, began, times=30) == {"ok": 450}
        three[0].kill()
        with run_workers(1, data_dir, database_url) as (fourth,):
            for token, (limit, window) in limits.items():
                later = spent([*three[1:], fourth], token, began + timedelta(seconds=30), times=45)
                assert later == {"ok": limit - 450, "rate_limited": 675 - (limit - 450)}, "a restart neither resets nor spends twice"
                assert spent([fourth], token, began + window - timedelta(microseconds=1), times=1) == {"rate_limited": 5}
                assert spent([fourth, *three[1:]], token, began + window, times=1) == {"ok": 15}


def spent(of: list[Worker], token: str, at: datetime, *, times: int) -> Counter[str]:
    """Return the outcomes of presenting the token *times* times, five at once, in all processes."""
    for worker in of:
        worker.send_request(*[token] * 5, at=at, times=times)
    total = Counter[str]()
    for answer in [worker.read_response() for worker in of]:
        total.update(answer["outcomes"])
    return total


async def test_each_process_proves_a_key_once(access: Access, data_dir: Path, database_url: str) -> None:
    """D-20: one run of bcrypt for all requests at once in each process, and none after; unknown keys cost none."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()
    with run_workers(2, data_dir, database_url) as two:
        for _ in range(2):
            assert spent(two, token, access.clock(), times=20) == {"ok": 200}
        assert spent(two, "sk_live_" + "x" * 32, access.clock(), times=20) == {"unauthorised": 200}
        two[0].send_request(token, at=access.clock())
        assert two[0].read_response()["runs"] == 1


def test_two_servers_on_one_folder_are_one(tmp_path: Path, model_folder: Path) -> None:
    """D-01, D-20, D-27: as users run them: exactly the limit passes, also across a restart; what one changes the other obeys."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    with run_server(folder) as one:
        made = one.client.post("/api/v1/agent-keys", json={"name": "limited", "permissions": ["brain:read"]}).json()
        free = one.client.post("/api/v1/api-keys", json={"name": "f", "scopes": ["brain:read"], "rate_limit_tier": "free"}).json()
        agent, api = ({"Authorization": f"Bearer {key}"} for key in (made["key"], free["plaintext_key"]))

        def ask(url: str, headers: dict[str, str], times: int) -> Counter[int]:
            with httpx2.Client(base_url=url, headers=headers, timeout=30) as client:
                return Counter(client.get("/v1/brain/tags").status_code for _ in range(times))

        with run_server(folder) as two:
            assert ask(one.url, api, 300) + ask(two.url, api, 300) == {200: 600}
            assert ask(two.url, agent, 1) == {200: 1}
        with run_server(folder) as two:
            assert ask(two.url, api, 500) == {200: 400, 429: 100}
            assert ask(one.url, api, 1) == {429: 1}

            one.client.patch(f"/api/v1/api-keys/{free['id']}", json={"scopes": ["mcp:read"]}).raise_for_status()
            assert ask(two.url, api, 1) == {403: 1}
            one.client.post(f"/api/v1/agent-keys/{made['id']}/revoke").raise_for_status()
            refused = httpx2.get(f"{two.url}/v1/brain/tags", headers=agent, timeout=30)
            assert (refused.status_code, refused.json()["error"]) == (401, "key_revoked")
