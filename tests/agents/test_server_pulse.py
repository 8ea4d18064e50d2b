"""Leases that end while no process of the server runs."""

from __future__ import annotations

import pytest

from rookery.agents.plans.server_pulse import ServerPulse
from tests.agents.makers import Json, claim_next, complete, get_json, make_plan, phase, tasks_of
from tests.agents.session_makers import get_session, start_session_id
from tests.conftest import FakeClock, Instance


@pytest.fixture
async def pulse(clocked_instance: Instance, clock: FakeClock) -> ServerPulse:
    """The pulse of the process, which beats in the time of the test."""
    pulse = clocked_instance.rookery.agents.pulse
    pulse.clock = clock
    await pulse.beat()
    return pulse


async def get_task(instance: Instance, task_id: object) -> Json:
    """Return a task."""
    return await get_json(instance.agent, f"/tasks/{task_id}")


@pytest.mark.usefixtures("pulse")
async def test_a_lease_that_ends_while_the_machine_sleeps_is_kept(clocked_instance: Instance, clock: FakeClock) -> None:
    """Eight nights with a closed lid cost no attempt. The first request after each may be that of another agent."""
    await make_plan(clocked_instance.agent, phase("A", "a"))
    other = await clocked_instance.agent_key()
    claimed_task = await claim_next(clocked_instance.agent, ttl_s=10)
    assert claimed_task is not None
    path = f"/api/agent/tasks/{claimed_task['id']}/heartbeat"
    for _ in range(8):
        clock.advance(hours=8)
        assert await claim_next(other, ttl_s=10) is None
        clock.advance(seconds=4)
        renewal = await clocked_instance.agent.post(path, {"claim_token": claimed_task["claim_token"], "ttl_s": 10})
        assert renewal.status_code == 200, renewal.text
    assert (await get_task(clocked_instance, claimed_task["id"]))["attempts"] == 0
    await complete(clocked_instance.agent, claimed_task)


async def test_a_lease_ends_if_its_holder_does_not_come_back(clocked_instance: Instance, clock: FakeClock, pulse: ServerPulse) -> None:
    """A minute after the gap; and a lease that had ended before the gap is not extended."""
    await make_plan(clocked_instance.agent, phase("A", "a", "b"))
    ended_before = await claim_next(clocked_instance.agent, ttl_s=10)
    assert ended_before is not None
    for _ in range(4):
        clock.advance(seconds=4)
        await pulse.beat()
    ended_within = await claim_next(clocked_instance.agent, ttl_s=10)
    assert ended_within is not None
    assert ended_within["id"] == ended_before["id"]
    clock.advance(hours=8)
    await pulse.beat()
    assert (await get_task(clocked_instance, ended_within["id"]))["status"] == "in_progress"
    for _ in range(15):
        clock.advance(seconds=4)
        await pulse.beat()
    assert (await get_task(clocked_instance, ended_within["id"]))["status"] == "pending"
    assert (await get_task(clocked_instance, ended_within["id"]))["attempts"] == 2


async def test_a_lease_ends_while_another_process_runs(clocked_instance: Instance, clock: FakeClock, pulse: ServerPulse) -> None:
    """Its holder could have renewed it there. After a gap of all processes, the first to wake extends it."""
    plan = await make_plan(clocked_instance.agent, phase("A", "a"))
    task_id = tasks_of(plan)["a"]["id"]
    other_process = ServerPulse(db=clocked_instance.rookery.db, clock=clock)
    await other_process.beat()
    assert await claim_next(clocked_instance.agent, ttl_s=10) is not None
    for _ in range(4):
        clock.advance(seconds=4)
        await other_process.beat()
    await pulse.beat()
    assert (await get_task(clocked_instance, task_id))["status"] == "pending"

    assert await claim_next(clocked_instance.agent, ttl_s=10) is not None
    clock.advance(hours=1)
    await other_process.beat()
    await pulse.beat()
    assert (await get_task(clocked_instance, task_id))["status"] == "in_progress"


async def test_a_lease_outlasts_a_restart(clocked_instance: Instance, clock: FakeClock, pulse: ServerPulse) -> None:
    """A server that was stopped for longer than a lease knows from the record store since when."""
    plan = await make_plan(clocked_instance.agent, phase("A", "a"))
    assert await claim_next(clocked_instance.agent, ttl_s=10) is not None
    await pulse.beat()
    clock.advance(minutes=20)
    restarted = ServerPulse(db=clocked_instance.rookery.db, clock=clock)
    await restarted.require_beat()
    assert (await get_task(clocked_instance, tasks_of(plan)["a"]["id"]))["status"] == "in_progress"


@pytest.mark.usefixtures("pulse")
async def test_no_session_is_abandoned_at_once_after_a_gap(clocked_instance: Instance, clock: FakeClock) -> None:
    """A machine that slept for a weekend; the agents slept too and go on."""
    session_id = await start_session_id(clocked_instance.agent)
    sweeper = clocked_instance.rookery.agents.sessions.sweeper
    clock.advance(hours=60)
    assert await sweeper.sweep() == (0, 0)
    assert (await get_session(clocked_instance.agent, session_id))["status"] == "active"
    for _ in range(16):
        clock.advance(seconds=4)
        await clocked_instance.rookery.agents.pulse.beat()
    assert await sweeper.sweep() == (1, 0)
