"""Lists that are read in batches, on each dialect: keys, calls and the ends of the audit chains."""

from __future__ import annotations

from datetime import timedelta

from rookery.access.audit_log import GENESIS_HASH
from rookery.access.key_fields import NewAgentKey
from rookery.access.keyring import Keyring
from rookery.access.models import CallFilter, Environment, KeyWithUsage
from rookery.kernel.pages import collect_items
from tests.access.makers import OPERATOR, Access


async def _list_all(keys: Keyring, workspace: int, environment: Environment | None = None) -> list[KeyWithUsage]:
    return await collect_items(lambda page: keys.list_page(workspace, page=page, environment=environment), page_size=100)


async def test_all_keys_are_listed_newest_first_each_once(access: Access) -> None:
    """More keys than a page has, of one workspace only."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    requests = [NewAgentKey(name=f"key {number}", permissions=("brain:read",)) for number in range(1_001)]
    new_keys = await access.agent_keys.create_many(workspace, requests, by=OPERATOR)
    await access.create_agent_key(other)

    listed = [entry.key.id for entry in await _list_all(access.agent_keys, workspace)]
    assert listed == sorted((new_key.key.id for new_key in new_keys), reverse=True)
    assert await _list_all(access.api_keys, workspace) == []
    assert await _list_all(access.agent_keys, workspace, "test") == []


async def test_all_calls_are_listed_newest_first_each_once(access: Access) -> None:
    """More calls than a batch has, many of them at the same time; filtered."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1_000_000))
    for moment, times in ((0, 3), (1, 4_100), (2, 1)):
        for number in range(times):
            row = (
                new_key.key.id,
                workspace,
                1_790_000_000_000_000 + moment,
                "GET",
                f"/{number}",
                200 + number % 2,
                1.0,
                0,
                "192.0.2.1",
                "r",
            )
            access.usage.log_request(row)

    calls = [call async for call in access.usage.iter_calls(workspace, new_key.key.id, CallFilter())]
    assert len(calls) == len({(call.at, call.route) for call in calls}) == 4_104
    assert [call.at for call in calls] == sorted((call.at for call in calls), reverse=True)
    with_status_201 = [call async for call in access.usage.iter_calls(workspace, new_key.key.id, CallFilter(status=201, until=calls[0].at))]
    assert [call for call in calls[1:] if call.status == 201] == with_status_201
    since = calls[0].at - timedelta(microseconds=1)
    assert len([call async for call in access.usage.iter_calls(workspace, new_key.key.id, CallFilter(since=since))]) == 4_101
    assert [call async for call in access.usage.iter_calls(workspace + 1, new_key.key.id, CallFilter())] == []


async def test_unchanged_chains_have_no_broken_end(access: Access) -> None:
    """The quick check and the complete one, of each chain; an empty chain is intact and ends with the genesis hash."""
    workspace = await access.create_workspace()
    await access.create_agent_key(workspace)

    assert await access.audit.list_broken_ends() == []
    for end in await access.audit.list_chain_ends():
        verdict = await access.audit.verify(end.workspace_id, known_hashes=[end.hash, GENESIS_HASH])
        assert (verdict.broken_at, verdict.entry_count, verdict.last_hash, verdict.found_hashes) == (
            None,
            end.seq,
            end.hash,
            {end.hash, GENESIS_HASH},
        )
    assert (await access.audit.verify(9)).last_hash == GENESIS_HASH
