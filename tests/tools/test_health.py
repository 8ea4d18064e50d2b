"""Health events are sent exactly to the workspaces whose view has changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.tools.models import HealthStatus, Server
from rookery.tools.supervision.health import HealthTracker
from tests.conftest import FakeClock
from tests.tools.makers import make_http_server

WORKSPACE_IDS = (1, 2, 3)
"""Workspaces that watch the health; the third never has a session of its own."""


@given(st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from(list(HealthStatus))), max_size=12))
def test_the_health_events_of_a_workspace_match_its_view_without_repeats(reports: list[tuple[int | None, HealthStatus]]) -> None:
    """A session of one workspace, or a shared one, failed or recovered; each workspace has its own view."""
    tracker, server = HealthTracker(FakeClock()), _server()
    last_health = dict.fromkeys(WORKSPACE_IDS, HealthStatus.UNKNOWN)

    for workspace_id, health in reports:
        for change in tracker.record(server, workspace_id, health, "", overall=health):
            for viewer in WORKSPACE_IDS:
                if change.workspace_id in {None, viewer} and viewer not in change.except_workspaces:
                    assert last_health[viewer] is not health
                    last_health[viewer] = health
        assert last_health == {viewer: tracker.get_state(server, viewer).health for viewer in WORKSPACE_IDS}


def _server() -> Server:
    return make_http_server("http://127.0.0.1:9/mcp")
