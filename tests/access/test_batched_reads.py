"""Lists that are read in batches, on each dialect: keys, calls, and what each chain of the audit log ends with (D-29)."""

from __future__ import annotations

from datetime import timedelta

from rookery.access.audit_log import GENESIS_HASH
from rookery.access.key_fields import NewAgentKey
from rookery.access.models import CallFilter
from tests.access.makers import OPERATOR, Access


async def test_all_keys_are_listed_newest_first_each_once(access: Access) -> None:
    """D-29: more than a batch, of one workspace alone."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new = [NewAgentKey(name=f"key {number}", permissions=("brain:read",)) for number in range(1_001)]
    made = await access.agent_keys.create_many(workspace, new, by=OPERATOR)
    await access.create_agent_key(other)

    found = [entry.key.id async for entry in access.agent_keys.iter_keys(workspace)]
    assert found == sorted((each.key.id for each in made), reverse=True)
    assert [entry.key.id async for entry in access.api_keys.iter_keys(workspace)] == []
    assert [entry async for entry in access.agent_keys.iter_keys(workspace, environment="test")] == []


async def test_all_calls_are_listed_newest_first_each_once(access: Access) -> None:
    """D-29: more than a batch, many of them of one moment; those asked for alone."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1_000_000))
    for moment, times in ((0, 3), (1, 4_100), (2, 1)):
        for number in range(times):
            row = (minted.key.id, workspace, 1_790_000_000_000_000 + moment, "GET", f"/{number}", 200 + number % 2, 1.0, "192.0.2.1", "r")
            access.usage.log_request(row)

    found = [call async for call in access.usage.iter_calls(workspace, minted.key.id, CallFilter())]
    assert len(found) == len({(each.at, each.route) for each in found}) == 4_104
    assert [each.at for each in found] == sorted((each.at for each in found), reverse=True)
    odd = [each async for each in access.usage.iter_calls(workspace, minted.key.id, CallFilter(status=201, until=found[0].at))]
    assert [each for each in found[1:] if each.status == 201] == odd
    since = found[0].at - timedelta(microseconds=1)
    assert len([each async for each in access.usage.iter_calls(workspace, minted.key.id, CallFilter(since=since))]) == 4_101
    assert [each async for each in access.usage.iter_calls(workspace + 1, minted.key.id, CallFilter())] == []


async def test_chains_that_nobody_touched_have_no_loose_end(access: Access) -> None:
    """D-29: the quick check, and the whole one, of each chain; an empty chain is whole and ends with the first hash."""
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
