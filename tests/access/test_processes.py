"""Several processes on one store: a change takes effect in all at once, and limits are shared exactly."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import Tier
from tests.access.makers import Access
from tests.access.worker import Worker, run_workers
from tests.conftest import OPERATOR, lend_model
from tests.deadlines import HANG_S
from tests.processes import run_server


async def test_a_change_takes_effect_in_another_process_with_the_next_request(access: Access, data_dir: Path, database_url: str) -> None:
    """Scopes, rotation, suspension, expiry, address lists, revoking, deleting. No cache delays a change."""
    workspace, clock = await access.create_workspace(), access.clock
    api = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("brain:read",)))
    agent = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",)))
    api_token, agent_token = api.plaintext.reveal(), agent.plaintext.reveal()

    with run_workers(1, data_dir, database_url) as (worker,):

        def outcome(token: str, required_scope: str | None = "brain:read", address: str = "192.0.2.1") -> str:
            return worker.admit(token, at=clock(), required_scope=required_scope, address=address)

        assert (outcome(api_token), outcome(agent_token)) == ("ok", "ok")
        for keyring, key_id, token, missing_error in (
            (access.api_keys, api.key.id, api_token, "scope_missing"),
            (access.agent_keys, agent.key.id, agent_token, "permission_denied"),
        ):
            await keyring.update(workspace, key_id, KeyChanges(scopes=("brain:write",)), by=OPERATOR)
            assert (outcome(token), outcome(token, "brain:write")) == (missing_error, "ok")
            await keyring.update(workspace, key_id, KeyChanges(scopes=("brain:read",)), by=OPERATOR)
            await keyring.suspend(workspace, key_id, by=OPERATOR)
            assert outcome(token) == "key_revoked"
            await keyring.resume(workspace, key_id, by=OPERATOR)
            assert outcome(token) == "ok"
            await keyring.update(workspace, key_id, KeyChanges(expires_at=clock() + timedelta(minutes=1)), by=OPERATOR)
            assert outcome(token) == "ok"
            clock.advance(minutes=1)
            assert outcome(token) == "key_expired"
            await keyring.update(workspace, key_id, KeyChanges(expires_at=None), by=OPERATOR)
            assert outcome(token) == "ok"

        await access.agent_keys.set_addresses(workspace, agent.key.id, ["192.0.2.0/24"], is_enforced=True, by=OPERATOR)
        assert (outcome(agent_token), outcome(agent_token, address="203.0.113.9")) == ("ok", "ip_not_allowed")
        await access.agent_keys.set_addresses(workspace, agent.key.id, ["203.0.113.9"], by=OPERATOR)
        assert (outcome(agent_token), outcome(agent_token, address="203.0.113.9")) == ("ip_not_allowed", "ok")
        await access.agent_keys.set_enforcement(workspace, agent.key.id, is_enforced=False, by=OPERATOR)

        new_api = await access.api_keys.rotate(workspace, api.key.id, grace_hours=1, by=OPERATOR)
        new_agent = await access.agent_keys.rotate(workspace, agent.key.id, grace_hours=1, by=OPERATOR)
        tokens = [api_token, agent_token, new_api.plaintext.reveal(), new_agent.plaintext.reveal()]
        assert [outcome(token) for token in tokens] == ["ok"] * 4
        clock.advance(hours=1)
        assert [outcome(token) for token in tokens] == ["unauthorised"] * 2 + ["ok"] * 2
        await access.agent_keys.revoke(workspace, new_agent.key.id, by=OPERATOR)
        assert outcome(tokens[3]) == "key_revoked"
        await access.api_keys.delete(workspace, new_api.key.id, by=OPERATOR)
        assert outcome(tokens[2]) == "unauthorised"


async def test_several_processes_admit_exactly_the_limit(access: Access, data_dir: Path, database_url: str) -> None:
    """For both kinds of key; three processes at once, and a fourth after one was killed."""
    workspace = await access.create_workspace()
    api = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), rate_limit_tier=Tier.FREE))
    agent = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("*",), rate_limit=600))
    limits = {api.plaintext.reveal(): (1_000, timedelta(hours=1)), agent.plaintext.reveal(): (600, timedelta(minutes=1))}
    start = datetime.now(UTC)  # a counter that is opened drops rows of more than 48 real hours ago

    with run_workers(3, data_dir, database_url) as workers:
        for token in limits:
            assert count_outcomes(workers, token, start, times=30) == {"ok": 450}
        workers[0].kill()
        with run_workers(1, data_dir, database_url) as (fourth,):
            for token, (limit, window) in limits.items():
                outcomes = count_outcomes([*workers[1:], fourth], token, start + timedelta(seconds=30), times=45)
                assert outcomes == {"ok": limit - 450, "rate_limited": 675 - (limit - 450)}, (
                    "a restart neither resets the count nor counts twice"
                )
                assert count_outcomes([fourth], token, start + window - timedelta(microseconds=1), times=1) == {"rate_limited": 5}
                assert count_outcomes([fourth, *workers[1:]], token, start + window, times=1) == {"ok": 15}


def count_outcomes(workers: list[Worker], token: str, at: datetime, *, times: int) -> Counter[str]:
    """Return the count of each outcome after presenting the token *times* times, five at once, in all processes."""
    for worker in workers:
        worker.send_request(*[token] * 5, at=at, times=times)
    total = Counter[str]()
    for response in [worker.read_response() for worker in workers]:
        total.update(response["outcomes"])
    return total


async def test_each_process_verifies_a_key_once(access: Access, data_dir: Path, database_url: str) -> None:
    """Each process runs bcrypt once for all concurrent requests, and then no more. Unknown keys run none."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()
    with run_workers(2, data_dir, database_url) as workers:
        for _ in range(2):
            assert count_outcomes(workers, token, access.clock(), times=20) == {"ok": 200}
        assert count_outcomes(workers, "sk_live_" + "x" * 32, access.clock(), times=20) == {"unauthorised": 200}
        workers[0].send_request(token, at=access.clock())
        assert workers[0].read_response()["runs"] == 1


