"""Health events are sent exactly to the workspaces whose view has changed (D-32, D-33)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.tools.models import HealthStatus, Server
from rookery.tools.supervision.health import HealthTracker
from tests.conftest import FakeClock
from tests.tools.makers import make_http_server

_SEEING = (1, 2, 3)
"""Workspaces that look; the third never has a session of its own."""


@given(st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from(list(HealthStatus))), max_size=12))
def test_who_hears_every_turn_knows_what_is_shown_and_hears_nothing_twice(notes: list[tuple[int | None, HealthStatus]]) -> None:
    """D-33: a session of one workspace, or a shared one, failed or recovered; each workspace has its own view."""
    conditions, server = HealthTracker(FakeClock()), _server()
    known = dict.fromkeys(_SEEING, HealthStatus.UNKNOWN)

    for workspace_id, health in notes:
        for turn in conditions.record(server, workspace_id, health, "", overall=health):
            for each in _SEEING:
                if turn.workspace_id in {None, each} and each not in turn.except_workspaces:
                    assert known[each] is not health
                    known[each] = health
        assert known == {each: conditions.get_state(server, each).health for each in _SEEING}


def _server() -> Server:
    return make_http_server("http://127.0.0.1:9/mcp")