def test_two_servers_on_one_folder_share_limits_and_changes(tmp_path: Path, model_folder: Path) -> None:
    """With real servers: exactly the limit is admitted, also across a restart, and changes take effect in both."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    with run_server(folder) as first:
        agent_key = first.client.post("/api/v1/agent-keys", json={"name": "limited", "permissions": ["brain:read"]}).json()
        free_key = first.client.post("/api/v1/api-keys", json={"name": "f", "scopes": ["brain:read"], "rate_limit_tier": "free"}).json()
        agent, api = ({"Authorization": f"Bearer {key}"} for key in (agent_key["key"], free_key["plaintext_key"]))

        def count_statuses(url: str, headers: dict[str, str], times: int) -> Counter[int]:
            with httpx2.Client(base_url=url, headers=headers, timeout=HANG_S) as client:
                return Counter(client.get("/v1/brain/tags").status_code for _ in range(times))

        with run_server(folder) as second:
            assert count_statuses(first.url, api, 300) + count_statuses(second.url, api, 300) == {200: 600}
            assert count_statuses(second.url, agent, 1) == {200: 1}
        with run_server(folder) as second:
            assert count_statuses(second.url, api, 500) == {200: 400, 429: 100}
            assert count_statuses(first.url, api, 1) == {429: 1}

            first.client.patch(f"/api/v1/api-keys/{free_key['id']}", json={"scopes": ["mcp:read"]}).raise_for_status()
            assert count_statuses(second.url, api, 1) == {403: 1}
            first.client.post(f"/api/v1/agent-keys/{agent_key['id']}/revoke").raise_for_status()
            response = httpx2.get(f"{second.url}/v1/brain/tags", headers=agent, timeout=HANG_S)
            assert (response.status_code, response.json()["error"]) == (401, "key_revoked")
